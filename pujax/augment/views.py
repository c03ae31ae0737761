"""The weak and the strong random view of an image, and the step from bytes to floats."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from pujax.augment import geometry, layout, randaugment


def normalize(
    images: jax.Array,
    *,
    mean: float | Sequence[float],
    std: float | Sequence[float],
    dtype: DTypeLike = jnp.float32,
) -> jax.Array:
    """Turns bytes into centred numbers: `(images / 255 - mean) / std`.

    The only place where images become floating point. Computed in at least float32, then cast.

    Args:
      images: uint8 `[..., channels]`.
      mean: one number per channel, or one for all, on the scale where white is 1.
      std: likewise, positive.
      dtype: of the result.

    Returns:
      Array of the same shape and of `dtype`.

    Raises:
      ValueError: for images that are not uint8, another number of channels, or a `std` not above 0.
    """
    if images.dtype != jnp.uint8:
        raise ValueError(f"images has dtype {images.dtype}; accepted: uint8")
    compute_dtype = jnp.promote_types(dtype, jnp.float32)
    channels = images.shape[-1]
    constants = []
    for name, value in (("mean", mean), ("std", std)):
        constant = np.asarray(value, np.float64)
        if constant.shape not in ((), (1,), (channels,)):
            raise ValueError(
                f"{name} has shape {list(constant.shape)}; accepted: one number for all channels, "
                f"or one for each of the {channels}"
            )
        constants.append(jnp.asarray(constant, compute_dtype))
    if not np.all(np.asarray(std) > 0):
        raise ValueError(f"std is {std}; accepted: positive numbers")
    return ((images.astype(compute_dtype) / 255 - constants[0]) / constants[1]).astype(dtype)


def random_flip(key: jax.Array, images: jax.Array) -> jax.Array:
    """Mirrors each image left to right with probability 1/2.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.

    Returns:
      uint8 images of the same shape.
    """
    layout.check_images(images)
    flip = _flips(key, images.shape[0])
    return jnp.where(flip[:, None, None, None], images[:, :, ::-1], images)


def random_crop(key: jax.Array, images: jax.Array, *, padding: int) -> jax.Array:
    """Adds a black border, then cuts out a random window of the original size.

    The border is black in bytes, before `normalize`, as in the published pipelines.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      padding: width of the border in pixels, on each side.

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for a negative `padding`.
    """
    layout.check_images(images)
    no_flip = jnp.zeros(images.shape[0], bool)
    return _window(images, no_flip, _crop_offsets(key, images.shape[0], padding))


def weak_view(
    key: jax.Array, images: jax.Array, *, flip: bool = True, padding: int = 4
) -> jax.Array:
    """`random_flip`, then `random_crop`, in a single pass over the pixels.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      flip: whether to mirror at all; False for digits and other images with a fixed direction.
      padding: width of the border in pixels, on each side; 0 for no crop.

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for a negative `padding`.
    """
    layout.check_images(images)
    batch = images.shape[0]
    flip_key, crop_key = jax.random.split(key)
    mirrored = _flips(flip_key, batch) if flip else jnp.zeros(batch, bool)
    return _window(images, mirrored, _crop_offsets(crop_key, batch, padding))


def strong_view(
    key: jax.Array,
    images: jax.Array,
    *,
    flip: bool = True,
    padding: int = 4,
    num_ops: int = 3,
    max_cutout: float = 0.5,
) -> jax.Array:
    """`rand_augment`, then `weak_view`.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      flip: whether to mirror at all.
      padding: width of the border in pixels, on each side; 0 for no crop.
      num_ops: random operations per image.
      max_cutout: largest side of the cut-out, as a share of the image width.

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for a negative `padding` or `num_ops`, or a `max_cutout` outside [0, 1].
    """
    augment_key, view_key = jax.random.split(key)
    images = randaugment.rand_augment(augment_key, images, num_ops=num_ops, max_cutout=max_cutout)
    return weak_view(view_key, images, flip=flip, padding=padding)


def _flips(key, batch):
    return jax.random.uniform(key, (batch,), jnp.float32) < 0.5


def _crop_offsets(key, batch, padding):
    """Left and top of the window, `[batch, 2]`, uniform in -padding..padding."""
    if padding < 0:
        raise ValueError(f"padding is {padding}; accepted: 0 or more pixels")
    return jax.random.randint(key, (batch, 2), -padding, padding + 1, jnp.int32)


def _window(images, flip, offsets):
    matrix = geometry.window_matrix(flip, offsets[:, 0], offsets[:, 1], images.shape[2])
    return geometry.sample(images, matrix)
