"""Does one column alone tell the labelled from the unlabeled, hidden positives included?

U holds positives with the share `prior`, and a column that says something of the class says it of
them, too: where labels are given at random, every part of the space holds at least `prior` times as
large a share of U as of P. A column with a part that holds far less speaks of the label: it was
filled in after the labelling, or names a source that only one of the two came from.
"""

from typing import NamedTuple

import numpy as np

from pujax import metrics
from pujax.audit import scoring
from pujax.audit.base import ERROR, SHOWN, WARNING, Finding, Problem, listed

CERTAIN = 0.98
"""AUC of one column from which it is an error, however few positives U may hold."""
_CONTRADICTED = 0.9
"""AUC from which it is an error if the other columns find many more positives in U."""
_LEAST_PART = 0.2
"""Share of P that a part of the column must hold to count."""
_TIMES = 10.0
"""How many times more positives the other columns must find in U than the part allows."""
_BINS = 32
_SUSPECTS = 5
"""Columns beside the certain ones that are compared with all others, the most suspicious first."""
_SAME = 0.5
"""Share of the labelled rows in a column's part that must lie in another's, the larger one, for
none of both to be a witness about the other: copies of a leak would clear each other. Parts
consist of bins, so that those of two noisy copies have about 60 % in common."""
LEAST = 8


class Column(NamedTuple):
    """What one column says of the label.

    Attributes:
      name: of the column.
      auc: cross-fitted AUC of P against U of the log odds in bins of its values.
      bound: the smallest upper end of `share of U / share of P` over the parts of the column, which
        is the largest share of positives in U that it leaves room for; 1 where no part says so.
      part: share of P in that part.
    """

    name: str
    auc: float
    bound: float
    part: float


class _Seen(NamedTuple):
    """A column, and which rows of P `[n_p]` lie in its part."""

    column: Column
    rows: np.ndarray


def check(problem: Problem, *, seed: int) -> list[Finding]:
    """Findings of columns, and of facts of the files, that leak the label.

    Args:
      problem: P and U.
      seed: of the halves.
    """
    if min(problem.labeled.sum(), (~problem.labeled).sum()) < LEAST:
        return []
    of_features = _seen(problem.features, problem.columns, problem.labeled, seed=seed)
    of_facts = _seen(problem.facts, problem.fact_names, problem.labeled, seed=seed)
    found: dict[str, list[tuple[Column, str]]] = {ERROR: [], WARNING: []}
    by_suspicion = sorted(
        [(x, False) for x in of_features] + [(x, True) for x in of_facts],
        key=lambda x: (-(x[0].column.auc >= CERTAIN), x[0].column.bound),
    )
    num_certain = sum(seen.column.auc >= CERTAIN for seen, _ in by_suspicion)
    for i, (seen, is_fact) in enumerate(by_suspicion[: num_certain + _SUSPECTS]):
        column = seen.column
        if _SUSPECTS <= i < num_certain:  # what the others say changes nothing
            severity, sentence = ERROR, _by_itself(column)
        else:
            copies = () if is_fact else _copies(seen, of_features)
            severity, sentence = _judge(problem, column, is_fact, copies, seed=seed)
        if severity:
            found[severity].append((column, sentence))
    return [
        Finding(
            "leak",
            severity,
            "one column alone tells labelled from unlabeled: "
            f"{listed(repr(c.name) for c, _ in columns)}",
            _shown([sentence for _, sentence in columns]),
            "find out how the column came to be; if it was filled in with or after the label, or "
            "says where a row came from, remove it from the file (all other findings are without "
            "it); keep it only if it is known of every new row before anybody "
            "labels it",
            {"columns": [column._asdict() for column, _ in columns]},
        )
        for severity, columns in found.items()
        if columns
    ]


def _shown(sentences: list[str]) -> tuple[str, ...]:
    """The first sentences, and how many columns more there are."""
    more = len(sentences) - SHOWN
    return (*sentences[:SHOWN], f"{more:,} more like these") if more > 0 else (*sentences,)


def _by_itself(column: Column) -> str:
    return (
        f"column {column.name!r}: AUC of P against U {column.auc:.3f} by itself; a part of it with "
        f"{column.part:.0%} of P leaves room for {column.bound:.2%} positives in U at most"
    )


def _copies(seen: _Seen, others: list[_Seen]) -> tuple[str, ...]:
    """Names of the other columns that are as suspicious because of the same rows of P."""
    found = []
    for other in others:
        is_other = other.column.name != seen.column.name and _is_suspicious(other.column)
        both, smaller = (seen.rows & other.rows).sum(), min(seen.rows.sum(), other.rows.sum())
        if is_other and both >= _SAME * smaller:
            found.append(other.column.name)
    return tuple(found)


def _is_suspicious(column: Column) -> bool:
    """Whether a part of it leaves so little room that other columns can contradict it."""
    return column.part >= _LEAST_PART and column.bound * _TIMES <= 1


