"""Risks that treat every unlabeled example as a negative."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax.arrays import full_precision
from pujax.risks import _arrays, surrogates


def naive(
    scores: ArrayLike, labeled: ArrayLike, *, loss: surrogates.Loss = surrogates.logistic_loss
) -> jax.Array:
    """Treat unlabeled examples as negatives: `E_P l(g) + E_U l(-g)`.

    Each group has total weight 1 whatever its size, so this is not the mean over the batch.
    Source: the naive baseline of GradPU (Dai et al., AAAI 2023).

    Args:
        scores: raw scores, `[batch]`.
        labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
        loss: surrogate loss of the margin, elementwise.

    Returns:
        The scalar risk.

    Raises:
        ValueError: if the shapes of `scores` and `labeled` differ, or `labeled` holds other codes.
    """
    scores, is_positive = _arrays.checked(scores, labeled)
    return _arrays.mean_where(loss(scores), is_positive) + _arrays.mean_where(
        loss(-scores), ~is_positive
    )


def weighted_bce(
    scores: ArrayLike,
    labeled: ArrayLike,
    *,
    positive_weight: float | jax.Array,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Binary cross-entropy with unlabeled as negative and a factor on the labelled positives.

    `(1/n) [ positive_weight sum_P softplus(-g) + sum_U softplus(g) ]`, `n` the size of the whole
    batch. A usual weight is `n_u / n_p` of the data set. Source: ImPULSeS (Dorigatti et al.,
    2022), Eq. 8, whose printed form lacks the leading minus.

    Args:
        scores: raw scores, `[batch]`.
        labeled: 1 for labelled positives and 0 for the rest, same shape as `scores`.
        positive_weight: factor of each labelled positive.
        weights: further factors of single examples, same shape as `scores`; None for none.

    Returns:
        The scalar risk.

    Raises:
        ValueError: if the shapes of the arrays differ, or `labeled` holds other codes.
    """
    scores, is_positive = _arrays.checked(scores, labeled)
    losses = jnp.where(
        is_positive,
        positive_weight * surrogates.logistic_loss(scores),
        surrogates.logistic_loss(-scores),
    )
    if weights is not None:
        weights = full_precision(weights)
        _arrays.check_shape("weights", weights, scores.shape, "one entry per example")
        losses = weights * losses
    return jnp.sum(losses) / max(scores.size, 1)
