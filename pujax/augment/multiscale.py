"""The random crop of multi-label classification: one of a few sizes, at any place."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from pujax.augment import bicubic, layout, resampling


def multiscale_crop(
    key: jax.Array, images: jax.Array, *, sizes: Sequence[int], side: int
) -> jax.Array:
    """Cuts a random square out of each image and resizes it, as Pillow's bicubic filter does.

    The square's side is drawn uniformly from `sizes`, then its place uniformly from those where it
    lies inside the image. PU-MLC resizes images to 512 pixels, then draws from 512, 448, 384, 320
    and 256, and resizes to 448. Bit for bit equal to Pillow as `resize_bicubic` is.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      sizes: sides of the squares, in pixels, 1 to the smaller side of the images; one that is
        named twice is drawn twice as often.
      side: of the result, in pixels, 1 to 2047.

    Returns:
      uint8 `[batch, side, side, channels]`.

    Raises:
      ValueError: for images or a size that is not accepted.
    """
    layout.check_images(images)
    side = resampling.checked_size("side", side)
    top, left, choice = random_squares(key, *images.shape[:3], sizes=sizes)
    boxes = [(size, size) for size in sizes]
    return bicubic.boxes_resized(images, top, left, choice, sizes=boxes, height=side, width=side)


def random_squares(
    key: jax.Array, batch: int, height: int, width: int, *, sizes: Sequence[int]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draws the squares of `multiscale_crop`.

    Args:
      key: random key.
      batch: number of squares.
      height: of the images, in pixels.
      width: of the images, in pixels.
      sizes: sides of the squares, in pixels, 1 to the smaller of `height` and `width`.

    Returns:
      first row, first column and position in `sizes` of the squares, int32 `[batch]` each.

    Raises:
      ValueError: for a size that is not accepted.
    """
    most = min(height, width)
    sides = [layout.whole_number(size) for size in sizes] if isinstance(sizes, Sequence) else []
    if not sides or not all(size is not None and 1 <= size <= most for size in sides):
        raise ValueError(
            f"sizes is {sizes!r}; accepted: one or more whole numbers of pixels from 1 to {most}, "
            "the smaller side of the images"
        )
    choice_key, top_key, left_key = jax.random.split(key, 3)
    choice = jax.random.randint(choice_key, (batch,), 0, len(sides), jnp.int32)
    size = jnp.asarray(sides, jnp.int32)[choice]
    top = jax.random.randint(top_key, (batch,), 0, height - size + 1, jnp.int32)
    left = jax.random.randint(left_key, (batch,), 0, width - size + 1, jnp.int32)
    return top, left, choice
