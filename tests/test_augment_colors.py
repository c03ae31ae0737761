"""Hue, greys, the colour jitter and the blur: against Pillow, and the blur against numpy."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter

from pujax import augment
from pujax.augment import blur, colors, draws, jitter
from tests import augment_images

KEY = jax.random.key(0)
COLOUR = augment_images.smooth(48, 16, 12, 3)
NOISE = augment_images.noise(48, 16, 12, 3)
jit_blur = jax.jit(augment.gaussian_blur, static_argnames="kernel_size")


def _chi_square(counts):
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2).sum() / expected)


def _colors():
    """All pairs of levels of two channels, with each fifth level of the third: 3.4 million."""
    every, fifth = np.arange(256, dtype=np.uint8), np.arange(0, 256, 5, dtype=np.uint8)
    return np.stack(np.meshgrid(every, fifth, every, indexing="ij"), -1).reshape(-1, 256, 3)


# Hue --------------------------------------------------------------------------------------------


def test_conversion_to_hsv_equals_pillow():
    pixels = _colors()
    theirs = np.asarray(Image.fromarray(pixels).convert("HSV"))
    ours = np.stack(jax.jit(colors.rgb_to_hsv)(pixels), axis=-1)
    np.testing.assert_array_equal(ours, theirs)


def test_conversion_from_hsv_equals_pillow():
    levels = _colors()
    height, width = levels.shape[:2]
    theirs = Image.frombytes("HSV", (width, height), levels.tobytes()).convert("RGB")
    channels = (levels[..., c].astype(np.int32) for c in range(3))
    np.testing.assert_array_equal(jax.jit(colors.hsv_to_rgb)(*channels), np.asarray(theirs))


def test_pillow_does_fall_short_of_whole_hues_so_the_table_is_needed():
    pixel = np.array([[[255, 6, 0]]], np.uint8)  # red plus 6/255 of a sixth: level 1 exactly
    assert np.asarray(Image.fromarray(pixel).convert("HSV"))[0, 0, 0] == 0
    assert colors.rgb_to_hsv(pixel)[0][0, 0] == 0
    pixel[..., 1] = 7
    assert colors.rgb_to_hsv(pixel)[0][0, 0] == 1


def _pillow_hue(image, shift):
    """torchvision's `adjust_hue` on Pillow images: whole levels towards 0, then modulo 256."""
    if image.mode == "L":
        return image
    level, saturation, value = image.convert("HSV").split()
    level = (np.asarray(level).astype(int) + int(shift * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(level.astype(np.uint8)), saturation, value)).convert(
        "RGB"
    )


@pytest.mark.parametrize(
    "images", [COLOUR, NOISE, COLOUR[..., :1]], ids=["smooth", "noise", "grey"]
)
def test_hue_equals_torchvisions_rule(images):
    shift = np.random.default_rng(1).uniform(-0.5, 0.5, len(images)).astype(np.float32)
    shift[:7] = 0, 0.5, -0.5, 1 / 255, -1 / 255, 0.001, -0.001
    theirs = [
        augment_images.from_pillow(_pillow_hue(augment_images.to_pillow(image), float(value)))
        for image, value in zip(images, shift, strict=True)
    ]
    np.testing.assert_array_equal(jax.jit(augment.hue)(images, shift), np.stack(theirs))


def test_shift_is_cut_down_exactly_next_to_every_whole_level():
    whole = (np.arange(-127, 128) / 255).astype(np.float32)
    shift = np.concatenate([whole, np.nextafter(whole, -9), np.nextafter(whole, 9)])
    levels = np.asarray(jax.jit(colors._whole_levels)(jnp.asarray(shift)))
    np.testing.assert_array_equal(levels, [int(float(value) * 255) for value in shift])


def test_grayscale_equals_pillow():
    for images in (COLOUR, NOISE):
        theirs = [np.asarray(augment_images.to_pillow(image).convert("L")) for image in images]
        theirs = np.repeat(np.stack(theirs)[..., None], 3, axis=-1)
        np.testing.assert_array_equal(jax.jit(augment.grayscale)(images), theirs)
    np.testing.assert_array_equal(augment.grayscale(NOISE[..., :1]), NOISE[..., :1])


# Jitter -----------------------------------------------------------------------------------------


def _pillow_jitter(image, factors, shift, order):
    enhance = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for operation in order:
        if operation < 3:
            image = enhance[operation](image).enhance(float(factors[operation]))
        elif shift is not None:
            image = _pillow_hue(image, float(shift))
    return image


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("with_hue", [True, False])
def test_jitter_equals_pillow_in_each_of_the_24_orders(channels, with_hue):
    images = np.concatenate([COLOUR[:24], NOISE[:24]])[..., :channels]
    rng = np.random.default_rng(2)
    drawn = jitter.Jitter(
        factors=rng.uniform(0.2, 1.8, (48, 3)).astype(np.float32),
        shift=rng.uniform(-0.2, 0.2, 48).astype(np.float32) if with_hue else None,
        order=np.array(list(itertools.permutations(range(4))) * 2, np.int32),
        applied=np.arange(48) % 7 != 3,
    )
    ours = np.asarray(jax.jit(augment.apply_jitter)(images, drawn))
    for i, image in enumerate(images):
        expected = augment_images.to_pillow(image)
        if drawn.applied[i]:
            shift = drawn.shift[i] if with_hue else None
            expected = _pillow_jitter(expected, drawn.factors[i], shift, drawn.order[i])
        np.testing.assert_array_equal(ours[i], augment_images.from_pillow(expected))


