"""How many positives does U hold, and do estimators agree?"""

from collections.abc import Mapping
from typing import Any

from pujax.audit.base import NOTE, WARNING, Finding, Problem
from pujax.audit.scoring import Scores, samples
from pujax.priors import Consensus, PriorEstimate, consensus, estimates_of
from pujax.priors.consensus import is_informative

_MOST = 4_000
"""Rows of P, and of U, that estimators see."""
_RESAMPLES = 50
FAR = 2.0
"""The largest over the smallest estimate from which disagreement is a warning. On nearly all real
sets estimates disagree beyond their intervals, which cover chance only; this far apart they were on
a9a, where all of them are far too high, and on no other set (docs/checking_your_data.md)."""
_NONE = 0.005
"""Upper end of the share of positives in U below which there may be none."""


def estimates(problem: Problem, scores: Scores, *, seed: int) -> dict[str, PriorEstimate]:
    """The estimators of `pujax.priors.BOUNDS` that work on the data, with 90 % intervals.

    Args:
      problem: P and U.
      scores: held-out ones.
      seed: of the bootstrap and of the rows that are drawn where there are many.
    """
    p, u = samples(problem, seed=seed, most=_MOST)
    held = scores.values[scores.labeled], scores.values[~scores.labeled]
    return estimates_of(p, u, scores=held, num_resamples=_RESAMPLES, key=seed)


def chosen(found: Mapping[str, PriorEstimate]) -> Consensus | None:
    """What the rule of `pujax.priors.consensus` makes of them; None where nothing is known."""
    try:
        return consensus(found)
    except ValueError:  # none carries information
        return None


def check(found: Mapping[str, PriorEstimate], num_u: int) -> list[Finding]:
    """Findings of the estimates.

    Args:
      found: by method.
      num_u: unlabeled rows.
    """
    lines = tuple(
        f"{name}: {_shown(one)}" + ", which says nothing" * (not is_informative(one))
        for name, one in found.items()
    )
    numbers: dict[str, Any] = {"estimates": {name: one._asdict() for name, one in found.items()}}
    choice = chosen(found)
    if choice is None:
        return [
            Finding(
                "class_prior",
                WARNING,
                "the share of positives in U cannot be estimated",
                lines or ("no estimator works on these rows",),
                "give data.prior if you know it, or label more",
                numbers,
            )
        ]
    value = choice.estimate.value
    numbers |= {"used": choice.method, "value": value, "agree": choice.agree}
    used = (
        f"data.prior=auto would use {choice.method}: {value:.1%}, about {value * num_u:,.0f} "
        "positives in U; each estimate is an upper bound"
    )
    # An interval of out_of_bag reaches a few percent at least: one that begins at 0 leaves it to
    # the others to say that there are fewer.
    least = min(one.high for one in found.values() if is_informative(one))
    if choice.estimate.high < _NONE or (choice.estimate.low == 0 and least < _NONE):
        return [
            Finding(
                "class_prior",
                WARNING,
                "U seems to hold next to no positives like the labelled ones",
                (*lines, used),
                "if it does hold some, something tells labelled from unlabeled rows that is not "
                "the class: see which columns a classifier uses; else a plain classifier of "
                "labelled against unlabeled is enough",
                numbers,
            )
        ]
    values = [one.value for one in found.values() if is_informative(one)]
    spread = max(values) / min(values)
    numbers["spread"] = spread
    of_those = "" if len(values) == len(found) else f" of the {len(values)} that say something"
    apart = f"the largest estimate{of_those} is {spread:.1f} times the smallest"
    if len(values) == 1:
        apart = "no other estimate confirms it"
    if not choice.agree and spread >= FAR:
        return [
            Finding(
                "class_prior",
                WARNING,
                "estimates of the share of positives in U are far apart",
                (*lines, apart, used),
                "give data.prior if you know it; else trust rankings more than probabilities, and "
                "read probability_low and probability_high",
                numbers,
            )
        ]
    return [
        Finding(
            "class_prior",
            NOTE,
            _agreement(choice.agree, len(values), len(found)),
            (*lines, apart, used),
            "nothing; but data.prior, if you know it, is better than any estimate",
            numbers,
        )
    ]


def _agreement(agree: bool, informative: int, total: int) -> str:
    """The title of estimates that are near one another."""
    if informative == 1 < total:
        return f"1 of {total} estimates of the share of positives in U says something"
    which = "estimates" if informative == total else f"{informative} of {total} estimates"
    how = "agree" if agree else "disagree beyond their intervals, but not by much"
    return f"{which} of the share of positives in U {how}"


def _shown(one: PriorEstimate) -> str:
    return f"{one.value:.1%} (90 % interval {one.low:.1%} to {one.high:.1%})"
