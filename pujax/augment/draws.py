"""Random numbers of the views: one per image, the same on every device, compiled or not."""

import math

import jax
import jax.numpy as jnp
import numpy as np


def uniform(key: jax.Array, shape: tuple[int, ...], low: float, high: float) -> jax.Array:
    """Uniform numbers in [low, high], to about 2**-23 of the larger end.

    Drawn as integers times a power of two: `low + span * uniform` in floats could round differently
    once compiled.

    Args:
      key: random key.
      shape: of the result.
      low: smallest number.
      high: largest number.

    Returns:
      float32 array of that shape.
    """
    largest = max(abs(low), abs(high))
    unit = 2.0 ** np.floor(np.log2(largest) - 22) if largest > 0 else 1.0
    first, last = round(low / unit), round(high / unit)
    steps = jax.random.uniform(key, shape, jnp.float32) * np.float32(last - first + 1)
    steps = jnp.minimum(steps.astype(jnp.int32), last - first)
    return (first + steps).astype(jnp.float32) * np.float32(unit)


def chosen(key: jax.Array, batch: int, probability: float) -> jax.Array:
    """Chooses each image with the same probability, independently.

    Args:
      key: random key.
      batch: number of images.
      probability: from 0, none, to 1, all.

    Returns:
      bool `[batch]`.

    Raises:
      ValueError: for a `probability` outside [0, 1].
    """
    check_probability("probability", probability)
    return jax.random.uniform(key, (batch,), jnp.float32) < probability


def check_probability(name: str, value: float) -> None:
    """Raises unless `value` is a probability.

    Args:
      name: of the argument, for the error message.
      value: the number.

    Returns:
      None.

    Raises:
      ValueError: naming what it got.
    """
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value}; accepted: a probability in [0, 1]")


def check_range(name: str, value: tuple[float, float], *, largest: float = math.inf) -> None:
    """Raises unless `value` is a range of positive, finite numbers.

    Args:
      name: of the argument, for the error message.
      value: the two ends.
      largest: the high end must not be above this number.

    Returns:
      None.

    Raises:
      ValueError: naming what it got.
    """
    try:
        low, high = value
        accepted = 0 < low <= high <= largest and not math.isinf(high)
    except (TypeError, ValueError):  # not two of something, or not numbers
        accepted = False
    if not accepted:
        bound = "" if math.isinf(largest) else f", at most {largest:g}"
        raise ValueError(
            f"{name} is {value!r}; accepted: (low, high), positive numbers{bound}, low first"
        )
