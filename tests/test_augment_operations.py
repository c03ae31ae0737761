"""Every augmentation operation against Pillow's own."""

import fractions
import functools
import math

import jax
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from pujax import augment
from pujax.augment import blends, geometry
from tests import augment_images

IMAGE_SETS = {
    "noise colour": augment_images.noise(60, 32, 32, 3),
    "smooth colour": augment_images.smooth(60, 32, 32, 3),
    "smooth grey": augment_images.smooth(60, 28, 20, 1),
    "digits": augment_images.digits(80),
    "smaller than the filter": augment_images.noise(10, 2, 5, 3),
}
SIZES = [(8, 8), (28, 28), (32, 32), (96, 96), (24, 33)]


def _affine(image, a, b, c, d, e, f):
    return image.transform(image.size, Image.Transform.AFFINE, (a, b, c, d, e, f))


def _enhance(kind):
    return lambda image, factor: kind(image).enhance(factor)


# Operation, range of strengths, Pillow's version. Ranges are those of RandAugment, or wider.
PIXEL_OPERATIONS = {
    "posterize": ((1, 9), lambda image, bits: ImageOps.posterize(image, min(int(bits), 8))),
    "solarize": ((-1, 257), ImageOps.solarize),
    "brightness": ((0, 2), _enhance(ImageEnhance.Brightness)),
    "color": ((0, 2), _enhance(ImageEnhance.Color)),
    "contrast": ((0, 2), _enhance(ImageEnhance.Contrast)),
    "sharpness": ((0, 2), _enhance(ImageEnhance.Sharpness)),
}
GEOMETRIC_OPERATIONS = {
    "rotate": (30, lambda image, v: image.rotate(v)),
    "shear_x": (0.3, lambda image, v: _affine(image, 1, v, 0, 0, 1, 0)),
    "shear_y": (0.3, lambda image, v: _affine(image, 1, 0, 0, v, 1, 0)),
    "translate_x": (0.3, lambda image, v: _affine(image, 1, 0, v * image.width, 0, 1, 0)),
    "translate_y": (0.3, lambda image, v: _affine(image, 1, 0, 0, 0, 1, v * image.height)),
}


def _pillow(operation, images, *strengths):
    results = []
    for i, image in enumerate(images):
        arguments = [float(strength[i]) for strength in strengths]
        results.append(operation(augment_images.to_pillow(image), *arguments))
    return np.stack([augment_images.from_pillow(result) for result in results])


@functools.cache
def compiled(name):
    return jax.jit(getattr(augment, name))


@pytest.mark.parametrize("images", IMAGE_SETS.values(), ids=IMAGE_SETS)
@pytest.mark.parametrize("name", PIXEL_OPERATIONS)
def test_pixel_operation_equals_pillow(name, images):
    (low, high), operation = PIXEL_OPERATIONS[name]
    rng = np.random.default_rng(2)
    strength = rng.uniform(low, high, len(images)).astype(np.float32)
    strength[:3] = math.floor(low + 1), high - 1, 1  # whole numbers and the neutral factor
    ours = compiled(name)(images, strength)
    np.testing.assert_array_equal(ours, _pillow(operation, images, strength))


@pytest.mark.parametrize("images", IMAGE_SETS.values(), ids=IMAGE_SETS)
def test_equalize_equals_pillow(images):
    ours = jax.jit(augment.equalize)(images)
    np.testing.assert_array_equal(ours, _pillow(ImageOps.equalize, images))


