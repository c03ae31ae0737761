"""Resizing against Pillow, and the boxes of the random resized crop against torchvision's rule."""

import math
from functools import partial

import jax
import numpy as np
import pytest
from PIL import Image

from pujax import augment
from pujax.augment import crops, draws, resampling
from tests import augment_images

KEY = jax.random.key(0)
BILINEAR = Image.Resampling.BILINEAR
RANGES = ("area", "aspect")
# Height and width of images and result. Sides of 3 and 7 have weights that are no binary fractions;
# 2047 rows to 13 need more than the 64 pixels that float32 adds up exactly.
SIZES = [
    (32, 32, 32, 32, 3),
    (28, 20, 33, 32, 1),
    (32, 32, 96, 80, 3),
    (96, 80, 32, 37, 3),
    (100, 41, 7, 3, 1),
    (64, 20, 48, 48, 3),
    (2, 5, 9, 4, 3),
    (1, 1, 5, 7, 1),
    (33, 47, 1, 1, 3),
    (2047, 6, 13, 5, 1),
    (6, 300, 5, 2047, 1),
]
every_size = pytest.mark.parametrize(
    ("height", "width", "to_height", "to_width", "channels"), SIZES
)
jit_crop = jax.jit(augment.resized_crop, static_argnames=("height", "width"))
jit_resize = jax.jit(augment.resize, static_argnums=(1, 2))
jit_boxes = jax.jit(crops.random_boxes, static_argnums=(1, 2, 3), static_argnames=RANGES)
jit_weights = jax.jit(resampling.triangle_weights, static_argnums=(2, 3))


def _images(height, width, channels):
    images = augment_images.noise(24 if height < 1000 else 6, height, width, channels)
    images[::3] = np.where(images[::3] > 127, 255, 0)  # the largest steps between neighbours
    return images


def _boxes(count, height, width):
    rng = np.random.default_rng(3)
    crop_height, crop_width = rng.integers(1, height + 1, count), rng.integers(1, width + 1, count)
    crop_height[0], crop_width[0] = height, width
    top, left = rng.integers(0, height - crop_height + 1), rng.integers(0, width - crop_width + 1)
    return top, left, crop_height, crop_width


def _pillow(images, boxes, height, width, in_two_calls):
    results = []
    for image, top, left, crop_height, crop_width in zip(images, *boxes, strict=True):
        image = augment_images.to_pillow(image)
        image = image.crop((left, top, left + crop_width, top + crop_height))
        if in_two_calls:
            image = image.resize((width, int(crop_height)), BILINEAR)
        results.append(augment_images.from_pillow(image.resize((width, height), BILINEAR)))
    return np.stack(results)


@pytest.mark.thorough
@every_size
def test_resized_crop_equals_pillow(height, width, to_height, to_width, channels):
    images = _images(height, width, channels)
    boxes = _boxes(len(images), height, width)
    ours = jit_crop(images, *boxes, height=to_height, width=to_width)
    # Two calls fix the order of the axes, which Pillow 13 may choose for itself.
    theirs = _pillow(images, boxes, to_height, to_width, in_two_calls=True)
    np.testing.assert_array_equal(ours, theirs)
    at_once = _pillow(images, boxes, to_height, to_width, in_two_calls=False)
    difference = np.abs(np.asarray(ours, int) - at_once)
    if to_height >= height:
        np.testing.assert_array_equal(ours, at_once)
    assert difference.max() <= 1
    assert np.mean(difference > 0) < 0.3


@every_size
def test_resize_equals_pillow(height, width, to_height, to_width, channels):
    images = _images(height, width, channels)[:5]
    whole = np.zeros(5, int), np.zeros(5, int), np.full(5, height), np.full(5, width)
    theirs = _pillow(images, whole, to_height, to_width, in_two_calls=True)
    np.testing.assert_array_equal(jit_resize(images, to_height, to_width), theirs)


