"""Bicubic resizing against Pillow, and the crops of several sizes."""

from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from pujax import augment
from pujax.augment import bicubic, multiscale
from tests import augment_images

KEY = jax.random.key(0)
BICUBIC = Image.Resampling.BICUBIC
PUBLISHED = (512, 448, 384, 320, 256)
jit_resize = jax.jit(augment.resize_bicubic, static_argnums=(1, 2))
jit_crop = jax.jit(augment.multiscale_crop, static_argnames=("sizes", "side"))
jit_squares = jax.jit(
    multiscale.random_squares, static_argnums=(1, 2, 3), static_argnames=("sizes",)
)


def _images(count, height, width, channels):
    images = augment_images.noise(count, height, width, channels)
    images[::2] = np.where(images[::2] > 127, 255, 0)  # where the filter overshoots most
    return images


def _pillow(image, height, width, *, in_two_calls=False):
    image = augment_images.to_pillow(np.asarray(image))
    if in_two_calls:
        # Two calls fix the order of the axes, which Pillow 13 may choose for itself.
        image = image.resize((width, image.height), BICUBIC)
    return augment_images.from_pillow(image.resize((width, height), BICUBIC))


@pytest.mark.parametrize(
    ("height", "width", "to_height", "to_width", "channels"),
    [
        (32, 32, 32, 32, 3),
        (28, 20, 33, 32, 1),
        (64, 64, 96, 80, 3),
        (96, 80, 32, 37, 3),
        (100, 41, 7, 3, 1),
        (2, 5, 9, 4, 3),
        (1, 1, 5, 7, 1),
        (33, 47, 1, 1, 3),
        (2047, 6, 13, 5, 1),
        (6, 300, 5, 2047, 1),
        (37, 500, 41, 448, 3),
    ],
)
def test_resize_equals_pillow(height, width, to_height, to_width, channels):
    images = _images(4, height, width, channels)
    ours = jit_resize(images, to_height, to_width)
    theirs = [_pillow(image, to_height, to_width, in_two_calls=True) for image in images]
    np.testing.assert_array_equal(ours, theirs)
    if to_height >= height:
        theirs = [_pillow(image, to_height, to_width) for image in images]
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("size", [*PUBLISHED, 640, 576])
def test_a_published_crop_equals_pillow_in_one_call(size):
    images = _images(2, 648, 700, 3)
    top, left = np.array([0, 648 - size]), np.array([700 - size, 3])
    resize = partial(bicubic.boxes_resized, sizes=((size, size),), height=448, width=448)
    ours = np.asarray(jax.jit(resize)(images, top, left, np.zeros(2, int)))
    for i in range(2):
        box = images[i, top[i] : top[i] + size, left[i] : left[i] + size]
        np.testing.assert_array_equal(ours[i], _pillow(box, 448, 448))


def test_resize_by_hand():
    images = np.array([0, 255], np.uint8).reshape(1, 1, 2, 1)
    # Each of four places is 1/4 and 3/4 from the two pixels, or beyond them 1/4 and 5/4 away: the
    # cubic there is 111/128, 29/128 and -9/128; overshoots are cut off.
    wanted = [0, 29 / (29 + 111) * 255, 111 / (29 + 111) * 255, 255]
    np.testing.assert_array_equal(np.ravel(jit_resize(images, 1, 4)), np.round(wanted))


def _exact_weights(size, result_size):
    """The definition in fractions."""
    scale = Fraction(size, result_size)
    stretch = max(scale, 1)
    weights = np.zeros((result_size, size), object)
    for out in range(result_size):
        for place in range(size):
            d = abs(place + Fraction(1, 2) - (out + Fraction(1, 2)) * scale) / stretch
            if d < 1:
                weights[out, place] = Fraction(3, 2) * d**3 - Fraction(5, 2) * d**2 + 1
            elif d < 2:
                weights[out, place] = -Fraction(1, 2) * (d**3 - 5 * d**2 + 8 * d - 4)
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("size", "result_size"), [(17, 7), (5, 12), (12, 12), (9, 1), (1, 4)])
def test_weights_are_the_exact_ones_rounded(size, result_size):
    place, weight = bicubic.taps(size, result_size)
    dense = np.zeros((result_size, size), np.int64)
    for row, at, value in zip(dense, place, weight, strict=True):
        np.add.at(row, at, value)
    error = dense - _exact_weights(size, result_size) * 2**22
    assert np.all(np.abs(error) <= 0.5)


