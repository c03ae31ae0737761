"""Best bin by counts: thresholds of two samples of scores, the best of them, and resamples."""

import math
from typing import NamedTuple

import numpy as np

MAX_BINS = 2000
"""Bins of the bootstrap: a resample is a count per bin, whatever the number of scores."""


class Thresholds(NamedTuple):
    """Thresholds from the highest down, as counts; leading axes are resamples.

    Attributes:
      unlabeled: int `[..., k]`, unlabeled scores at or above the threshold.
      positive: int `[..., k]`, positive scores at or above it.
      n: number of unlabeled scores.
      m: number of positive scores.
    """

    unlabeled: np.ndarray
    positive: np.ndarray
    n: int
    m: int


def thresholds(positive: np.ndarray, unlabeled: np.ndarray) -> Thresholds:
    """All thresholds: the distinct unlabeled scores but the lowest."""
    positive, unlabeled = np.sort(positive), np.sort(unlabeled)
    first = np.flatnonzero(unlabeled[1:] > unlabeled[:-1])[::-1] + 1
    m, n = len(positive), len(unlabeled)
    return Thresholds(n - first, m - np.searchsorted(positive, unlabeled[first]), n, m)


def slack(m: int, n: int, *, delta: float = 0.1, gamma: float = 0.01) -> float:
    """The term that the bound of `best` adds, for `m` positive and `n` unlabeled scores."""
    return (1 + gamma) * sum(math.sqrt(math.log(4 / delta) / (2 * size)) for size in (n, m))


def best(counts: Thresholds, *, slack: float, allowed: np.ndarray | bool = True) -> np.ndarray:
    """The ratio of shares at the threshold with the least upper bound.

    Args:
      counts: thresholds `[..., k]`.
      slack: the term that the bound adds to the ratio, times the share of P above the threshold.
      allowed: bool `[..., k]`, thresholds to choose from.

    Returns:
      float64 `[...]`, at most 1; NaN where no threshold is allowed.
    """
    above = counts.unlabeled - 1  # The authors leave out the score at the threshold itself.
    allowed = allowed & (above > 1) & (counts.positive > 1)
    if not allowed.shape[-1]:
        return np.full(allowed.shape[:-1], np.nan)
    positive = np.maximum(counts.positive, 1)
    ratio = np.where(allowed, above * counts.m / positive / counts.n, np.nan)
    bound = np.where(allowed, ratio + slack / (positive / counts.m), np.inf)
    chosen = bound.argmin(-1)[..., None]
    return np.minimum(np.take_along_axis(ratio, chosen, -1)[..., 0], 1)


def thin(counts: Thresholds) -> Thresholds:
    """At most `MAX_BINS` of the thresholds, with even shares of P and U between them."""
    if len(counts.unlabeled) <= MAX_BINS:
        return counts
    shares = counts.unlabeled / counts.n + counts.positive / counts.m
    kept = np.unique(np.searchsorted(shares, np.linspace(shares[0], shares[-1], MAX_BINS)))
    return counts._replace(unlabeled=counts.unlabeled[kept], positive=counts.positive[kept])


def resampled(
    counts: Thresholds, *, slack: float, num_resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """Estimates on resamples with replacement, P and U apart.

    Args:
      counts: thresholds `[k]`; where they are all, this is the plain bootstrap of the scores.
      slack: as in `best`.
      num_resamples: how many.
      rng: random generator.

    Returns:
      float64 `[num_resamples]`; 1, the largest possible prior, where a resample has no threshold.
    """
    m, n = counts.m, counts.n
    u_cells = np.diff(counts.unlabeled, prepend=0, append=n)
    p_cells = np.diff(counts.positive, prepend=0, append=m)
    u_drawn = rng.multinomial(n, u_cells / n, size=num_resamples)
    p_drawn = rng.multinomial(m, p_cells / m, size=num_resamples)
    return best_of_cells(u_drawn, p_drawn, slack=slack)


def best_of_cells(u_cells: np.ndarray, p_cells: np.ndarray, *, slack: float) -> np.ndarray:
    """As `best`, from the counts between thresholds, `[b, k + 1]` from the highest score down."""
    above = [cells.cumsum(1) for cells in (u_cells, p_cells)]
    n, m = (int(counts[0, -1]) if len(counts) else 0 for counts in above)
    u_above, p_above = (counts[:, :-1] for counts in above)
    # A threshold needs a drawn score of U in its own bin, and the lowest score is no threshold.
    allowed = (u_cells[:, :-1] > 0) & (u_above < n)
    values = best(Thresholds(u_above, p_above, n, m), slack=slack, allowed=allowed)
    return np.where(np.isnan(values), 1.0, values)
