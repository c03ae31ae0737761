"""The view of contrastive pretraining: what it is made of, what is drawn, what it may depend on."""

import inspect
import math
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pujax import augment
from pujax.augment import blur, colors, contrastive_views, crops, jitter, views
from tests import augment_images
from tests.x64 import x64

KEY = jax.random.key(0)
IMAGES = augment_images.smooth(16, 16, 12, 3)
EVERY_STEP = partial(augment.contrastive_view, blur_probability=0.5, solarize_probability=0.2)
jit_flip = jax.jit(augment.random_flip)
RANDOM_VIEWS = {
    "random_resized_crop": jax.jit(augment.random_resized_crop),
    "color_jitter": jax.jit(augment.color_jitter),
    "random_grayscale": jax.jit(augment.random_grayscale),
    "random_blur": jax.jit(augment.random_blur),
    "random_solarize": jax.jit(augment.random_solarize),
    "contrastive_view": jax.jit(augment.contrastive_view),
    "contrastive_view, all steps": jax.jit(EVERY_STEP),
    "contrastive_view, larger": jax.jit(partial(augment.contrastive_view, size=20)),
}
# The first draw of these four is whether to do anything at all.
YES_OR_NO = ("random_grayscale", "random_blur", "random_solarize")
every_view = pytest.mark.parametrize("name", RANDOM_VIEWS)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["contrastive_view", "contrastive_view, all steps"])
def test_view_is_its_steps_one_after_the_other(name):
    keys, expected = jax.random.split(KEY, 6), IMAGES
    steps = ["random_resized_crop", "random_flip", "color_jitter", "random_grayscale"]
    if name.endswith("all steps"):
        steps += ["random_blur", "random_solarize"]
    for key, step in zip(keys, steps, strict=False):
        expected = (RANDOM_VIEWS | {"random_flip": jit_flip})[step](key, expected)
    np.testing.assert_array_equal(RANDOM_VIEWS[name](KEY, IMAGES), expected)


STEPS = {
    "random_resized_crop": crops,
    "random_flip": views,
    "color_jitter": jitter,
    "random_grayscale": colors,
    "random_blur": blur,
    "random_solarize": contrastive_views,
}


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("size", [0, 10])
def test_each_step_gets_a_key_and_its_options(monkeypatch, flip, size):
    calls = []
    for name, module in STEPS.items():

        def record(key, images, name=name, **options):
            calls.append((name, jax.random.key_data(key).tolist(), options))
            return images

        monkeypatch.setattr(module, name, record)
    jitter_options = {"brightness": 0.1, "contrast": 0.2, "saturation": 0.3, "hue": 0.4}
    augment.contrastive_view(
        KEY,
        IMAGES,
        size=size,
        area=(0.2, 0.7),
        flip=flip,
        **jitter_options,
        jitter_probability=0.6,
        grayscale_probability=0.3,
        blur_probability=0.5,
        solarize_probability=0.4,
    )
    side = size or None
    options = [
        {"height": side, "width": side, "area": (0.2, 0.7)},
        {},
        {**jitter_options, "probability": 0.6},
        {"probability": 0.3},
        {"probability": 0.5},
        {"probability": 0.4},
    ]
    keys = jax.random.key_data(jax.random.split(KEY, 6)).tolist()
    expected = list(zip(STEPS, keys, options, strict=True))
    assert calls == (expected if flip else expected[:1] + expected[2:])


def test_defaults_are_the_released_set_of_impulses():
    parameters = inspect.signature(augment.contrastive_view).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert defaults == {
        "size": 0,
        "area": (0.08, 1.0),
        "flip": True,
        "brightness": 0.8,
        "contrast": 0.8,
        "saturation": 0.8,
        "hue": 0.2,
        "jitter_probability": 0.8,
        "grayscale_probability": 0.2,
        "blur_probability": 0.0,
        "solarize_probability": 0.0,
    }


def test_size_gives_square_views_and_zero_keeps_the_sides():
    for size, sides in ((0, (16, 12)), (8, (8, 8)), (33, (33, 33))):
        view = jax.eval_shape(partial(augment.contrastive_view, size=size), KEY, IMAGES)
        assert view.shape == (16, *sides, 3)
        assert view.dtype == jnp.uint8


