"""TIcE: the label frequency as the best guaranteed lower bound over subsets that a tree finds.

Bekker and Davis, "Estimating the Class Prior in Positive and Unlabeled Data Through Decision Tree
Induction", AAAI 2018. In every subset of the data the share of labelled examples is at most the
label frequency `c`, and equal to it where all are positive. One fold of the data grows a tree
towards such subsets, the others bound `c` from below in each of its cells, and the best bounds of
all folds are averaged.

The cost of a split is proportional to its rows, so that of a tree is linear in rows times features.
"""

import logging
from collections.abc import Sequence

import jax
import numpy as np
import numpy.typing as npt

from pujax import checks
from pujax.priors import _tree, base, conversions
from pujax.priors.base import ANYTHING, PriorEstimate

_LOG = logging.getLogger(__name__)

_NUM_ROUNDS = 2
_FIRST_FREQUENCY = 0.5


def tice(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    folds: npt.ArrayLike | None = None,
    key: jax.Array | int | None = None,
    num_folds: int = 5,
    delta: float | None = None,
    max_splits: int = 500,
    cuts: Sequence[float] = (0.25, 0.5, 0.75),
    num_resamples: int = 0,
    level: float = 0.9,
) -> PriorEstimate:
    """Share of positives in U by TIcE, from features.

    `tice_label_frequency` as a prior, `n_p (1 - c) / (c n_u)`. Every cell is a box, so where the
    boundary of the classes is oblique to the axes no cell is pure and the prior is overestimated;
    the same happens with few points per cell and with a single feature. Features are scaled to [0,
    1] by their least and greatest values, as published, so that one outlier pushes all other points
    into one cell, and the prior up to 1: clip such features, or take their ranks. For more than a
    few hundred features use the most informative ones, or a classifier's score as the only one.

    Args:
      positives: `[n_p, ...]`; trailing axes are flattened.
      unlabeled: `[n_u, ...]`.
      folds: int `[n_p + n_u]`, the fold of each point, P then U; None draws them.
      key: random key of folds and bootstrap, or an integer; None is 0.
      num_folds: folds to draw.
      delta: probability that a bound fails; None takes the paper's, from the number of points.
      max_splits: subsets to split per tree at most.
      cuts: where features, scaled to [0, 1] over P and U together, are cut.
      num_resamples: resamples of the bootstrap interval; each costs one estimate, and copies of a
        point stay in its fold.
      level: confidence level of the interval.

    Returns:
      The share of positives in U.

    Raises:
      ValueError: for points or settings that are not accepted.
    """
    base.check_level(num_resamples, level)
    p, u, is_blank = base.points(positives, unlabeled)
    _check(delta, max_splits, cuts, num_folds)
    if is_blank:
        return ANYTHING
    n_p, n_u = len(p), len(u)
    rng = base.generator(key)
    folds = _folds(folds, n_p + n_u, num_folds, rng)
    table = _table(p, u, cuts)

    def prior(frequency: float) -> float:
        return conversions.unlabeled_prior_from_label_frequency(frequency, n_p=n_p, n_u=n_u)

    frequency = _frequency(table, folds, delta, max_splits)
    if frequency <= 0:
        _LOG.warning("tice found no labelled point in any subset: every prior is possible")
        return ANYTHING

    def on_resample(p_rows: np.ndarray, u_rows: np.ndarray) -> float:
        # The tree expects ascending rows; their order carries no information.
        rows = np.sort(np.concatenate([p_rows, u_rows]))
        drawn = table._replace(cells=table.cells[:, rows], labeled=table.labeled[rows])
        frequency = _frequency(drawn, folds[rows], delta, max_splits)
        return prior(frequency) if frequency > 0 else 1.0

    resampled = base.bootstrap(
        on_resample,
        np.arange(n_p),
        np.arange(n_p, n_p + n_u),
        num_resamples=num_resamples,
        rng=rng,
    )
    return base.with_interval(prior(frequency), resampled, level=level)


