"""Random views: what a configuration says of them is what draws them."""

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from pujax import augment
from pujax.methods._common import views

KEY = jax.random.key(0)
IMAGES = jnp.zeros([2, 4, 4, 3], jnp.uint8)
# Each has a value of its own, which no default is: a field in another's place would show.
FIELDS = {
    "brightness": 0.11,
    "contrast": 0.12,
    "saturation": 0.13,
    "hue": 0.14,
    "jitter_probability": 0.15,
    "grayscale_probability": 0.16,
    "blur_probability": 0.17,
    "solarize_probability": 0.18,
}


def section(**changes):
    return ml_collections.ConfigDict(views.default_config(**changes))


@pytest.mark.parametrize("flip", [True, False])
def test_a_view_is_drawn_as_all_fields_say(monkeypatch, flip):
    monkeypatch.setattr(augment, "contrastive_view", lambda *given, **named: (given, named))
    config = section(flip=flip, crop_area=0.19, **FIELDS)
    assert set(config) == {*FIELDS, "augment", "flip", "crop_area", "corruption"}
    (key, images), named = views.random_view(KEY, IMAGES, config, size=3)
    assert key is KEY and images is IMAGES
    assert named == FIELDS | {"flip": flip, "area": (0.19, 1.0), "size": 3}


@pytest.mark.parametrize(("size", "side"), [(3, 3), (0, None)])
def test_a_weak_view_is_cropped_and_mirrored_as_the_fields_say(monkeypatch, size, side):
    crops = []

    def crop(key, images, **named):
        crops.append(named)
        return images

    monkeypatch.setattr(augment, "random_resized_crop", crop)
    monkeypatch.setattr(augment, "random_flip", lambda key, images: images + 1)
    for flip in (True, False):
        view = views.cropped(KEY, IMAGES, section(flip=flip, crop_area=0.19), size=size)
        np.testing.assert_array_equal(view, IMAGES + int(flip))
    assert crops == 2 * [{"height": side, "width": side, "area": (0.19, 1.0)}]


def test_rows_lose_as_large_a_share_as_the_field_says():
    rows = np.arange(40_000, dtype=np.float32).reshape(1000, 40)
    view = views.random_view(KEY, rows, section(corruption=0.25))
    # Of 40,000 draws, of which one in a thousand takes the row's own number: 0.0022 is one sigma.
    assert np.mean(np.asarray(view) != rows) == pytest.approx(0.25, abs=0.01)
    np.testing.assert_array_equal(views.cropped(KEY, rows, section()), rows)
