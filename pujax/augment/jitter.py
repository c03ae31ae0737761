"""The colour jitter of contrastive learning: brightness, contrast, saturation and hue at random."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pujax.augment import blends, colors, draws, layout

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
_ORDERS = np.array(list(itertools.permutations(range(4))), np.int32)


class Jitter(NamedTuple):
    """What `random_jitter` draws for a batch.

    Attributes:
      factors: float32 `[batch, 3]`, of brightness, contrast and saturation; 1 changes nothing.
      shift: float32 `[batch]`, of the hue, in turns; None to leave the hue of all images alone.
      order: int32 `[batch, 4]`, a permutation of brightness 0, contrast 1, saturation 2 and hue 3.
      applied: bool `[batch]`; the other images stay as they are.
    """

    factors: jax.Array
    shift: jax.Array | None
    order: jax.Array
    applied: jax.Array


def color_jitter(
    key: jax.Array,
    images: jax.Array,
    *,
    brightness: float = 0.8,
    contrast: float = 0.8,
    saturation: float = 0.8,
    hue: float = 0.2,
    probability: float = 0.8,
) -> jax.Array:
    """Random brightness, contrast, saturation and hue in random order: SimCLR's colour distortion.

    torchvision's `RandomApply([ColorJitter(...)], probability)` on Pillow images, with the draws of
    `random_jitter`.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`; one channel has no saturation and no hue.
      brightness: largest distance of the factor from 1, in [0, 1].
      contrast: likewise.
      saturation: likewise.
      hue: largest shift of the hue in turns, in [0, 0.5]; 0 skips the hue.
      probability: of changing an image, in [0, 1].

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for images or a number that is not accepted.
    """
    layout.check_images(images)
    drawn = random_jitter(
        key,
        images.shape[0],
        brightness=brightness,
        contrast=contrast,
        saturation=saturation,
        hue=hue,
        probability=probability,
    )
    return apply_jitter(images, drawn)


def random_jitter(
    key: jax.Array,
    batch: int,
    *,
    brightness: float = 0.8,
    contrast: float = 0.8,
    saturation: float = 0.8,
    hue: float = 0.2,
    probability: float = 0.8,
) -> Jitter:
    """Draws factors uniform in [1 - x, 1 + x], a shift in [-hue, hue], and one of the 24 orders.

    Args:
      key: random key.
      batch: number of images.
      brightness: largest distance of the factor from 1, in [0, 1].
      contrast: likewise.
      saturation: likewise.
      hue: largest shift of the hue in turns, in [0, 0.5]; 0 skips the hue.
      probability: of changing an image, in [0, 1].

    Returns:
      The draws, independent for each image.

    Raises:
      ValueError: for a number that is not accepted.
    """
    check_sizes(brightness, contrast, saturation, hue)
    draws.check_probability("probability", probability)
    *factor_keys, hue_key, order_key, chosen_key = jax.random.split(key, 6)
    factors = [
        draws.uniform(factor_key, (batch,), 1 - size, 1 + size)
        for factor_key, size in zip(factor_keys, (brightness, contrast, saturation), strict=True)
    ]
    order = jax.random.randint(order_key, (batch,), 0, len(_ORDERS), jnp.int32)
    return Jitter(
        factors=jnp.stack(factors, axis=1),
        shift=draws.uniform(hue_key, (batch,), -hue, hue) if hue > 0 else None,
        order=jnp.asarray(_ORDERS)[order],
        applied=draws.chosen(chosen_key, batch, probability),
    )


def check_sizes(brightness: float, contrast: float, saturation: float, hue: float) -> None:
    """Raises unless the four are sizes that `random_jitter` accepts.

    Args:
      brightness: in [0, 1].
      contrast: in [0, 1].
      saturation: in [0, 1].
      hue: in [0, 0.5].

    Returns:
      None.

    Raises:
      ValueError: naming what it got.
    """
    for name, size, largest in (
        ("brightness", brightness, 1.0),
        ("contrast", contrast, 1.0),
        ("saturation", saturation, 1.0),
        ("hue", hue, colors.MAX_SHIFT),
    ):
        if not 0 <= size <= largest:
            raise ValueError(f"{name} is {size}; accepted: a number in [0, {largest:g}]")


def apply_jitter(images: jax.Array, drawn: Jitter) -> jax.Array:
    """Changes each image as drawn, equal to Pillow in every level.

    Four rounds, each of which computes a blend and the hue for all images and keeps for each image
    the operation that is next in its order. Computing the hue only once needs three rounds of
    blends before it and three after it, and is no faster.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      drawn: from `random_jitter`.

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for images that are not accepted.
    """
    layout.check_images(images)
    shift = drawn.shift if images.shape[-1] == 3 else None

    def one_round(images, operation):
        factor = jnp.take_along_axis(drawn.factors, jnp.minimum(operation, 2)[:, None], axis=1)
        factor = jnp.where(drawn.applied & (operation != HUE), factor[:, 0], 1.0)
        blended = _blend(images, operation, factor)
        if shift is None:
            return blended, None
        turned = (drawn.applied & (operation == HUE))[:, None, None, None]
        return jnp.where(turned, colors.hue(images, shift), blended), None

    # A loop also keeps XLA from fusing one round into the next, which would recompute it per pixel.
    return jax.lax.scan(one_round, images, drawn.order.T)[0]


def _blend(images, operation, factor):
    operation = operation[:, None, None, None]
    grey = blends.luminance(images)
    plain = jnp.where(operation == CONTRAST, blends.mean_grey(grey), grey)
    return blends.blend(jnp.where(operation == BRIGHTNESS, 0, plain), images, factor)
