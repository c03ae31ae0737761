"""PULDA: label distributions aligned by a smooth distance, and a margin around the boundary."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax import arrays, checks
from pujax.risks import _arrays


class MovingMean(NamedTuple):
    """An exponential moving average of the mean of a group over batches.

    Attributes:
      value: scalar, without gradient; 0 before the first batch that holds the group.
      started: boolean scalar, whether there was such a batch.
    """

    value: jax.Array
    started: jax.Array

    @classmethod
    def start(cls) -> "MovingMean":
        """The average before the first batch."""
        return cls(jnp.zeros([]), jnp.zeros([], bool))


def softplus_distance(
    first: ArrayLike, second: ArrayLike, *, sharpness: float | jax.Array
) -> jax.Array:
    """A smooth `|u - v|`: `softplus_b(u - v) + softplus_b(v - u)`.

    Here `softplus_b(x) = log(1 + exp(b x)) / b`. The distance of equal numbers is `2 log(2) / b`,
    the least; its gradient for the first is `tanh(b (u - v) / 2)`. Source: Jiang et al.,
    "Positive-unlabeled learning with label distribution alignment", TPAMI 45(12), 2023.

    Args:
      first: u, of any shape.
      second: v, of the same shape or a scalar.
      sharpness: b, above 0: the larger, the nearer to `|u - v|`.

    Returns:
      Distances, elementwise.

    Raises:
      ValueError: if `sharpness` is not above 0, the shapes differ, or an argument is no array of
        real numbers.
    """
    _check_sharpness(sharpness)
    first, second = arrays.real("first", first), arrays.real("second", second)
    # One type before the difference: those of integers wrap around, those of bfloat16 are rounded.
    precision = jnp.promote_types(jnp.result_type(first, second), jnp.float32)
    first, second = first.astype(precision), second.astype(precision)
    if first.shape and second.shape:
        _arrays.check_shape("second", second, first.shape, "the shape of first, or none")
    (sharpness,) = _arrays.of_type(precision, sharpness)
    scaled = sharpness * (first - second)
    return (jax.nn.softplus(scaled) + jax.nn.softplus(-scaled)) / sharpness


def two_way_sigmoid_loss(scores: ArrayLike, *, margin: float | jax.Array = 0.6) -> jax.Array:
    """Loss of scores within a margin on the positive side: `sigmoid(g) sigmoid(margin - g)`.

    A bump that is symmetric about `margin / 2`, where it is `sigmoid(margin / 2)^2`, and vanishes
    far away on both sides. That of the negative side is the loss of `-scores`. Source: as
    `softplus_distance`.

    Args:
      scores: raw scores of any shape.
      margin: width of the margin, 0 or more.

    Returns:
      Losses, elementwise.

    Raises:
      ValueError: if `margin` is below 0.
    """
    _check_margin(margin)
    scores = arrays.full_precision(scores, "scores")
    (margin,) = _arrays.of_type(scores.dtype, margin)
    return _arrays.sigmoid(scores) * _arrays.sigmoid(margin - scores)


def label_alignment(
    scores: ArrayLike,
    labeled: ArrayLike,
    *,
    prior: float | jax.Array,
    average: MovingMean | None = None,
    decay: float = 0.85,
    sharpness: float = 3.5,
) -> tuple[jax.Array, MovingMean]:
    """Label-distribution risk of PULDA: `2 prior (1 - E_P p) + D_b(m, prior) / (1 - decay)`.

    `D_b` is `softplus_distance`, and `m = decay m_old + (1 - decay) E_U p` the moving average of
    the predicted share of positives in U. `m_old` is a constant; the division cancels the factor
    that the average puts before the gradient, which so is `tanh(b (m - prior) / 2)` times that of
    `E_U p`. The first batch starts the average: there `m` is `E_U p` and nothing is divided. With
    `decay=0` the average is the batch's mean. Source: Jiang et al., "Positive-unlabeled learning
    with label distribution alignment", TPAMI 45(12), 2023, as in the authors' code.

    Args:
      scores: raw scores, `[batch]`; `p = sigmoid(scores)`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
      prior: share of positives in U: that of the population for two-sample data, the smaller
        one of the pool for one-sample data.
      average: what the last batch returned; None before the first one.
      decay: share of the average that stays, in [0, 1).
      sharpness: b of the distance, above 0.

    Returns:
      `(risk, average)`: a scalar without the term of an empty group, and the average with this
      batch, which a batch without U leaves as it is.

    Raises:
      ValueError: if the shapes of `scores` and `labeled` differ, `labeled` holds other codes, or
        `prior`, `decay` or `sharpness` is out of range.
    """
    arrays.check_share("prior", prior)
    _check_decay(decay)
    is_average = average is None or isinstance(average, MovingMean)
    checks.require(is_average, "average", average, "a MovingMean, or None")
    scores, is_positive = _arrays.checked(scores, labeled)
    (prior,) = _arrays.of_type(scores.dtype, prior)
    missed = arrays.mean_where(_arrays.sigmoid(-scores), is_positive)
    share, updated = _moved(average, _arrays.sigmoid(scores), ~is_positive, decay=decay)
    distance = softplus_distance(share.value, prior, sharpness=sharpness) * share.scale
    unlabeled_term = jnp.where(jnp.any(~is_positive), distance, 0)
    return 2 * prior * missed + unlabeled_term, updated


def two_way_margin(
    scores: ArrayLike,
    labeled: ArrayLike,
    *,
    prior: float | jax.Array,
    averages: tuple[MovingMean, MovingMean] | None = None,
    decay: float = 0.5,
    margin: float | jax.Array = 0.6,
    sharpness: float | jax.Array = 1.0,
) -> tuple[jax.Array, tuple[MovingMean, MovingMean]]:
    """Margin risk of PULDA: `prior E_P l(g) + D_b(c_U, prior c_P) / (1 - decay)`.

    `l` is `two_way_sigmoid_loss`; `c_U` and `c_P` are moving averages of `E_U l(-g)` and
    `E_P l(-g)`, as in `label_alignment`. `c_U - prior c_P` estimates what negatives in U contribute
    to the margin loss, and the distance pulls it to 0 from both sides. Until both averages have
    started each is the mean of the last batch that held its group, and nothing is divided. A group
    that a batch lacks enters by its old average, a constant; before it has one the distance is left
    out, where the authors' code takes 0 for it. Source: as `label_alignment`.

    Args:
      scores: as in `label_alignment`.
      labeled: likewise.
      prior: likewise.
      averages: those of U and P, as the last batch returned them; None before the first one.
      decay: share of the averages that stays, in [0, 1).
      margin: width of the margin, 0 or more.
      sharpness: b of the distance, above 0.

    Returns:
      `(risk, averages)`.

    Raises:
      ValueError: as `label_alignment`, and if `margin` is below 0.
    """
    arrays.check_share("prior", prior)
    _check_decay(decay)
    pair = (None, None) if averages is None else averages
    # One average is a tuple of length 2 as well.
    is_pair = isinstance(pair, tuple) and len(pair) == 2 and not isinstance(pair, MovingMean)
    is_pair = is_pair and all(x is None or isinstance(x, MovingMean) for x in pair)
    checks.require(is_pair, "averages", averages, "a pair of MovingMean, of U and P, or None")
    scores, is_positive = _arrays.checked(scores, labeled)
    prior, margin = _arrays.of_type(scores.dtype, prior, margin)
    within = two_way_sigmoid_loss(scores, margin=margin)
    positive_term = prior * arrays.mean_where(within, is_positive)
    negative = two_way_sigmoid_loss(-scores, margin=margin)
    of_u, of_p = pair
    started = [False if x is None else jnp.asarray(x.started) for x in pair]
    is_mixed = jnp.logical_and(*started)
    unlabeled, updated_u = _moved(of_u, negative, ~is_positive, decay=decay, is_mixed=is_mixed)
    positive, updated_p = _moved(of_p, negative, is_positive, decay=decay, is_mixed=is_mixed)
    scale = unlabeled.scale  # the same of both
    distance = softplus_distance(unlabeled.value, prior * positive.value, sharpness=sharpness)
    both = updated_u.started & updated_p.started
    return positive_term + jnp.where(both, distance * scale, 0), (updated_u, updated_p)


class _Moved(NamedTuple):
    """A moving average with a batch: its value with gradient, and the factor of its terms."""

    value: jax.Array
    scale: jax.Array


def _moved(
    average: MovingMean | None,
    values: jax.Array,
    mask: jax.Array,
    *,
    decay: float,
    is_mixed: jax.Array | None = None,
) -> tuple[_Moved, MovingMean]:
    """Moves an average towards the mean of `values` where `mask` holds.

    Where `is_mixed` does not hold, by default before the first mean, the mean takes its place.
    """
    old = MovingMean.start() if average is None else average
    for field, number in zip(old._fields, old, strict=True):  # those of several seeds, say
        arrays.check_shape_of_number(f"{field} of the moving average", number)
    was_started, is_there = jnp.asarray(old.started), jnp.any(mask)
    before = jax.lax.stop_gradient(jnp.asarray(old.value, values.dtype))
    mean = arrays.mean_where(values, mask)
    is_mixed = was_started if is_mixed is None else is_mixed
    moved = jnp.where(is_mixed, decay * before + (1 - decay) * mean, mean)
    # A decay of a wider type would change that of the average, which a loop carries.
    value = jnp.where(is_there, moved.astype(values.dtype), before)
    scale = jnp.where(is_mixed, 1 / (1 - decay), 1)
    stored = jax.lax.stop_gradient(value)
    if average is not None:  # of no narrower type than before, so that a loop can carry it
        stored = stored.astype(jnp.promote_types(stored.dtype, jnp.result_type(old.value)))
    updated = MovingMean(stored, was_started | is_there)
    return _Moved(value, scale.astype(values.dtype)), updated


def _check_decay(decay: float) -> None:
    arrays.check_number("decay", decay, lambda x: (x >= 0) & (x < 1), "from 0 and below 1")


def _check_sharpness(sharpness: float | jax.Array) -> None:
    arrays.check_number("sharpness", sharpness, lambda x: x > 0, "above 0")


def _check_margin(margin: float | jax.Array) -> None:
    arrays.check_number("margin", margin, lambda x: x >= 0, "0 or more")
