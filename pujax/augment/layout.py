"""Checks that every augmentation makes of its arguments."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

# Up to this side, sums of grey levels and fixed-point positions fit into 32 bits.
MAX_SIDE = 2047


def check_images(images: jax.Array) -> None:
    """Raises unless `images` is a uint8 batch that the operations can work on.

    Args:
      images: uint8 `[batch, height, width, channels]`, 1 or 3 channels, sides of 1 to 2047.

    Returns:
      None.

    Raises:
      ValueError: naming what it got.
    """
    shape = tuple(images.shape)
    if (
        images.dtype != jnp.uint8
        or len(shape) != 4
        or shape[3] not in (1, 3)
        or not all(1 <= side <= MAX_SIDE for side in shape[1:3])
    ):
        raise ValueError(
            f"images is {images.dtype} {list(shape)}; accepted: uint8 [batch, height, width, "
            f"channels] with 1 or 3 channels and sides of 1 to {MAX_SIDE}"
        )


def whole_number(value: Any) -> int | None:
    """`value` as an int where it is a whole number by its type, which 8.0 and "3" are not.

    Args:
      value: anything.

    Returns:
      The number, or None.
    """
    try:
        return operator.index(value)
    except TypeError:
        return None


def per_image(name: str, value: ArrayLike, images: jax.Array) -> jax.Array:
    """One float32 number per image, after checking the images themselves.

    Args:
      name: of the argument, for the error message.
      value: a number for all images, or `[batch]`.
      images: uint8 `[batch, height, width, channels]`.

    Returns:
      float32 `[batch]`.

    Raises:
      ValueError: for images or a shape that is not accepted.
    """
    check_images(images)
    value = jnp.asarray(value, jnp.float32)
    batch = images.shape[0]
    if value.shape not in ((), (batch,)):
        raise ValueError(
            f"{name} has shape {list(value.shape)}; accepted: one number or [{batch}], the batch"
        )
    return jnp.broadcast_to(value, (batch,))
