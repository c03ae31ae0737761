"""PU-MLC: the variational PU risk for many labels, of which only positives are known."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import arrays
from pujax.risks import _arrays, surrogates

# The authors' epsilon; the variational term adds it twice.
EPSILON = 1e-10
# Smallest temperature. The authors' code has none and divides by zero on constant scores.
MIN_TEMPERATURE = 1e-6
# Shares below it are taken for it, so that logarithms stay finite.
SMALLEST_SHARE = 1e-6
CODES = ((-1, 0, 1),)


def multilabel_vpu(
    scores: ArrayLike,
    positives: ArrayLike,
    *,
    gamma: float | jax.Array = 0.0,
    alpha: float | jax.Array | None = None,
) -> jax.Array:
    """Re-balanced variational PU risk, summed over the classes.

    Per class, with `q = sigmoid(score / t)` and `m` the mean of `q` over the whole batch:
    `m^gamma log(m + 2e-10) - mean_P log(q + 2e-10)`. The floor 2e-10 is part of the definition: a
    positive far below it contributes a constant and almost no gradient. The factor `m^gamma`
    softens the push on rare classes and is a constant for the gradient, as is the temperature
    `t = min(alpha std, 1)`, at least 1e-6, `std` being the population form over the batch. A class
    without known positives keeps its first term. `gamma=0, alpha=None` is VPU with the floor.
    Source: PU-MLC (Yuan et al., ICME 2024), Eqs. 8 and 9, and its code, which uses the tempered
    probabilities in the factor, sums over classes and detaches factor and temperature.

    Args:
        scores: raw scores, `[batch, classes]`.
        positives: 1 for known positives, 0 or -1 for everything else, `[batch, classes]`.
        gamma: exponent of the re-balance factor.
        alpha: factor of the spread of the scores in the temperature; None means temperature 1.

    Returns:
        The scalar sum over the classes, 0 for an empty batch.

    Raises:
        ValueError: if the shapes do not fit or `positives` holds other codes.
    """
    scores, is_positive = _checked(scores, positives)
    if scores.size == 0:
        return jnp.zeros((), scores.dtype)
    scores = _tempered(scores, alpha)
    everyone = jnp.ones_like(is_positive)
    share = jnp.mean(jax.lax.stop_gradient(_arrays.sigmoid(scores)), axis=0)
    factor = jax.lax.stop_gradient(share**gamma)
    log_share = _log_plus(_arrays.log_mean_sigmoid(scores, everyone, axis=0), 2 * EPSILON)
    log_q = _log_plus(jax.nn.log_sigmoid(scores), 2 * EPSILON)
    return jnp.sum(factor * log_share - _arrays.mean_where(log_q, is_positive, axis=0))


def multilabel_gamma(known_ratio: ArrayLike, positive_share: ArrayLike) -> jax.Array:
    """Exponent `gamma` of `multilabel_vpu` from what is known of the labels: `log r / log(r p)`.

    `r` is the share of the labels that are known and `p` the share of positives, so that `r p` is
    the share of the labels that are known positives: both are counted, and no label is needed to
    validate. Source: derived here; the authors publish 0.85 (VOC, p = 0.08) and 0.55 (COCO, p =
    0.04) at r = 0.1, where this gives 0.48 and 0.41, and for other ratios only that gamma falls.

    The factor is a constant for the gradient, so that a row with probability `q` is pushed down by
    `m^gamma / m` times `q (1 - q) / batch`. Two solutions compete: one that finds all positives,
    `m = p`, and one that has learned the known positives by heart, `m = r p`. With `gamma = 0` the
    push is `1 / p` at the first and `1 / (r p)` at the second. It is the stronger the fewer labels
    are known, falls on the positives that are hidden, and nothing but known positives beside them
    holds against it. The rule asks that it be no stronger there than at the true solution,
    `(r p)^gamma / (r p) = 1 / p`. With all labels known the two are one, and gamma is 0, for which
    the risk is least at the posterior. Above 0 it is least at
    `q = min(1, m^(1 - gamma) posterior / p)`, which is the posterior or more.

    Args:
        known_ratio: `r` in [0, 1], of any shape.
        positive_share: `p` in [0, 1], of a shape that goes with it.

    Returns:
        gamma in [0, 1], elementwise: 0 where all labels are known, 1 where every known label is a
        positive, so that nothing tells how many are known. Shares below 1e-6 count as that.
    """
    known_ratio, positive_share = map(arrays.full_precision, (known_ratio, positive_share))
    told = jnp.log(jnp.maximum(known_ratio, SMALLEST_SHARE))
    all_of = told + jnp.log(jnp.maximum(positive_share, SMALLEST_SHARE))
    return jnp.where(told < 0, told / jnp.where(told < 0, all_of, 1), 0)


def multilabel_known(
    scores: ArrayLike,
    known: ArrayLike,
    *,
    positive_share: ArrayLike,
    alpha: float | jax.Array | None = None,
) -> jax.Array:
    """Cross-entropy of the known labels in units of one positive, summed over the classes.

    Per class, with `q = sigmoid(score / t)`, `t` as in `multilabel_vpu`, and `p` the share of
    positives: `-(sum_P log q + sum_N log(1 - q)) / (batch p)`, P and N being the known positives
    and negatives of the batch. The unit is that of the variational risk, a mean over positives.

    Where every label is known with the same probability r, whatever it is, this is an unbiased
    estimate of `r / p` times the cross-entropy of all labels, which is least where `q` is the
    posterior. The variational risk with `gamma=0` is least there as well (and at every multiple of
    it), so that any weighted sum of both is least at the posterior, and there alone. With `gamma`
    above 0 the variational risk pulls scores up, in a sum as it does alone: that bias stays.

    Args:
        scores: raw scores, `[batch, classes]`.
        known: 1 for known positives, -1 for known negatives, 0 for unknown, `[batch, classes]`.
        positive_share: share of positives among the known labels, `[classes]` or a scalar, above 0;
            of all training examples and not of the batch, in which a class may have none.
        alpha: factor of the spread of the scores in the temperature; None means temperature 1.

    Returns:
        The scalar sum over the classes, 0 for an empty batch.

    Raises:
        ValueError: if the shapes do not fit, `known` holds other codes, or a share is not in
            (0, 1].
    """
    _arrays.check_number("positive_share", positive_share, _is_share, "above 0 and at most 1")
    scores, is_positive = _checked(scores, known)
    if scores.size == 0:
        return jnp.zeros((), scores.dtype)
    scores = _tempered(scores, alpha)
    known = jnp.asarray(known)
    losses = surrogates.logistic_loss(jnp.where(is_positive, scores, -scores))
    by_class = jnp.sum(jnp.where(known != 0, losses, 0), axis=0)
    return jnp.sum(by_class / jnp.asarray(positive_share)) / len(scores)


def _is_share(value: np.ndarray) -> np.ndarray:
    return (value > 0) & (value <= 1)


def multilabel_mixup_consistency(
    scores: ArrayLike,
    positives: ArrayLike,
    mixed_scores: ArrayLike,
    permutation: ArrayLike,
    mix: float | jax.Array,
    *,
    detach_targets: bool = False,
) -> jax.Array:
    """Mixup consistency of PU-MLC between the two halves of a batch, summed over the classes.

    With `half = batch // 2`, mixed input `i` is `mix * x[permutation[i]] + (1 - mix) * x_last[i]`,
    `x_last` being the last `half` rows (of an odd batch the middle row is unused). Its target is
    mixed the same way from 1 for known positives and `sigmoid(score) + 1e-10` for the rest, without
    temperature, and the loss is the mean over rows of `(log(target + 1e-10) - log(q + 1e-10))^2`.
    By default the targets are not detached, as in the authors' code: gradients reach `scores` as
    well. Source: PU-MLC (Yuan et al., ICME 2024) names the term, its code defines it.

    Args:
        scores: raw scores of the batch, `[batch, classes]`.
        positives: 1 for known positives, 0 or -1 for everything else, `[batch, classes]`.
        mixed_scores: raw scores of the mixed inputs, `[batch // 2, classes]`.
        permutation: rows of the first half that were mixed in, `[batch // 2]` integers.
        mix: share of the first half in [0, 1], a scalar.
        detach_targets: treat the targets as constants, so that gradients reach `mixed_scores` only.

    Returns:
        The scalar sum over the classes.

    Raises:
        ValueError: if there are fewer than two rows, the shapes do not fit or `positives` holds
            other codes.
    """
    scores, is_positive = _checked(scores, positives)
    mixed_scores, permutation = arrays.full_precision(mixed_scores), jnp.asarray(permutation)
    batch, classes = scores.shape
    half = batch // 2
    if half == 0:
        raise ValueError(f"scores has {batch} rows, but must have 2 or more to form a pair")
    _arrays.check_shape("mixed_scores", mixed_scores, (half, classes), "[batch // 2, classes]")
    _arrays.check_shape("permutation", permutation, (half,), "[batch // 2]")

    if detach_targets:
        scores = jax.lax.stop_gradient(scores)
    soft = jnp.where(is_positive, 1, _arrays.sigmoid(scores) + EPSILON)
    targets = mix * soft[:half][permutation] + (1 - mix) * soft[batch - half :]
    gap = jnp.log(targets + EPSILON) - _log_plus(jax.nn.log_sigmoid(mixed_scores), EPSILON)
    return jnp.sum(jnp.mean(gap**2, axis=0))


def _checked(scores: ArrayLike, positives: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Scores in full precision and a boolean mask of the known positives, matrices of one shape."""
    _arrays.check_codes("positives", positives, CODES)
    scores, positives = arrays.full_precision(scores), jnp.asarray(positives)
    if scores.ndim != 2:
        raise ValueError(f"scores has shape {scores.shape}, but must be [batch, classes]")
    _arrays.check_shape("positives", positives, scores.shape, "the shape of scores")
    return scores, positives > 0


def _tempered(scores: jax.Array, alpha: float | jax.Array | None) -> jax.Array:
    """Scores divided by the temperature, a constant for the gradient; as they are for None."""
    if alpha is None:
        return scores
    spread = jnp.std(jax.lax.stop_gradient(scores), axis=0)
    return scores / jax.lax.stop_gradient(jnp.clip(alpha * spread, MIN_TEMPERATURE, 1))


def _log_plus(logarithm: jax.Array, floor: float) -> jax.Array:
    """`log(exp(logarithm) + floor)`, exact where the exponential is near 1 or underflows."""
    return jnp.logaddexp(logarithm, math.log(floor))
