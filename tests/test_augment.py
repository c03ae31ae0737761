"""Random views: what is drawn, from what, and what it may depend on."""

import importlib
import inspect
import pkgutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pujax import augment
from tests import augment_images
from tests.x64 import x64

KEY = jax.random.key(0)
RANDOM_VIEWS = {
    "random_flip": jax.jit(augment.random_flip),
    "random_crop": jax.jit(lambda key, images: augment.random_crop(key, images, padding=3)),
    "weak_view": jax.jit(augment.weak_view),
    "random_cutout": jax.jit(augment.random_cutout),
    "strong_view": jax.jit(augment.strong_view),
}
random_operations = jax.jit(augment.random_operations, static_argnums=1, static_argnames="num_ops")
every_view = pytest.mark.parametrize("view", RANDOM_VIEWS.values(), ids=RANDOM_VIEWS)
IMAGES = augment_images.smooth(16, 16, 12, 3)


def _chi_square(counts):
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2).sum() / expected)


# Views ------------------------------------------------------------------------------------------


def test_flip_mirrors_each_image_with_probability_one_half():
    images = np.broadcast_to(np.array([0, 255], np.uint8)[:, None], (10_000, 1, 2, 1))
    views = np.asarray(RANDOM_VIEWS["random_flip"](KEY, images))
    flipped = views[:, 0, 0, 0] == 255
    assert abs(flipped.mean() - 0.5) < 0.02  # four standard deviations
    expected = np.where(flipped[:, None, None, None], images[:, :, ::-1], images)
    np.testing.assert_array_equal(views, expected)


@pytest.mark.thorough
def test_crop_shows_every_window_of_the_black_padded_image_equally_often():
    image = augment_images.positions(5, 4)
    cropped = augment.random_crop(KEY, np.broadcast_to(image, (10_000, 5, 4, 3)), padding=1)
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)))
    windows = [padded[top : top + 5, left : left + 4] for top in range(3) for left in range(3)]
    matches = np.array([(np.asarray(cropped) == window).all((1, 2, 3)) for window in windows])
    np.testing.assert_array_equal(matches.sum(axis=0), 1)
    assert _chi_square(matches.sum(axis=1)) < 30  # 8 degrees of freedom: probability 2e-4


@pytest.mark.thorough
def test_weak_view_is_a_flip_and_then_a_crop():
    flip_key, crop_key = jax.random.split(KEY)
    flipped = RANDOM_VIEWS["random_flip"](flip_key, IMAGES)
    expected = augment.random_crop(crop_key, flipped, padding=4)
    np.testing.assert_array_equal(RANDOM_VIEWS["weak_view"](KEY, IMAGES), expected)
    expected = augment.random_crop(crop_key, IMAGES, padding=2)
    np.testing.assert_array_equal(augment.weak_view(KEY, IMAGES, flip=False, padding=2), expected)


@pytest.mark.thorough
def test_strong_view_is_rand_augment_and_then_a_weak_view():
    augment_key, view_key = jax.random.split(KEY)
    rand_augment = jax.jit(partial(augment.rand_augment, num_ops=2, max_cutout=0.4))
    expected = augment.weak_view(view_key, rand_augment(augment_key, IMAGES), padding=3)
    strong_view = jax.jit(partial(augment.strong_view, padding=3, num_ops=2, max_cutout=0.4))
    np.testing.assert_array_equal(strong_view(KEY, IMAGES), expected)


@pytest.mark.thorough
def test_views_with_everything_off_are_the_images():
    np.testing.assert_array_equal(augment.weak_view(KEY, IMAGES, flip=False, padding=0), IMAGES)
    plain = augment.strong_view(KEY, IMAGES, flip=False, padding=0, num_ops=0, max_cutout=0)
    np.testing.assert_array_equal(plain, IMAGES)


# RandAugment draws ------------------------------------------------------------------------------


def test_operations_are_drawn_uniformly_and_independently():
    operation = np.asarray(random_operations(KEY, 20_000, num_ops=2)[0])
    assert len(augment.OPERATIONS) == 14
    pairs = operation[:, 0] * 14 + operation[:, 1]
    # 195 degrees of freedom: above 280 with probability 7e-5. Repeats are among the 196 pairs.
    assert _chi_square(np.bincount(pairs, minlength=196)) < 280


def test_strengths_are_uniform_in_the_range_of_their_operation():
    operation, strength = map(np.asarray, random_operations(KEY, 20_000, num_ops=3))
    ranges = {
        **dict.fromkeys(["brightness", "color", "contrast", "sharpness"], (0.05, 0.95)),
        **dict.fromkeys(["shear_x", "shear_y", "translate_x", "translate_y"], (-0.3, 0.3)),
        **dict.fromkeys(["autocontrast", "equalize", "identity"], (0, 0)),
        "posterize": (4, 8),
        "rotate": (-30, 30),
        "solarize": (0, 256),
    }
    for i, known in enumerate(augment.OPERATIONS):
        low, high = ranges.pop(known.name)
        drawn = strength[operation == i]
        rounding = 1e-6 * (high - low)
        assert drawn.min() >= low - rounding
        assert drawn.max() <= high + rounding
        if high > low:
            bins = np.floor((drawn - low) / (high - low) * 10).astype(int).clip(0, 9)
            assert _chi_square(np.bincount(bins, minlength=10)) < 35  # 9 degrees: probability 6e-5
    assert not ranges


