"""What every estimator shares: its result, the checks of its inputs, and the bootstrap."""

import logging
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from pujax import checks
from pujax.console import first_line

_LOG = logging.getLogger(__name__)
_FEATURES = 64
"""Features that are standardised at once, at least; a single one would be summed in another order
than beside others, and so be rounded otherwise."""


class PriorEstimate(NamedTuple):
    """An estimated share of positives in the unlabeled sample.

    Attributes:
      value: the estimate, in [0, 1].
      low: lower end of its interval; NaN where none was asked for or the method has none.
      high: upper end.
    """

    value: float
    low: float = math.nan
    high: float = math.nan


ANYTHING = PriorEstimate(1.0, 0.0, 1.0)
"""The estimate for data without information: U may be all positive, or have any smaller share."""


def samples(positives: npt.ArrayLike, unlabeled: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Both samples as float64 features `[m, d]` and `[n, d]`, not to be changed in place.

    Args:
      positives: as in `points`.
      unlabeled: likewise.

    Raises:
      ValueError: as `points`, but for constant features.
    """
    p = rows("positives", positives, least=2)
    u = rows("unlabeled", unlabeled, least=2)
    if p.shape[1] != u.shape[1]:
        raise ValueError(
            f"unlabeled has {u.shape[1]} features; accepted: {p.shape[1]}, as positives has"
        )
    return p, u


def points(
    positives: npt.ArrayLike, unlabeled: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Both samples as float64 features, and whether they carry no information.

    Args:
      positives: `[m]` or `[m, ...]`; trailing axes are flattened, `[m]` is one feature.
      unlabeled: `[n]` or `[n, ...]`, with the same trailing axes.

    Returns:
      `(positives [m, d], unlabeled [n, d], is_blank)`. `is_blank` is True, and a warning given,
      where the two samples are the same points, for which every prior is possible.

    Raises:
      ValueError: naming the argument, for fewer than two examples, values that are not finite,
        different numbers of features, or features that are constant over both samples.
    """
    p, u = samples(positives, unlabeled)
    low, high = np.minimum(p.min(0), u.min(0)), np.maximum(p.max(0), u.max(0))
    if (low == high).all():
        raise ValueError(
            "positives and unlabeled are one and the same point; accepted: at least one feature "
            "that is not constant"
        )
    is_blank = p.shape == u.shape and _are_same_points(p, u)
    if is_blank:
        _LOG.warning("positives and unlabeled are the same points: every prior is possible")
    return p, u, is_blank


def score_samples(
    positive: npt.ArrayLike, unlabeled: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of both samples as float64 `[m]` and `[n]`.

    Args:
      positive: as in `scores`.
      unlabeled: likewise.

    Raises:
      ValueError: as `scores`.
    """
    named = (("scores_positive", positive), ("scores_unlabeled", unlabeled))
    for name, values in named:
        shape = real_array(name, values, "[n], one score each").shape
        if len(shape) != 1:
            raise ValueError(f"{name} has shape {shape}; accepted: [n], one score each")
    p, u = (rows(name, values, least=2)[:, 0] for name, values in named)
    return p, u


def scores(
    positive: npt.ArrayLike, unlabeled: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Scores of both samples as float64 vectors, and whether they carry no information.

    Args:
      positive: `[m]`.
      unlabeled: `[n]`.

    Returns:
      `(positive [m], unlabeled [n], is_blank)` with `is_blank` as in `points`, also True where all
      scores are one number.

    Raises:
      ValueError: naming the argument, for another rank, fewer than two scores, or values that are
        not finite.
    """
    p, u = score_samples(positive, unlabeled)
    is_blank = are_blank(p, u)
    if is_blank:
        _LOG.warning("positive and unlabeled scores are the same: every prior is possible")
    return p, u, is_blank


def are_blank(positive: np.ndarray, unlabeled: np.ndarray) -> bool:
    """True where scores `[m]` and `[n]` are the same in both samples, or all one number."""
    low = min(positive.min(), unlabeled.min())
    is_constant = low == max(positive.max(), unlabeled.max())
    return bool(is_constant) or np.array_equal(np.sort(positive), np.sort(unlabeled))


def rows(
    name: str, values: npt.ArrayLike, *, least: int = 0, width: int | None = None
) -> np.ndarray:
    """Finite numbers, one row per example; trailing axes are flattened.

    Args:
      name: of the argument.
      values: `[n, ...]`.
      least: fewest examples.
      width: how many numbers an example has; None is any number from 1.

    Returns:
      float64 `[n, d]`, the caller's own memory where they are that already.

    Raises:
      ValueError: naming the argument, what it is, and what is accepted.
    """
    checks.unmasked(name, values)
    array = real_array(name, values, "real numbers, one row per example")
    if array.ndim == 0 or len(array) < least:
        accepted = f"at least {least} examples" if least else "an array, one row per example"
        raise ValueError(f"{name} has shape {array.shape}; accepted: {accepted}")
    # The caller's own numbers where they are float64 already: nothing here changes them in place.
    array = array.astype(np.float64, copy=False).reshape(len(array), math.prod(array.shape[1:]))
    if array.shape[1] == 0 or width not in (None, array.shape[1]):
        accepted = "at least one feature" if width is None else f"{width} numbers for each example"
        raise ValueError(f"{name} has shape {np.shape(values)}; accepted: {accepted}")
    bad = ~np.isfinite(array).all(1)
    if bad.any():
        raise ValueError(
            f"{name} has {bad.sum()} examples with values that are not finite, the first in row "
            f"{bad.argmax()}; accepted: finite numbers"
        )
    return array


def real_array(name: str, values: npt.ArrayLike, accepted: str) -> np.ndarray:
    """`values` as an array of their own type; `checks.real_numbers` makes floats of integers.

    Raises:
      ValueError: if they are no array, as rows of different lengths, or no real numbers.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        reason = f"{name} is no array ({first_line(error)})"
        raise ValueError(f"{reason}; accepted: {accepted}") from error
    except TypeError as error:
        if not checks.is_of_traced(error):
            raise
        accepted += f", {checks.ON_THE_HOST}"
        raise ValueError(f"{name} is {values!r}; accepted: {accepted}") from error
    # NumPy treats bfloat16 and similar types as opaque bytes.
    is_float = jax.dtypes.issubdtype(array.dtype, np.floating)
    if array.dtype.kind not in "iub" and not is_float:
        raise ValueError(f"{name} has dtype {array.dtype}; accepted: {accepted}")
    return array


def magnitude(array: np.ndarray, axis: int | None = None) -> np.ndarray:
    """A power of two near the largest magnitude: dividing by it is exact, and squares stay finite.

    Args:
      array: finite numbers.
      axis: along which the largest is taken; None is over all.
    """
    return np.ldexp(1.0, np.frexp(np.abs(array).max(axis))[1] - 1)


def standardised(p: np.ndarray, u: np.ndarray, dtype: npt.DTypeLike) -> np.ndarray:
    """P above U with every feature at mean 0 and deviation 1 over both; constant ones are 0.

    Some features at a time, so that what leads to the numbers takes no multiple of their memory.

    Args:
      p: float64 `[m, d]`.
      u: float64 `[n, d]`.
      dtype: of the result; it is worked out in float64.

    Returns:
      `[m + n, d]`.
    """
    result = np.empty((len(p) + len(u), p.shape[1]), dtype)
    num_blocks = max(p.shape[1] // _FEATURES, 1)
    for features in np.array_split(np.arange(p.shape[1]), num_blocks):
        block = slice(features[0], features[-1] + 1)
        both = np.concatenate([p[:, block], u[:, block]])
        both /= magnitude(both, axis=0)  # or squares may overflow
        scale = both.std(0)
        both -= both.mean(0)
        both /= np.where(scale > 0, scale, 1)
        result[:, block] = both
    return result


def _are_same_points(p: np.ndarray, u: np.ndarray) -> bool:
    """Whether two samples of one shape hold the same points, in any order."""
    # One feature after another first: to sort whole points takes copies of all.
    features = zip(p.T, u.T, strict=True)
    is_possible = all(np.array_equal(np.sort(x), np.sort(y)) for x, y in features)
    return is_possible and np.array_equal(_sorted(p), _sorted(u))


def _sorted(array: np.ndarray) -> np.ndarray:
    return array[np.lexsort(array.T[::-1])]


def generator(key: jax.Array | int | None) -> np.random.Generator:
    """NumPy's generator for a JAX key, a number, or None, which is the number 0.

    Raises:
      ValueError: if `key` is none of these.
    """
    if isinstance(key, jax.Array | np.ndarray):
        if key.ndim == 0 and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
            return np.random.default_rng(np.asarray(jax.random.key_data(key)))
        if key.ndim == 1 and key.dtype == np.uint32:  # a key as `jax.random.PRNGKey` makes it
            return np.random.default_rng(np.asarray(key))
    return np.random.default_rng(0 if key is None else whole("key", key, 0, "a JAX key or None"))


def whole(name: str, value: Any, least: int, other: str | None = None) -> int:
    """A whole number of any type, NumPy's among them, as an int.

    Args:
      name: of the argument.
      value: of the argument.
      least: smallest number that is accepted.
      other: what else the argument accepts, in words.

    Raises:
      ValueError: if it is not a whole number, or too small.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        also = "" if other is None else f", {other}"
        raise ValueError(f"{name} is {value!r}; accepted: a whole number from {least}{also}")
    return number


def layer_sizes(name: str, sizes: Any) -> tuple[int, ...]:
    """Units of hidden layers, as ints.

    Raises:
      ValueError: if `sizes` are not whole numbers from 1, one for each layer.
    """
    is_several = isinstance(sizes, Sequence | np.ndarray) and not isinstance(sizes, str)
    checks.require(is_several, name, sizes, "whole numbers from 1, one for each layer")
    return tuple(whole(name, size, 1) for size in sizes)


def check_level(num_resamples: int, level: float) -> None:
    """Requires a possible number of resamples and level of an interval."""
    whole("num_resamples", num_resamples, 0)
    possible = checks.is_number(level) and 0 < level < 1
    checks.require(bool(possible), "level", level, "a number between 0 and 1, exclusive")


def with_interval(value: float, resampled: npt.ArrayLike, *, level: float) -> PriorEstimate:
    """An estimate with the percentile interval of its bootstrap.

    The interval covers only the randomness of the samples: where classes overlap everywhere, all
    estimators converge to a value above the prior, and so does the interval.

    Args:
      value: the estimate.
      resampled: `[b]`, estimates on resamples, NaN where a resample gives none, which counts as 1,
        the largest possible prior; empty for no interval.
      level: share of the resamples between the ends, for example 0.9.

    Returns:
      A `PriorEstimate` in [0, 1] with `low <= value <= high`.
    """
    value = float(np.clip(value, 0, 1))
    resampled = np.asarray(resampled, np.float64)
    if not resampled.size:
        return PriorEstimate(value)
    # Before the quantiles, which cannot interpolate between infinities.
    resampled = np.clip(np.where(np.isnan(resampled), 1, resampled), 0, 1)
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return PriorEstimate(value, float(min(low, value)), float(max(high, value)))


def moved(estimate: PriorEstimate, value: float) -> PriorEstimate:
    """Another value with the interval of an estimate moved along with it, clipped to [0, 1].

    The interval [0, 1] stays as it is. One that begins at 0 or ends at 1 still does: these stand
    for resamples whose estimate is somewhere beyond.
    """
    if estimate[1:] == ANYTHING[1:]:
        return PriorEstimate(value, *ANYTHING[1:])
    low, high = np.clip(np.array(estimate[1:]) + value - estimate.value, 0, 1)
    ends = 0.0 if estimate.low == 0 else low, 1.0 if estimate.high == 1 else high
    return PriorEstimate(value, *map(float, ends))


def with_brackets(found: PriorEstimate, half: float, largest: float) -> PriorEstimate:
    """The estimate with an interval that holds the brackets which its ends stand for.

    KM looks for lambda = 1 / (1 - share) by bisection and answers with the middle of a bracket: any
    share in it could have given the same answer. The least answer stands for 0, too, and the
    greatest for all that is more.

    Args:
      found: with ends that are such answers, or without an interval.
      half: half of the width of a bracket, in lambda.
      largest: the largest lambda that is looked at.
    """
    if math.isnan(found.low):
        return found
    if found.high >= 1 - 1 / (largest - 1.5 * half):  # the last answer, rounding aside
        found = found._replace(high=1.0)

    def edge(share: float, shift: float) -> float:
        return 1 - 1 / max(1 / (1 - share) + shift, 1.0) if share != 1 else 1.0

    return found._replace(low=edge(found.low, -half), high=edge(found.high, half))


def bootstrap(
    statistic: Callable[[np.ndarray, np.ndarray], float],
    positives: np.ndarray,
    unlabeled: np.ndarray,
    *,
    num_resamples: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """The statistic on resamples with replacement, P and U apart.

    Args:
      statistic: `(positives, unlabeled) -> number`.
      positives: `[m, ...]`.
      unlabeled: `[n, ...]`.
      num_resamples: how many.
      rng: random generator.

    Returns:
      float64 `[num_resamples]`.
    """
    m, n = len(positives), len(unlabeled)
    return np.array(
        [
            statistic(positives[rng.integers(m, size=m)], unlabeled[rng.integers(n, size=n)])
            for _ in range(num_resamples)
        ]
    )
