"""Bootstrap of what the scores of P and U say at given thresholds.

The numbers depend on U only through the number of its rows between neighbouring scores of P and
thresholds, so that random weights are drawn for those cells and not for single rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_WEIGHTS_AT_ONCE = 2_000_000
"""Random weights of one sample that are held in memory at one time: 16 MB."""


class Draws(NamedTuple):
    """Shares of P and U. The first entry along the last axis is the sample, then come resamples.

    Attributes:
      recall: `[1 + b]`, share of P above the threshold.
      flagged: `[1 + b]`, share of U above it.
      auc_pu: `[1 + b]`, area under the curve of P against U.
      top_recall: `[tops, 1 + b]`, share of P above the scores of the highest rows of U.
      top_share: `[tops, 1 + b]`, share of U that these rows are.
    """

    recall: np.ndarray
    flagged: np.ndarray
    auc_pu: np.ndarray
    top_recall: np.ndarray
    top_share: np.ndarray


def draw(
    positive: np.ndarray,
    unlabeled: np.ndarray,
    *,
    threshold: float,
    top: Sequence[int],
    num_resamples: int,
    rng: np.random.Generator,
) -> Draws:
    """Bayesian bootstrap of P and U, each by itself, with half an example more at each end.

    Weights of a resample follow a Dirichlet distribution (Rubin 1981) whose parameter is 1 for each
    example, 1/2 for a point below all scores and 1/2 for one above. The share above any threshold
    then follows Jeffreys' posterior, `Beta(above + 1/2, rest + 1/2)`. The sample itself is taken
    without the two points.

    Args:
      positive: float64 `[m]`, may be empty; no NaN.
      unlabeled: float64 `[n]`, may be empty; no NaN.
      threshold: rows count as flagged iff their score is above it.
      top: numbers of rows; entries of more than `n` rows are NaN.
      num_resamples: b.
      rng: random generator.

    Returns:
      `Draws`, NaN where the sample in question is empty.
    """
    cuts = [None if k > len(unlabeled) else np.partition(unlabeled, -k)[-k] for k in top]
    known = [cut for cut in cuts if cut is not None]
    grid = np.unique(np.concatenate([positive, [threshold], known]))
    counts = [_cells(sample, grid) for sample in (positive, unlabeled)]

    def shares(p: np.ndarray, u: np.ndarray) -> Draws:
        above_p, above_u = _above(p), _above(u)
        at = 2 * np.searchsorted(grid, threshold) + 2
        top_recall, top_share = np.full([2, len(top), len(p)], np.nan)
        for i, (k, cut) in enumerate(zip(top, cuts, strict=True)):
            if cut is not None:
                cell = 2 * np.searchsorted(grid, cut) + 2
                # Which of several rows with this score are among the highest is random.
                part = (k - (unlabeled > cut).sum()) / (unlabeled == cut).sum()
                top_recall[i] = above_p[:, cell] + part * p[:, cell]
                top_share[i] = above_u[:, cell] + part * u[:, cell]
        auc_pu = np.maximum(1 - (p * (above_u + u / 2)).sum(1), 0)
        return Draws(above_p[:, at], above_u[:, at], auc_pu, top_recall, top_share)

    parts = [shares(*(_normalized(row[None]) for row in counts))]
    chunk = max(1, _WEIGHTS_AT_ONCE // len(counts[0]))
    for start in range(0, num_resamples, chunk):
        size = min(chunk, num_resamples - start)
        parts.append(shares(*(_weights(row, size, rng) for row in counts)))
    return Draws(*(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)))


def _cells(sample: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Examples by cell: `grid[i]` is cell `2 i + 2`, what lies between its entries odd cells.

    The first and the last cell, beyond infinite scores too, are those of the two added points.
    """
    cell = 1 + np.searchsorted(grid, sample, "left") + np.searchsorted(grid, sample, "right")
    return np.bincount(cell, minlength=2 * len(grid) + 3).astype(np.float64)


def _weights(counts: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Random weights `[size, cells]` of resamples; NaN for an empty sample."""
    weights = np.zeros([size, len(counts)])
    if not counts.any():
        return _normalized(weights)
    parameters = counts.copy()
    parameters[[0, -1]] += 0.5
    drawn = np.flatnonzero(parameters)
    weights[:, drawn] = rng.standard_gamma(parameters[drawn], [size, len(drawn)])
    return _normalized(weights)


def _normalized(weights: np.ndarray) -> np.ndarray:
    total = weights.sum(1, keepdims=True)
    return np.divide(weights, total, out=np.full_like(weights, np.nan), where=total > 0)


def _above(weights: np.ndarray) -> np.ndarray:
    """Weight of all higher cells, `[b, cells]`."""
    sums = np.minimum(np.cumsum(weights[:, ::-1], axis=1)[:, ::-1], 1)  # up to rounding
    return np.concatenate([sums[:, 1:], np.zeros([len(weights), 1])], axis=1)