@pytest.mark.parametrize("images", IMAGE_SETS.values(), ids=IMAGE_SETS)
def test_autocontrast_is_exact_and_pillow_falls_at_most_one_level_short_at_whole_numbers(images):
    ours = np.asarray(jax.jit(augment.autocontrast)(images), int)
    theirs = _pillow(ImageOps.autocontrast, images).astype(int)
    low = images.min(axis=(1, 2), keepdims=True).astype(int)
    span = images.max(axis=(1, 2), keepdims=True).astype(int) - low
    product = (images.astype(int) - low) * 255
    exact = np.where(span > 0, product // np.maximum(span, 1), images)
    np.testing.assert_array_equal(ours, exact)
    whole = (product % np.maximum(span, 1) == 0) & (span > 0)
    assert np.all((ours == theirs) | (whole & (ours == theirs + 1)))
    # On images with a full range there is nothing to stretch and nothing to disagree about.
    assert np.mean(ours != theirs) < 0.02


def test_pillow_does_fall_short_in_autocontrast_so_the_exception_is_needed():
    assert 25 * (255.0 / 25) < 255  # the float64 product for the brightest of the levels 0 to 25
    images = np.arange(26, dtype=np.uint8).reshape(1, 2, 13, 1)
    assert np.asarray(augment.autocontrast(images)).max() == 255
    assert _pillow(ImageOps.autocontrast, images).max() == 254


blend = jax.jit(blends.blend)


@pytest.mark.parametrize("factor", [0.05, 0.3, 0.7, 0.95, 1.3, 2.0])
def test_blend_equals_pillow_on_every_pair_of_levels(factor):
    plain, image = (np.array(m, np.uint8) for m in np.meshgrid(np.arange(256), np.arange(256)))
    theirs = Image.blend(Image.fromarray(plain), Image.fromarray(image), float(np.float32(factor)))
    batches = plain[None, ..., None], image[None, ..., None]
    ours = np.asarray(blend(*batches, np.array([factor])))
    np.testing.assert_array_equal(ours[0, ..., 0], np.asarray(theirs))


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("name", GEOMETRIC_OPERATIONS)
def test_geometric_operation_samples_the_positions_of_pillow(name, height, width):
    limit, operation = GEOMETRIC_OPERATIONS[name]
    rng = np.random.default_rng(3)
    strength = rng.uniform(-limit, limit, 300 if height < 96 else 60).astype(np.float32)
    strength[:3] = 0, limit, -limit
    image = augment_images.positions(height, width)
    images = np.broadcast_to(image, (len(strength), height, width, 3))
    ours = compiled(name)(images, strength)
    np.testing.assert_array_equal(ours, _pillow(operation, images, strength))


@pytest.mark.parametrize("name", GEOMETRIC_OPERATIONS)
def test_geometric_operation_equals_pillow_on_grey_images(name):
    limit, operation = GEOMETRIC_OPERATIONS[name]
    images = augment_images.digits(50)
    strength = np.random.default_rng(4).uniform(-limit, limit, 50).astype(np.float32)
    ours = compiled(name)(images, strength)
    np.testing.assert_array_equal(ours, _pillow(operation, images, strength))


@pytest.mark.parametrize("shape", [(8, 8), (24, 33)])
def test_any_angle_equals_pillow_and_a_right_angle_is_a_turned_array(shape):
    degrees = np.concatenate([np.arange(-720, 721, 15), [1e-6, -1e-6, 44.9999, 1234.5]])
    degrees = degrees.astype(np.float32)
    images = np.broadcast_to(augment_images.positions(*shape), (len(degrees), *shape, 3))
    ours = np.asarray(jax.jit(augment.rotate)(images, degrees))
    np.testing.assert_array_equal(ours, _pillow(lambda im, v: im.rotate(v), images, degrees))
    if shape[0] == shape[1]:
        np.testing.assert_array_equal(ours[degrees == 90][0], np.rot90(images[0]))


@pytest.mark.parametrize("size", [8, 28, 32, 96, 224])
def test_shift_is_rounded_exactly_next_to_every_half_pixel(size):
    halves = ((np.arange(-size // 3, size // 3) + 0.5) / size).astype(np.float32)
    strength = np.concatenate([halves, np.nextafter(halves, -9), np.nextafter(halves, 9)])
    matrix = jax.jit(geometry.translate_x_matrix, static_argnums=1)(strength, size)
    shift = (np.asarray(matrix)[:, 2] - geometry.HALF) // geometry.PIXEL
    half = fractions.Fraction(1, 2)
    exact = [math.floor(fractions.Fraction(float(s)) * size + half) for s in strength]
    np.testing.assert_array_equal(shift, exact)


def _pillow_rotation(degrees, height, width):
    """Pillow's matrix in its 16.16 fixed point, in float64."""
    angle = -math.radians(degrees % 360.0)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = width / 2, height / 2
    start_x = (cos * -x + sin * -y) + x + cos * 0.5 + sin * 0.5
    start_y = (-sin * -x + cos * -y) + y - sin * 0.5 + cos * 0.5
    return [math.floor(v * 65536 + 0.5) for v in (cos, sin, start_x, -sin, cos, start_y)]


def test_rotation_matrix_differs_from_pillow_by_one_unit_in_few_offsets_only():
    degrees = np.random.default_rng(5).uniform(-30, 30, 40_000).astype(np.float32)
    ours = np.asarray(jax.jit(geometry.rotation_matrix, static_argnums=(1, 2))(degrees, 96, 96))
    theirs = np.array([_pillow_rotation(float(v), 96, 96) for v in degrees])
    assert np.abs(ours - theirs).max() <= 1
    assert np.mean(ours[:, [0, 1, 3, 4]] != theirs[:, [0, 1, 3, 4]]) < 2e-5
    assert np.mean(ours[:, [2, 5]] != theirs[:, [2, 5]]) < 2e-4


def _cutout_by_hand(image, side, center_x, center_y):
    """Pillow draws the far corner too; a side of 0 draws nothing."""
    pixels = side * image.width
    left = int(max(0, center_x * image.width - pixels / 2))
    top = int(max(0, center_y * image.height - pixels / 2))
    right, bottom = min(image.width, left + pixels), min(image.height, top + pixels)
    fill = (125, 123, 114) if image.mode == "RGB" else 123
    if side > 0:
        ImageDraw.Draw(image).rectangle((left, top, right, bottom), fill)
    return image


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 20, 1)])
def test_cutout_equals_the_rectangle_that_pillow_draws(shape):
    images = augment_images.noise(200, *shape)
    # Multiples of 2**-16, to which cutout reads its arguments.
    draws = np.random.default_rng(6).integers(0, 1 << 16, (3, 200)) / 2.0**16
    draws[0] /= 2
    draws[0, :20] = 0
    ours = jax.jit(augment.cutout)(images, *draws)
    np.testing.assert_array_equal(ours, _pillow(_cutout_by_hand, images, *draws))


def test_fill_for_one_channel_is_the_luminance_of_the_colour():
    black = np.zeros((1, 4, 4, 3), np.uint8)
    colour = jax.jit(lambda images: blends.luminance(augment.cutout(images, 1.0, 0.5, 0.5)))
    assert np.asarray(colour(black))[0, 3, 3, 0] == 123
    assert np.asarray(augment.cutout(black[..., :1], 1.0, 0.5, 0.5))[0, 3, 3, 0] == 123


@pytest.mark.thorough
@pytest.mark.parametrize("channels", [1, 3])
def test_grouped_operations_equal_the_single_ones(channels):
    images = augment_images.smooth(70, 16, 12, channels)
    operation = np.arange(70) % len(augment.OPERATIONS)
    low, high = np.array([o[1:] for o in augment.OPERATIONS], np.float32)[operation].T
    strength = low + (high - low) * np.random.default_rng(7).random(70, np.float32)
    together = jax.jit(augment.apply_operations)(images, operation[:, None], strength[:, None])
    for i, known in enumerate(augment.OPERATIONS):
        rows = operation == i
        arguments = [strength] if known.high > known.low else []
        alone = jax.jit(getattr(augment, known.name))(images, *arguments)
        np.testing.assert_array_equal(together[rows], alone[rows], err_msg=known.name)


def test_operations_are_applied_in_order():
    images = augment_images.smooth(70, 16, 12, 3)
    draw = jax.jit(augment.random_operations, static_argnums=1, static_argnames="num_ops")
    operation, strength = map(np.asarray, draw(jax.random.key(0), 70, num_ops=3))
    apply = jax.jit(augment.apply_operations)
    expected = images
    for i in range(3):
        expected = apply(expected, operation[:, i : i + 1], strength[:, i : i + 1])
    ours = apply(images, operation, strength)
    np.testing.assert_array_equal(ours, expected)
    assert not np.array_equal(ours, apply(images, operation[:, ::-1], strength[:, ::-1]))