def test_steps_that_are_off_are_not_in_the_program(monkeypatch):
    def program(**options):
        view = jax.jit(partial(augment.contrastive_view, **options))
        return view.lower(KEY, IMAGES).as_text()

    plain = program()
    for name in ("blur_probability", "solarize_probability"):
        assert program(**{name: 0.5}) != plain
    # A step that was there in spite of its probability of 0 would now be missing.
    for name in ("random_blur", "random_solarize"):
        monkeypatch.setattr(STEPS[name], name, lambda key, images, **options: images)
    assert program() == plain


def test_grey_images_get_the_steps_that_concern_them():
    images = augment_images.digits(64)
    view = partial(
        augment.contrastive_view,
        area=(1.0, 1.0),
        flip=False,
        brightness=0.0,
        contrast=0.0,
        jitter_probability=1.0,
        grayscale_probability=1.0,
        solarize_probability=0.5,
    )
    result = np.asarray(jax.jit(view)(KEY, images))
    # Saturation, hue and greys do nothing; the solarisation reaches half of the images.
    inverted = np.any(result != images, axis=(1, 2, 3))
    assert 16 < inverted.sum() < 48  # four standard deviations
    expected = np.where(images < 128, images, 255 - images)
    np.testing.assert_array_equal(result[inverted], expected[inverted])


@pytest.mark.parametrize(
    ("function", "default"), [("random_grayscale", 0.2), ("random_solarize", 0.2)]
)
def test_probability_is_the_share_of_changed_images(function, default):
    images = np.broadcast_to(np.array([200, 40, 90], np.uint8), (8000, 1, 1, 3))
    alternative = {"random_grayscale": [94, 94, 94], "random_solarize": [55, 40, 90]}[function]
    for probability in (None, 0.0, 0.6, 1.0):
        options = {} if probability is None else {"probability": probability}
        result = np.asarray(getattr(augment, function)(KEY, images, **options))[:, 0, 0]
        changed = np.any(result != images[:, 0, 0], axis=1)
        expected = default if probability is None else probability
        error = math.sqrt(expected * (1 - expected) / 8000)
        assert abs(changed.mean() - expected) <= 4 * error
        np.testing.assert_array_equal(result[changed], np.tile(alternative, (changed.sum(), 1)))


def test_solarize_follows_its_threshold():
    images = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    solarize = jax.jit(augment.random_solarize, static_argnames=("probability", "threshold"))
    for threshold in (0, 100, 256):
        result = solarize(KEY, images, probability=1.0, threshold=threshold)
        expected = np.where(images < threshold, images, 255 - images)
        np.testing.assert_array_equal(result, expected)


def test_jitter_and_greys_are_drawn_independently_in_a_view():
    # A colour whose grey version and jittered version can be told apart.
    images = np.broadcast_to(np.array([250, 20, 20], np.uint8), (4000, 2, 2, 3))
    view = jax.jit(partial(augment.contrastive_view, hue=0.0, contrast=0.0, saturation=0.0))
    pixels = np.asarray(view(KEY, images))[:, 0, 0].astype(int)
    grey = (pixels[:, 0] == pixels[:, 1]) & (pixels[:, 1] == pixels[:, 2])
    untouched = np.all(pixels == [250, 20, 20], axis=1) | np.all(pixels == 89, axis=1)
    assert abs(grey.mean() - 0.2) < 0.026  # four standard deviations
    # Besides the 0.2 without jitter, factors within 1 / 500 of 1, or above 1.02 in the red alone.
    assert abs(untouched.mean() - 0.2) < 0.035
    assert abs(np.mean(grey & untouched) - 0.04) < 0.016


# What a result depends on -----------------------------------------------------------------------


@pytest.mark.thorough
@every_view
def test_same_key_gives_the_same_result_and_another_key_another(name):
    view = RANDOM_VIEWS[name]
    np.testing.assert_array_equal(view(KEY, IMAGES), view(KEY, IMAGES))
    assert not np.array_equal(view(KEY, IMAGES), view(jax.random.key(1), IMAGES))


