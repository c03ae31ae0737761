"""Surrogate losses by name, and losses of predictions against soft labels."""

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


def soft_cross_entropy(scores: jax.Array, targets: jax.Array) -> jax.Array:
    """Cross-entropy of every example against its probability of being positive, in nats.

    It is linear in the targets: the losses of both partners of a mixed example, weighted by their
    shares, are the loss of their mixed targets.

    Args:
      scores: any shape.
      targets: probabilities of the positive class, of the same shape.

    Returns:
      Losses of that shape.
    """
    return targets * risks.logistic_loss(scores) + (1 - targets) * risks.logistic_loss(-scores)


def entropy(scores: jax.Array) -> jax.Array:
    """Entropy of every prediction in nats, `-p log p - (1 - p) log(1 - p)` with `p = sigmoid`.

    Args:
      scores: any shape.

    Returns:
      Entropies of that shape.
    """
    # `1 - p` would lose all digits where p is near 1.
    p, q = jax.nn.sigmoid(scores), jax.nn.sigmoid(-scores)
    return p * risks.logistic_loss(scores) + q * risks.logistic_loss(-scores)
