"""Losses of many labels, some unknown, that PU-MLC is compared with.

Labels are coded 1 for known positives, -1 for known negatives and 0 for unknown. Two answers to an
unknown label are in use: it is negative, because most labels are, or it is left out.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import arrays, checks
from pujax.risks import _arrays, multilabel, surrogates

# Smallest probability inside the logarithms of the asymmetric loss, from its authors' code.
SMALLEST_PROBABILITY = 1e-8
# Far below it a slope by the clip is without weight, and its own slopes would overflow.
_MAX_LOG_SLOPE = 30.0
# Share of known labels at which `partial_bce` states its weight.
STATED_SHARE = 0.1
UNKNOWN = ("negative", "ignore")


def assume_negative_bce(scores: ArrayLike, known: ArrayLike) -> jax.Array:
    """Binary cross-entropy in which everything that is not a known positive is negative.

    The mean over batch and classes. With all labels known it is the fully supervised loss. Source:
    PU-MLC (Yuan et al., ICME 2024), Eq. 1.

    Args:
      scores: raw scores, `[batch, classes]`.
      known: 1 for known positives, 0 or -1 for everything else, `[batch, classes]`.

    Returns:
      The scalar loss, 0 for an empty batch.

    Raises:
      ValueError: if the shapes do not fit or `known` holds other codes.
    """
    scores, is_positive, _ = _checked(scores, known)
    return jnp.sum(_cross_entropy(scores, is_positive)) / max(scores.size, 1)


def partial_bce(
    scores: ArrayLike,
    known: ArrayLike,
    *,
    gamma: float | jax.Array = 1.0,
    weight_at_tenth: float | jax.Array = 5.0,
) -> jax.Array:
    """Binary cross-entropy of the known labels, weighted by how few of them an example has.

    Per example, with `p` its share of known labels, the sum over them times `g(p) / classes`, then
    the mean over the batch. `g(p) = a p^gamma + b` is fixed by `g(1) = 1`, so that with all labels
    known this is the plain cross-entropy, and by `g(0.1)`: the published choice, `gamma = 1` and
    `g(0.1) = 5`, gives `a = -40/9` and `b = 49/9` (implementations round to -4.45 and 5.45, which
    is `g(0.1) = 5.005`). `g(0.1) = 1` weights all known labels alike; `gamma = -1` with
    `g(0.1) = 10` is `g = 1/p`, the mean over the known labels of each example. Source: Durand et
    al., CVPR 2019, section 3.1.

    Args:
      scores: raw scores, `[batch, classes]`.
      known: 1 for known positives, -1 for known negatives, 0 for unknown, `[batch, classes]`.
      gamma: exponent of the share, not 0.
      weight_at_tenth: `g(0.1)`, the weight of an example with a tenth of its labels known.

    Returns:
      The scalar loss; an example without known labels contributes 0 and counts in the mean.

    Raises:
      ValueError: if the shapes do not fit, `known` holds other codes, `gamma` is 0 or a number
        is not finite.
    """
    arrays.check_number("gamma", gamma, lambda g: g != 0, "a finite number other than 0")
    arrays.check_number("weight_at_tenth", weight_at_tenth, np.isfinite, "a finite number")
    scores, is_positive, is_known = _checked(scores, known)
    losses = jnp.sum(jnp.where(is_known, _cross_entropy(scores, is_positive), 0), axis=1)
    count = jnp.sum(is_known, axis=1)
    # Without known labels the sum is 0, and any share gives it a finite weight.
    share = jnp.maximum(count, 1).astype(scores.dtype) / max(scores.shape[1], 1)
    # `p^gamma - 1` without the cancellation of digits that a gamma near 0 would bring.
    at_share = jnp.expm1(gamma * jnp.log(share))
    weights = (weight_at_tenth - 1) * at_share / jnp.expm1(gamma * math.log(STATED_SHARE)) + 1
    return jnp.sum(weights * losses) / max(scores.size, 1)


def asymmetric(
    scores: ArrayLike,
    known: ArrayLike,
    *,
    gamma_negative: float | jax.Array = 4.0,
    gamma_positive: float | jax.Array = 1.0,
    clip: float | jax.Array = 0.05,
    unknown: str = "negative",
    stop_weight_gradient: bool = True,
) -> jax.Array:
    """Asymmetric loss: easy negatives count less, and the easiest not at all.

    With `p = sigmoid(score)` and `p_m = max(p - clip, 0)`, a positive costs `-(1 -
    p)^gamma_positive log p` and a negative `-p_m^gamma_negative log(1 - p_m)`; the result is the
    sum over batch and classes. Source: ASL (Ridnik et al., ICCV 2021) and its code, which is
    followed where it adds or differs: it sums, keeps probabilities inside the logarithms above 1e-8
    (a positive with a lower one costs 18.4 and has no gradient), takes the focusing weights for
    constants in the scores, not in their exponents, and has the default `gamma_positive = 1` where
    the paper uses 0.

    Args:
      scores: raw scores, `[batch, classes]`.
      known: 1 for known positives, -1 for known negatives, 0 for unknown, `[batch, classes]`.
      gamma_negative: focusing exponent of negatives, 0 or more.
      gamma_positive: focusing exponent of positives, 0 or more.
      clip: probability below which a negative costs nothing, in [0, 1).
      unknown: 'negative' takes unknown labels for negatives, 'ignore' leaves them out.
      stop_weight_gradient: treat the focusing weights as constants for the gradient by the scores.

    Returns:
      The scalar sum.

    Raises:
      ValueError: if the shapes do not fit, `known` holds other codes, or an option is out of
        range.
    """
    scores, is_positive, is_known = _checked(scores, known)
    shapes = (), scores.shape[1:]
    for name, gamma in (("gamma_negative", gamma_negative), ("gamma_positive", gamma_positive)):
        accepted = "a finite number, 0 or more"
        arrays.check_number(name, gamma, lambda g: g >= 0, accepted, shapes=shapes)
    accepted = "0 or more and below 1"
    arrays.check_number("clip", clip, lambda c: (c >= 0) & (c < 1), accepted, shapes=shapes)
    checks.one_of("unknown", unknown, UNKNOWN)
    checks.one_of("stop_weight_gradient", stop_weight_gradient, (True, False))
    gamma_negative, gamma_positive, clip = map(jnp.asarray, (gamma_negative, gamma_positive, clip))

    p, lacking = _arrays.sigmoid(scores), _arrays.sigmoid(-scores)
    shifted = jnp.maximum(p - clip, 0)
    exponent = jnp.where(is_positive, gamma_positive, gamma_negative)
    # Powers by their logarithm: the slope of `base^(exponent - 2)`, which a second derivative has,
    # overflows where a probability is small. 0^0 is 1, and of 0 the logarithm has no slope.
    held = jax.lax.stop_gradient(scores) if stop_weight_gradient else scores
    is_shifted = ~is_positive & (clip > 0)
    above = _arrays.sigmoid(held) - clip
    is_zero = jnp.where(is_shifted, above <= 0, held == jnp.where(is_positive, jnp.inf, -jnp.inf))
    # Where the clip is 0 its slope is kept, `-1 / p`, by a term that is 0.
    log_plain = jax.nn.log_sigmoid(jnp.where(is_zero, 0, jnp.where(is_positive, -held, held)))
    slope = jnp.where(is_positive, 0, jnp.exp(jnp.minimum(-log_plain, _MAX_LOG_SLOPE)))
    log_base = jnp.where(
        is_shifted,
        jnp.log(jnp.where(is_shifted & ~is_zero, above, 1)),
        log_plain - jnp.where(is_shifted, 0, clip) * slope,
    )
    weights = jnp.where(is_zero, exponent == 0, jnp.exp(exponent * log_base))

    log_p = jnp.maximum(jax.nn.log_sigmoid(scores), math.log(SMALLEST_PROBABILITY))
    # `1 - shifted` where it is small, without the rounding of `p` to 1.
    rest = jnp.where(shifted < 0.5, 1, jnp.maximum(lacking + clip, SMALLEST_PROBABILITY))
    log_rest = jnp.where(shifted < 0.5, jnp.log1p(-jnp.minimum(shifted, 0.5)), jnp.log(rest))
    losses = -weights * jnp.where(is_positive, log_p, log_rest)
    return jnp.sum(losses if unknown == "negative" else jnp.where(is_known, losses, 0))


def _cross_entropy(scores: jax.Array, is_positive: jax.Array) -> jax.Array:
    """Binary cross-entropy of each entry."""
    return surrogates.logistic_loss(jnp.where(is_positive, scores, -scores))


def _checked(scores: ArrayLike, known: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Scores in full precision and masks of the positives and of the known, of one shape."""
    arrays.check_codes("known", known, multilabel.CODES)
    scores, known = arrays.full_precision(scores, "scores"), jnp.asarray(known)
    if scores.ndim != 2:
        raise ValueError(f"scores has shape {scores.shape}, but must be [batch, classes]")
    _arrays.check_shape("known", known, scores.shape, "the shape of scores")
    return scores, known > 0, known != 0
