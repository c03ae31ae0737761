"""What a run knows of its classifier, with intervals: on a test set, else on held-out P and U."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, stats

from pujax import metrics
from pujax.reports.parts import LEVEL, Number, number
from pujax.reports.run_folder import Run
from pujax.training.evaluation import model_selection
from pujax.training.example_scores import ExampleScores

TEST, HELD_OUT, NOTHING = "test", "held out", ""
_RESAMPLES = 200
_ROUNDING = 1e-9
_ENDS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


class Evidence(NamedTuple):
    """What is known of a classifier.

    Attributes:
      source: `TEST` (examples of known class), `HELD_OUT` (P and U) or `NOTHING`.
      numbers: by name; of a test set `model_selection.BINARY`, `recall`, `false_positive_rate`, and
        of held-out rows the names of `metrics.unlabeled_estimates`.
      assumptions: by name, of held-out rows what each number rests on.
      flagged: share called positive by the score's sign.
      expected: share that is positive among the same rows.
      positives: how many (known) positives the numbers rest on.
      others: how many negatives or unlabeled rows.
    """

    source: str
    numbers: dict[str, Number]
    assumptions: dict[str, str]
    flagged: Number
    expected: Number
    positives: int
    others: int

    @property
    def auc(self) -> Number:
        """Area under the curve of positives against negatives."""
        return self.numbers.get("auc", Number())

    @property
    def ranking(self) -> Number:
        """The area that tells whether the ranking is better than chance with the least assumed."""
        return self.auc if self.source == TEST else self.numbers.get("auc_pu", Number())

    @property
    def are(self) -> str:
        """How `expected` is known, as the verb of a sentence."""
        return "are" if self.source == TEST else "are estimated to be"


@functools.lru_cache(maxsize=64)
def of(run: Run) -> Evidence:
    """What is known of the classifier of a run; of test examples first, since they assume least."""
    summary = run.summary
    if summary is None:
        return Evidence(NOTHING, {}, {}, Number(), Number(), 0, 0)
    if run.is_multilabel:
        known = {name: Number(value) for name, value in values(run, TEST).items()}
        return Evidence(TEST, known, {}, Number(), Number(), 0, 0)
    if summary["test"]:
        return _of_test(summary, run.scores)
    return held_out(run)


def held_out(run: Run) -> Evidence:
    """What held-out P and U tell, whether there is a test set or not."""
    summary = run.summary or {}
    entries = summary.get("held_out") or []
    numbers = {
        entry["name"]: Number(*(number(entry.get(end)) for end in ("value", "low", "high")))
        for entry in entries
    }
    assumptions = {entry["name"]: str(entry.get("assumption", "")) for entry in entries}
    counts = summary.get("counts", {})
    positives = int(counts.get("validation_labeled") or 0)
    return Evidence(
        HELD_OUT if entries else NOTHING,
        numbers,
        assumptions,
        numbers.get("flagged_share", Number()),
        prior_of_unlabeled(summary),
        positives,
        int(counts.get("validation") or 0) - positives,
    )


def values(run: Run, source: str) -> dict[str, float]:
    """The numbers of one source by name, without intervals; none where the run has not that one."""
    if run.summary is None:
        return {}
    if source == TEST:
        return {name: number(value) for name, value in run.summary["test"].items()}
    return {name: found.value for name, found in held_out(run).numbers.items()}


def prior_of_unlabeled(summary: dict[str, Any]) -> Number:
    """The share of positives in U, with the interval of its estimate."""
    value = number(summary.get("prior_unlabeled"))
    choice = summary.get("prior_choice")
    if choice:
        estimate = choice["estimates"].get(choice["method"], ())
        if len(estimate) == 3:
            return Number(value, number(estimate[1]), number(estimate[2]))
    return Number(value)


def jeffreys(hits: float, total: int) -> Number:
    """A share and its Jeffreys interval, whose end is 0 or 1 where the share is."""
    if not total:
        return Number()
    low, high = stats.beta.ppf(_ENDS, hits + 0.5, total - hits + 0.5)
    return Number(
        hits / total, 0.0 if hits == 0 else float(low), 1.0 if hits == total else float(high)
    )


def hanley_mcneil(auc: float, positives: int, negatives: int) -> Number:
    """An area under the ROC curve with an interval from counts alone.

    It holds the areas from which this one is no further away than chance explains, with the
    variance of Hanley and McNeil (1982) at each of those areas (Newcombe 2006, as Wilson's interval
    of a share). With the variance at this area alone, one near 1 would have no room above it.
    """
    if not positives or not negatives or not math.isfinite(auc):
        return Number(auc)
    normal = float(stats.norm.ppf(_ENDS[1]))

    def beyond_chance(area: float) -> float:
        first, second = area / (2 - area), 2 * area**2 / (1 + area)
        variance = area * (1 - area) + (positives - 1) * (first - area**2)
        variance = (variance + (negatives - 1) * (second - area**2)) / (positives * negatives)
        return abs(auc - area) - normal * math.sqrt(max(variance, 0.0))

    inside = min(max(auc, _ROUNDING), 1 - _ROUNDING)
    low = optimize.brentq(beyond_chance, 0.0, inside) if auc > _ROUNDING else 0.0
    high = optimize.brentq(beyond_chance, inside, 1.0) if auc < 1 - _ROUNDING else 1.0
    return Number(auc, float(low), float(high))


def resampled(
    statistic: Callable[[np.ndarray, np.ndarray], float],
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    value: float,
    level: float = LEVEL,
    is_difference: bool = False,
    fixed_classes: bool = True,
) -> Number:
    """A number with the percentile interval of a bootstrap.

    Without an interval where one of the resamples has no value, or all agree, as of a perfect
    score, of which a bootstrap would be too sure. A difference that is 0 in all of them has one:
    two runs that say the same differ by nothing.

    Args:
      statistic: of scores `[t, ...]` and labels `[t]`.
      scores: `[t, ...]`.
      labels: `[t]`.
      value: of all of them.
      level: of the interval.
      is_difference: whether it is that of two runs.
      fixed_classes: whether each resample has as many of each label as there are. It must not for
        what depends on the share of positives, as accuracy does: how many of a sample are positive
        is chance, too.
    """
    rng = np.random.default_rng(0)
    classes = np.unique(labels)
    groups = [np.arange(len(labels))]
    if fixed_classes:
        groups = [np.flatnonzero(labels == one) for one in classes]
    found: list[float] = []
    # As many beyond the ends of a wider interval as beyond those of the usual one.
    while len(found) < round(_RESAMPLES * (1 - LEVEL) / (1 - level)):
        rows = np.concatenate([rng.choice(group, len(group)) for group in groups])
        if len(np.unique(labels[rows])) == len(classes):
            found.append(float(statistic(scores[rows], labels[rows])))
    if not np.isfinite(found).all():
        return Number(value)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    if high - low < _ROUNDING and (value or not is_difference):
        return Number(value)
    return Number(value, min(float(low), value), max(float(high), value))


def two_classes(labels: np.ndarray, scores: np.ndarray) -> bool:
    """Whether there are labels of both kinds, and all scores are finite."""
    return len(np.unique(labels)) == 2 and bool(np.isfinite(scores).all())


def _of_test(summary: dict[str, Any], scores: ExampleScores | None) -> Evidence:
    test, counts = summary["test"], summary["counts"]
    total, positives = int(counts.get("test") or 0), int(counts.get("test_positives") or 0)
    values = {name: number(test.get(name)) for name in model_selection.BINARY_METRICS}
    numbers = {name: Number(value) for name, value in values.items()}
    if math.isfinite(values["accuracy"]):
        share = jeffreys(round(values["accuracy"] * total), total)
        numbers["accuracy"] = Number(values["accuracy"], share.low, share.high)
    numbers["auc"] = hanley_mcneil(values["auc"], positives, total - positives)
    if scores is not None and len(scores.test_scores) == total > 0:
        numbers |= _from_scores(values, scores.test_scores, scores.test_labels)
    flagged = number(test.get("predicted_positive"))
    if math.isfinite(flagged):
        share = jeffreys(round(flagged * total), total)
        flagged_number = Number(flagged, share.low, share.high)
    else:
        flagged_number = Number()
    expected = Number(positives / total if total else math.nan)
    return Evidence(TEST, numbers, {}, flagged_number, expected, positives, total - positives)


def _from_scores(
    values: dict[str, float], scores: np.ndarray, labels: np.ndarray
) -> dict[str, Number]:
    """Intervals that need the scores of all test examples."""
    if not np.isfinite(scores).all() or len(np.unique(labels)) < 2:
        return {}
    rates = {
        estimate.name: Number(estimate.value, estimate.low, estimate.high)
        for estimate in metrics.unlabeled_estimates(
            scores[labels == 1], scores[labels != 1], prior=None, setting="two_sample", top=()
        )
    }
    # The negatives take the place of U: what is said of P against U is then said of them.
    area, value = rates["auc_pu"], values["auc"]
    # The half examples that this bootstrap adds lower an area near 1, and its upper end with it.
    room = hanley_mcneil(value, int(np.sum(labels == 1)), int(np.sum(labels != 1))).high
    found = {
        "auc": Number(value, min(area.low, value), max(area.high, value, room)),
        "recall": rates["recall"],
        "false_positive_rate": rates["flagged_share"],
    }
    for name in model_selection.BINARY_METRICS:
        if name in ("accuracy", "auc"):  # which have intervals of their own
            continue
        statistic = getattr(metrics, name)
        fixed = not model_selection.BINARY[name].depends_on_share
        found[name] = resampled(statistic, scores, labels, value=values[name], fixed_classes=fixed)
    return found
