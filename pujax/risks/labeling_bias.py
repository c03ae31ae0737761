"""LBE: a classifier and the probability that a positive is labelled, by EM."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import arrays
from pujax.risks import _arrays

_LARGEST_EXPONENT = 80  # whose power of e float32 still holds


def lbe_posterior(scores: ArrayLike, propensity_scores: ArrayLike, labeled: ArrayLike) -> jax.Array:
    """E-step of LBE: the probability that an example is positive, given whether it is labelled.

    With `h = sigmoid(scores)`, the probability of the positive class, and
    `eta = sigmoid(propensity_scores)`, that of a positive to be labelled, it is 1 for a labelled
    example and `h (1 - eta) / (1 - h eta)` for another one, 0 where the denominator is 0. That is
    computed as `sigmoid(scores - softplus(propensity_scores))`, which loses no digits. Source: Gong
    et al., "Instance-dependent positive and unlabeled learning with labeling bias estimation",
    TPAMI 44(8), 2022.

    Args:
      scores: raw scores of the classifier, `[batch]`.
      propensity_scores: raw scores of the propensity, same shape.
      labeled: 1 for labelled positives and 0 for unlabeled examples, same shape.

    Returns:
      Probabilities `[batch]`.

    Raises:
      ValueError: if the shapes differ or `labeled` holds other codes.
    """
    scores, is_labeled = _arrays.checked(scores, labeled)
    propensity_scores = arrays.full_precision(propensity_scores, "propensity_scores")
    accepted = "the shape of scores"
    _arrays.check_shape("propensity_scores", propensity_scores, scores.shape, accepted)
    both_certain = jnp.isposinf(scores) & jnp.isposinf(propensity_scores)
    log_odds = scores - jax.nn.softplus(jnp.where(both_certain, 0, propensity_scores))
    unlabeled = jnp.where(both_certain, 0, _arrays.sigmoid(log_odds))
    return jnp.where(is_labeled, 1, unlabeled)


def lbe_classifier(
    scores: ArrayLike,
    posterior: ArrayLike,
    labeled: ArrayLike | None = None,
    *,
    keep: float = 0.8,
    epsilon: float = 1e-5,
) -> tuple[jax.Array, jax.Array]:
    """The classifier's loss in the M-step of LBE: cross-entropy of the examples that are easiest.

    `-[q log(h + epsilon) + (1 - q) log(1 - h + epsilon)]`, of which the `floor(keep batch)`
    smallest are averaged. The choice and the posterior have no gradient. The loss includes the
    entropy of `q`, so that what is dropped is ambiguous. Source: as `lbe_posterior`, in the form of
    a public re-implementation that follows the authors' code; that one averages one example where
    the floor is 0.

    With `labeled` the labelled positives all count, `keep` is the share of the unlabeled examples,
    and the two groups weigh alike: `(mean over P + mean over the kept of U) / 2`, or the mean of
    the only group where one is empty. This is the form that PU-Bench's published figures were
    computed with, before that code followed the authors'.

    Args:
      scores: raw scores, `[batch]`; `h = sigmoid(scores)`.
      posterior: q, from `lbe_posterior`, same shape.
      labeled: None, or 1 for labelled positives and 0 for unlabeled examples, same shape.
      keep: share of the examples that count, above 0 and at most 1. A known one is multiplied in
        Python's precision, as in the authors' code, where `0.29 * 100` is below 29; a traced one in
        its own.
      epsilon: inside the logarithms, 0 or more.

    Returns:
      `(loss, kept)`: a scalar, 0 where no example counts, and bool `[batch]`.

    Raises:
      ValueError: if the shapes differ, `labeled` holds other codes, or `keep` or `epsilon` is
        out of range.
    """
    arrays.check_number("keep", keep, lambda x: (x > 0) & (x <= 1), "above 0 and at most 1")
    scores, posterior = _pair(scores, posterior, epsilon)
    positive, negative = _log_shares(scores, epsilon)
    losses = -(_arrays.weighted(positive, posterior) + _arrays.weighted(negative, 1 - posterior))
    fixed = jax.lax.stop_gradient(losses)
    if labeled is None:
        kept = arrays.ranks(fixed) < _num_kept(keep, losses.size, losses.size)
        return arrays.mean_where(losses, kept), kept
    _, is_p = _arrays.checked(scores, labeled)
    num_kept = _num_kept(keep, jnp.sum(~is_p), losses.size)
    of_u = ~is_p & (arrays.ranks(jnp.where(is_p, jnp.inf, fixed)) < num_kept)
    means = arrays.mean_where(losses, is_p) + arrays.mean_where(losses, of_u)
    groups = jnp.any(is_p).astype(losses.dtype) + jnp.any(of_u)
    return means / jnp.maximum(groups, 1), is_p | of_u


def lbe_propensity(
    propensity_scores: ArrayLike,
    posterior: ArrayLike,
    labeled: ArrayLike,
    *,
    epsilon: float = 1e-5,
) -> jax.Array:
    """The propensity's loss in the M-step of LBE: `-mean q log(eta^s (1 - eta)^(1 - s) + epsilon)`.

    An unlabeled example counts with its probability q to be positive: eta is the probability to be
    labelled *of a positive*. With the weight 1, as in two public implementations, it would be that
    of any example. Source: as `lbe_classifier`.

    Args:
      propensity_scores: raw scores, `[batch]`; `eta = sigmoid(propensity_scores)`.
      posterior: q, from `lbe_posterior`, same shape; without gradient.
      labeled: s, 1 for labelled positives and 0 for unlabeled examples, same shape.
      epsilon: inside the logarithm, 0 or more.

    Returns:
      The scalar mean over all examples.

    Raises:
      ValueError: if the shapes differ, `labeled` holds other codes, or `epsilon` is below 0.
    """
    name = "propensity_scores"
    scores, is_labeled = _arrays.checked(propensity_scores, labeled, name=name)
    scores, posterior = _pair(scores, posterior, epsilon, name=name)
    positive, negative = _log_shares(scores, epsilon)
    losses = -_arrays.weighted(jnp.where(is_labeled, positive, negative), posterior)
    return jnp.sum(losses) / max(losses.size, 1)


def _pair(
    scores: ArrayLike, posterior: ArrayLike, epsilon: float, *, name: str = "scores"
) -> tuple[jax.Array, jax.Array]:
    """Scores and posterior in full precision, of one shape, the posterior without gradient."""
    arrays.check_number("epsilon", epsilon, lambda x: x >= 0, "0 or more")
    scores = arrays.full_precision(scores, name)
    posterior = jax.lax.stop_gradient(arrays.full_precision(posterior, "posterior"))
    _arrays.check_shape("posterior", posterior, scores.shape, f"the shape of {name}")
    return scores, posterior


def _log_shares(scores: jax.Array, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """`log(p + epsilon)` and `log(1 - p + epsilon)` of `p = sigmoid(scores)`."""
    return _log_share(scores, epsilon), _log_share(-scores, epsilon)


def _log_share(scores: jax.Array, epsilon: float) -> jax.Array:
    """`log(p + epsilon)`; without `epsilon` it stays finite where p is 0 in the precision.

    An `epsilon` below the smallest normal number is none: devices take it for 0.
    """
    exact = jax.nn.log_sigmoid(scores)
    known = arrays.on_host(epsilon)
    smallest = float(jnp.finfo(scores.dtype).tiny)
    if known is not None and known < smallest:
        return exact
    p = _arrays.sigmoid(scores)
    if known is not None:
        return jnp.log(p + epsilon)
    is_zero = epsilon < smallest
    # The derivative by epsilon at 0 is 1 / p.
    at_zero = exact + epsilon * jnp.exp(jnp.minimum(-exact, _LARGEST_EXPONENT))
    return jnp.where(is_zero, at_zero, jnp.log(p + jnp.where(is_zero, 1, epsilon)))


def _num_kept(keep: float | jax.Array, count: int | jax.Array, largest: int) -> jax.Array:
    """`floor(keep count)`, where `count` is at most `largest`."""
    known = arrays.on_host(keep)
    if known is None:
        return jnp.floor(keep * count)
    return jnp.asarray(np.floor(float(known) * np.arange(largest + 1)), jnp.int32)[count]