def test_jitter_draws_every_order_equally_often_and_factors_uniformly():
    drawn = augment.random_jitter(
        KEY, 24_000, brightness=0.5, contrast=1.0, saturation=0.8, hue=0.1, probability=0.7
    )
    codes = np.asarray(drawn.order) @ [64, 16, 4, 1]
    known, counts = np.unique(codes, return_counts=True)
    assert len(known) == 24
    np.testing.assert_array_equal(np.sort(drawn.order, axis=1), [[0, 1, 2, 3]] * 24_000)
    assert _chi_square(counts) < 60  # 23 degrees of freedom: probability 4e-5
    limits = ((0.5, 1.5), (0.0, 2.0), (0.2, 1.8), (-0.1, 0.1))
    columns = [*np.asarray(drawn.factors).T, np.asarray(drawn.shift)]
    for values, (low, high) in zip(columns, limits, strict=True):
        assert values.min() >= low - 1e-6
        assert values.max() <= high + 1e-6
        bins = np.floor((values - low) / (high - low) * 10).astype(int).clip(0, 9)
        assert _chi_square(np.bincount(bins, minlength=10)) < 40  # 9 degrees: probability 8e-6
    assert abs(np.mean(drawn.applied) - 0.7) < 0.012  # four standard deviations
    together = np.corrcoef([*columns, codes, np.asarray(drawn.applied)])
    assert np.abs(together - np.eye(6)).max() < 0.03  # more than four standard deviations


def test_color_jitter_applies_its_draws_and_nothing_when_all_is_off():
    options = {"brightness": 0.3, "contrast": 0.2, "saturation": 0.4, "hue": 0.1}
    drawn = augment.random_jitter(KEY, 48, **options, probability=0.5)
    expected = augment.apply_jitter(COLOUR, drawn)
    ours = augment.color_jitter(KEY, COLOUR, **options, probability=0.5)
    np.testing.assert_array_equal(ours, expected)
    off = augment.color_jitter(
        KEY, NOISE, brightness=0, contrast=0, saturation=0, hue=0, probability=1
    )
    np.testing.assert_array_equal(off, NOISE)
    np.testing.assert_array_equal(augment.color_jitter(KEY, NOISE, probability=0), NOISE)
    assert np.mean(np.any(ours != COLOUR, axis=(1, 2, 3))) > 0.2


def test_uniform_numbers_stay_in_range_and_hit_a_range_of_one_number():
    uniform = jax.jit(draws.uniform, static_argnums=(1, 2, 3))
    for low, high in ((0.1, 2.0), (-0.2, 0.2), (0.999, 1.0), (3.0, 1e4), (-1e-6, 0.0)):
        numbers = np.asarray(uniform(KEY, (20_000,), low, high))
        rounding = 2.0**-22 * max(abs(low), abs(high))
        assert numbers.min() >= low - rounding
        assert numbers.max() <= high + rounding
        mean, deviation = (low + high) / 2, (high - low) / math.sqrt(12 * 20_000)
        assert abs(numbers.mean(dtype=np.float64) - mean) < 4 * deviation + rounding
    for value in (0.0, 1.0, 0.75):
        np.testing.assert_array_equal(uniform(KEY, (5,), value, value), np.float32(value))


# Blur -------------------------------------------------------------------------------------------


def _exact_blur(images, sigma, kernel_size):
    """The direct double sum in float64, before rounding."""
    radius = kernel_size // 2
    padded = np.pad(images, ((0, 0), (radius, radius), (radius, radius), (0, 0)), mode="reflect")
    height, width = images.shape[1:3]
    place = np.arange(-radius, radius + 1)
    total = np.zeros(images.shape)
    for i, value in enumerate(np.asarray(sigma, np.float64)):
        line = np.exp(-(place**2) / (2 * value**2))
        kernel = np.outer(line, line) / line.sum() ** 2
        for y, x in itertools.product(range(kernel_size), repeat=2):
            total[i] += kernel[y, x] * padded[i, y : y + height, x : x + width]
    return total


@pytest.mark.parametrize("kernel_size", [1, 3, 7, 15])
@pytest.mark.parametrize("images", [COLOUR, NOISE[..., :1]], ids=["smooth", "noise"])
def test_blur_equals_the_direct_sum_but_for_near_halves(images, kernel_size):
    sigma = np.random.default_rng(4).uniform(0.1, 3.0, len(images)).astype(np.float32)
    ours = np.asarray(jit_blur(images, sigma, kernel_size=kernel_size))
    exact = _exact_blur(images, sigma, kernel_size)
    # Three times the float32 error of sums of this size, measured on 3 million random bytes.
    near_half = np.abs(exact - np.floor(exact) - 0.5) < 1e-4
    assert near_half.mean() < 1e-3
    np.testing.assert_array_equal(ours[~near_half], exact.round()[~near_half])
    assert np.abs(ours - exact).max() < 0.5001


