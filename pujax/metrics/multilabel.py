"""Precision, recall and F1 of many labels, at a given threshold or the best for the same labels."""

from typing import NamedTuple

import numpy as np
from numpy import typing as npt

from pujax import checks
from pujax.metrics import _arguments

# The thresholds that the authors of PU-MLC try on the test set.
ORACLE_THRESHOLDS = np.arange(1, 100) / 100


class MultilabelReport(NamedTuple):
    """Precision, recall and F1 over all labels, and averaged over the categories.

    Attributes:
      overall_precision: OP, correct predictions by all predictions.
      overall_recall: OR, correct predictions by all positives; NaN without any positive.
      overall_f1: OF1, harmonic mean of OP and OR; 0 where it is undefined.
      class_precision: CP, mean of the categories' precisions.
      class_recall: CR, mean of the categories' recalls; NaN if a category has no positive.
      class_f1: CF1, harmonic mean of CP and CR, which is not the mean of the categories' F1; 0
        where it is undefined.
    """

    overall_precision: float
    overall_recall: float
    overall_f1: float
    class_precision: float
    class_recall: float
    class_f1: float


class OracleF1(NamedTuple):
    """The best F1 over thresholds, chosen on the labels that it is measured on.

    Attributes:
      overall: the best OF1.
      overall_threshold: the threshold it was reached at.
      per_class: the best CF1, usually at another threshold.
      per_class_threshold: the threshold it was reached at.
    """

    overall: float
    overall_threshold: float
    per_class: float
    per_class_threshold: float


def multilabel_report(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    threshold: float,
    ignore_empty: bool = False,
) -> MultilabelReport:
    """OP, OR, OF1, CP, CR and CF1 at one threshold.

    A label is predicted where its score is at or above the threshold. A category that is never
    predicted counts as one wrong prediction, as in the code of PU-MLC (Yuan et al., ICME 2024): its
    precision is then 0 rather than 0/0, and OP is a little lower than the plain ratio. A category
    without a positive makes CR NaN and CF1 0, unless it is left out of CP and CR.

    Args:
      scores: probabilities or raw scores, `[n, classes]`.
      labels: true labels, `[n, classes]`.
      threshold: on the scale of the scores (0.5 for probabilities is 0 for raw scores); rounded
        to their precision.
      ignore_empty: leave categories without a positive out of CP and CR; OP and OR keep them.

    Returns:
      The six figures; all are NaN without examples or where a score is not a number.

    Raises:
      ValueError: if shapes do not fit, labels are coded differently, the threshold is not a number
        or `ignore_empty` neither True nor False.
    """
    checks.one_of("ignore_empty", ignore_empty, (True, False))
    scores, positive = _arguments.matrices(scores, labels)
    cutoff = _checked_thresholds("threshold", threshold, 0)
    if _undefined(scores):
        return MultilabelReport(*[float("nan")] * len(MultilabelReport._fields))
    predicted = scores >= cutoff.astype(scores.dtype)
    figures = _figures(
        np.sum(predicted, axis=0),
        np.sum(predicted & positive, axis=0),
        np.sum(positive, axis=0),
        ignore_empty,
    )
    return MultilabelReport(**{name: float(value) for name, value in figures.items()})


def multilabel_f1(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    threshold: float,
    ignore_empty: bool = False,
) -> tuple[float, float]:
    """Overall F1 and per-class F1 at one threshold, OF1 and CF1 of `multilabel_report`.

    Args:
      scores: probabilities or raw scores, `[n, classes]`.
      labels: true labels, `[n, classes]`.
      threshold: on the scale of the scores; a label is predicted at or above it.
      ignore_empty: leave categories without a positive out of the per-class figure, which is 0
        otherwise.

    Returns:
      `(overall, per_class)` in [0, 1], 0 where undefined; NaN without examples or where a score
      is not a number.

    Raises:
      ValueError: if shapes do not fit, labels are coded differently, the threshold is not a number
        or `ignore_empty` neither True nor False.
    """
    report = multilabel_report(scores, labels, threshold=threshold, ignore_empty=ignore_empty)
    return report.overall_f1, report.class_f1


