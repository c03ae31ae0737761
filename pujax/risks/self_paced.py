"""Self-paced weights: how much an example counts, by how hard it is under its nominal label."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import arrays, checks
from pujax.risks import _arrays, surrogates

_MAX_LOGARITHMIC = 0.9


def _logarithmic(x, tolerance):
    tolerance = jnp.minimum(tolerance, _MAX_LOGARITHMIC)
    inside = x < tolerance
    weight = jnp.log1p(jnp.where(inside, x, 0) - tolerance) / jnp.log1p(-tolerance)
    return jnp.where(inside, weight, 0)


def _polynomial(x, tolerance):
    share = 1 - x / tolerance
    beyond = share <= 0
    return jnp.where(beyond, 0, jnp.sqrt(jnp.where(beyond, 1, share)))


def _square(tolerance):
    """t^2, by the smallest t whose square is no less than the smallest normal number."""
    return jnp.maximum(tolerance, 1.1 * float(jnp.finfo(tolerance.dtype).tiny) ** 0.5) ** 2


def _huber(x, tolerance):
    easy = jnp.sqrt(jax.lax.stop_gradient(x)) <= tolerance
    return jnp.where(easy, 1, tolerance / jnp.sqrt(jnp.where(easy, 1, x)))


_SCHEMES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "welsch": lambda x, t: jnp.exp(-x / _square(t)),
    "cauchy": lambda x, t: 1 / (1 + x / _square(t)),
    "hard": lambda x, t: (x < t).astype(x.dtype),
    "linear": lambda x, t: jnp.maximum(0, 1 - x / t),
    "polynomial": _polynomial,
    "logarithmic": _logarithmic,
    "logistic": lambda x, t: (1 + jnp.exp(-t)) * _arrays.sigmoid(t - x),
    "huber": _huber,
    "l1l2": lambda x, t: jnp.minimum(1, jax.lax.rsqrt(t + x)),
}
SELF_PACED_SCHEMES = tuple(_SCHEMES)
"""Names of the weight functions of `self_paced_weights`."""
_HARDNESS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "logistic": surrogates.logistic_loss,
    "sigmoid": surrogates.sigmoid_loss,
    "crps": lambda margin: surrogates.sigmoid_loss(margin) ** 2,
    "brier": lambda margin: 2 * surrogates.sigmoid_loss(margin) ** 2,
}
HARDNESS_LOSSES = tuple(_HARDNESS)
"""Names of the losses of `hardness`."""


def hardness(
    scores: ArrayLike,
    labeled: ArrayLike,
    *,
    loss: str = "logistic",
    positive_temperature: float = 1.0,
    unlabeled_temperature: float = 1.0,
) -> jax.Array:
    """How hard examples are under their nominal labels: P positive, U negative.

    `l(g / T_P)` of a labelled positive and `l(-g / T_U)` of an unlabeled example: a likely positive
    of U is hard. Source: Zhu et al., "Robust positive-unlabeled learning via noise negative sample
    self-correction", KDD 2023.

    Args:
      scores: raw scores, `[batch]`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
      loss: 'logistic', 'sigmoid', 'crps' (its square) or 'brier' (twice that).
      positive_temperature: T_P, above 0.
      unlabeled_temperature: T_U, above 0.

    Returns:
      Losses `[batch]`, 0 or more.

    Raises:
      ValueError: if the shapes of `scores` and `labeled` differ, `labeled` holds other codes, or
        an option is not accepted.
    """
    checks.one_of("loss", loss, HARDNESS_LOSSES)
    temperatures = positive_temperature, unlabeled_temperature
    for name, value in zip(("positive", "unlabeled"), temperatures, strict=True):
        arrays.check_number(f"{name}_temperature", value, lambda x: x > 0, "above 0")
    scores, is_positive = _arrays.checked(scores, labeled)
    margin = jnp.where(is_positive, scores / positive_temperature, -scores / unlabeled_temperature)
    return _HARDNESS[loss](margin)


def self_paced_weights(
    hardness: ArrayLike, *, tolerance: float | jax.Array, scheme: str = "welsch"
) -> jax.Array:
    """Weights in [0, 1] that fall with hardness x, by a tolerance t.

    - 'welsch': `exp(-x / t^2)`; 'cauchy': `1 / (1 + x / t^2)`;
    - 'hard': 1 where `x < t`, else 0; 'linear': `max(0, 1 - x / t)`; 'polynomial': its root;
    - 'logarithmic': `log(x + 1 - t) / log(1 - t)` where `x < t`, else 0, with t at most 0.9;
    - 'logistic': `(1 + exp(-t)) / (1 + exp(x - t))`;
    - 'huber': `min(1, t / sqrt(x))`; 'l1l2': `1 / sqrt(t + x)`, here at most 1.

    With the logistic hardness of temperature T, 'welsch' is the power `1 / t^2` of the probability
    of the nominal label, `sigmoid(-g / T)` for U. Derivatives by a tolerance whose square is no
    normal number (below 1e-19 in float32) may be none. Source: as `hardness`.

    Args:
      hardness: x, 0 or more, of any shape.
      tolerance: t, above 0, or an array of such numbers that broadcasts.
      scheme: one of `SELF_PACED_SCHEMES`.

    Returns:
      Weights, elementwise.

    Raises:
      ValueError: if `scheme` is another word, `tolerance` not above 0 or of a shape that does not
        broadcast, or `hardness` below 0.
    """
    checks.one_of("scheme", scheme, SELF_PACED_SCHEMES)
    arrays.check_number("tolerance", tolerance, lambda x: x > 0, "above 0", shapes=None)
    x = arrays.full_precision(hardness, "hardness")
    not_below = "0 or more"
    arrays.check_number("hardness", x, lambda x: ~(x < 0), not_below, finite=False, shapes=None)
    _check_broadcasts(tolerance, x)
    # Every scheme ends at 0, by terms of the tolerance whose derivatives there are not numbers.
    is_infinite = jnp.isinf(x)
    weights = _SCHEMES[scheme](jnp.where(is_infinite, 0, x), jnp.asarray(tolerance, x.dtype))
    return jnp.where(is_infinite, 0, weights)


def _check_broadcasts(tolerance: ArrayLike, hardness: jax.Array) -> None:
    """Requires shapes that broadcast; without any tolerance no weight would be left."""
    shape, against = np.shape(tolerance), hardness.shape
    try:
        ok = 0 in against or 0 not in np.broadcast_shapes(shape, against)
    except ValueError:
        ok = False
    accepted = f"one that broadcasts against that of hardness, {against}"
    checks.require(ok, "the shape of tolerance", shape, accepted)


def weighted_cross_entropy(
    scores: ArrayLike, labeled: ArrayLike, *, weights: ArrayLike
) -> jax.Array:
    """Cross-entropy with unlabeled as negative and a weight per example, over the batch's size.

    `(1/n) sum w l`, not divided by the sum of the weights: a batch of hard examples counts little.
    The weights have no gradient. Source: as `hardness`.

    Args:
      scores: raw scores, `[batch]`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
      weights: same shape.

    Returns:
      The scalar risk.

    Raises:
      ValueError: if the shapes differ or `labeled` holds other codes.
    """
    scores, is_positive = _arrays.checked(scores, labeled)
    weights = jax.lax.stop_gradient(arrays.full_precision(weights, "weights"))
    _arrays.check_shape("weights", weights, scores.shape, "the shape of scores")
    losses = surrogates.logistic_loss(jnp.where(is_positive, scores, -scores))
    return _arrays.weighted_sum(losses, weights) / max(scores.size, 1)
