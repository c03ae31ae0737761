"""Surrogate losses by name."""

import jax

from pujax import checks, risks

# 'double_sigmoid' is GradPU's |y - tanh(g)|, which is 2 sigmoid(-2 y g).
_LOSSES = {
    "sigmoid": risks.sigmoid_loss,
    "logistic": risks.logistic_loss,
    "double_sigmoid": lambda margin: 2 * risks.sigmoid_loss(2 * margin),
}


def surrogate(name: str) -> risks.Loss:
    """The loss of the margin that `method.loss` names.

    Raises:
      ValueError: for another name.
    """
    checks.one_of("method.loss", name, _LOSSES)
    return _LOSSES[name]


def weighted(loss: risks.Loss, weights: jax.Array | None) -> risks.Loss:
    """A loss with a factor for each example of a batch; None leaves it as it is.

    Args:
      loss: of the margin, which a risk takes of all examples of a batch at once.
      weights: `[batch]`.
    """
    return loss if weights is None else lambda margin: weights * loss(margin)
