"""Colours on the hue circle: Pillow's 8-bit HSV, and greys."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax.augment import blends, draws, layout, tones

MAX_SHIFT = 0.5


def hue(images: jax.Array, shift: ArrayLike) -> jax.Array:
    """Turns the colours of each image around the hue circle, as torchvision's `adjust_hue` does.

    On Pillow images, that is: convert to 8-bit HSV, add the whole levels of `255 * shift` to H
    modulo 256, convert back. Equal to Pillow on all 256**3 colours and every shift. A shift below
    1 / 255 is not the identity, since HSV with 8 bits does not hold all colours.

    Args:
      images: uint8 `[batch, height, width, channels]`; those with one channel stay as they are.
      shift: a number or `[batch]`, in turns, clipped to [-0.5, 0.5].

    Returns:
      uint8 images of the same shape.
    """
    shift = layout.per_image("shift", shift, images)
    if images.shape[-1] == 1:
        return images
    level, saturation, value = rgb_to_hsv(images)
    level = (level + _whole_levels(shift)[:, None, None]) & 255
    return hsv_to_rgb(level, saturation, value)


def grayscale(images: jax.Array) -> jax.Array:
    """Greys of the same luminance in all channels: Pillow's `convert("L")`.

    Args:
      images: uint8 `[batch, height, width, channels]`.

    Returns:
      uint8 images of the same shape.
    """
    layout.check_images(images)
    return jnp.broadcast_to(blends.luminance(images).astype(jnp.uint8), images.shape)


def random_grayscale(key: jax.Array, images: jax.Array, *, probability: float = 0.2) -> jax.Array:
    """`grayscale` for each image with the same probability.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      probability: in [0, 1].

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for images or a `probability` that is not accepted.
    """
    layout.check_images(images)
    grey = draws.chosen(key, images.shape[0], probability)
    return jnp.where(grey[:, None, None, None], grayscale(images), images)


def rgb_to_hsv(images: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Pillow's `convert("HSV")`, without its last cast to bytes.

    Args:
      images: uint8 `[..., 3]`.

    Returns:
      Hue, saturation and value, int32 `[...]` from 0 to 255. A whole turn is 255.
    """
    red, green, blue = (images[..., c].astype(jnp.int32) for c in range(3))
    value = jnp.maximum(jnp.maximum(red, green), blue)
    spread = value - jnp.minimum(jnp.minimum(red, green), blue)
    # Six spreads make a turn, red is at 0, green at 2 and blue at 4 of them.
    turn = jnp.where(green == value, 2 * spread + blue - red, 4 * spread + red - green)
    turn = jnp.where(red == value, green - blue, turn)
    turn = jnp.where(turn < 0, turn + 6 * spread, turn)
    level = tones.floor_ratio(85 * turn, 2 * spread)
    # Where the level is a whole number, Pillow's floats may fall just short of it.
    whole = 85 * turn == 2 * spread * level
    level = jnp.where(whole, jnp.asarray(_WHOLE_HUES)[level], level)
    return level, tones.floor_ratio(255 * spread, value), value


def hsv_to_rgb(level: jax.Array, saturation: jax.Array, value: jax.Array) -> jax.Array:
    """Pillow's conversion from HSV to RGB.

    Args:
      level: hue, int32 `[...]` from 0 to 255.
      saturation: int32 `[...]` from 0 to 255.
      value: int32 `[...]` from 0 to 255.

    Returns:
      uint8 `[..., 3]`.
    """
    # A channel is at full value for a third of the turn, at its lowest for another, and linear in
    # between: 1530 = 6 * 255 steps per turn. Halves cannot occur, 65025 being odd.
    place = (6 * level[..., None] + jnp.array([5, 3, 1], jnp.int32) * 255) % 1530
    away = jnp.clip(jnp.minimum(place, 1020 - place), 0, 255)
    share = 65025 - saturation[..., None] * away
    return ((2 * value[..., None] * share + 65025) // 130050).astype(jnp.uint8)


def _whole_levels(shift):
    """`int(255 * shift)` exactly: a float32 product may round up to a whole number."""
    size = jnp.minimum(jnp.abs(shift), MAX_SHIFT) * 65536.0
    units = jnp.floor(size)
    rest = jnp.floor(255.0 * (size - units)).astype(jnp.int32)
    levels = (255 * units.astype(jnp.int32) + rest) >> 16
    return jnp.where(shift < 0, -levels, levels)


def _whole_hues():
    """What Pillow makes of a hue that is exactly level 0, 1, ... 255: that level or one less.

    Pillow goes through float32: the distance of the middle channel from the largest as a share of
    the spread, then the place on the circle in sixths of a turn, then in turns.
    """
    level = np.arange(256)
    largest = np.select([level * 6 <= 255, level * 6 <= 3 * 255, level * 6 < 5 * 255], [0, 2, 4], 6)
    offset = 6 * level - 255 * largest
    middle = ((255 - np.abs(offset)) / 255).astype(np.float32).astype(np.float64)
    sixths = (largest % 6 + np.sign(offset) * (1 - middle)).astype(np.float32)
    turns = np.fmod(sixths.astype(np.float64) / 6 + 1, 1).astype(np.float32)
    return np.floor(turns.astype(np.float64) * 255).astype(np.int32)


_WHOLE_HUES = _whole_hues()
