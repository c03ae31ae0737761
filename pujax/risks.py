"""Risks for positive-unlabeled classification.

Every risk takes a batch of raw scores `g(x)` and a mask that says which examples are labelled
positives; the rest of the batch is unlabeled. Sums run over the two groups separately, each
divided by its own count, and the mean over an empty group is 0.

Two ways of collecting data need two calibrations. With `two_sample` (case-control) data the
unlabeled examples are drawn from the whole population and the class prior is all a risk needs.
With `one_sample` data the labelled positives were taken out of the pool, so U holds fewer
positives than the population: pass `unlabeled_prior`, the share of positives in U, and
`unlabeled_weight = n_u / (n_p + n_u)`, counted on the data set and not on the batch.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

Loss = Callable[[jax.Array], jax.Array]


class PUParts(NamedTuple):
    """The two estimated halves of a binary classification risk.

    Attributes:
        positive: contribution of the positive class, never negative for a non-negative loss.
        negative: contribution of the negative class, estimated from U minus the positives in it;
            may fall below zero although what it estimates cannot.
    """

    positive: jax.Array
    negative: jax.Array


def sigmoid_loss(margin: jax.Array) -> jax.Array:
    """Sigmoid loss `1 / (1 + exp(margin))`, bounded in [0, 1] with `l(z) + l(-z) = 1`.

    Args:
        margin: true sign times score, any shape.

    Returns:
        The loss of each element.
    """
    return jax.nn.sigmoid(-_full_precision(margin))


def logistic_loss(margin: jax.Array) -> jax.Array:
    """Logistic loss `log(1 + exp(-margin))`, the cross-entropy of a sigmoid output.

    Args:
        margin: true sign times score, any shape.

    Returns:
        The loss of each element.
    """
    return jax.nn.softplus(-_full_precision(margin))


def pu_parts(
    scores: jax.Array,
    labeled: jax.Array,
    *,
    prior: float | jax.Array,
    loss: Loss = sigmoid_loss,
    unlabeled_prior: float | jax.Array | None = None,
    unlabeled_weight: float | jax.Array = 1.0,
) -> PUParts:
    """Estimate both class-wise parts of the classification risk from P and U.

    The positive part is seen directly in P. The negative part is what remains of U after the
    share that positives contribute to it has been subtracted. Source: du Plessis, Niu, Sugiyama,
    "Convex formulation for learning from positive and unlabeled data", ICML 2015; the calibration
    for one-sample data replaces the mean over U by the mean over P and U together.

    Args:
        scores: raw scores, `[batch]`.
        labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
        prior: share of positives in the population.
        loss: surrogate loss of the margin, elementwise.
        unlabeled_prior: share of positives in U; None means it equals `prior` (two-sample data).
        unlabeled_weight: factor of the negative part, `n_u / (n_p + n_u)` for one-sample data.

    Returns:
        `PUParts` with `positive = prior E_P l(g)` and
        `negative = unlabeled_weight (E_U l(-g) - unlabeled_prior E_P l(-g))`.

    Raises:
        ValueError: if `scores` and `labeled` have different shapes.
    """
    scores, is_positive = _checked(scores, labeled)
    if unlabeled_prior is None:
        unlabeled_prior = prior
    as_negative = loss(-scores)
    unlabeled_risk = _mean_where(as_negative, ~is_positive)
    positives_in_unlabeled = unlabeled_prior * _mean_where(as_negative, is_positive)
    return PUParts(
        positive=prior * _mean_where(loss(scores), is_positive),
        negative=unlabeled_weight * (unlabeled_risk - positives_in_unlabeled),
    )


def naive(scores: jax.Array, labeled: jax.Array, *, loss: Loss = logistic_loss) -> jax.Array:
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
        ValueError: if `scores` and `labeled` have different shapes.
    """
    scores, is_positive = _checked(scores, labeled)
    return _mean_where(loss(scores), is_positive) + _mean_where(loss(-scores), ~is_positive)


def weighted_bce(
    scores: jax.Array, labeled: jax.Array, *, positive_weight: float | jax.Array
) -> jax.Array:
    """Binary cross-entropy with unlabeled as negative and a factor on the labelled positives.

    `(1/n) [ positive_weight sum_P softplus(-g) + sum_U softplus(g) ]`, `n` the size of the whole
    batch. A usual weight is `n_u / n_p` of the data set. Source: ImPULSeS (Schweisthal et al.,
    2022), Eq. 8, whose printed form lacks the leading minus.

    Args:
        scores: raw scores, `[batch]`.
        labeled: 1 for labelled positives and 0 for the rest, same shape as `scores`.
        positive_weight: factor of each labelled positive.

    Returns:
        The scalar risk.

    Raises:
        ValueError: if `scores` and `labeled` have different shapes.
    """
    scores, is_positive = _checked(scores, labeled)
    losses = jnp.where(is_positive, positive_weight * logistic_loss(scores), logistic_loss(-scores))
    return jnp.sum(losses) / max(scores.size, 1)


