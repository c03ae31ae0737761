"""Were the labelled positives chosen at random among the positives (SCAR), column by column?

P and U alone can never prove it. Any P that is dense nowhere but where U is dense, too, may be a
random part of the positives of U; a bias of the choice then looks like the class itself. What can
be seen is a column in which the labelled positives differ from unlabeled rows that the *other*
columns call positive. For every column j:

1. A regularised linear classifier of P against U is cross-fitted on ranks, and what column j, and
   columns whose ranks are correlated with it, add to a score is taken away.
2. T is where the upper half of P lies by these scores, N the lower half of U, nearly all negative.
3. In T, P and U are compared in column j within strata of the score.

Unlabeled rows of T that are positives look like P; the negatives among them look like N in column
j. A share `c` of them gives every column the same kind of difference, `c (mean P - mean N)`, the
less the more column j agrees with the others. The share is estimated over all columns, and a column
is reported where the difference goes beyond it: the unlabeled rows that look positive by
everything else do not look like the labelled positives in this column.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pujax import metrics, significance
from pujax.audit.base import WARNING, Finding, Problem, listed
from pujax.audit.scoring import MOST, auc_by_chance

LEAST_P = 40
"""Labelled positives below which nothing can be said."""
MIN_EXCESS = 0.4
"""Difference beyond the expected one, in standard deviations of the column's ranks."""
MIN_WAY = 0.6
"""Share of the way from P to N beyond which the unlabeled rows of T lie, if on the same side."""
ALPHA = 0.001
"""Level of the test after Holm's correction over all features."""
ALIKE = 0.4
"""Rank correlation in U from which a column is left out of the scores together with another."""
LEFT = 0.7
"""Part of what an AUC is above a half that must be left without the likes of a column; where it is
not, only the column itself is taken out of the scores."""
_FOLDS = 5
_STRATA = 4
_PENALTY = 0.01
"""Inverse strength `C` of the classifier's penalty."""
_LEAST_IN_TOP = 15
_BLOCK = 256
"""Columns that are compared with all others at once."""


class Difference(NamedTuple):
    """P against the unlabeled rows that look positive, in one feature.

    Attributes:
      column: of the file.
      feature: its position.
      difference: mean of P in T less that of U in T, in standard deviations of the ranks.
      to_negatives: mean of P less that of N, likewise.
      excess: the difference less what negatives among the rows of U in T explain, with the sign of
        the difference.
      p_value: of the difference within strata of the score, after Holm's correction.
      num_p: rows of P in T.
      num_u: rows of U in T.
    """

    column: str
    feature: int
    difference: float
    to_negatives: float
    excess: float
    p_value: float
    num_p: int
    num_u: int

    @property
    def way(self) -> float:
        """How far the unlabeled rows of T are on the way from P to N."""
        return self.difference / self.to_negatives if self.to_negatives else 0.0


def check(problem: Problem, *, seed: int) -> list[Finding]:
    """Findings of columns in which labels were not given at random.

    Args:
      problem: P and U; nothing is found with fewer than `LEAST_P` rows of either.
      seed: of folds.
    """
    found = differences(problem, seed=seed)
    biased = [x for x in found if is_biased(x)]
    if not biased:
        return []
    best: dict[str, Difference] = {}
    for one in sorted(biased, key=lambda x: -abs(x.excess)):
        best.setdefault(one.column, one)
    shown = list(best.values())
    return [
        Finding(
            "labeling",
            WARNING,
            "labels do not look as if given at random among the positives (SCAR), by "
            f"{listed(repr(name) for name in best)}",
            tuple(map(_sentence, shown[:5])),
            "ask how the labelled positives were found; if it was by these columns, estimates of "
            "the prior, probabilities and held-out recall speak of positives of that kind only: "
            "label some of the other kind, or read rankings only, and see whether results change "
            "without these columns",
            {"columns": [one._asdict() for one in shown]},
        )
    ]


def is_biased(one: Difference) -> bool:
    """Whether a difference is large, certain, and more than negatives explain."""
    is_far = one.way > MIN_WAY or one.way <= 0  # negatives never move a column the other way
    return one.p_value < ALPHA and one.excess > MIN_EXCESS and is_far