def test_resize_by_hand():
    images = np.array([0, 255], np.uint8).reshape(1, 1, 2, 1)
    # Places 1/4 and 3/4 of the way between the two centres; beyond them there is one pixel only.
    np.testing.assert_array_equal(np.ravel(jit_resize(images, 1, 4)), [0, 64, 191, 255])
    images = np.array([10, 20, 40, 90], np.uint8).reshape(1, 4, 1, 1)
    # Each result weighs the pixels at distances 1/4, 3/4 and 5/4 of its own width: 3/8, 3/8 and 1/8
    # for those inside, that is 3/7, 3/7 and 1/7.
    np.testing.assert_array_equal(np.ravel(jit_resize(images, 2, 1)), [19, 59])


def test_weights_are_the_exact_ones_rounded_and_never_leave_the_box():
    start, length = np.array([3, 0, 11]), np.array([5, 17, 1])
    weights = np.asarray(jit_weights(start, length, 17, 7))
    for i in range(3):
        box = np.arange(17 if i == 1 else int(length[i]))
        scale = int(length[i]) / 7
        centers = (np.arange(7)[:, None] + 0.5) * scale
        exact = np.maximum(1 - np.abs(box + 0.5 - centers) / max(scale, 1), 0)
        exact = exact / exact.sum(axis=1, keepdims=True)
        inside = slice(int(start[i]), int(start[i] + length[i]))
        np.testing.assert_array_equal(weights[i, :, inside], np.floor(exact * 2**22 + 0.5))
        assert weights[i].sum() == weights[i, :, inside].sum()


def test_a_box_that_leaves_the_image_is_moved_inside():
    images = _images(9, 8, 3)
    moved = jit_crop(images, 5, -2, 6, 99, height=4, width=4)
    np.testing.assert_array_equal(moved, jit_crop(images, 3, 0, 6, 8, height=4, width=4))


# Random boxes -----------------------------------------------------------------------------------


def _torchvision_box(height, width, area, aspect, rng):
    """The rule in the words of Python: attempts until one fits, else the middle."""
    for _ in range(10):
        pixels = height * width * rng.uniform(*area)
        ratio = math.exp(rng.uniform(math.log(aspect[0]), math.log(aspect[1])))
        w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.integers(0, height - h + 1), rng.integers(0, width - w + 1), h, w
    w, h = width, height
    if width / height < aspect[0]:
        h = round(w / aspect[0])
    elif width / height > aspect[1]:
        w = round(h * aspect[1])
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(
    ("height", "width", "area", "aspect"),
    [
        (32, 32, (0.08, 1.0), (3 / 4, 4 / 3)),
        (30, 12, (0.3, 0.9), (3 / 4, 4 / 3)),  # a third of the boxes is the one in the middle
        (9, 24, (0.2, 0.8), (0.5, 1.5)),
        (6, 5, (0.02, 0.1), (0.5, 1.0)),
    ],
)
def test_boxes_are_distributed_as_by_torchvisions_rule(height, width, area, aspect):
    count = 8000
    drawn = jit_boxes(KEY, count, height, width, area=area, aspect=aspect)
    ours = np.stack([np.asarray(side) for side in drawn], axis=1)
    rng = np.random.default_rng(0)
    theirs = np.array([_torchvision_box(height, width, area, aspect, rng) for _ in range(count)])
    for column in range(4):
        values = np.arange(max(height, width) + 1)
        ours_below, theirs_below = (
            np.mean(boxes[:, column, None] <= values, axis=0) for boxes in (ours, theirs)
        )
        # Kolmogorov and Smirnov's two-sample distance: above 0.035 with probability 1e-4.
        assert np.abs(ours_below - theirs_below).max() < 0.035
    # Joint features: the ratio of the sides, and how far the place depends on the size.
    for feature in (lambda b: b[:, 3] / b[:, 2], lambda b: b[:, 0] * b[:, 2], lambda b: b[:, 1]):
        first, second = feature(ours), feature(theirs)
        error = math.sqrt((first.var() + second.var()) / count) + 1e-9
        assert abs(first.mean() - second.mean()) < 4 * error
    # Row and column of a corner are two draws, so that no correlation is left but by chance.
    top, left, free_rows, free_columns = ours.T * [[1], [1], [-1], [-1]]
    free_rows, free_columns = free_rows + height, free_columns + width
    free = (free_rows > 0) & (free_columns > 0)
    correlation = np.corrcoef(top[free] / free_rows[free], left[free] / free_columns[free])[0, 1]
    assert abs(correlation) < 4 / math.sqrt(free.sum())
    assert np.all(ours[:, :2] >= 0)
    assert np.all(ours[:, 2:] >= 1)
    assert np.all(ours[:, :2] + ours[:, 2:] <= [height, width])