def upu(
    scores: jax.Array,
    labeled: jax.Array,
    *,
    prior: float | jax.Array,
    loss: Loss = sigmoid_loss,
    unlabeled_prior: float | jax.Array | None = None,
    unlabeled_weight: float | jax.Array = 1.0,
) -> jax.Array:
    """Unbiased PU risk, the sum of the two parts of `pu_parts`.

    It is unbiased but not bounded below: with a flexible model the estimate goes far below zero,
    above all with the logistic loss, and training overfits. That is the behaviour `nnpu` repairs.
    Source: du Plessis, Niu, Sugiyama, NIPS 2014 and ICML 2015.

    Args:
        scores: raw scores, `[batch]`.
        labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
        prior: share of positives in the population.
        loss: surrogate loss of the margin, elementwise.
        unlabeled_prior: share of positives in U; None means it equals `prior` (two-sample data).
        unlabeled_weight: factor of the negative part, `n_u / (n_p + n_u)` for one-sample data.

    Returns:
        The scalar risk.

    Raises:
        ValueError: if `scores` and `labeled` have different shapes.
    """
    parts = pu_parts(
        scores,
        labeled,
        prior=prior,
        loss=loss,
        unlabeled_prior=unlabeled_prior,
        unlabeled_weight=unlabeled_weight,
    )
    return parts.positive + parts.negative


def nnpu(
    scores: jax.Array,
    labeled: jax.Array,
    *,
    prior: float | jax.Array,
    loss: Loss = sigmoid_loss,
    beta: float | jax.Array = 0.0,
    gamma: float | jax.Array = 1.0,
    ascent: bool = True,
    unlabeled_prior: float | jax.Array | None = None,
    unlabeled_weight: float | jax.Array = 1.0,
) -> jax.Array:
    """Non-negative PU risk, whose value and gradient are two different things on purpose.

    The *value* is the risk to log: `positive + max(negative, -beta)`. The *gradient* is the step to
    take. While `negative >= -beta` it is the gradient of that value. Once `negative < -beta` the
    model explains U better than the prior allows, a sure sign of overfitting, and there are two
    answers:

    - `ascent=True`, as published: the gradient of `-gamma * negative`, without the positive part. A
      descent step then *raises* `negative`, undoing the overfitting. Logging `-gamma * negative`
      itself would show a positive loss that falls towards zero and says nothing about the risk,
      which is why it is never returned.
    - `ascent=False`: the gradient of the value, that is of `positive` alone; the negative part is
      left where it is.

    The comparison uses the mini-batch value and is strict. Source: Kiryo et al.,
    "Positive-unlabeled learning with non-negative risk estimator", NIPS 2017, Algorithm 1.

    Args:
        scores: raw scores, `[batch]`.
        labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
        prior: share of positives in the population.
        loss: surrogate loss of the margin, elementwise.
        beta: how far below zero the negative part may fall before the rule fires.
        gamma: factor of the ascent step.
        ascent: whether the gradient follows the ascent rule when it fires.
        unlabeled_prior: share of positives in U; None means it equals `prior` (two-sample data).
        unlabeled_weight: factor of the negative part, `n_u / (n_p + n_u)` for one-sample data.

    Returns:
        The scalar risk, with the gradient described above.

    Raises:
        ValueError: if `scores` and `labeled` have different shapes.
    """
    parts = pu_parts(
        scores,
        labeled,
        prior=prior,
        loss=loss,
        unlabeled_prior=unlabeled_prior,
        unlabeled_weight=unlabeled_weight,
    )
    fired = parts.negative < -beta
    # `where` and not `maximum`: at equality the rule has not fired and the whole gradient passes.
    value = parts.positive + jnp.where(fired, -beta, parts.negative)
    if not ascent:
        return value
    descended = jnp.where(fired, -gamma * parts.negative, parts.positive + parts.negative)
    return jax.lax.stop_gradient(value) + (descended - jax.lax.stop_gradient(descended))


def _checked(scores: jax.Array, labeled: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Scores in full precision and a boolean mask of the labelled positives, of one shape."""
    scores, labeled = jnp.asarray(scores), jnp.asarray(labeled)
    if scores.shape != labeled.shape:
        raise ValueError(
            f"labeled has shape {labeled.shape}, but must have the shape of scores, {scores.shape}"
        )
    return _full_precision(scores), labeled > 0


def _mean_where(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of `values` where `mask` holds; 0 where it holds nowhere."""
    return jnp.sum(jnp.where(mask, values, 0)) / jnp.maximum(jnp.sum(mask), 1)


def _full_precision(values: jax.Array) -> jax.Array:
    """`values` in at least float32."""
    values = jnp.asarray(values)
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))
