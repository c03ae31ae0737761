"""Risks corrected by the class prior: uPU, nnPU and nnPU for a balanced target."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax import arrays, checks
from pujax.risks import _arrays, surrogates


class PUParts(NamedTuple):
    """The two estimated halves of a binary classification risk.

    Attributes:
      positive: contribution of the positive class, never negative for a non-negative loss.
      negative: contribution of the negative class, estimated from U minus the positives in it;
        may fall below zero although what it estimates cannot.
    """

    positive: jax.Array
    negative: jax.Array


def pu_parts(
    scores: ArrayLike,
    labeled: ArrayLike,
    *,
    prior: float | jax.Array,
    loss: surrogates.Loss = surrogates.sigmoid_loss,
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
      unlabeled_prior: share of positives in U, in [0, 1]; None means it equals `prior`
        (two-sample data).
      unlabeled_weight: factor of the negative part, 0 or more; `n_u / (n_p + n_u)` for
        one-sample data.

    Returns:
      `PUParts` with `positive = prior E_P l(g)` and
      `negative = unlabeled_weight (E_U l(-g) - unlabeled_prior E_P l(-g))`.

    Raises:
      ValueError: if the shapes of `scores` and `labeled` differ, `labeled` holds other codes, a
        number is out of its range, or `loss` is not elementwise.
    """
    arrays.check_share("prior", prior)
    if unlabeled_prior is None:
        unlabeled_prior = prior
    arrays.check_number(
        "unlabeled_prior", unlabeled_prior, lambda share: (share >= 0) & (share <= 1), "in [0, 1]"
    )
    arrays.check_number("unlabeled_weight", unlabeled_weight, lambda w: w >= 0, "0 or more")
    scores, is_positive = _arrays.checked(scores, labeled)
    numbers = (prior, unlabeled_prior, unlabeled_weight)
    prior, unlabeled_prior, unlabeled_weight = _arrays.of_type(scores.dtype, *numbers)
    as_positive, as_negative = _arrays.losses(loss, scores, -scores)
    unlabeled_risk = arrays.mean_where(as_negative, ~is_positive)
    positives_in_unlabeled = unlabeled_prior * arrays.mean_where(as_negative, is_positive)
    return PUParts(
        positive=prior * arrays.mean_where(as_positive, is_positive),
        negative=unlabeled_weight * (unlabeled_risk - positives_in_unlabeled),
    )


def upu(
    scores: ArrayLike,
    labeled: ArrayLike,
    *,
    prior: float | jax.Array,
    loss: surrogates.Loss = surrogates.sigmoid_loss,
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
      unlabeled_prior: share of positives in U, in [0, 1]; None means it equals `prior`
        (two-sample data).
      unlabeled_weight: factor of the negative part, 0 or more; `n_u / (n_p + n_u)` for
        one-sample data.

    Returns:
      The scalar risk.

    Raises:
      ValueError: if the shapes of `scores` and `labeled` differ, `labeled` holds other codes, a
        number is out of its range, or `loss` is not elementwise.
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
    scores: ArrayLike,
    labeled: ArrayLike,
    *,
    prior: float | jax.Array,
    loss: surrogates.Loss = surrogates.sigmoid_loss,
    beta: float | jax.Array = 0.0,
    gamma: float | jax.Array = 1.0,
    ascent: bool = True,
    keep_positive: bool = False,
    unlabeled_prior: float | jax.Array | None = None,
    unlabeled_weight: float | jax.Array = 1.0,
) -> jax.Array:
    """Non-negative PU risk; its gradient is deliberately not always the gradient of its value.

    The *value* is the risk to log: `positive + max(negative, -beta)`. The *gradient* is the step to
    take. While `negative >= -beta` it is the gradient of that value. Once `negative < -beta` the
    model explains U better than the prior allows, a sure sign of overfitting, and there are three
    answers:

    - `ascent=True`, as published: the gradient of `-gamma * negative`, without the positive part. A
      descent step then *raises* `negative`, undoing the overfitting. Logging `-gamma * negative`
      itself would show a positive loss that falls towards zero and is unrelated to the risk, which
      is why it is never returned.
    - `ascent=True, keep_positive=True`: the gradient of `positive - gamma * negative`, which with
      `beta=0, gamma=1` is that of `positive + |negative|`, the absolute-value correction of Lu et
      al., "Mitigating overfitting in supervised classification from two unlabeled datasets: a
      consistent risk correction approach", AISTATS 2020. Raising `negative` lowers the scores of P;
      where those of U are so low that the loss is flat, it does hardly anything else, and several
      such steps in a row take all scores down. The positive part holds P against that.
    - `ascent=False`: the gradient of the value, that is of `positive` alone; the negative part is
      left where it is.

    The comparison uses the mini-batch value and is strict. Source: Kiryo et al.,
    "Positive-unlabeled learning with non-negative risk estimator", NIPS 2017, Algorithm 1.

    The mean over no example counts as 0. A batch without labelled positives therefore gives the
    mean loss of calling U negative, which is finite and is not the risk. A run counts such batches
    in the column `batches_without_positives`; with `method.batching='separate'` there are none.

    Args:
      scores: raw scores, `[batch]`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
      prior: share of positives in the population.
      loss: surrogate loss of the margin, elementwise.
      beta: how far below zero the negative part may fall before the rule fires, 0 or more;
        with infinity it never does.
      gamma: factor of the ascent step, 0 or more.
      ascent: whether the gradient follows the ascent rule when it fires.
      keep_positive: whether the positive part stays in the gradient of the ascent rule.
      unlabeled_prior: share of positives in U, in [0, 1]; None means it equals `prior`
        (two-sample data).
      unlabeled_weight: factor of the negative part, 0 or more; `n_u / (n_p + n_u)` for
        one-sample data.

    Returns:
      The scalar risk, with the gradient described above.

    Raises:
      ValueError: if the shapes of `scores` and `labeled` differ, `labeled` holds other codes, a
        number is out of its range, or `loss` is not elementwise.
    """
    parts = pu_parts(
        scores,
        labeled,
        prior=prior,
        loss=loss,
        unlabeled_prior=unlabeled_prior,
        unlabeled_weight=unlabeled_weight,
    )
    return _non_negative(parts, beta, gamma, ascent, keep_positive)


