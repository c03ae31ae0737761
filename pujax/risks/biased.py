"""Risks that treat unlabeled examples, all or those that are kept, as negatives."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import arrays
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
      ValueError: if the shapes of `scores` and `labeled` differ, `labeled` holds other codes, or
        `loss` is not elementwise.
    """
    scores, is_positive = _arrays.checked(scores, labeled)
    as_positive, as_negative = _arrays.losses(loss, scores, -scores)
    positive_term = arrays.mean_where(as_positive, is_positive)
    return positive_term + arrays.mean_where(as_negative, ~is_positive)


def cvir(
    scores: ArrayLike,
    labeled: ArrayLike,
    *,
    kept: ArrayLike,
    loss: surrogates.Loss = surrogates.logistic_loss,
) -> jax.Array:
    """Risk that ignores the likely positives of U: `(E_P l(g) + E_kept l(-g)) / 2`.

    Both groups weigh one half, whatever their sizes. Source: Garg et al., "Mixture Proportion
    Estimation and PU Learning: A Modern Approach", NeurIPS 2021 (conditional value ignoring risk).

    Args:
      scores: raw scores, `[batch]`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
      kept: bool, same shape: unlabeled examples that count as negatives; that of a labelled
        positive does not matter.
      loss: surrogate loss of the margin, elementwise.

    Returns:
      The scalar risk; half the mean over P where nothing of U is kept.

    Raises:
      ValueError: if the shapes of `scores`, `labeled` and `kept` differ, `labeled` holds other
        codes, or `loss` is not elementwise.
    """
    scores, is_positive = _arrays.checked(scores, labeled)
    kept = arrays.real("kept", kept)
    _arrays.check_shape("kept", kept, scores.shape, "the shape of scores")
    as_positive, as_negative = _arrays.losses(loss, scores, -scores)
    return _half_each(as_positive, is_positive, as_negative, ~is_positive & (kept > 0))


def cvir_of_samples(
    positives: ArrayLike,
    unlabeled: ArrayLike,
    *,
    kept: ArrayLike,
    loss: surrogates.Loss = surrogates.logistic_loss,
) -> jax.Array:
    """The risk of `cvir` where P and U are arrays of their own.

    Args:
      positives: raw scores of P, `[m]`.
      unlabeled: raw scores of U, `[n]`.
      kept: bool, `[n]`: unlabeled examples that count as negatives.
      loss: surrogate loss of the margin, elementwise.

    Returns:
      The scalar risk; half the mean over P where nothing of U is kept.

    Raises:
      ValueError: if the shapes of `unlabeled` and `kept` differ, or `loss` is not elementwise.
    """
    positives = arrays.full_precision(positives, "positives")
    unlabeled = arrays.full_precision(unlabeled, "unlabeled")
    kept = arrays.real("kept", kept)
    _arrays.check_shape("kept", kept, unlabeled.shape, "the shape of unlabeled")
    as_positive, as_negative = _arrays.losses(loss, positives, -unlabeled)
    return _half_each(as_positive, jnp.ones(positives.shape, bool), as_negative, kept > 0)


def _half_each(
    as_positive: jax.Array, is_positive: jax.Array, as_negative: jax.Array, is_kept: jax.Array
) -> jax.Array:
    """Half the mean loss of P as positive, and half that of what is kept of U as negative."""
    negatives = arrays.mean_where(as_negative, is_kept)
    return (arrays.mean_where(as_positive, is_positive) + negatives) / 2


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
      positive_weight: factor of each labelled positive, one number or one per example.
      weights: further factors of single examples, same shape as `scores`; None for none.

    Returns:
      The scalar risk.

    Raises:
      ValueError: if the shapes of the arrays differ, `labeled` holds other codes, or
        `positive_weight` is not finite.
    """
    scores, is_positive = _arrays.checked(scores, labeled)
    shapes = (), scores.shape
    arrays.check_number(
        "positive_weight", positive_weight, np.isfinite, "a finite number", shapes=shapes
    )
    # The factor comes after the choice: times the loss that is not chosen, which may be infinite,
    # its derivative would not be a number.
    losses = surrogates.logistic_loss(jnp.where(is_positive, scores, -scores))
    factors = jnp.where(is_positive, jnp.asarray(positive_weight), 1)
    losses = arrays.weighted(losses, factors)
    if weights is None:
        return jnp.sum(losses) / max(scores.size, 1)
    weights = arrays.full_precision(weights, "weights")
    _arrays.check_shape("weights", weights, scores.shape, "one entry per example")
    return _arrays.weighted_sum(losses, weights) / max(scores.size, 1)