def tice_label_frequency(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    folds: npt.ArrayLike | None = None,
    key: jax.Array | int | None = None,
    num_folds: int = 5,
    delta: float | None = None,
    max_splits: int = 500,
    cuts: Sequence[float] = (0.25, 0.5, 0.75),
) -> float:
    """TIcE's label frequency: the share of the positives of P and U together that are labelled.

    A subset of `T` points with `L` labelled ones bounds the frequency by
    `L/T - sqrt(c (1 - c) (1 - delta) / (delta T))`, where `c` is 1/2 in a first round and the first
    round's result in a second. It is a lower bound in each subset; over the many subsets that are
    tried, the best one may still exceed the truth where there are few points.

    Args:
      positives: `[n_p, ...]`; trailing axes are flattened.
      unlabeled: `[n_u, ...]`.
      folds: int `[n_p + n_u]`, the fold of each point, P then U; None draws them.
      key: random key of the folds, or an integer; None is 0.
      num_folds: folds to draw.
      delta: probability that a bound fails; None is `max(0.025, 1 / (1 + 0.004 T))` with `T` the
        points that bound.
      max_splits: subsets to split per tree at most.
      cuts: where features, scaled to [0, 1] over P and U together, are cut.

    Returns:
      A share in [0, 1]; 0 where no subset of 10 points holds a labelled one.

    Raises:
      ValueError: for points or settings that are not accepted.
    """
    p, u, _ = base.points(positives, unlabeled)
    _check(delta, max_splits, cuts, num_folds)
    folds = _folds(folds, len(p) + len(u), num_folds, base.generator(key))
    return _frequency(_table(p, u, cuts), folds, delta, max_splits)


def _frequency(
    table: _tree.Table, folds: np.ndarray, delta: float | None, max_splits: int
) -> float:
    """The mean over the folds of their best bounds, in the last of two rounds."""
    frequency = _FIRST_FREQUENCY
    for _ in range(_NUM_ROUNDS):
        bests = []
        for fold in np.unique(folds):
            tree, estimation = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            probability = delta or max(0.025, 1 / (1 + 0.004 * len(estimation)))
            variance = frequency * (1 - frequency) * (1 - probability) / probability
            bests.append(
                _tree.best_bound(table, tree, estimation, variance=variance, max_splits=max_splits)
            )
        frequency = float(np.mean(bests))
    return frequency


def _table(positives: np.ndarray, unlabeled: np.ndarray, cuts: Sequence[float]) -> _tree.Table:
    """Both samples with their features cut into cells, P first."""
    cells = np.empty((positives.shape[1], len(positives) + len(unlabeled)), np.uint8)
    for feature, row in enumerate(cells):
        values = np.concatenate([positives[:, feature], unlabeled[:, feature]])
        values /= base.magnitude(values)  # exact, and the range of large numbers is finite
        values -= values.min()
        values /= values.max() or 1.0
        row[:] = np.searchsorted(cuts, values, side="right")
    labeled = np.arange(cells.shape[1]) < len(positives)
    return _tree.Table(cells, labeled, len(cuts) + 1)


def _folds(
    folds: npt.ArrayLike | None, num_points: int, num_folds: int, rng: np.random.Generator
) -> np.ndarray:
    """The given folds, checked, or random ones of equal size."""
    if folds is None:
        return rng.permutation(num_points) % num_folds
    folds = base.real_array("folds", folds, f"integers [{num_points}], the fold of each point")
    if folds.shape != (num_points,) or folds.dtype.kind not in "iu" or (folds == folds[0]).all():
        raise ValueError(
            f"folds has shape {folds.shape}, dtype {folds.dtype} and {np.unique(folds).size} "
            f"different values; accepted: integers [{num_points}], the fold of each point, P then "
            "U, of at least two folds"
        )
    return folds


def _check(delta: float | None, max_splits: int, cuts: Sequence[float], num_folds: int) -> None:
    is_fine = delta is None or (checks.is_number(delta) and 0 < delta < 1)
    checks.require(is_fine, "delta", delta, "None, or a number between 0 and 1, exclusive")
    base.whole("max_splits", max_splits, 1)
    base.whole("num_folds", num_folds, 2)
    is_several = isinstance(cuts, Sequence | np.ndarray) and all(map(checks.is_number, cuts))
    is_fine = is_several and 1 <= len(cuts) <= 255
    is_fine = is_fine and list(cuts) == sorted(set(cuts)) and cuts[0] > 0 and cuts[-1] < 1
    checks.require(is_fine, "cuts", cuts, "1 to 255 rising numbers between 0 and 1")