def imbalanced_nnpu(
    scores: ArrayLike,
    labeled: ArrayLike,
    *,
    prior: float | jax.Array,
    target_prior: float | jax.Array = 0.5,
    loss: surrogates.Loss = surrogates.sigmoid_loss,
    beta: float | jax.Array = 0.0,
    gamma: float | jax.Array = 1.0,
    ascent: bool = True,
) -> jax.Array:
    """Non-negative PU risk of a population whose share of positives is `target_prior`.

    Where positives are rare, nnPU's best classifier may predict none. This risk weighs errors as if
    `target_prior` of the examples were positive: `positive = target_prior E_P l(g)` and
    `negative = w (E_U l(-g) - prior E_P l(-g))` with `w = (1 - target_prior) / (1 - prior)`. Value,
    gradient and the strict comparison are those of `nnpu`, applied to the weighted negative part;
    `target_prior=prior` is `nnpu`. Source: Su, Chen, Xu, "Positive-unlabeled learning from
    imbalanced data", IJCAI 2021, and its code for the ascent on the weighted part.

    Args:
      scores: raw scores, `[batch]`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
      prior: share of positives in U, for one-sample and two-sample data.
      target_prior: share of positives in the population that the risk is for.
      loss: surrogate loss of the margin, elementwise.
      beta: how far below zero the negative part may fall before the rule fires, 0 or more;
        with infinity it never does.
      gamma: factor of the ascent step, 0 or more.
      ascent: whether the gradient follows the ascent rule when it fires.

    Returns:
      The scalar risk, with the gradient described in `nnpu`.

    Raises:
      ValueError: if the shapes of `scores` and `labeled` differ, `labeled` holds other codes, a
        number is out of its range, or `loss` is not elementwise.
    """
    arrays.check_share("prior", prior)
    arrays.check_share("target_prior", target_prior)
    parts = pu_parts(
        scores,
        labeled,
        prior=target_prior,
        loss=loss,
        unlabeled_prior=prior,
        unlabeled_weight=(1 - target_prior) / (1 - prior),
    )
    return _non_negative(parts, beta, gamma, ascent)


def _non_negative(
    parts: PUParts,
    beta: float | jax.Array,
    gamma: float | jax.Array,
    ascent: bool,
    keep_positive: bool = False,
) -> jax.Array:
    """The risk with the sign rule of `nnpu`: its value, carrying the gradient to follow."""
    arrays.check_number("beta", beta, lambda x: x >= 0, "0 or more", finite=False)
    arrays.check_number("gamma", gamma, lambda x: x >= 0, "0 or more")
    checks.one_of("ascent", ascent, (True, False))
    checks.one_of("keep_positive", keep_positive, (True, False))
    beta, gamma = _arrays.of_type(parts.negative.dtype, beta, gamma)
    fired = parts.negative < -beta
    # `where` and not `maximum`: at equality the rule has not fired and the whole gradient passes.
    value = parts.positive + jnp.where(fired, -beta, parts.negative)
    if not ascent:
        return value
    correction = -gamma * parts.negative
    if keep_positive:
        correction = parts.positive + correction
    descended = jnp.where(fired, correction, parts.positive + parts.negative)
    return _with_slope_of(value, descended)


@jax.custom_jvp
def _with_slope_of(value: jax.Array, descended: jax.Array) -> jax.Array:
    """`value`, with the derivatives of `descended`, where either is infinite, too."""
    del descended
    return value


@_with_slope_of.defjvp
def _with_slope_of_jvp(primals, tangents):
    return _with_slope_of(*primals), tangents[1]