def differences(problem: Problem, *, seed: int) -> list[Difference]:
    """Compares P with unlabeled rows that look positive by all other columns, in every feature.

    Args:
      problem: P and U.
      seed: of folds, and of the rows that are drawn where there are many.

    Returns:
      One per feature that differs and for which T holds at least 15 rows of P and of U; empty where
      P or U have fewer than `LEAST_P` rows or there is one column only.
    """
    problem = _drawn(problem, seed)
    labeled = problem.labeled
    if min(labeled.sum(), (~labeled).sum()) < LEAST_P or len(set(problem.columns)) < 2:
        return []
    ranks = _ranks(problem.features)
    scores, weights, folds = _cross_fitted(ranks, labeled, seed)
    of_column: dict[str, list[int]] = {}
    for feature, column in enumerate(problem.columns):
        of_column.setdefault(column, []).append(feature)
    rows, least = [], auc_by_chance(labeled)
    for (column, features), alike in zip(
        of_column.items(), _alike(ranks, labeled, list(of_column.values())), strict=True
    ):
        apart = _without(scores, ranks, weights, folds, features)
        left = np.flatnonzero(alike)
        if len(left) > len(features):
            further = _without(scores, ranks, weights, folds, left)
            excess = [metrics.auc(x, labeled) - 0.5 for x in (further, apart)]
            # Without its likes, nothing may be left that tells what is positive.
            apart = further if excess[0] >= LEFT * excess[1] else apart
        if metrics.auc(apart, labeled) <= least:
            continue  # what looks positive by scores that say nothing are any rows
        rows += _compared(ranks, features, column, apart, labeled)
    if not rows:
        return []
    shares = np.array([[one.difference, one.to_negatives] for one in rows])
    common = _common_share(shares[:, 0], shares[:, 1])
    adjusted = significance.holm([one.p_value for one in rows])
    return [
        one._replace(
            p_value=float(p),
            excess=float(abs(one.difference) - max(common * one.to_negatives * sign, 0)),
        )
        for one, p, sign in zip(rows, adjusted, np.sign(shares[:, 0]), strict=True)
    ]


def _without(
    scores: np.ndarray, ranks: np.ndarray, weights: np.ndarray, folds: np.ndarray, features: Any
) -> np.ndarray:
    """Scores `[n]` less what some features add to them."""
    part = weights[:, features]
    own = np.empty(len(scores))
    for fold in range(len(part)):
        rows = np.flatnonzero(folds == fold)
        own[rows] = ranks[np.ix_(rows, features)] @ part[fold]
    return scores - own


def _alike(ranks: np.ndarray, labeled: np.ndarray, groups: list[list[int]]) -> Iterator[np.ndarray]:
    """Which features `[d]` are correlated with one of a group or belong to it, by ranks in U.

    Some groups at a time: all pairs of 20,000 columns would take gigabytes.
    """
    of_u = ranks[~labeled] - ranks[~labeled].mean(0)
    of_u /= np.maximum(np.sqrt(np.square(of_u).sum(0)), 1e-6)
    for start in range(0, len(groups), _BLOCK):
        block = groups[start : start + _BLOCK]
        correlation = of_u[:, np.concatenate(block)].T @ of_u
        ends = np.cumsum([len(features) for features in block])
        for features, part in zip(block, np.split(correlation, ends[:-1]), strict=True):
            found = (np.abs(part) >= ALIKE).any(0)
            found[features] = True
            yield found


def _drawn(problem: Problem, seed: int) -> Problem:
    rng = np.random.default_rng([seed, 3])
    kept = [
        rng.choice(rows, MOST, replace=False) if len(rows) > MOST else rows
        for rows in (np.flatnonzero(problem.labeled), np.flatnonzero(~problem.labeled))
    ]
    rows = np.sort(np.concatenate(kept))
    return problem._replace(features=problem.features[rows], labeled=problem.labeled[rows])


def _ranks(features: np.ndarray) -> np.ndarray:
    """Mid-ranks of every feature, standardised; a constant feature is 0."""
    from scipy import stats

    ranks = stats.rankdata(features, axis=0).astype(np.float64)
    ranks -= ranks.mean(0)
    deviation = ranks.std(0)
    return ranks / np.where(deviation > 0, deviation, 1)


