"""PU-MLC: the variational PU risk for many labels, of which only positives are known."""

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax import arrays, checks
from pujax.risks import _arrays, surrogates

# The authors' epsilon; the variational term adds it twice.
EPSILON = 1e-10
# Smallest temperature. The authors' code has none and divides by zero on constant scores.
MIN_TEMPERATURE = 1e-6
CODES = ((-1, 0, 1),)


def multilabel_vpu(
    scores: ArrayLike,
    positives: ArrayLike,
    *,
    gamma: float | jax.Array = 0.0,
    alpha: float | jax.Array | None = None,
) -> jax.Array:
    """Re-balanced variational PU risk, summed over the classes.

    Per class, with `q = sigmoid(score / t)` and `m` the mean of `q` over the whole batch: `m^gamma
    log(m + 2e-10) - mean_P log(q + 2e-10)`. The floor 2e-10 is part of the definition: a positive
    far below it contributes a constant and almost no gradient. The factor `m^gamma` softens the
    push on rare classes and is constant in the scores, as is the temperature `t = min(alpha std,
    1)`, at least 1e-6, `std` being the population form over the batch; `gamma` and `alpha` are
    differentiated in both. A class without known positives keeps its first term. `gamma=0,
    alpha=None` is VPU with the floor. Source: PU-MLC (Yuan et al., ICME 2024), Eqs. 8 and 9, and
    its code, which uses the tempered probabilities in the factor, sums over classes and detaches
    factor and temperature.

    Args:
      scores: raw scores, `[batch, classes]`.
      positives: 1 for known positives, 0 or -1 for everything else, `[batch, classes]`.
      gamma: exponent of the re-balance factor, 0 or more.
      alpha: factor of the spread of the scores in the temperature, 0 or more; None means
        temperature 1.

    Returns:
      The scalar sum over the classes, 0 for an empty batch.

    Raises:
      ValueError: if the shapes do not fit, `positives` holds other codes, or `gamma` or `alpha`
        is out of range.
    """
    scores, is_positive = _checked(scores, positives)
    shapes = (), scores.shape[1:]
    for name, value in (("gamma", gamma), ("alpha", 0 if alpha is None else alpha)):
        arrays.check_number(name, value, lambda x: x >= 0, "0 or more", shapes=shapes)
    if scores.size == 0:
        return jnp.zeros((), scores.dtype)
    fixed = jax.lax.stop_gradient(scores)
    if alpha is not None:
        # An infinite score spreads without end, and the temperature is 1.
        is_infinite = jnp.isinf(scores)
        spread = jnp.std(jnp.where(is_infinite, 0, fixed), axis=0)
        alpha = jnp.asarray(alpha, scores.dtype)
        temperature = jnp.clip(_arrays.weighted(spread, alpha), MIN_TEMPERATURE, 1)
        is_one = is_infinite.any(0) & (alpha > 0)
        temperature = jnp.where(is_one, 1, temperature)
        scores, fixed = (
            jnp.where(is_infinite, x, jnp.where(is_infinite, 0, x) / temperature)
            for x in (scores, fixed)
        )

    everyone = jnp.ones_like(is_positive)
    factor = _power(_arrays.log_mean_sigmoid(fixed, everyone, axis=0), gamma)
    log_share = _log_plus(_arrays.log_mean_sigmoid(scores, everyone, axis=0), 2 * EPSILON)
    log_q = _log_plus(jax.nn.log_sigmoid(scores), 2 * EPSILON)
    return jnp.sum(factor * log_share - arrays.mean_where(log_q, is_positive, axis=0))


def _power(log_mean: jax.Array, gamma: float | jax.Array) -> jax.Array:
    """`m^gamma` by the logarithm of m, which has a slope where m itself rounds to 0."""
    is_zero = jnp.isneginf(log_mean)
    power = jnp.exp(jnp.asarray(gamma) * jnp.where(is_zero, 0, log_mean))
    return jnp.where(is_zero, (jnp.asarray(gamma) == 0).astype(power.dtype), power)


def multilabel_gamma(known_ratio: float | jax.Array) -> jax.Array:
    """Exponent `gamma` of `multilabel_vpu` by the share `r` of known labels: `(1 - r)^3`.

    It needs no label but those that are known. Source: derived here. The authors publish 0.85 (VOC)
    and 0.55 (COCO) at r = 0.1, and of other ratios only that gamma falls as r grows.

    The factor is a constant for the gradient, so that a row with probability `q` is pushed down by
    `m^gamma / m` times `q (1 - q) / batch`. With all positives known, a push of `1 / m` is right:
    it is what the pull on each of them balances. A hidden positive has no pull of its own, but the
    pull on a known one raises what the network finds like it as well: a hidden positive is held up
    where one of the two nearest positives is known. The share `(1 - r)^3` of the positives have
    nothing of this, and what these can bear is the least that the risk knows, a push of 1, as if
    all rows were positive. One factor serves all rows of a class, since nobody can tell which are
    hidden; the rule takes the geometric mean over the positives: with `gamma = (1 - r)^3` it is
    `(1 / m)^(1 - gamma) 1^gamma = m^gamma / m`. That it is two neighbours, of none to three, was
    chosen on training rows held out (docs/results/pu_mlc.md). With all labels known gamma is 0, for
    which the risk is least at the posterior. Above 0 it is least at
    `q = min(1, m^(1 - gamma) posterior / p)`, `p` being the share of positives, which is the
    posterior where that is 0 or 1 and more elsewhere.

    Args:
      known_ratio: `r` in [0, 1], of any shape.

    Returns:
      gamma in [0, 1], elementwise.

    Raises:
      ValueError: if a ratio is not in [0, 1].
    """
    arrays.check_number(
        "known_ratio", known_ratio, lambda r: (r >= 0) & (r <= 1), "in [0, 1]", shapes=None
    )
    return (1 - arrays.full_precision(known_ratio)) ** 3