def test_sums_stay_inside_of_31_bits():
    for size, result_size in [(1, 9), (2, 3), (3, 2), (5, 4), (448, 449), (512, 448), (2047, 3)]:
        largest = np.abs(bicubic.taps(size, result_size).weight).astype(np.int64).sum(axis=1).max()
        assert largest < 1.3 * 2**22
        assert largest * 255 + 2**21 < 2**31


# Random squares ---------------------------------------------------------------------------------


def test_squares_are_uniform_in_size_and_place():
    count, sizes = 30_000, (9, 6, 4)
    top, left, choice = map(np.asarray, jit_squares(KEY, count, 9, 11, sizes=sizes))
    share = np.bincount(choice, minlength=3) / count
    # Four standard deviations of a share of a third.
    np.testing.assert_allclose(share, 1 / 3, atol=4 * np.sqrt(2 / 9 / count))
    for i, size in enumerate(sizes):
        shape = (9 - size + 1, 11 - size + 1)
        places = np.zeros(shape)
        np.add.at(places, (top[choice == i], left[choice == i]), 1)  # raises outside
        expected = places.sum() / places.size
        degrees = places.size - 1
        distance = np.sum((places - expected) ** 2) / expected
        # Chi-square has mean `degrees` and variance twice that.
        assert distance < degrees + 4.5 * np.sqrt(2 * degrees)


def test_a_size_named_twice_is_drawn_twice_as_often():
    _, _, choice = jit_squares(KEY, 9000, 8, 8, sizes=(8, 4, 4))
    assert np.mean(np.asarray(choice) > 0) == pytest.approx(2 / 3, abs=0.02)


@pytest.mark.parametrize("channels", [1, 3])
def test_crop_shows_its_squares_as_pillow_resizes_them(channels):
    sizes = (24, 20, 15, 9)
    images = _images(24, 24, 30, channels)
    ours = np.asarray(jit_crop(KEY, images, sizes=sizes, side=21))
    assert ours.shape == (24, 21, 21, channels)
    assert ours.dtype == jnp.uint8
    top, left, choice = map(np.asarray, jit_squares(KEY, 24, 24, 30, sizes=sizes))
    assert set(choice) == {0, 1, 2, 3}
    for i in range(24):
        size = sizes[choice[i]]
        box = images[i, top[i] : top[i] + size, left[i] : left[i] + size]
        np.testing.assert_array_equal(ours[i], _pillow(box, 21, 21, in_two_calls=True))


def test_crop_is_pure_and_the_same_compiled_or_not():
    images = _images(6, 12, 12, 3)
    before = images.copy()
    crop = partial(augment.multiscale_crop, sizes=[12, 8, 5], side=10)
    compiled = jax.jit(crop)
    first = compiled(KEY, images)
    np.testing.assert_array_equal(first, crop(KEY, images))
    np.testing.assert_array_equal(first, compiled(KEY, images))
    np.testing.assert_array_equal(images, before)
    assert np.any(np.asarray(first) != compiled(jax.random.key(1), images))


def test_the_whole_image_at_its_own_size_is_itself():
    images = _images(3, 16, 16, 3)
    np.testing.assert_array_equal(jit_crop(KEY, images, sizes=(16,), side=16), images)


IMAGES = augment_images.noise(2, 8, 9, 3)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: augment.multiscale_crop(KEY, IMAGES / 255, sizes=(8,), side=8), "float64"),
        (
            lambda: augment.multiscale_crop(KEY, IMAGES, sizes=(8, 9), side=8),
            r"sizes is \(8, 9\); accepted: .* 1 to 8",
        ),
        (lambda: augment.multiscale_crop(KEY, IMAGES, sizes=(0,), side=8), r"sizes is \(0,\)"),
        (lambda: augment.multiscale_crop(KEY, IMAGES, sizes=(4.0,), side=8), r"sizes is \(4.0,\)"),
        (lambda: augment.multiscale_crop(KEY, IMAGES, sizes=(), side=8), r"sizes is \(\)"),
        (lambda: augment.multiscale_crop(KEY, IMAGES, sizes=8, side=8), "sizes is 8"),
        (lambda: augment.multiscale_crop(KEY, IMAGES, sizes=(8,), side=0), "side is 0"),
        (lambda: augment.resize_bicubic(IMAGES, 2048, 4), "height is 2048"),
        (lambda: augment.resize_bicubic(IMAGES, 4, 4.5), "width is 4.5"),
        (lambda: augment.resize_bicubic(IMAGES[..., :2], 4, 4), "1 or 3 channels"),
    ],
)
def test_bad_input_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()
