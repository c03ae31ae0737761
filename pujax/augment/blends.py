"""Operations that move an image towards a plainer one: Pillow's `ImageEnhance`.

A factor of 0 gives the plain image (black, grey or smoothed), 1 the image itself, more than 1 moves
away from the plain image.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax.augment import layout


def brightness(images: jax.Array, factor: ArrayLike) -> jax.Array:
    """Moves each image towards black: `ImageEnhance.Brightness`.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      factor: a number or `[batch]`, clipped to [0, 2].

    Returns:
      uint8 images of the same shape.
    """
    return blend(jnp.zeros_like(images), images, layout.per_image("factor", factor, images))


def color(images: jax.Array, factor: ArrayLike) -> jax.Array:
    """Moves each pixel towards its own grey: `ImageEnhance.Color`; grey images stay as they are.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      factor: a number or `[batch]`, clipped to [0, 2].

    Returns:
      uint8 images of the same shape.
    """
    factor = layout.per_image("factor", factor, images)
    return blend(luminance(images), images, factor)


def contrast(images: jax.Array, factor: ArrayLike) -> jax.Array:
    """Moves each image towards its mean grey: `ImageEnhance.Contrast`.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      factor: a number or `[batch]`, clipped to [0, 2].

    Returns:
      uint8 images of the same shape.
    """
    factor = layout.per_image("factor", factor, images)
    return blend(mean_grey(luminance(images)), images, factor)


def sharpness(images: jax.Array, factor: ArrayLike) -> jax.Array:
    """Moves each image towards a smoothed one: `ImageEnhance.Sharpness`.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      factor: a number or `[batch]`, clipped to [0, 2].

    Returns:
      uint8 images of the same shape.
    """
    factor = layout.per_image("factor", factor, images)
    return blend(smooth(images), images, factor)


def blend(plain: jax.Array, images: jax.Array, factor: jax.Array) -> jax.Array:
    """`plain + factor * (images - plain)`, cut down to whole levels: Pillow's `Image.blend`.

    Args:
      plain: integers 0 to 255 that broadcast to the shape of `images`.
      images: uint8 `[batch, height, width, channels]`.
      factor: float32 `[batch]`, clipped to [0, 2].

    Returns:
      uint8 images of the same shape.
    """
    plain = plain.astype(jnp.int32)
    factor = jnp.clip(factor, 0.0, 2.0)[:, None, None, None]
    move = factor * (images.astype(jnp.int32) - plain).astype(jnp.float32)
    # The sum is taken in integer multiples of 2**-22 and rounded to float32 once, like a sum of two
    # float32 numbers. In floats a compiler may fuse it with the product and round differently.
    level = (plain << 22) + (move * 2.0**22).astype(jnp.int32)
    level = level.astype(jnp.float32) * 2.0**-22
    return jnp.clip(level, 0.0, 255.0).astype(jnp.uint8)


def luminance(images: jax.Array) -> jax.Array:
    """Grey level of each pixel, the ITU-R 601-2 weights in 16 bits, as `Image.convert("L")`.

    Args:
      images: uint8 `[batch, height, width, channels]`.

    Returns:
      int32 `[batch, height, width, 1]`.
    """
    if images.shape[-1] == 1:
        return images.astype(jnp.int32)
    red, green, blue = (images[..., c : c + 1].astype(jnp.int32) for c in range(3))
    return (19595 * red + 38470 * green + 7471 * blue + (1 << 15)) >> 16


def mean_grey(grey: jax.Array) -> jax.Array:
    """Mean level of each image, rounded to the nearest integer, halves up.

    Args:
      grey: int32 `[batch, height, width, 1]`.

    Returns:
      int32 `[batch, 1, 1, 1]`.
    """
    count = grey.shape[1] * grey.shape[2]
    total = jnp.sum(grey, axis=(1, 2, 3), keepdims=True, dtype=jnp.int32)
    return (2 * total + count) // (2 * count)


def smooth(images: jax.Array) -> jax.Array:
    """Each pixel with weight 5 and its eight neighbours with 1: Pillow's `ImageFilter.SMOOTH`.

    The outermost pixels stay as they are.

    Args:
      images: uint8 `[batch, height, width, channels]`.

    Returns:
      uint8 images of the same shape.
    """
    batch, height, width, channels = images.shape
    # Columns and channels in one axis, so that a row is a single run of numbers; 16 bits hold the
    # sum of 13 levels and are twice as fast as 32.
    rows = images.reshape(batch, height, width * channels).astype(jnp.uint16)
    padded = jnp.pad(rows, ((0, 0), (1, 1), (channels, channels)))
    triples = padded[:, :, : -2 * channels] + padded[:, :, channels:-channels]
    triples = triples + padded[:, :, 2 * channels :]
    total = triples[:, :-2] + triples[:, 1:-1] + triples[:, 2:] + 4 * rows
    x = np.arange(width * channels) // channels
    y = np.arange(height)[:, None]
    border = (x == 0) | (x == width - 1) | (y == 0) | (y == height - 1)
    # Thirteenths never lie half-way, so adding 6 rounds to the nearest integer.
    rounded = jnp.where(border, rows, (total + 6) // 13)
    return rounded.astype(jnp.uint8).reshape(images.shape)