def multilabel_known(
    scores: ArrayLike, known: ArrayLike, *, positive_share: float | jax.Array
) -> jax.Array:
    """Cross-entropy of the known labels in units of one positive, summed over the classes.

    Per class, with `q = sigmoid(score)` and `p` the share of positives:
    `-(sum_P log q + sum_N log(1 - q)) / (batch p)`, P and N being the known positives and negatives
    of the batch. The unit is that of the variational risk, a mean over positives.

    Where every label is known with the same probability r, whatever it is, this is an unbiased
    estimate of `r / p` times the cross-entropy of all labels, which is least where `q` is the
    posterior. The variational risk with `gamma=0` is least there as well (and at every multiple of
    it), so that any weighted sum of both is least at the posterior, and there alone. What the
    variational risk adds in bias, by `gamma` above 0 or by a temperature below 1, stays in a sum,
    but leaves with its weight.

    Args:
      scores: raw scores, `[batch, classes]`; there is no temperature.
      known: 1 for known positives, -1 for known negatives, 0 for unknown, `[batch, classes]`.
      positive_share: share of positives among the known labels, `[classes]` or a scalar, above 0;
        of all training examples and not of the batch, in which a class may have none.

    Returns:
      The scalar sum over the classes, 0 for an empty batch.

    Raises:
      ValueError: if the shapes do not fit, `known` holds other codes, or a share is not in
        (0, 1].
    """
    accepted = "above 0 and at most 1"
    scores, is_positive = _checked(scores, known, name="known")
    arrays.check_number(
        "positive_share",
        positive_share,
        lambda p: (p > 0) & (p <= 1),
        accepted,
        shapes=((), scores.shape[1:]),
    )
    losses = surrogates.logistic_loss(jnp.where(is_positive, scores, -scores))
    by_class = jnp.sum(jnp.where(jnp.asarray(known) != 0, losses, 0), axis=0)
    return jnp.sum(by_class / jnp.asarray(positive_share)) / max(len(scores), 1)


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
      ValueError: if there are fewer than two rows, the shapes do not fit, `positives` holds
        other codes, or `permutation` or `mix` is out of range.
    """
    scores, is_positive = _checked(scores, positives)
    mixed_scores = arrays.full_precision(mixed_scores, "mixed_scores")
    permutation = arrays.real("permutation", permutation)
    batch, classes = scores.shape
    half = batch // 2
    if half == 0:
        raise ValueError(f"scores has {batch} rows, but must have 2 or more to form a pair")
    _arrays.check_shape("mixed_scores", mixed_scores, (half, classes), "[batch // 2, classes]")
    _arrays.check_shape("permutation", permutation, (half,), "[batch // 2]")
    if not jnp.issubdtype(permutation.dtype, jnp.integer):
        raise ValueError(f"permutation has type {permutation.dtype}, but must hold integers")
    accepted = f"rows of the first half, 0 to {half - 1}"
    arrays.check_number(
        "permutation", permutation, lambda p: (p >= 0) & (p < half), accepted, shapes=None
    )
    arrays.check_number("mix", mix, lambda m: (m >= 0) & (m <= 1), "in [0, 1]")
    checks.one_of("detach_targets", detach_targets, (True, False))

    if detach_targets:
        scores = jax.lax.stop_gradient(scores)
    soft = jnp.where(is_positive, 1, _arrays.sigmoid(scores) + EPSILON)
    targets = mix * soft[:half][permutation] + (1 - mix) * soft[batch - half :]
    gap = jnp.log(targets + EPSILON) - _log_plus(jax.nn.log_sigmoid(mixed_scores), EPSILON)
    return jnp.sum(jnp.mean(gap**2, axis=0))


def _checked(
    scores: ArrayLike, codes: ArrayLike, *, name: str = "positives"
) -> tuple[jax.Array, jax.Array]:
    """Scores in full precision and a boolean mask of the known positives, matrices of one shape.

    `name` is what the function that is called says to the codes.
    """
    arrays.check_codes(name, codes, CODES)
    scores, codes = arrays.full_precision(scores, "scores"), jnp.asarray(codes)
    if scores.ndim != 2:
        raise ValueError(f"scores has shape {scores.shape}, but must be [batch, classes]")
    _arrays.check_shape(name, codes, scores.shape, "the shape of scores")
    return scores, codes > 0


def _log_plus(logarithm: jax.Array, floor: float) -> jax.Array:
    """`log(exp(logarithm) + floor)`, exact where the exponential is near 1 or underflows."""
    return jnp.logaddexp(logarithm, math.log(floor))
