"""How much what is said about own rows depends on the share of positives in U.

Estimators of that share are upper bounds, and often far apart where it is small. Everything that
rests on it is computed anew at each of them, and at half of the smallest, since all may be too
large.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pujax import calibration, metrics
from pujax.console import render_table
from pujax.data.pu_dataset import PriorChoice

NUMBERS = ("precision", "precision_top_100", "auc", "accuracy", "f1")
"""Of `metrics.unlabeled_estimates`, those that depend on the prior."""
CALLED = "called positive"
_HALF = "half of the smallest"
_THRESHOLD = 0.5
TOO_HIGH = 0.05
"""By how much all estimates of a share of a few percent may be too high."""
_TINY = 1e-4
"""The smallest share that probabilities are fitted for, and the distance of the largest from 1."""


def by_prior(
    positive: np.ndarray,
    unlabeled: np.ndarray,
    everything: np.ndarray,
    *,
    choice: PriorChoice,
    setting: str,
    labeled_share: float,
) -> tuple[dict[str, Any], ...]:
    """What the held-out rows say at each estimate of the prior.

    Args:
      positive: `[m]`, scores of held-out P.
      unlabeled: `[n]`, of held-out U.
      everything: `[k]`, of all rows of U, held out or not.
      choice: the estimates of the share of positives in U.
      setting: 'one_sample' or 'two_sample'.
      labeled_share: of labelled positives among all rows.

    Returns:
      From the smallest prior to the largest, a dict each: `prior from` (names of the estimators),
      `used` (whether it is the one in use), `prior in U`, the `NUMBERS`, and `called positive`, how
      many of `everything` have a probability above 0.5. NaN, and None for the count, where nothing
      can be said. Empty for fewer than two estimates.
    """
    shares: dict[float, list[str]] = {}
    for name, (value, *_) in choice.estimates.items():
        if 0 < value < 1:
            shares.setdefault(value, []).append(name)
    if len(choice.estimates) < 2 or not shares:
        return ()
    shares.setdefault(min(shares) / 2, []).append(_HALF)
    is_finite = all(np.isfinite(x).all() for x in (positive, unlabeled, everything))
    known: dict[str, Any] = {"setting": setting, "labeled_share": labeled_share}
    rows = []
    for share in sorted(shares):
        names = shares[share]
        estimates = metrics.unlabeled_estimates(
            positive, unlabeled, prior=share, num_resamples=0, **known
        )
        called = None
        if is_finite and len(positive) and len(unlabeled):
            learned = calibration.fit(positive, unlabeled, prior=share, **known)
            found = calibration.probabilities(learned, everything)
            called = int(np.count_nonzero(found > _THRESHOLD))
        rows.append(
            {"prior from": ", ".join(names), "used": choice.method in names, "prior in U": share}
            | {x.name: x.value for x in estimates if x.name in NUMBERS}
            | {CALLED: called}
        )
    return tuple(rows)


def possible_shares(choice: PriorChoice, *, used: float) -> tuple[float, float]:
    """The smallest and the largest share of positives in U that its estimates leave open.

    All estimates may be too large: from half of the smallest lower end, or `TOO_HIGH` below it if
    that is less, to the largest upper end. An estimate without an interval is its own end; one that
    carries no information (0, 1, or an interval from 0 to 1) does not count.

    Args:
      choice: the estimates.
      used: the share in use, which lies in between.
    """
    low, high = used, used
    for value, *interval in choice.estimates.values():
        ends = [x for x in interval if math.isfinite(x)] or [value]
        if 0 < value < 1 and (ends[0] > 0 or ends[-1] < 1):
            least = min(ends[0] / 2, ends[0] - TOO_HIGH)
            low, high = min(low, least), max(high, ends[-1])
    return min(max(low, _TINY), used), max(min(high, 1 - _TINY), used)


def describe(rows: Sequence[Mapping[str, Any]], *, agree: bool) -> str:
    """The same as a table.

    Args:
      rows: what `by_prior` returned, at least one.
      agree: whether the estimators agree.
    """
    columns = [x for x in ("prior in U", *NUMBERS) if any(_known(row[x]) for row in rows)]
    shares = [row["prior in U"] for row in rows if _HALF not in row["prior from"]]
    first = "Estimators of the share of positives in U "
    if agree:
        first += (
            f"differ by no more than their intervals ({min(shares):.3f} to {max(shares):.3f}), and "
            "all may be too high."
        )
    else:
        first += (
            "disagree beyond their intervals, and each may be too high; the one with * is used."
        )
    cells = [{**row, "prior from": row["prior from"] + " *" * row["used"]} for row in rows]
    for row in cells:
        row[CALLED] = None if row[CALLED] is None else str(row[CALLED])
    table = render_table(cells, ("prior from", *columns, CALLED))
    return f"{first} What depends on it:\n{table}"


def _known(value: Any) -> bool:
    return value is not None and math.isfinite(value)
