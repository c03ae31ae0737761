"""Resizing by Pillow's antialiased bicubic filter, in the same integer arithmetic.

Pillow's scheme is that of `resampling`: a sum of pixels with weights of 22 bits, rounded to a whole
level, first along the rows, then down the columns. The weights are those of Keys's cubic (1981,
a = -1/2) over two pixels on each side: input pixels when enlarging, output pixels when shrinking.
Before rounding they need more than 32 bits, so they are computed in float64 on the host, once for
each size of a box; only the choice of the size and the place of the box are arrays.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pujax.augment import layout
from pujax.augment.resampling import WEIGHT_BITS, checked_size

# Sums of up to this many pixels are unrolled. Longer ones, which only strong shrinking needs, are a
# loop, which compiles faster but runs more slowly.
_MAX_UNROLLED = 16


class Taps(NamedTuple):
    """Which pixels of a line each pixel of the result is a sum of.

    Attributes:
      place: int32 `[result_size, taps]`, from the start of the line.
      weight: int32 `[result_size, taps]` in units of 2**-22, 0 for those that are not used.
    """

    place: np.ndarray
    weight: np.ndarray


def resize_bicubic(images: jax.Array, height: int, width: int) -> jax.Array:
    """Resizes all images, as Pillow's `Image.resize((width, height), Image.BICUBIC)` does.

    Bit for bit equal. As with `resized_crop`, Pillow 13 differs where it goes down the columns
    first, in some images that lose rows: there by several levels where the filter overshoots, since
    overshoots are cut off between the two passes.

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
    batch, rows, columns, _ = images.shape
    zeros = jnp.zeros(batch, jnp.int32)
    sizes = ((rows, columns),)
    return boxes_resized(images, zeros, zeros, zeros, sizes=sizes, height=height, width=width)


def boxes_resized(
    images: jax.Array,
    top: jax.Array,
    left: jax.Array,
    choice: jax.Array,
    *,
    sizes: Sequence[tuple[int, int]],
    height: int,
    width: int,
) -> jax.Array:
    """Cuts a box of one of a few sizes out of each image and resizes it.

    Bit for bit equal to `image.crop(box).resize((width, height), Image.BICUBIC)`, with the
    exception in Pillow 13 that `resize_bicubic` names. Boxes must lie inside their images.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      top: int32 `[batch]`, first row of the box.
      left: int32 `[batch]`, first column of the box.
      choice: int32 `[batch]`, position of the box's size in `sizes`.
      sizes: height and width of the boxes that there are, in pixels.
      height: of the result, in pixels, 1 to 2047.
      width: of the result, in pixels, 1 to 2047.

    Returns:
      uint8 `[batch, height, width, channels]`.

    Raises:
      ValueError: for images or a size that is not accepted.
    """
    layout.check_images(images)
    height, width = checked_size("height", height), checked_size("width", width)
    batch, rows, columns, channels = images.shape
    box_heights, box_widths = zip(*sizes, strict=True)
    turned = images.transpose(0, 2, 1, 3).reshape(batch, columns, rows * channels)
    turned = _summed(turned, left, choice, _stacked(box_widths, width))
    turned = turned.reshape(batch, width, rows, channels).transpose(0, 2, 1, 3)
    turned = turned.reshape(batch, rows, width * channels)
    result = _summed(turned, top, choice, _stacked(box_heights, height))
    return result.reshape(batch, height, width, channels)


def taps(size: int, result_size: int) -> Taps:
    """The sums that resize a line of pixels.

    Args:
      size: pixels of the line.
      result_size: pixels of the result.

    Returns:
      `Taps`; the weights of a sum are rounded one by one, so that their total is 1 to rounding.
    """
    scale = size / result_size
    stretch = max(scale, 1.0)
    center = (np.arange(result_size)[:, None] + 0.5) * scale
    first = np.maximum((center - 2 * stretch + 0.5).astype(int), 0)
    last = np.minimum((center + 2 * stretch + 0.5).astype(int), size)
    place = first + np.arange(np.max(last - first))
    is_used = place < last
    weight = np.where(is_used, _cubic(np.abs(place - center + 0.5) / stretch), 0.0)
    weight *= 2.0**WEIGHT_BITS / weight.sum(axis=1, keepdims=True)
    # Halves are rounded away from zero, as in Pillow.
    weight = np.trunc(weight + np.copysign(0.5, weight))
    return Taps(np.where(is_used, place, 0).astype(np.int32), weight.astype(np.int32))


def _cubic(distance):
    """Keys's cubic with a = -1/2 at distances of 0 or more."""
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = -0.5 * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance < 1, near, np.where(distance < 2, far, 0.0))


def _stacked(sizes, result_size):
    """`Taps` with an axis for the size in front, filled up with unused pixels."""
    each = [taps(size, result_size) for size in sizes]
    most = max(one.place.shape[1] for one in each)

    def stack(arrays):
        return np.stack([np.pad(a, ((0, 0), (0, most - a.shape[1]))) for a in arrays])

    return Taps(stack([one.place for one in each]), stack([one.weight for one in each]))


def _summed(lines, start, choice, each):
    """uint8 `[batch, size, values]` to `[batch, result_size, values]` by the chosen `Taps`."""
    place = jnp.asarray(each.place)[choice] + start[:, None, None]
    weight = jnp.asarray(each.weight)[choice]
    count = place.shape[2]

    def add(index, total):
        pixels = jax.vmap(lambda line, at: jnp.take(line, at, axis=0, mode="clip"))(
            lines, place[:, :, index]
        )
        return total + weight[:, :, index, None] * pixels.astype(jnp.int32)

    # Weights sum to less than 1.3 in size: with bytes they stay inside of 31 bits.
    half = jnp.int32(1 << WEIGHT_BITS - 1)
    total = jnp.full((*place.shape[:2], lines.shape[2]), half)
    total = jax.lax.fori_loop(0, count, add, total, unroll=count <= _MAX_UNROLLED)
    return jnp.clip(total >> WEIGHT_BITS, 0, 255).astype(jnp.uint8)