def test_blur_by_hand():
    images = np.array([0, 0, 200, 0, 0], np.uint8).reshape(1, 1, 5, 1).repeat(5, axis=1)
    # exp(-1/2) = 0.60653: weights 0.60653 and 1, over 2.21306.
    blurred = np.asarray(jit_blur(images, 1.0, kernel_size=3))
    np.testing.assert_array_equal(blurred[0, 2, :, 0], [0, 55, 90, 55, 0])
    # At the border the neighbour inside counts twice.
    images = np.array([0, 100, 0, 0], np.uint8).reshape(1, 1, 4, 1).repeat(4, axis=1)
    blurred = np.asarray(jit_blur(images, 1.0, kernel_size=3))
    np.testing.assert_array_equal(blurred[0, 1, :, 0], [55, 45, 27, 0])


def test_blur_leaves_flat_images_and_vanishes_with_sigma():
    flat = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None, None, None], (256, 9, 9, 1))
    sigma = np.linspace(0.1, 2.0, 256)
    np.testing.assert_array_equal(jit_blur(flat, sigma, kernel_size=9), flat)
    for sigma in (0.0, 0.05, -1.0):
        np.testing.assert_array_equal(jit_blur(NOISE, sigma, kernel_size=5), NOISE)


def test_pillows_blur_is_another_operation():
    image = COLOUR[0]
    theirs = augment_images.to_pillow(image).filter(ImageFilter.GaussianBlur(1.0))
    ours = np.asarray(jit_blur(image[None], 1.0, kernel_size=7)[0], int)
    assert np.abs(ours - np.asarray(theirs, int)).max() > 1


def test_default_kernel_is_near_a_tenth_of_the_shorter_side():
    sides = {1: 1, 2: 3, 8: 3, 28: 3, 32: 3, 64: 7, 96: 9, 224: 23}
    assert {side: blur.default_kernel_size(side, side + 5) for side in sides} == sides


@pytest.mark.thorough
def test_random_blur_draws_sigma_in_its_range():
    dots = np.zeros((4000, 9, 9, 1), np.uint8)
    dots[:, 4, 4] = 255
    blurred = augment.random_blur(KEY, dots, probability=0.5, sigma=(0.5, 1.5), kernel_size=9)
    blurred = np.asarray(blurred)[..., 0].astype(float)
    chosen = blurred[:, 4, 4] < 255
    assert abs(chosen.mean() - 0.5) < 0.032  # four standard deviations
    # The wider the blur, the darker the centre.
    levels = np.array([_exact_blur(dots[:1], [s], 9)[0, 4, 4, 0] for s in (0.5, 1.0, 1.5)])
    center = blurred[chosen, 4, 4]
    assert center.max() <= levels[0] + 1
    assert center.min() >= levels[2] - 1
    assert abs(np.mean(center > levels[1]) - 0.5) < 0.05


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: augment.hue(COLOUR / 255, 0.1), "float64"),
        (lambda: augment.hue(COLOUR, np.zeros(3)), r"shift has shape \[3\]"),
        (lambda: augment.random_grayscale(KEY, COLOUR, probability=1.2), "probability is 1.2"),
        (lambda: augment.color_jitter(KEY, COLOUR, brightness=1.5), r"brightness is 1.5.*\[0, 1\]"),
        (lambda: augment.color_jitter(KEY, COLOUR, contrast=-0.1), "contrast is -0.1"),
        (lambda: augment.color_jitter(KEY, COLOUR, saturation=math.nan), "saturation is nan"),
        (lambda: augment.color_jitter(KEY, COLOUR, hue=0.6), r"hue is 0.6; .*\[0, 0.5\]"),
        (lambda: augment.color_jitter(KEY, COLOUR, probability=-1), "probability is -1"),
        (lambda: augment.gaussian_blur(COLOUR, 1.0, kernel_size=4), "kernel_size is 4"),
        (lambda: augment.gaussian_blur(COLOUR, 1.0, kernel_size=25), "from 1 to 23"),
        (lambda: augment.gaussian_blur(COLOUR, 1.0, kernel_size=3.0), "kernel_size is 3.0"),
        (lambda: augment.random_blur(KEY, COLOUR, kernel_size="3"), "kernel_size is '3'"),
        (lambda: augment.random_blur(KEY, COLOUR, sigma=1.0), "sigma is 1.0; accepted: .low, hi"),
        (lambda: augment.random_blur(KEY, COLOUR, sigma=(0.0, 1.0)), "sigma is"),
        (lambda: augment.random_blur(KEY, COLOUR, probability=2), "probability is 2"),
    ],
)
def test_bad_input_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()