def _cross_fitted(
    ranks: np.ndarray, labeled: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores `[n]` of rows by classifiers that did not see them, weights `[folds, d]`, folds `[n]`.

    The scores of a fold are shifted and divided so that its rows of U have mean 0 and deviation 1,
    and its weights are divided likewise, so that folds can be compared.
    """
    import threadpoolctl
    from sklearn import linear_model

    rng = np.random.default_rng([seed, 4])
    folds = np.zeros(len(labeled), int)
    for rows in (np.flatnonzero(labeled), np.flatnonzero(~labeled)):
        folds[rng.permutation(rows)] = np.arange(len(rows)) % _FOLDS
    scores, weights = np.zeros(len(labeled)), np.zeros([_FOLDS, ranks.shape[1]])
    with threadpoolctl.threadpool_limits(1):
        for fold in range(_FOLDS):
            model = linear_model.LogisticRegression(
                C=_PENALTY, class_weight="balanced", max_iter=300
            )
            model.fit(ranks[folds != fold], labeled[folds != fold])
            held = folds == fold
            raw = ranks[held] @ model.coef_[0]
            of_u = raw[~labeled[held]]
            spread = of_u.std() or 1.0
            scores[held] = (raw - of_u.mean()) / spread
            weights[fold] = model.coef_[0] / spread
    return scores, weights, folds


def _compared(
    ranks: np.ndarray,
    features: list[int],
    column: str,
    scores: np.ndarray,
    labeled: np.ndarray,
) -> list[Difference]:
    """The differences of one column's features, with p-values not yet corrected."""
    from scipy import special

    cuts = np.quantile(scores[labeled], np.linspace(0.5, 1, _STRATA + 1)[:-1])
    top = scores >= cuts[0]
    strata = np.searchsorted(cuts, scores[top], side="right") - 1
    own = ranks[:, features]  # a part of all columns, which may be thousands
    in_p, values = labeled[top], own[top]
    p_counts = np.bincount(strata[in_p], minlength=_STRATA)
    u_counts = np.bincount(strata[~in_p], minlength=_STRATA)
    usable = (p_counts > 0) & (u_counts > 0)
    # U in T is weighted so that it has as many rows in each stratum as P.
    factor = np.where(usable, p_counts / np.maximum(u_counts, 1), 0.0)
    p, u = values[in_p & usable[strata]], values[~in_p]
    w = factor[strata[~in_p]]
    # Rows that would tell as much; 15 rows of one weight are 15, and not less by rounding.
    num_u = round(w.sum() ** 2 / max(np.square(w).sum(), 1e-12), 6)
    if len(p) < _LEAST_IN_TOP or num_u < _LEAST_IN_TOP:
        return []
    w = w / w.sum()
    mean_p, mean_u = p.mean(0), w @ u
    variance = np.square(p - mean_p).sum(0) / (len(p) * (len(p) - 1))
    variance = variance + np.square(w) @ np.square(u - mean_u) * num_u / (num_u - 1)
    difference = mean_p - mean_u
    z = np.abs(difference) / np.sqrt(np.maximum(variance, 1 / len(ranks) ** 2))
    lower = ~labeled & (scores <= np.median(scores[~labeled]))
    to_negatives = own[labeled].mean(0) - own[lower].mean(0)
    return [
        Difference(
            column=column,
            feature=feature,
            difference=float(difference[i]),
            to_negatives=float(to_negatives[i]),
            excess=0.0,
            p_value=float(2 * special.ndtr(-z[i])),
            num_p=len(p),
            num_u=int((~in_p).sum()),
        )
        for i, feature in enumerate(features)
        if own[:, i].any()
    ]


def _common_share(difference: np.ndarray, to_negatives: np.ndarray) -> float:
    """The share of the way to N that columns have in common: a median weighted by the way."""
    weights = np.abs(to_negatives)
    known = weights > 1e-9
    if not known.any():
        return 0.0
    ways = difference[known] / to_negatives[known]
    order = np.argsort(ways)
    total = np.cumsum(weights[known][order])
    median = ways[order][np.searchsorted(total, total[-1] / 2)]
    return float(np.clip(median, 0, 1))


def _sentence(one: Difference) -> str:
    if one.way > MIN_WAY:
        where = f"lie {min(one.way, 1):.0%} of the way to the negatives"
    else:
        where = "lie on the other side of them than the negatives"
    return (
        f"column {one.column!r}: {one.num_u:,} unlabeled rows that look positive by the columns "
        f"that do not go with it differ from the {one.num_p:,} labelled ones of the same scores by "
        f"{abs(one.difference):.2f} standard deviations of ranks ({one.excess:.2f} more than other "
        f"columns) and {where} (p = {one.p_value:.1g} after Holm's correction)"
    )
