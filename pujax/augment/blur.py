"""The Gaussian blur of contrastive learning."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax.augment import draws, layout

# Below this the neighbours' weights are 0 in float32.
_SMALLEST_SIGMA = 0.05


def gaussian_blur(
    images: jax.Array, sigma: ArrayLike, *, kernel_size: int | None = None
) -> jax.Array:
    """Weighs each pixel and its neighbours by a Gaussian, as torchvision's `GaussianBlur` does.

    A kernel of `kernel_size` by `kernel_size` weights that sum to one; pixels outside of the image
    mirror those inside, without repeating the outermost; levels are rounded once, at the end, to
    the nearest. Pillow's own `GaussianBlur` is another operation, repeated box filters, and up to
    several levels away.

    The sums are taken in float32, rows first. A level whose exact value lies within 4e-5 of a half
    may be rounded to the other side, by torchvision, on another device or when not compiled: of
    random bytes, one to three in 100,000 differ from a float64 sum, by one level.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      sigma: a number or `[batch]`, standard deviation in pixels; 0.05 and less blur nothing.
      kernel_size: width of the kernel in pixels, odd; None for `default_kernel_size`.

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for images, a shape or a `kernel_size` that is not accepted.
    """
    sigma = layout.per_image("sigma", sigma, images)
    height, width = images.shape[1:3]
    if kernel_size is None:
        kernel_size = default_kernel_size(height, width)
    limit = 2 * min(height, width) - 1
    pixels = layout.whole_number(kernel_size)
    if pixels is None or pixels % 2 != 1 or not 1 <= pixels <= limit:
        raise ValueError(
            f"kernel_size is {kernel_size!r}; accepted: an odd number from 1 to {limit}, which "
            f"reaches no farther than images of {height} x {width} pixels"
        )
    radius = pixels // 2
    distance = jnp.arange(-radius, radius + 1, dtype=jnp.float32)
    distance = distance / jnp.maximum(sigma, _SMALLEST_SIGMA)[:, None]
    weights = jnp.exp(-0.5 * distance * distance)
    weights = weights / jnp.sum(weights, axis=1, keepdims=True)
    blurred = images.astype(jnp.float32)
    for axis in (2, 1):
        blurred = _weigh(blurred, weights, axis)
    return jnp.clip(jnp.round(blurred), 0, 255).astype(jnp.uint8)


def random_blur(
    key: jax.Array,
    images: jax.Array,
    *,
    probability: float = 0.5,
    sigma: tuple[float, float] = (0.1, 2.0),
    kernel_size: int | None = None,
) -> jax.Array:
    """`gaussian_blur` with a random width, for each image with the same probability.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      probability: in [0, 1].
      sigma: smallest and largest standard deviation in pixels, drawn uniformly.
      kernel_size: width of the kernel in pixels, odd; None for `default_kernel_size`.

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for images, a number or a range that is not accepted.
    """
    layout.check_images(images)
    draws.check_range("sigma", sigma)
    chosen_key, sigma_key = jax.random.split(key)
    chosen = draws.chosen(chosen_key, images.shape[0], probability)
    drawn = draws.uniform(sigma_key, (images.shape[0],), *sigma)
    blurred = gaussian_blur(images, drawn, kernel_size=kernel_size)
    return jnp.where(chosen[:, None, None, None], blurred, images)


def default_kernel_size(height: int, width: int) -> int:
    """The odd number of pixels near a tenth of the shorter side, as SimCLR has it.

    SimCLR (arXiv:2002.05709, appendix A) takes a tenth of the side; its code makes that
    `2 * (side // 10 // 2) + 1`, 23 for 224. Sides below 20, where that is 1, get 3 here.

    Args:
      height: of the images, in pixels.
      width: of the images, in pixels.

    Returns:
      The size: 3 for 32 pixels, 9 for 96, 23 for 224; 1 for a side of one pixel.
    """
    side = min(height, width)
    return min(max(2 * (side // 20) + 1, 3), 2 * side - 1)


def _weigh(images, weights, axis):
    """Sums of neighbours along one axis, with weights `[batch, kernel_size]`."""
    radius, size = weights.shape[1] // 2, images.shape[axis]
    # Positions of the padded axis, mirrored at both ends.
    place = np.pad(np.arange(size), radius, mode="reflect")
    padded = jnp.take(images, place, axis=axis)
    total = jnp.zeros_like(images)
    for i in range(weights.shape[1]):
        neighbours = jax.lax.slice_in_dim(padded, i, i + size, axis=axis)
        total = total + weights[:, i, None, None, None] * neighbours
    return total
