"""Whether a difference is more than chance: a paired test, and a correction for many tests."""

import math
from collections.abc import Sequence

import numpy as np
from numpy import typing as npt

from pujax import checks


def paired_p_value(differences: Sequence[float]) -> float:
    """Student's t test that the mean of paired differences is 0 (Student 1908).

    Args:
      differences: one per pair, for instance per seed.

    Returns:
      The two-sided p-value in [0, 1]; NaN with fewer than two pairs, or where a difference is not
      finite or all are equal up to rounding, unless they are 0, which gives 1: without a spread
      between pairs nothing tells how large chance is.

    Raises:
      ValueError: if `differences` is no list of real numbers.
    """
    values = _list("differences", differences)
    if len(values) < 2 or not np.isfinite(values).all():
        return math.nan
    if _are_equal(values):
        return math.nan if values.any() else 1.0
    from scipy import stats  # where it is needed: it loads for a second

    return float(stats.ttest_1samp(values, 0.0).pvalue)


def mean_interval(values: Sequence[float], *, level: float) -> tuple[float, float]:
    """Student's t interval of the mean of independent numbers (Student 1908).

    Args:
      values: at least two, for instance one paired difference per seed.
      level: share of the intervals that hold the mean, in (0, 1), where values are normal.

    Returns:
      Its lower and upper end; NaN with fewer than two values, where one is not finite, or where all
      are equal up to rounding and not 0, see `paired_p_value`.

    Raises:
      ValueError: if `values` is no list of real numbers or `level` is not in (0, 1).
    """
    checks.between("level", level, 0, 1, include="neither")
    given = _list("values", values)
    if len(given) < 2 or not np.isfinite(given).all() or (_are_equal(given) and given.any()):
        return math.nan, math.nan
    from scipy import stats  # where it is needed: it loads for a second

    mean, error = float(given.mean()), float(given.std(ddof=1)) / math.sqrt(len(given))
    half = float(stats.t.ppf((1 + level) / 2, len(given) - 1)) * error
    return mean - half, mean + half


def _are_equal(values: np.ndarray) -> bool:
    """Whether nothing but rounding tells the values apart."""
    return bool(np.ptp(values) <= 1e-9 * np.abs(values).max())


def holm(p_values: npt.ArrayLike) -> np.ndarray:
    """p-values of several tests, of which one alone may be small by chance (Holm 1979).

    The k-th smallest of `m` is multiplied by `m - k + 1`; none gets smaller than one before it, and
    none larger than 1. A test is then significant at a level if its corrected value is below that.

    Args:
      p_values: `[m]`; NaN, unknown, stays what it is and does not count.

    Returns:
      `[m]`, in the same order.

    Raises:
      ValueError: if `p_values` is no list of real numbers, or one of them is not in [0, 1].
    """
    given = _list("p_values", p_values)
    adjusted = np.full_like(given, np.nan)
    known = np.flatnonzero(~np.isnan(given))
    for p in given[known].tolist():
        checks.between("a number of p_values", p, 0, 1)
    order = known[np.argsort(given[known], kind="stable")]
    scaled = given[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return adjusted


def _list(name: str, values: npt.ArrayLike) -> np.ndarray:
    """Numbers `[m]` in double precision."""
    numbers = checks.real_numbers(name, values, "[m], one number each")
    if numbers.ndim != 1:
        raise ValueError(f"{name} has shape {numbers.shape}; accepted: [m], one number each")
    return numbers.astype(np.float64, copy=False)