def _judge(
    problem: Problem, column: Column, is_fact: bool, copies: tuple[str, ...], *, seed: int
) -> tuple[str, str]:
    """Severity of a column, '' if it is innocent, and its numbers in a sentence."""
    text = _by_itself(column)
    is_certain = column.auc >= CERTAIN
    if not is_certain and not _is_suspicious(column):
        return "", ""
    others = problem if is_fact else problem.without([column.name, *copies])
    if not is_fact and others is problem:  # there is no other column
        return (ERROR, text) if is_certain else ("", "")
    scores = scoring.held_out(others, seed=seed)
    rest, auc = scoring.largest_prior(scores), metrics.auc(scores.values, scores.labeled)
    text += f", and all others without it{_beside(copies)} for {rest:.1%} (AUC {auc:.3f})"
    # Scores that say nothing leave room for any share, so that they are no witness.
    is_witness = auc > scoring.auc_by_chance(scores.labeled)
    is_contradicted = is_witness and column.bound * _TIMES <= rest and column.part >= _LEAST_PART
    if is_certain or (is_contradicted and column.auc >= _CONTRADICTED):
        return ERROR, text
    # Where the others say nothing, a column of noise may do so by chance, but not as clearly.
    is_doubtful = not is_witness and column.auc >= _CONTRADICTED
    return (WARNING, text) if is_contradicted or is_doubtful else ("", "")


def _beside(copies: tuple[str, ...]) -> str:
    return f" and without {listed(map(repr, copies))}, which say the same," if copies else ""


def _seen(
    values: np.ndarray, columns: tuple[str, ...], labeled: np.ndarray, *, seed: int
) -> list[_Seen]:
    """What each column says by itself, by its strongest feature, and the rows of P in its part.

    Each half is scored by the log odds of the bins of the other half, so that a column of many
    values that says nothing has an AUC of a half.

    Args:
      values: `[n, d]`.
      columns: names `[d]`.
      labeled: bool `[n]`.
      seed: of the halves.
    """
    rng = np.random.default_rng([seed, 1])
    half = np.zeros(len(labeled), bool)
    for rows in (np.flatnonzero(labeled), np.flatnonzero(~labeled)):
        half[rng.permutation(rows)[: len(rows) // 2]] = True
    best: dict[str, _Seen] = {}
    for feature, name in enumerate(columns):
        bins = _binned(values[:, feature])
        if bins.max() == 0:
            continue
        odds = np.zeros(len(labeled))
        for part in (half, ~half):
            odds[part] = _log_odds(bins[~part], labeled[~part], bins.max() + 1)[bins[part]]
        auc = float(np.mean([metrics.auc(odds[part], labeled[part]) for part in (half, ~half)]))
        bound, rows = _bound(odds, labeled)
        found = Column(name, auc, bound, float(rows.mean()))
        last = best[name].column if name in best else None
        if last is None or (found.auc, -found.bound) > (last.auc, -last.bound):
            best[name] = _Seen(found, rows)
    return list(best.values())


def _binned(values: np.ndarray) -> np.ndarray:
    """Ids of bins `[n]` of about equally many rows; each value is one where they are few."""
    different, ids = np.unique(values, return_inverse=True)
    if len(different) <= _BINS:
        return ids
    # The values themselves as well, where one of them fills a bin, such as the 0 of many columns.
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1]))
    bins = np.searchsorted(edges, values, side="left") * 2
    return np.unique(bins + np.isin(values, edges), return_inverse=True)[1]


def _log_odds(bins: np.ndarray, labeled: np.ndarray, count: int) -> np.ndarray:
    p, u = (np.bincount(bins[rows], minlength=count) for rows in (labeled, ~labeled))
    return np.log((p + 0.5) / (p.sum() + 1)) - np.log((u + 0.5) / (u.sum() + 1))


def _bound(odds: np.ndarray, labeled: np.ndarray) -> tuple[float, np.ndarray]:
    """The smallest upper end of (share of U) / (share of P) above a threshold, and those rows of P.

    The share of U is its upper end by Wilson, as nothing of a small U in a part may be chance.
    """
    order = np.argsort(-odds, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(odds[order])), len(order) - 1)
    p = np.cumsum(labeled[order])[ends]
    u = np.cumsum(~labeled[order])[ends]
    num_p, num_u = p[-1], u[-1]
    enough = (p >= _LEAST_PART * num_p) & (p > 0)
    share = u / num_u
    centre = share + scoring.Z**2 / (2 * num_u)
    spread = scoring.Z * np.sqrt(share * (1 - share) / num_u + scoring.Z**2 / (4 * num_u**2))
    upper = np.minimum((centre + spread) / (1 + scoring.Z**2 / num_u), 1)
    ratios = np.where(enough, upper / np.maximum(p / num_p, 1e-12), np.inf)
    best = int(np.argmin(ratios))
    return float(min(ratios[best], 1.0)), odds[labeled] >= odds[order[ends[best]]]
