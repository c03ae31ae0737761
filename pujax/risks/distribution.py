"""Dist-PU: match the predicted share of positives in P and U, and keep predictions decided."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax import arrays
from pujax.risks import _arrays

# Dist-PU's code computes entropies from scores clipped to [-10, 10].
ENTROPY_CLIP = 10.0


def dist_pu(scores: ArrayLike, labeled: ArrayLike, *, prior: float | jax.Array) -> jax.Array:
    """Label-distribution risk of Dist-PU: `|E_P p - 1| + |E_U p - prior| / (2 prior)`.

    Every labelled positive should be predicted positive, and of the unlabeled examples the share
    that is. This is the scale of the authors' code, to which their hyper-parameters belong; the
    paper's risk is `2 prior` times as large. Exactly at `E_U p = prior` the gradient of the second
    term is 0. Source: Zhao et al., "Dist-PU: positive-unlabeled learning from a label distribution
    perspective", CVPR 2022.

    Args:
      scores: raw scores, `[batch]`; `p = sigmoid(scores)`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
      prior: share of positives in U: that of the population for two-sample data, the smaller
        one of the pool for one-sample data.

    Returns:
      The scalar risk, without the term of an empty group.

    Raises:
      ValueError: if the shapes of `scores` and `labeled` differ, `labeled` holds other codes, or
        `prior` is not between 0 and 1.
    """
    arrays.check_share("prior", prior)
    scores, is_positive = _arrays.checked(scores, labeled)
    (prior,) = _arrays.of_type(scores.dtype, prior)
    # sigmoid(-g) = 1 - p is never negative and keeps the digits that 1 - p would cancel.
    missed = arrays.mean_where(_arrays.sigmoid(-scores), is_positive)
    excess = arrays.mean_where(_arrays.sigmoid(scores), ~is_positive) - prior
    # Not `abs`, whose gradient at 0 is 1.
    unlabeled_term = excess * jnp.sign(excess) / (2 * prior)
    return missed + jnp.where(jnp.any(~is_positive), unlabeled_term, 0)


def prediction_entropy(scores: ArrayLike, *, weights: ArrayLike | None = None) -> jax.Array:
    """Mean entropy of the predicted labels, in nats, small where predictions are decided.

    Scores are clipped to [-10, 10] first, as in the authors' code: an entropy is never below
    5.0e-4, and a score beyond the clip gets no gradient. Within it the gradient is
    `-g p (1 - p)`. Source: Zhao et al., CVPR 2022, the entropy term of Dist-PU, taken over U and
    over mixed examples.

    Args:
      scores: raw scores, `[batch]`; `p = sigmoid(scores)`.
      weights: weight of each example, same shape as `scores`, for instance 1 for unlabeled
        examples and 0 for others; None weighs all alike.

    Returns:
      The scalar weighted mean of `-p log p - (1 - p) log(1 - p)`, 0 where nothing has weight.

    Raises:
      ValueError: if the shapes of `scores` and `weights` differ.
    """
    scores = arrays.full_precision(scores, "scores")
    scores = arrays.clipped(scores, -ENTROPY_CLIP, ENTROPY_CLIP)
    p, q = _arrays.sigmoid(scores), _arrays.sigmoid(-scores)
    entropy = p * jax.nn.softplus(-scores) + q * jax.nn.softplus(scores)
    return _arrays.weighted_mean(entropy, weights)