def oracle_multilabel_f1(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    thresholds: npt.ArrayLike = ORACLE_THRESHOLDS,
    ignore_empty: bool = False,
) -> OracleF1:
    """Best OF1 and best CF1 over thresholds: an oracle, never lower than at a fixed threshold.

    Both thresholds are chosen, independently, on the very labels that F1 is measured on. This is
    how PU-MLC (Yuan et al., ICME 2024) is published, with the test labels; it overstates what a
    threshold chosen without test labels reaches, and compares only with figures that were computed
    the same way.

    Args:
      scores: probabilities, `[n, classes]`, or raw scores with thresholds to match.
      labels: true labels, `[n, classes]`.
      thresholds: tried values on the scale of the scores, `[thresholds]`; the defaults are
        0.01, 0.02, ..., 0.99. Of equally good ones the first is reported.
      ignore_empty: as in `multilabel_report`.

    Returns:
      Both figures with their thresholds; all are NaN without examples or where a score is not a
      number.

    Raises:
      ValueError: if shapes do not fit, labels are coded differently, there is no threshold or one
        that is not a number, or `ignore_empty` is neither True nor False.
    """
    checks.one_of("ignore_empty", ignore_empty, (True, False))
    scores, positive = _arguments.matrices(scores, labels)
    tried = _checked_thresholds("thresholds", thresholds, 1)
    if _undefined(scores):
        return OracleF1(*[float("nan")] * len(OracleF1._fields))
    cutoffs = tried.astype(scores.dtype)
    predicted = [_at_or_above(column, cutoffs) for column in scores.T]
    correct = [
        _at_or_above(column[hit], cutoffs) for column, hit in zip(scores.T, positive.T, strict=True)
    ]
    figures = _figures(
        np.stack(predicted, axis=-1),
        np.stack(correct, axis=-1),
        np.sum(positive, axis=0),
        ignore_empty,
    )
    overall, per_class = figures["overall_f1"], figures["class_f1"]
    best = int(np.argmax(overall)), int(np.argmax(per_class))
    return OracleF1(
        overall=float(overall[best[0]]),
        overall_threshold=float(tried[best[0]]),
        per_class=float(per_class[best[1]]),
        per_class_threshold=float(tried[best[1]]),
    )


def _at_or_above(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many of the values reach each threshold, with one sort for all thresholds."""
    return values.size - np.searchsorted(np.sort(values), thresholds, side="left")


def _figures(
    predicted: np.ndarray, correct: np.ndarray, present: np.ndarray, ignore_empty: bool
) -> dict[str, np.ndarray]:
    """Figures of `MultilabelReport`, `[...]` each, from counts per category `[..., classes]`."""
    predicted = np.maximum(predicted, 1)
    counted = present > 0 if ignore_empty else np.ones_like(present, dtype=bool)
    # No positive, in a category or at all, gives 0/0: recall is then NaN as documented.
    with np.errstate(invalid="ignore"):
        overall = correct.sum(-1) / predicted.sum(-1), correct.sum(-1) / present.sum()
        precision, recall = (
            np.sum(shares, axis=-1, where=counted) / counted.sum()
            for shares in (correct / predicted, correct / present)
        )
    return {
        "overall_precision": overall[0],
        "overall_recall": overall[1],
        "overall_f1": _f1(*overall),
        "class_precision": precision,
        "class_recall": recall,
        "class_f1": _f1(precision, recall),
    }


def _f1(precision: np.ndarray, recall: np.ndarray) -> np.ndarray:
    """Harmonic mean; 0 where both are 0 or one is not a number."""
    total = precision + recall
    defined = total > 0
    return np.where(defined, 2 * precision * recall / np.where(defined, total, 1), 0)


def _undefined(scores: np.ndarray) -> bool:
    return len(scores) == 0 or bool(np.isnan(scores).any())


def _checked_thresholds(name: str, values: npt.ArrayLike, rank: int) -> np.ndarray:
    """Thresholds in double precision, a scalar or `[thresholds]` by rank."""
    accepted = "a list of one number or more" if rank else "a number"
    numbers = checks.real_numbers(name, values, accepted).astype(np.float64, copy=False)
    if numbers.ndim != rank or numbers.size == 0 or np.isnan(numbers).any():
        raise ValueError(f"{name} is {numbers.tolist()}, but must be {accepted}, none of them NaN")
    return numbers
