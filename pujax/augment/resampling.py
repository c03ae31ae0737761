"""Resizing by Pillow's antialiased bilinear filter, in the same integer arithmetic.

Pillow resizes 8-bit images in integers: along each axis an output pixel is a sum of input pixels
with weights of 22 bits, rounded to a whole level; first along the rows, then down the columns. The
weights are those of a triangle around the output pixel's place in the input, as wide as an input
pixel when enlarging and as an output pixel when shrinking, and they sum to one inside the box. Here
each image has a matrix of those weights per axis, and two batched matrix products do the rest.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax.augment import layout

WEIGHT_BITS = 22
# A weight is split into two halves of 11 bits, whose products with bytes float32 adds up exactly as
# long as the sums stay below 2**24: 64 pixels at most contribute when shrinking up to this much.
_HALF_BITS = 11
_MAX_SHRINK = 31


def resize(images: jax.Array, height: int, width: int) -> jax.Array:
    """Resizes all images, as Pillow's `Image.resize((width, height), Image.BILINEAR)` does.

    Bit for bit equal, with the exception in Pillow 13 that `resized_crop` names.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      height: of the result, in pixels, 1 to 2047.
      width: of the result, in pixels, 1 to 2047.

    Returns:
      uint8 `[batch, height, width, channels]`.

    Raises:
      ValueError: for images or a size that is not accepted.
    """
    layout.check_images(images)
    rows, columns = images.shape[1:3]
    return resized_crop(images, 0, 0, rows, columns, height=height, width=width)


def resized_crop(
    images: jax.Array,
    top: ArrayLike,
    left: ArrayLike,
    crop_height: ArrayLike,
    crop_width: ArrayLike,
    *,
    height: int,
    width: int,
) -> jax.Array:
    """Cuts a box out of each image and resizes it, as Pillow's `crop`, then `resize` do.

    Bit for bit equal to `image.crop(box).resize((width, height), Image.BILINEAR)`; the filter sees
    nothing outside of the box. Pillow 13 goes down the columns first in some boxes that lose rows,
    where earlier versions, followed here, always start with the rows: in such images about one
    value in five then differs by one level (one in eight images shrunk from 224 to 96 pixels, none
    to 32, none enlarged).

    Each argument of the box is cut down to a whole number and then moved to the nearest that leaves
    the box inside the image and at least one pixel large.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      top: first row of the box, a number or `[batch]`.
      left: first column of the box, a number or `[batch]`.
      crop_height: rows of the box, a number or `[batch]`.
      crop_width: columns of the box, a number or `[batch]`.
      height: of the result, in pixels, 1 to 2047.
      width: of the result, in pixels, 1 to 2047.

    Returns:
      uint8 `[batch, height, width, channels]`.

    Raises:
      ValueError: for images, a shape or a size that is not accepted.
    """
    layout.check_images(images)
    height, width = checked_size("height", height), checked_size("width", width)
    batch, rows, columns, channels = images.shape
    spans = []
    for start_name, start, length_name, length, side in (
        ("top", top, "crop_height", crop_height, rows),
        ("left", left, "crop_width", crop_width, columns),
    ):
        start = layout.per_image(start_name, start, images).astype(jnp.int32)
        length = layout.per_image(length_name, length, images).astype(jnp.int32)
        length = jnp.clip(length, 1, side)
        spans.append((jnp.clip(start, 0, side - length), length))
    turned = images.transpose(0, 2, 1, 3).reshape(batch, columns, rows * channels)
    turned = _weighted(turned, triangle_weights(*spans[1], columns, width))
    turned = turned.reshape(batch, width, rows, channels).transpose(0, 2, 1, 3)
    turned = turned.reshape(batch, rows, width * channels)
    result = _weighted(turned, triangle_weights(*spans[0], rows, height))
    return result.reshape(batch, height, width, channels)


def triangle_weights(start: jax.Array, length: jax.Array, size: int, result_size: int) -> jax.Array:
    """Pillow's weights of the input pixels of one axis, in integers of 2**-22.

    Places and widths are ratios of small integers, so that the weights are rounded from their exact
    values; Pillow computes them in float64 and rounds to the same integers.

    Args:
      start: int32 `[batch]`, first pixel of the box.
      length: int32 `[batch]`, pixels in the box.
      size: pixels of the input.
      result_size: pixels of the result.

    Returns:
      int32 `[batch, result_size, size]`, 0 outside of the box.
    """
    place = jnp.arange(size, dtype=jnp.int32) - start[:, None]
    inside = ((place >= 0) & (place < length[:, None]))[:, None, :]
    center = (2 * jnp.arange(result_size, dtype=jnp.int32) + 1) * length[:, None]
    # Distance between the two pixels' centres and width of the triangle in the same unit.
    distance = (2 * place + 1)[:, None, :] * result_size - center[:, :, None]
    reach = 2 * jnp.maximum(length, result_size)[:, None, None]
    weight = jnp.where(inside, jnp.maximum(reach - jnp.abs(distance), 0), 0)
    total = jnp.sum(weight, axis=2, keepdims=True, dtype=jnp.int32)
    # The quotient in float32 is off by one at most; the remainder, which is small, is taken in
    # integers modulo 2**32 and sets it right.
    quotient = weight.astype(jnp.float32) / total.astype(jnp.float32)
    quotient = jnp.round(quotient * 2.0**WEIGHT_BITS).astype(jnp.int32)
    rest = 2 * ((weight << WEIGHT_BITS) - quotient * total)
    return quotient + (rest >= total) - (rest < -total)


def checked_size(name: str, value: int) -> int:
    """`value` as a side that images may have.

    Args:
      name: of the argument, for the error message.
      value: the side, in pixels.

    Returns:
      The side as an int.

    Raises:
      ValueError: naming what it got.
    """
    size = layout.whole_number(value)
    if size is None or not 1 <= size <= layout.MAX_SIDE:
        raise ValueError(f"{name} is {value!r}; accepted: 1 to {layout.MAX_SIDE} whole pixels")
    return size


def _weighted(lines, weights):
    """Sums of uint8 `[batch, size, values]` with weights `[batch, result_size, size]`, rounded."""
    result_size, size = weights.shape[1:]
    if size > _MAX_SHRINK * result_size:
        total = jnp.einsum("boi,bin->bon", weights, lines.astype(jnp.int32))
    else:
        high = (weights + (1 << _HALF_BITS - 1)) >> _HALF_BITS
        halves = jnp.concatenate([high, weights - (high << _HALF_BITS)], axis=1)
        total = jnp.einsum(
            "boi,bin->bon",
            halves.astype(jnp.float32),
            lines.astype(jnp.float32),
            precision=jax.lax.Precision.HIGHEST,
        ).astype(jnp.int32)
        total = (total[:, :result_size] << _HALF_BITS) + total[:, result_size:]
    return ((total + (1 << WEIGHT_BITS - 1)) >> WEIGHT_BITS).astype(jnp.uint8)
