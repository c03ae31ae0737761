"""The random resized crop of contrastive learning."""

import math

import jax
import jax.numpy as jnp

from pujax.augment import draws, layout, resampling

_ATTEMPTS = 10


def random_resized_crop(
    key: jax.Array,
    images: jax.Array,
    *,
    height: int | None = None,
    width: int | None = None,
    area: tuple[float, float] = (0.08, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> jax.Array:
    """`resized_crop` with a random box: torchvision's `RandomResizedCrop`.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      height: of the result, in pixels; None for that of the images.
      width: of the result, in pixels; None for that of the images.
      area: smallest and largest share of the image in the box, in (0, 1].
      aspect: smallest and largest width of the box over its height.

    Returns:
      uint8 `[batch, height, width, channels]`.

    Raises:
      ValueError: for images, a size or a range that is not accepted.
    """
    layout.check_images(images)
    batch, rows, columns, _ = images.shape
    height = rows if height is None else resampling.checked_size("height", height)
    width = columns if width is None else resampling.checked_size("width", width)
    boxes = random_boxes(key, batch, rows, columns, area=area, aspect=aspect)
    return resampling.resized_crop(images, *boxes, height=height, width=width)


def random_boxes(
    key: jax.Array,
    batch: int,
    height: int,
    width: int,
    *,
    area: tuple[float, float] = (0.08, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Draws the boxes of `random_resized_crop` by torchvision's rule.

    Ten times an area, uniform, and a ratio of sides, log-uniform, are drawn and the sides rounded;
    the first box that fits into the image is put at a uniform place. If none fits, it is the
    largest box in the middle of the image whose ratio is in the range.

    The sides are computed in float32. A device that rounds a square root or an exponential
    otherwise may make one box in a million a pixel larger or smaller.

    Args:
      key: random key.
      batch: number of boxes.
      height: of the images, in pixels.
      width: of the images, in pixels.
      area: smallest and largest share of the image in the box, in (0, 1].
      aspect: smallest and largest width of the box over its height.

    Returns:
      top, left, height and width of the boxes, int32 `[batch]` each.

    Raises:
      ValueError: for a range that is not accepted.
    """
    draws.check_range("area", area, largest=1.0)
    draws.check_range("aspect", aspect)
    keys = jax.random.split(key, 4)
    pixels = draws.uniform(keys[0], (batch, _ATTEMPTS), *(share * height * width for share in area))
    ratio = jnp.exp(draws.uniform(keys[1], (batch, _ATTEMPTS), *map(math.log, aspect)))
    crop_width = jnp.round(jnp.sqrt(pixels * ratio)).astype(jnp.int32)
    crop_height = jnp.round(jnp.sqrt(pixels / ratio)).astype(jnp.int32)
    fits = (crop_width > 0) & (crop_width <= width) & (crop_height > 0) & (crop_height <= height)
    first, any_fits = jnp.argmax(fits, axis=1), jnp.any(fits, axis=1)
    middle_height, middle_width = _middle_box(height, width, aspect)

    def pick(sides, fallback):
        drawn = jnp.take_along_axis(sides, first[:, None], axis=1)[:, 0]
        return jnp.where(any_fits, drawn, fallback)

    crop_height, crop_width = pick(crop_height, middle_height), pick(crop_width, middle_width)

    def place(key, free):
        drawn = jax.random.randint(key, (batch,), 0, free + 1, jnp.int32)
        return jnp.where(any_fits, drawn, free // 2)

    top, left = place(keys[2], height - crop_height), place(keys[3], width - crop_width)
    return top, left, crop_height, crop_width


def _middle_box(height, width, aspect):
    """Height and width of the largest box in the image with a ratio of sides in the range."""
    if width < aspect[0] * height:
        return round(width / aspect[0]), width
    if width > aspect[1] * height:
        return height, round(height * aspect[1])
    return height, width
