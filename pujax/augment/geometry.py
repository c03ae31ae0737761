"""Shifts, shears, rotations and mirrors by nearest neighbour, at the positions that Pillow samples.

An operation is a matrix of integers `[batch, 6]` in 16.16 fixed point, and one gather applies it.
Output pixel (x, y) shows input pixel ((a0 x + a1 y + a2) >> 16, (a3 x + a4 y + a5) >> 16), or black
outside the image; a2 and a5 include the half pixel to the centre of pixel (0, 0). Pillow computes
affine transforms the same way, so the sampled positions are its own.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax.augment import layout

PIXEL = 1 << 16
HALF = 1 << 15

# 65536 times the sine of every 64th of a degree: the nearest integer, and the rest in units of
# 2**-24. Pillow rounds sines to 15 digits, which makes those of right angles exact.
_PER_DEGREE = 64
_CIRCLE = 360 * _PER_DEGREE
_SINE = PIXEL * np.round(np.sin(np.deg2rad(np.arange(_CIRCLE) / _PER_DEGREE)), 15)
_SINE_WHOLE = np.floor(_SINE + 0.5).astype(np.int32)
_SINE_REST = np.round((_SINE - _SINE_WHOLE) * 2.0**24).astype(np.int32)


def rotate(images: jax.Array, degrees: ArrayLike) -> jax.Array:
    """Turns each image counter-clockwise about its centre, as `Image.rotate` does.

    Pillow rounds float64 sines to fixed point; here they come from a table and a short series, good
    to about 2**-20 of the last place. For one angle in 100,000 (32x32; three at 96x96) an offset
    therefore differs by 2**-16 of a pixel, which changes a pixel only where a sample falls that
    close to the border between two: one pixel in 4 out of ten million images at 32x32, 40 at 96x96.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      degrees: a number or `[batch]`.

    Returns:
      uint8 images of the same shape, black where the source lies outside.
    """
    degrees = layout.per_image("degrees", degrees, images)
    return sample(images, rotation_matrix(degrees, *images.shape[1:3]))


def shear_x(images: jax.Array, slope: ArrayLike) -> jax.Array:
    """Moves row y left by `slope * y` pixels; the top-left corner stays.

    Equal to Pillow's `image.transform(image.size, Image.AFFINE, (1, slope, 0, 0, 1, 0))`.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      slope: a number or `[batch]`, clipped to [-1, 1].

    Returns:
      uint8 images of the same shape, black where the source lies outside.
    """
    return sample(images, shear_x_matrix(layout.per_image("slope", slope, images)))


def shear_y(images: jax.Array, slope: ArrayLike) -> jax.Array:
    """Moves column x up by `slope * x` pixels; the top-left corner stays.

    Equal to Pillow's `image.transform(image.size, Image.AFFINE, (1, 0, 0, slope, 1, 0))`.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      slope: a number or `[batch]`, clipped to [-1, 1].

    Returns:
      uint8 images of the same shape, black where the source lies outside.
    """
    return sample(images, swap_axes(shear_x_matrix(layout.per_image("slope", slope, images))))


def translate_x(images: jax.Array, fraction: ArrayLike) -> jax.Array:
    """Moves each image left by `fraction * width`, rounded to whole pixels.

    Equal to Pillow's `image.transform(image.size, Image.AFFINE, (1, 0, shift, 0, 1, 0))` with
    `shift = fraction * width`.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      fraction: a number or `[batch]`, share of the width, clipped to [-1, 1].

    Returns:
      uint8 images of the same shape, black where the source lies outside.
    """
    fraction = layout.per_image("fraction", fraction, images)
    return sample(images, translate_x_matrix(fraction, images.shape[2]))


def translate_y(images: jax.Array, fraction: ArrayLike) -> jax.Array:
    """Moves each image up by `fraction * height`, rounded to whole pixels.

    Equal to Pillow's `image.transform(image.size, Image.AFFINE, (1, 0, 0, 0, 1, shift))` with
    `shift = fraction * height`.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      fraction: a number or `[batch]`, share of the height, clipped to [-1, 1].

    Returns:
      uint8 images of the same shape, black where the source lies outside.
    """
    fraction = layout.per_image("fraction", fraction, images)
    return sample(images, swap_axes(translate_x_matrix(fraction, images.shape[1])))


def sample(images: jax.Array, matrix: jax.Array) -> jax.Array:
    """Shows each image through its fixed-point matrix.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      matrix: int32 `[batch, 6]`, as at the top of this module.

    Returns:
      uint8 images of the same shape, black where the source lies outside.
    """
    batch, height, width, channels = images.shape
    x = jnp.arange(width, dtype=jnp.int32)
    y = jnp.arange(height, dtype=jnp.int32)[:, None]
    a0, a1, a2, a3, a4, a5 = (matrix[:, i, None, None] for i in range(6))
    column = (a0 * x + a1 * y + a2) >> 16
    row = (a3 * x + a4 * y + a5) >> 16
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    index = jnp.where(inside, row * width + column, height * width)  # the last one means outside

    def take(pixels, index):
        return pixels.at[index].get(mode="fill", fill_value=0)

    flat = images.reshape(batch, height * width, channels)
    return jax.vmap(take)(flat, index.reshape(batch, -1)).reshape(images.shape)


def window_matrix(flip: jax.Array, left: jax.Array, top: jax.Array, width: int) -> jax.Array:
    """Mirrors where asked, then shows the window that starts at column `left` and row `top`.

    Args:
      flip: bool `[batch]`.
      left: int32 `[batch]`, first column shown, may be negative.
      top: int32 `[batch]`, first row shown, may be negative.
      width: of the images.

    Returns:
      int32 matrix `[batch, 6]`.
    """
    direction = jnp.where(flip, -PIXEL, PIXEL)
    start = jnp.where(flip, width - 1 - left, left) * PIXEL + HALF
    zero = jnp.zeros_like(start)
    return jnp.stack([direction, zero, start, zero, zero + PIXEL, top * PIXEL + HALF], axis=-1)


def identity_matrix(batch: int) -> jax.Array:
    """Leaves images as they are.

    Args:
      batch: number of images.

    Returns:
      int32 matrix `[batch, 6]`.
    """
    row = jnp.array([PIXEL, 0, HALF, 0, PIXEL, HALF], jnp.int32)
    return jnp.broadcast_to(row, (batch, 6))


def shear_x_matrix(slope: jax.Array) -> jax.Array:
    """The matrix of `shear_x`.

    Args:
      slope: float32 `[batch]`.

    Returns:
      int32 matrix `[batch, 6]`.
    """
    slope = jnp.clip(slope, -1.0, 1.0)
    along, start = _nearest(slope * PIXEL), HALF + _nearest(slope * HALF)
    zero = jnp.zeros_like(start)
    return jnp.stack([zero + PIXEL, along, start, zero, zero + PIXEL, zero + HALF], axis=-1)


def translate_x_matrix(fraction: jax.Array, width: int) -> jax.Array:
    """The matrix of `translate_x`.

    Args:
      fraction: float32 `[batch]`.
      width: of the images.

    Returns:
      int32 matrix `[batch, 6]`.
    """
    # floor(fraction * width + 1/2) in two pieces: a single float32 product may round up to a half.
    units = jnp.clip(fraction, -1.0, 1.0) * PIXEL
    whole = jnp.floor(units)
    rest = jnp.floor((units - whole) * width).astype(jnp.int32)
    shift = (whole.astype(jnp.int32) * width + rest + HALF) >> 16
    return window_matrix(jnp.zeros(shift.shape, bool), shift, jnp.zeros_like(shift), width)


def swap_axes(matrix: jax.Array) -> jax.Array:
    """The same operation with the roles of x and y exchanged.

    Args:
      matrix: int32 `[batch, 6]`.

    Returns:
      int32 matrix `[batch, 6]`.
    """
    return jnp.stack([matrix[:, i] for i in (4, 3, 5, 1, 0, 2)], axis=-1)


def rotation_matrix(degrees: jax.Array, height: int, width: int) -> jax.Array:
    """The matrix of `rotate`.

    Args:
      degrees: float32 `[batch]`.
      height: of the images.
      width: of the images.

    Returns:
      int32 matrix `[batch, 6]`.
    """
    steps = degrees * _PER_DEGREE
    nearest = jnp.round(steps)
    angle = (steps - nearest) * np.float32(np.pi / 180 / _PER_DEGREE)
    phase = nearest.astype(jnp.int32) % _CIRCLE
    sin, sin_rest = _fixed_sine(phase, angle)
    cos, cos_rest = _fixed_sine((phase + _CIRCLE // 4) % _CIRCLE, angle)

    def start(size, over_x, over_x_rest, over_y, over_y_rest):
        # Keeps the centre of the image in place: half of size - (width - 1) dx - (height - 1) dy.
        twice = size * PIXEL - (width - 1) * over_x - (height - 1) * over_y
        rest = (width - 1) * (over_x_rest + 8 >> 4) + (height - 1) * (over_y_rest + 8 >> 4)
        return (twice + 1 + (-rest >> 20)) >> 1

    start_x = start(width, cos, cos_rest, -sin, -sin_rest)
    start_y = start(height, sin, sin_rest, cos, cos_rest)
    return jnp.stack([cos, -sin, start_x, sin, cos, start_y], axis=-1)


def _fixed_sine(phase, angle):
    """65536 sin(phase + angle): the nearest integer and the rest in units of 2**-24."""
    whole, rest = jnp.asarray(_SINE_WHOLE), jnp.asarray(_SINE_REST)
    shifted = (phase + _CIRCLE // 4) % _CIRCLE
    sin, cos = (
        whole[at].astype(jnp.float32) * 2.0**24 + rest[at].astype(jnp.float32)
        for at in (phase, shifted)
    )
    # Taylor's series, summed in integers: a compiler may fuse a product and a sum of floats, and
    # then rounds differently.
    change = (cos * angle).astype(jnp.int32)
    change -= (sin * (angle * angle * np.float32(1 / 2))).astype(jnp.int32)
    change -= (cos * (angle * angle * angle * np.float32(1 / 6))).astype(jnp.int32)
    rest = rest[phase] + change
    carry = (rest + (1 << 23)) >> 24
    return whole[phase] + carry, rest - (carry << 24)


def _nearest(value):
    floor = jnp.floor(value)
    return floor.astype(jnp.int32) + (value - floor >= 0.5)
