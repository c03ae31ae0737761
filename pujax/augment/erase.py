"""The cut-out: one grey rectangle per image."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax.augment import layout

# Mean colour of natural images, and its luminance for images with one channel.
FILL_COLOR = (125, 123, 114)
FILL_GREY = 123


def cutout(
    images: jax.Array, side: ArrayLike, center_x: ArrayLike, center_y: ArrayLike
) -> jax.Array:
    """Paints a rectangle of (125, 123, 114), or 123 in images with one channel.

    The rule of LaGAM's published code: the near corner is the centre less half the side, not below
    0, cut down to whole pixels; the far corner is the near corner plus the side, cut down to whole
    pixels, and is painted too, as `ImageDraw.rectangle` does. Near the left and top borders the
    rectangle thus keeps its full size. Side 0 paints nothing.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      side: a number or `[batch]`, share of the image *width*, in [0, 1].
      center_x: a number or `[batch]`, share of the width, in [0, 1].
      center_y: a number or `[batch]`, share of the height, in [0, 1]. All three are read to 16 bits
        after the binary point.

    Returns:
      uint8 images of the same shape.
    """
    height, width, channels = images.shape[1:]
    side, center_x, center_y = (
        (layout.per_image(name, value, images) * (1 << 16)).astype(jnp.int32)
        for name, value in (("side", side), ("center_x", center_x), ("center_y", center_y))
    )
    inside = (side > 0)[:, None, None]
    for center, size, axis in ((center_x, width, 2), (center_y, height, 1)):
        near = jnp.maximum(2 * center * size - side * width, 0) >> 17
        far = near + (side * width >> 16)
        place = jnp.arange(size, dtype=jnp.int32)
        painted = (place >= near[:, None]) & (place <= far[:, None])
        inside = inside & jnp.expand_dims(painted, 3 - axis)
    fill = np.array(FILL_COLOR if channels == 3 else (FILL_GREY,), np.uint8)
    return jnp.where(inside[..., None], fill, images)


def random_cutout(key: jax.Array, images: jax.Array, *, max_side: float = 0.5) -> jax.Array:
    """`cutout` with a side uniform in [0, max_side) and a centre uniform in the image.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      max_side: largest side as a share of the image width, in [0, 1].

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for a `max_side` outside [0, 1].
    """
    layout.check_images(images)
    if not 0 <= max_side <= 1:
        raise ValueError(f"max_side is {max_side}; accepted: a share of the width in [0, 1]")
    side, center_x, center_y = jax.random.uniform(key, (images.shape[0], 3), jnp.float32).T
    return cutout(images, side * max_side, center_x, center_y)