def test_boxes_follow_the_rule_for_their_own_draws():
    keys = jax.random.split(KEY, 4)
    pixels = np.asarray(draws.uniform(keys[0], (500, 10), 0.3 * 360, 360.0), np.float64)
    log_ratio = draws.uniform(keys[1], (500, 10), math.log(3 / 4), math.log(4 / 3))
    ratio = np.exp(np.asarray(log_ratio, np.float64))
    boxes = np.asarray(jit_boxes(KEY, 500, 30, 12, area=(0.3, 1.0)))
    fallbacks = 0
    for i in range(500):
        expected = 16, 12  # 12 / (3 / 4) rows in the middle
        for w, h in zip(np.sqrt(pixels * ratio)[i], np.sqrt(pixels / ratio)[i], strict=True):
            if round(w) <= 12 and round(h) <= 30:
                expected = round(h), round(w)
                break
        else:
            fallbacks += 1
            assert (boxes[0][i], boxes[1][i]) == (7, 0)
        assert (boxes[2][i], boxes[3][i]) == expected
    assert 20 < fallbacks < 480


def test_random_resized_crop_shows_its_boxes():
    images = augment_images.smooth(16, 20, 24, 3)
    boxes = jit_boxes(KEY, 16, 20, 24, area=(0.1, 0.5), aspect=(0.5, 2.0))
    options = {"area": (0.1, 0.5), "aspect": (0.5, 2.0)}
    expected = jit_crop(images, *boxes, height=11, width=24)
    crop = jax.jit(partial(augment.random_resized_crop, height=11, **options))
    np.testing.assert_array_equal(crop(KEY, images), expected)
    assert jax.eval_shape(augment.random_resized_crop, KEY, images).shape == images.shape


def test_the_whole_area_is_the_image_itself():
    images = augment_images.noise(50, 32, 32, 3)
    crop = jax.jit(partial(augment.random_resized_crop, area=(1.0, 1.0)))
    np.testing.assert_array_equal(crop(KEY, images), images)


IMAGES = augment_images.noise(4, 8, 8, 3)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: augment.resize(IMAGES / 255, 4, 4), "float64"),
        (lambda: augment.resize(IMAGES, 0, 4), "height is 0; accepted: 1 to 2047"),
        (lambda: augment.resize(IMAGES, 4, 2048), "width is 2048"),
        (lambda: augment.resize(IMAGES, 4, 4.5), "width is 4.5"),
        (lambda: augment.resize(IMAGES, 8.0, 8), "height is 8.0; accepted: 1 to 2047 whole"),
        (lambda: augment.resize(IMAGES, 8, "3"), "width is '3'"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, width=8.0), "width is 8.0"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, height=-3), "height is -3"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, area=(0.0, 1.0)), r"area is \(0.0, 1.0"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, area=(0.5, 1.1)), "area is"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, area=(0.5, 0.2)), "area is"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, area=(0.5,)), "area is"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, area=0.5), "area is 0.5; accepted: .low"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, area=("a", 1.0)), "area is .'a', 1.0.;"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, aspect=None), "aspect is None; accepted"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, aspect=(-1.0, 2.0)), "aspect is"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, aspect=(1.0, math.inf)), "aspect is"),
        (lambda: augment.random_resized_crop(KEY, IMAGES, aspect=(math.nan, 2.0)), "aspect is"),
        (
            lambda: augment.resized_crop(IMAGES, np.zeros(3), 0, 4, 4, height=4, width=4),
            r"top has shape \[3\].*\[4\]",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()