def test_posterize_keeps_four_to_seven_bits():
    operation, strength = map(np.asarray, random_operations(KEY, 2000))
    names = np.array([known.name for known in augment.OPERATIONS])
    bits = np.floor(strength[names[operation] == "posterize"]).astype(int)
    assert set(bits) == {4, 5, 6, 7}


@pytest.mark.thorough
def test_rand_augment_ends_with_exactly_one_cutout_of_uniform_side_and_centre():
    images = np.zeros((20_000, 20, 20, 1), np.uint8)
    painted = np.asarray(augment.rand_augment(KEY, images, num_ops=0))[..., 0]
    assert set(np.unique(painted)) == {0, 123}
    # Only a side below 2**-16 paints nothing.
    assert painted.any(axis=(1, 2)).mean() > 0.999
    painted = painted[painted.any(axis=(1, 2))]
    columns, rows = (painted > 0).any(axis=1), (painted > 0).any(axis=2)
    box = columns[:, None, :] & rows[:, :, None]
    np.testing.assert_array_equal(painted > 0, box)
    for place in (columns, rows):
        first, last = place.argmax(axis=1), 19 - place[:, ::-1].argmax(axis=1)
        np.testing.assert_array_equal(place.sum(axis=1), last - first + 1)  # one run
        free = (first > 0) & (last < 19)
        # A side of s pixels, 0 to 10, paints floor(s) + 1.
        length = (last - first + 1)[free]
        assert set(length) == set(range(1, 11))
    # The near corner is column 0 if centre - side / 2 < 1 pixel: (1 + E[side] / 2) / 20 = 0.175.
    first = columns.argmax(axis=1)
    assert abs((first == 0).mean() - 0.175) < 0.011  # four standard deviations


def test_random_cutout_follows_the_rule_for_its_own_draws():
    images = augment_images.noise(300, 32, 24, 3)
    side, x, y = np.asarray(jax.random.uniform(KEY, (300, 3), np.float32), np.float64).T
    expected = images.copy()
    # Arguments are read to 2**-16, as the docstring of `cutout` says.
    side, x, y = (np.floor(v * 2**16) / 2**16 for v in (side / 2, x, y))
    for i in range(300):
        left = int(max(0.0, (x[i] - side[i] / 2) * 24))
        top = int(max(0.0, y[i] * 32 - side[i] * 24 / 2))
        right, bottom = int(left + side[i] * 24), int(top + side[i] * 24)
        expected[i, top : bottom + 1, left : right + 1] = (125, 123, 114)
    np.testing.assert_array_equal(RANDOM_VIEWS["random_cutout"](KEY, images), expected)


# What a result depends on -----------------------------------------------------------------------


@every_view
def test_same_key_gives_the_same_result_and_another_key_another(view):
    np.testing.assert_array_equal(view(KEY, IMAGES), view(KEY, IMAGES))
    assert not np.array_equal(view(KEY, IMAGES), view(jax.random.key(1), IMAGES))


@every_view
def test_equal_images_get_different_draws(view):
    images = np.broadcast_to(augment_images.positions(16, 12), (16, 16, 12, 3))
    different = {image.tobytes() for image in np.asarray(view(KEY, images))}
    # 16 out of 49 windows of random_crop differ in 13.9 on average.
    assert len(different) >= (2 if view is RANDOM_VIEWS["random_flip"] else 10)


@every_view
def test_compiled_equals_eager(view):
    np.testing.assert_array_equal(view(KEY, IMAGES), view.__wrapped__(KEY, IMAGES))


@every_view
def test_an_image_does_not_depend_on_its_neighbours(view):
    others = IMAGES.copy()
    others[1:] = augment_images.noise(15, 16, 12, 3)
    np.testing.assert_array_equal(view(KEY, IMAGES)[0], view(KEY, others)[0])


@pytest.mark.thorough
@every_view
def test_vmap_over_keys_equals_one_image_at_a_time(view):
    keys = jax.random.split(KEY, 16)
    together = jax.jit(jax.vmap(view))(keys, IMAGES[:, None])
    alone = [view(key, image[None]) for key, image in zip(keys, IMAGES, strict=True)]
    np.testing.assert_array_equal(together, np.stack(alone))


