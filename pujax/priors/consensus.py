"""One estimate out of several: which one to use, and whether the others agree with it.

`out_of_bag` has the least error of those that take seconds, with few labels and small priors by far
(docs/priors.md), and is what is used. Without it, it is a rule over the others.

All of `BOUNDS` tend to the share of positives in U or to a number above it: each is a largest share
of P that fits into U by one criterion, and where the classes overlap, that is too much. Where they
differ by more than chance, the larger ones are wrong, and the smallest is the tightest of the
bounds. The smaller the prior, the more this counts: where negatives look like positives to the
share `w`, a bound is `prior + (1 - prior) w`, for `w = 0.1` 0.55 in place of 0.5, but 0.15 in place
of 0.05.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import threadpoolctl

from pujax import checks
from pujax.priors import base
from pujax.priors.base import PriorEstimate
from pujax.priors.estimate import estimate, from_scores, needs_scores
from pujax.priors.held_out import held_out_scores

_LOG = logging.getLogger(__name__)

NAME = "consensus"
"""What stands in the place of a method's name for the rule of `consensus`."""
PREFERRED = "out_of_bag"
"""The estimate that is used where it carries information."""
FIRST = "best_bin"
"""The estimate that is used in its place where all agree."""
BOUNDS = (PREFERRED, FIRST, "ratio", "tice", "pearson")
"""Estimators that are below the prior by chance only, and take seconds.

'alphamax', 'elkan_noto_e3', 'km1' and 'km2' may fall far below it; the forms 'e1' and 'e2' of
Elkan and Noto say little beside 'ratio', 'pen_l1' is far above the prior in many dimensions, and
'ted_n' takes as long as all others together. docs/results/priors.md has the errors of other
choices.
"""
# At most, where each resample is expensive.
_RESAMPLES = {PREFERRED: 40, "tice": 20}


class Consensus(NamedTuple):
    """Several estimates of one share, and which of them is used.

    Attributes:
      estimate: the one that is used, with its own interval.
      method: its name.
      agree: whether one share lies in the intervals of all that carry information.
      estimates: all of them by name, in the order given, those without information included.
    """

    estimate: PriorEstimate
    method: str
    agree: bool
    estimates: dict[str, PriorEstimate]


def consensus(estimates: Mapping[str, PriorEstimate], *, first: str = FIRST) -> Consensus:
    """Chooses among estimates of the share of positives in U that are upper bounds of it.

    Estimates agree iff one share lies in all their intervals: the largest lower end is not above
    the smallest upper end. `PREFERRED` is used if it is among those that carry information. Else,
    where they agree, `first` is, and where they disagree the most cautious one, which is the
    smallest: all are upper bounds, so that it says the most. An estimate of 0, of 1, without an
    interval, or with one from 0 to 1 carries no information; it is only listed.

    A further estimate larger than the one in use, other than `PREFERRED` and `first`, leads to a
    smaller one or changes nothing. The interval is that of the chosen estimate: it covers the
    randomness of the samples, and the prior may well be below it.

    Args:
      estimates: by name, with intervals, as the functions of `pujax.priors` return them.
      first: name of the one that is used in place of `PREFERRED` where all agree.

    Returns:
      A `Consensus`.

    Raises:
      ValueError: if they are no estimates by name, or none of them carries information.
    """
    is_right = isinstance(estimates, Mapping)
    is_right = is_right and all(isinstance(x, PriorEstimate) for x in estimates.values())
    checks.require(is_right, "estimates", estimates, "PriorEstimates by the names of their methods")
    checks.require(isinstance(first, str), "first", first, "the name of an estimate")
    useful = {name: found for name, found in estimates.items() if is_informative(found)}
    if not useful:
        raise ValueError(
            f"estimates are {shown(estimates) or 'none'}, none of which carries information; "
            "accepted: one between 0 and 1 with an interval narrower than that"
        )
    agree = max(x.low for x in useful.values()) <= min(x.high for x in useful.values())
    method = min(useful, key=lambda name: useful[name].value)
    if PREFERRED in useful:
        method = PREFERRED
    elif agree and first in useful:
        method = first
    return Consensus(useful[method], method, agree, dict(estimates))


def estimates_of(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    scores: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    num_resamples: int = 200,
    level: float = 0.9,
    key: jax.Array | int | None = None,
) -> dict[str, PriorEstimate]:
    """All of `BOUNDS`, as `consensus` takes them.

    Args:
      positives: `[m, ...]`, at least 4; trailing axes are flattened.
      unlabeled: `[n, ...]`, at least 4.
      scores: balanced probabilities of being labelled of held-out P `[m']` and U `[n']`, for the
        methods on scores; None trains `held_out_scores`'s own classifier.
      num_resamples: of each bootstrap, from 1; where each is expensive, 'out_of_bag' takes at most
        40 and 'tice' 20.
      level: of the intervals.
      key: random key or seed; None is 0.

    Returns:
      By name. One that cannot work on the data is left out, with a line in the log.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    base.whole("num_resamples", num_resamples, 1)
    base.check_level(num_resamples, level)
    base.generator(key)
    # What every method would refuse is an error, and not a method that cannot work on the data.
    base.samples(positives, unlabeled)
    if scores is not None:
        accepted = "a pair, of positives and of unlabeled"
        checks.require(isinstance(scores, tuple) and len(scores) == 2, "scores", scores, accepted)
        base.score_samples(*scores)
    else:
        held = held_out_scores(positives, unlabeled, key=key)
        scores = held.scores_positive, held.scores_unlabeled
    options: dict[str, Any] = {"level": level, "key": key}
    results: dict[str, PriorEstimate] = {}
    for method in BOUNDS:
        few = min(num_resamples, _RESAMPLES.get(method, num_resamples))
        try:
            # Many small systems of equations: threads slow them down, on a busy machine a lot.
            with threadpoolctl.threadpool_limits(1):
                results[method] = _estimated(method, (positives, unlabeled), scores, few, options)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError) as error:
            _LOG.info("%s is left out: %s", method, error or type(error).__name__)
    return results


def _estimated(
    method: str,
    samples: tuple[npt.ArrayLike, npt.ArrayLike],
    scores: tuple[npt.ArrayLike, npt.ArrayLike],
    num_resamples: int,
    options: dict[str, Any],
) -> PriorEstimate:
    if needs_scores(method):
        return from_scores(*scores, method=method, num_resamples=num_resamples, **options)
    return estimate(*samples, method=method, num_resamples=num_resamples, **options)


def is_informative(found: PriorEstimate) -> bool:
    """True for a share between 0 and 1 with an interval that is narrower than that."""
    if not (0 < found.value < 1 and math.isfinite(found.low) and math.isfinite(found.high)):
        return False
    return found.low > 0 or found.high < 1


def warning(found: Consensus) -> str:
    """A sentence that names all estimates where they disagree; '' where they agree."""
    if found.agree:
        return ""
    return (
        "estimators of the share of positives in U disagree beyond their intervals: "
        f"{shown(found.estimates)}; each of them may be too high, and "
        f"{why(found.method)}, {found.method}, is used; all that depends on the prior is uncertain"
    )


def why(method: str) -> str:
    """Why it is this estimate that is used where estimators disagree."""
    return "the nearest in tests" if method == PREFERRED else "the most cautious"


def shown(estimates: Mapping[str, PriorEstimate]) -> str:
    """All estimates in one line, with intervals where they have one."""
    texts = []
    for name, found in estimates.items():
        ends = f" [{found.low:.3g}, {found.high:.3g}]" if math.isfinite(found.low) else ""
        texts.append(f"{name} {found.value:.3g}{ends}")
    return ", ".join(texts)
