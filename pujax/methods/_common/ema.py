"""Exponential moving averages of parameters: the teachers of Self-PU and P3MIX-E."""

from typing import Any

import jax


def ema(average: Any, new: Any, decay: float | jax.Array) -> Any:
    """`decay * average + (1 - decay) * new`, leaf by leaf.

    Args:
      average: any pytree of floating-point arrays.
      new: a tree like it.
      decay: share of the old average that stays, in [0, 1].

    Returns:
      A tree like `average`.
    """
    return jax.tree.map(lambda a, b: decay * a + (1 - decay) * b, average, new)