@pytest.mark.thorough
@every_view
def test_eight_devices_equal_one_and_do_not_talk_to_each_other(view):
    mesh = Mesh(np.array(jax.devices()[:8]), ("data",))
    rows, same = (NamedSharding(mesh, PartitionSpec(*axis)) for axis in (("data",), ()))
    spread = jax.jit(view, in_shardings=(same, rows), out_shardings=rows)
    np.testing.assert_array_equal(spread(KEY, IMAGES), view(KEY, IMAGES))
    program = spread.lower(KEY, IMAGES).compile().as_text()
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in program


@pytest.mark.thorough
@every_view
def test_double_precision_changes_nothing(view):
    expected = np.asarray(view(KEY, IMAGES))
    with x64():
        result = view(KEY, jnp.asarray(IMAGES))
    assert result.dtype == jnp.uint8
    np.testing.assert_array_equal(result, expected)


# Numbers ----------------------------------------------------------------------------------------


def test_normalize_by_hand():
    images = np.array([0, 51, 255], np.uint8).reshape(1, 1, 1, 3)
    result = jax.jit(lambda x: augment.normalize(x, mean=(0.5, 0.1, 0.0), std=(0.5, 0.2, 0.25)))
    # One rounding in each of three float32 operations.
    found = result(images)
    np.testing.assert_allclose(np.ravel(found), [-1.0, 0.5, 4.0], rtol=4e-7)
    assert found.dtype == jnp.float32


def test_normalize_gives_zero_mean_and_unit_variance_with_the_images_own_statistics():
    scaled = IMAGES / 255
    mean, std = scaled.mean(axis=(0, 1, 2)), scaled.std(axis=(0, 1, 2))
    result = np.asarray(augment.normalize(IMAGES, mean=mean, std=std)).astype(np.float64)
    np.testing.assert_allclose(result.mean(axis=(0, 1, 2)), 0, atol=1e-6)  # float32 inputs
    np.testing.assert_allclose(result.std(axis=(0, 1, 2)), 1, atol=1e-6)


def test_normalize_casts_only_the_result_to_a_lower_precision_and_keeps_a_higher_one():
    options = {"mean": 0.4914, "std": 0.247}
    low = augment.normalize(IMAGES, dtype=jnp.bfloat16, **options)
    expected = np.asarray(augment.normalize(IMAGES, **options)).astype(jnp.bfloat16)
    np.testing.assert_array_equal(np.asarray(low, np.float32), expected.astype(np.float32))
    with x64():
        high = np.asarray(augment.normalize(jnp.asarray(IMAGES), dtype=jnp.float64, **options))
    assert high.dtype == np.float64
    np.testing.assert_allclose(high, (IMAGES / 255 - 0.4914) / 0.247, rtol=1e-12)


# Contracts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: augment.weak_view(KEY, IMAGES.astype(np.float32)), "float32"),
        (lambda: augment.equalize(IMAGES[0]), r"\[16, 12, 3\]"),
        (lambda: augment.strong_view(KEY, IMAGES[..., :2]), r"\[16, 16, 12, 2\]"),
        (lambda: augment.rotate(np.zeros((1, 2048, 1, 1), np.uint8), 3.0), "2047"),
        (lambda: augment.rotate(IMAGES, np.ones(3)), r"degrees has shape \[3\].*\[16\]"),
        (lambda: augment.random_crop(KEY, IMAGES, padding=-1), "padding is -1"),
        (lambda: augment.random_operations(KEY, 4, num_ops=-2), "num_ops is -2"),
        (lambda: augment.random_cutout(KEY, IMAGES, max_side=1.5), "max_side is 1.5"),
        (lambda: augment.normalize(IMAGES, mean=(0.5, 0.5), std=1.0), r"mean has shape \[2\]"),
        (lambda: augment.normalize(IMAGES, mean=0.5, std=(1.0, 0.0, 1.0)), "std is"),
        (lambda: augment.normalize(IMAGES / 255, mean=0.5, std=0.5), "float64"),
    ],
)
def test_bad_input_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()


def _public_functions():
    for entry in pkgutil.iter_modules(augment.__path__):
        module = importlib.import_module(f"pujax.augment.{entry.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if not name.startswith("_") and function.__module__ == module.__name__:
                yield pytest.param(function, id=f"{entry.name}.{name}")


@pytest.mark.parametrize("function", list(_public_functions()))
def test_public_functions_keep_the_conventions(function):
    doc = inspect.getdoc(function)  # indented alike by all versions of Python
    for section in ("Args:", "Returns:"):
        assert section in doc
    if "raise ValueError" in inspect.getsource(function):
        assert "Raises:" in doc
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        assert f"\n  {name}: " in doc
        assert parameter.annotation is not inspect.Parameter.empty
        if parameter.default is not inspect.Parameter.empty:
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    if "jax.random" in inspect.getsource(function) or "key" in parameters:
        assert next(iter(parameters)) == "key"


def test_package_offers_every_operation_by_name():
    for known in augment.OPERATIONS:
        assert known.name in augment.__all__
    assert all(hasattr(augment, name) for name in augment.__all__)
