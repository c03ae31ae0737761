"""Operations that map each grey level of a channel to another: one table of 256 per channel."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax.augment import layout

LEVELS = np.arange(256, dtype=np.int32)


def autocontrast(images: jax.Array) -> jax.Array:
    """Stretches each channel so that its darkest pixel becomes 0 and its brightest 255.

    Equal to Pillow's `ImageOps.autocontrast`, except that a level whose stretched value is a whole
    number gets exactly that number: Pillow's float64 product can fall just short of it and is then
    cut down to one less, for example 254 for the brightest pixel.

    Args:
      images: uint8 `[batch, height, width, channels]`.

    Returns:
      uint8 images of the same shape.
    """
    layout.check_images(images)
    return lookup(images, autocontrast_table(histogram(images)))


def equalize(images: jax.Array) -> jax.Array:
    """Spreads each channel's grey levels evenly: Pillow's `ImageOps.equalize`.

    Args:
      images: uint8 `[batch, height, width, channels]`.

    Returns:
      uint8 images of the same shape.
    """
    layout.check_images(images)
    return lookup(images, equalize_table(histogram(images)))


def posterize(images: jax.Array, bits: ArrayLike) -> jax.Array:
    """Keeps the highest bits of each value: Pillow's `ImageOps.posterize`.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      bits: a number or `[batch]`, cut down to an integer, clipped to [1, 8].

    Returns:
      uint8 images of the same shape.
    """
    return lookup(images, posterize_table(layout.per_image("bits", bits, images)))


def solarize(images: jax.Array, threshold: ArrayLike) -> jax.Array:
    """Inverts values at or above a threshold: Pillow's `ImageOps.solarize`.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      threshold: a number or `[batch]`, in grey levels; 256 changes nothing.

    Returns:
      uint8 images of the same shape.
    """
    return lookup(images, solarize_table(layout.per_image("threshold", threshold, images)))


def histogram(images: jax.Array) -> jax.Array:
    """Counts the pixels at each level.

    Args:
      images: uint8 `[batch, height, width, channels]`.

    Returns:
      int32 `[batch, channels, 256]`.
    """
    batch, channels = images.shape[0], images.shape[-1]

    def count(slots):
        return jnp.zeros(channels * 256, jnp.int32).at[slots].add(1, mode="promise_in_bounds")

    return jax.vmap(count)(_slots(images)).reshape(batch, channels, 256)


def lookup(images: jax.Array, table: jax.Array) -> jax.Array:
    """Replaces each value by its entry in the table of its channel.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      table: `[batch, channels or 1, 256]`, values 0 to 255.

    Returns:
      uint8 images of the same shape.
    """
    batch, channels = images.shape[0], images.shape[-1]
    table = jnp.broadcast_to(table.astype(jnp.uint8), (batch, channels, 256))

    def take(table, slots):
        return table.at[slots].get(mode="promise_in_bounds")

    return jax.vmap(take)(table.reshape(batch, -1), _slots(images)).reshape(images.shape)


def autocontrast_table(counts: jax.Array) -> jax.Array:
    """The table of `autocontrast`.

    Args:
      counts: int32 `[batch, channels, 256]` from `histogram`.

    Returns:
      int32 table of the same shape.
    """
    low = jnp.min(jnp.where(counts > 0, LEVELS, 255), axis=-1, keepdims=True)
    high = jnp.max(jnp.where(counts > 0, LEVELS, 0), axis=-1, keepdims=True)
    stretched = floor_ratio((LEVELS - low) * 255, high - low)
    return jnp.where(high > low, jnp.clip(stretched, 0, 255), LEVELS)


def equalize_table(counts: jax.Array) -> jax.Array:
    """The table of `equalize`.

    Args:
      counts: int32 `[batch, channels, 256]` from `histogram`.

    Returns:
      int32 table of the same shape.
    """
    high = jnp.max(jnp.where(counts > 0, LEVELS, 0), axis=-1, keepdims=True)
    below = jnp.cumsum(counts, axis=-1, dtype=jnp.int32) - counts
    # Pixels per output level, without the brightest level, as Pillow has it; 0 for flat channels.
    rest = jnp.where(high > LEVELS, counts, 0)
    step = jnp.sum(rest, axis=-1, keepdims=True, dtype=jnp.int32) // 255
    return jnp.where(step > 0, jnp.minimum(floor_ratio(below + step // 2, step), 255), LEVELS)


def posterize_table(bits: jax.Array) -> jax.Array:
    """The table of `posterize`.

    Args:
      bits: `[batch]`.

    Returns:
      int32 table `[batch, 1, 256]`.
    """
    dropped = 8 - jnp.clip(bits.astype(jnp.int32), 1, 8)[:, None, None]
    return (jnp.asarray(LEVELS) >> dropped) << dropped


def solarize_table(threshold: jax.Array) -> jax.Array:
    """The table of `solarize`.

    Args:
      threshold: `[batch]`.

    Returns:
      int32 table `[batch, 1, 256]`.
    """
    return jnp.where(threshold[:, None, None] > LEVELS, LEVELS, 255 - LEVELS)


def _slots(images):
    """Position of each value in the flattened table of its image, `[batch, values]`."""
    channel = jnp.arange(images.shape[-1], dtype=jnp.int32)
    return (images.astype(jnp.int32) + 256 * channel).reshape(images.shape[0], -1)


def floor_ratio(numerator: jax.Array | np.ndarray, denominator: jax.Array) -> jax.Array:
    """`numerator // denominator` of whole numbers from 0, for a denominator of 0 that of 1.

    Args:
      numerator: integers from 0, below 2**23, of any shape.
      denominator: integers from 0, of a shape that broadcasts.

    Returns:
      int32 quotients.
    """
    # The half keeps the float32 quotient clear of whole numbers, so its rounding does not matter.
    denominator = jnp.maximum(denominator, 1).astype(jnp.float32)
    return jnp.floor((numerator.astype(jnp.float32) + 0.5) / denominator).astype(jnp.int32)
