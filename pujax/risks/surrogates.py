"""Surrogate losses: what a margin, true sign times score, costs."""

from collections.abc import Callable

import jax
from jax.typing import ArrayLike

from pujax import arrays
from pujax.risks import _arrays

Loss = Callable[[jax.Array], jax.Array]
"""What risks take as `loss`: a function of the margin, elementwise."""


def sigmoid_loss(margin: ArrayLike) -> jax.Array:
    """Sigmoid loss `1 / (1 + exp(margin))`, bounded in [0, 1] with `l(z) + l(-z) = 1`.

    Args:
      margin: true sign times score, any shape.

    Returns:
      The loss of each element.
    """
    return _arrays.sigmoid(-arrays.full_precision(margin, "margin"))


def logistic_loss(margin: ArrayLike) -> jax.Array:
    """Logistic loss `log(1 + exp(-margin))`, the cross-entropy of a sigmoid output.

    Args:
      margin: true sign times score, any shape.

    Returns:
      The loss of each element.
    """
    return jax.nn.softplus(-arrays.full_precision(margin, "margin"))