@every_view
def test_equal_images_get_different_draws(name):
    images = np.broadcast_to(augment_images.positions(16, 12), (16, 16, 12, 3))
    different = {image.tobytes() for image in np.asarray(RANDOM_VIEWS[name](KEY, images))}
    assert len(different) >= (2 if name in YES_OR_NO else 10)


@pytest.mark.thorough
def test_compiled_draws_equal_eager_ones():
    # What follows a draw equals Pillow's integers once compiled, as other tests show.
    boxes = partial(crops.random_boxes, KEY, 16, 16, 12)
    chex.assert_trees_all_equal(jax.jit(boxes)(), boxes())
    colours = partial(augment.random_jitter, KEY, 16)
    chex.assert_trees_all_equal(jax.jit(colours)(), colours())


@every_view
def test_an_image_does_not_depend_on_its_neighbours(name):
    others = IMAGES.copy()
    others[1:] = augment_images.noise(15, 16, 12, 3)
    view = RANDOM_VIEWS[name]
    np.testing.assert_array_equal(view(KEY, IMAGES)[0], view(KEY, others)[0])


@pytest.mark.parametrize("name", ["contrastive_view, all steps", "contrastive_view, larger"])
def test_vmap_over_keys_equals_one_key_at_a_time(name):
    view, keys = RANDOM_VIEWS[name], jax.random.split(KEY, 3)
    together = jax.jit(jax.vmap(view, in_axes=(0, None)))(keys, IMAGES)
    np.testing.assert_array_equal(together, np.stack([view(key, IMAGES) for key in keys]))


@pytest.mark.parametrize("name", ["contrastive_view, all steps", "contrastive_view, larger"])
def test_eight_devices_equal_one_and_do_not_talk_to_each_other(name):
    view, mesh = RANDOM_VIEWS[name], Mesh(np.array(jax.devices()[:8]), ("data",))
    rows, same = (NamedSharding(mesh, PartitionSpec(*axis)) for axis in (("data",), ()))
    spread = jax.jit(view, in_shardings=(same, rows), out_shardings=rows)
    np.testing.assert_array_equal(spread(KEY, IMAGES), view(KEY, IMAGES))
    program = spread.lower(KEY, IMAGES).compile().as_text()
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in program


@pytest.mark.thorough
def test_double_precision_changes_nothing():
    view = RANDOM_VIEWS["contrastive_view, all steps"]
    expected = np.asarray(view(KEY, IMAGES))
    with x64():
        result = view(KEY, jnp.asarray(IMAGES))
    assert result.dtype == jnp.uint8
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"size": -1}, "size is -1; accepted: 1 to 2047 .* or 0"),
        ({"size": 4096}, "size is 4096"),
        ({"size": 9.5}, "size is 9.5"),
        ({"size": 8.0}, "size is 8.0; accepted: 1 to 2047 whole pixels"),
        ({"size": "3"}, "size is '3'"),
        ({"size": None}, "size is None"),
        ({"area": (0.0, 1.0)}, "area is"),
        ({"area": 0.5}, "area is 0.5; accepted: .low, high."),
        ({"area": None}, "area is None; accepted: .low, high."),
        ({"brightness": 1.1}, "brightness is 1.1"),
        ({"hue": -0.1}, "hue is -0.1"),
        ({"jitter_probability": 1.1}, "jitter_probability is 1.1"),
        ({"grayscale_probability": -0.1}, "grayscale_probability is -0.1"),
        ({"blur_probability": -0.5}, "blur_probability is -0.5"),
        ({"solarize_probability": math.nan}, "solarize_probability is nan"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(options, named):
    with pytest.raises(ValueError, match=named):
        augment.contrastive_view(KEY, IMAGES, **options)


def test_other_images_and_thresholds_are_refused_by_name():
    for function in (augment.contrastive_view, augment.color_jitter, augment.random_solarize):
        with pytest.raises(ValueError, match="float64"):
            function(KEY, IMAGES / 255)
    with pytest.raises(ValueError, match="threshold is 300"):
        augment.random_solarize(KEY, IMAGES, threshold=300)
