"""Runs that predict one class: at the reported epoch, or for several epochs.

The latter is noticed while it lasts, and in the summary, by pure functions of a run's rows, so that
a run that goes on after a stop knows what the rows before it say. Epochs of the last stage count:
the stages before prepare it and may not classify at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections
import numpy as np

from pujax import metrics
from pujax.data.batching import Batching
from pujax.training.evaluation.model_selection import Row

EPOCHS = 5
"""Epochs, from the first evaluation that finds one class to the latest one, both included."""

SHARES = ("test_predicted_positive", "val_predicted_positive")
"""Columns with the share of examples that are predicted positive."""


class Period(NamedTuple):
    """Consecutive evaluations, of at least `EPOCHS` epochs, that all found one predicted class.

    Attributes:
      first_epoch: of the first evaluation, counted from 0.
      last_epoch: of the last one.
      predicted: 'positive', 'negative', or 'either' where that changed from epoch to epoch.
      lasts: whether no later evaluation found both classes.
    """

    first_epoch: int
    last_epoch: int
    predicted: str
    lasts: bool


def sides(*, test: np.ndarray, training: np.ndarray) -> dict[str, str | None]:
    """The class that all examples of a part are predicted to be of, at the reported epoch.

    Args:
      test: scores of any shape, positive above 0; may hold none.
      training: likewise.

    Returns:
      By part, 'test' and 'training': 'positive', 'negative', or None where a part has examples of
      both classes, or none at all. With several labels per example it is the class of every label.
    """
    return {"test": _side(test), "training": _side(training)}


def _side(scores: np.ndarray) -> str | None:
    if not metrics.predicts_one_class(scores):
        return None
    return "positive" if np.all(scores > 0) else "negative"


def periods(rows: Sequence[Row]) -> list[Period]:
    """All periods of a run, in order.

    Epochs without an evaluation between two that found one class count as epochs of the period. An
    evaluation finds one class where all examples of the test set, and of the validation set, are
    predicted to be of the same class; without either set nothing is found.

    Args:
      rows: one per epoch, as in `metrics.jsonl`.
    """
    ended: list[Period] = []
    current: Period | None = None
    for epoch, side in _evaluations(rows):
        if not side:
            ended += [current._replace(lasts=False)] if current else []
            current = None
        elif current is None:
            current = Period(epoch, epoch, side, lasts=True)
        else:
            both = side if side == current.predicted else "either"
            current = current._replace(last_epoch=epoch, predicted=both)
    return [x for x in [*ended, current] if x and _length(x) >= EPOCHS]


def reached(rows: Sequence[Row]) -> Period | None:
    """The period that the newest row makes long enough to be said; None where it makes none.

    That is once per period. After an evaluation that finds both classes a new one may begin.

    Args:
      rows: one per epoch so far.
    """
    last = _found(rows[-1]) if rows else None
    if not last:
        return None
    current, before = Period(rows[-1]["epoch"], rows[-1]["epoch"], last, lasts=True), None
    evaluations = _evaluations(rows, backwards=True)
    next(evaluations)  # the newest
    for epoch, side in evaluations:
        if not side:
            break
        before = epoch if before is None else before
        # Said when that one was the newest. No row before this one is looked at, so that the work
        # does not grow with the epochs of a run.
        if before - epoch + 1 >= EPOCHS:
            return None
        both = side if side == current.predicted else "either"
        current = current._replace(first_epoch=epoch, predicted=both)
    return current if _length(current) >= EPOCHS else None


def describe(period: Period, config: ml_collections.ConfigDict, batching: Batching) -> str:
    """A sentence: since when, which class, and which settings to change.

    Args:
      period: what was found.
      config: the method's section.
      batching: of the method's last stage.
    """
    first, last = period.first_epoch, period.last_epoch
    when = f"since epoch {first}" if period.lasts else f"from epoch {first} to epoch {last}"
    predicted = period.predicted
    if predicted == "either":
        predicted = "positive in some epochs and negative in the others"
    text = f"{when} (counted from 0) every evaluated example is predicted {predicted}"
    changes = _changes(config, batching)
    return f"{text}; what may prevent that: {'; '.join(changes)}" if changes else text


def warnings(
    rows: Sequence[Row], config: ml_collections.ConfigDict, batching: Batching
) -> list[str]:
    """`describe` of all periods of a run."""
    return [describe(period, config, batching) for period in periods(rows)]


def _length(period: Period) -> int:
    """Epochs of a period."""
    return period.last_epoch - period.first_epoch + 1


def _evaluations(rows: Sequence[Row], *, backwards: bool = False) -> Iterator[tuple[int, str]]:
    """Epoch, and the one predicted class or '', of the evaluations of the last stage."""
    for row in reversed(rows) if backwards else rows:
        found = _found(row)
        if found is not None and row["stage"] == rows[-1]["stage"]:
            yield row["epoch"], found


def _found(row: Row) -> str | None:
    """The one class that the evaluation of an epoch finds, or ''; None without an evaluation."""
    known = {row[column] for column in SHARES if row.get(column) is not None}
    if not known:
        return None
    return {(0.0,): "negative", (1.0,): "positive"}.get(tuple(known), "")


def rate_word(section: Mapping[str, Any]) -> str:
    """Whether a 'lower' or a 'higher' rate may prevent that all are predicted in one class.

    What NcPU's classifier predicts of all examples stays, since these are pulled together: it
    learnt too slowly before.

    Args:
      section: a method's fields.
    """
    return "higher" if section.get("gate") else "lower"


def _changes(config: ml_collections.ConfigDict, batching: Batching) -> list[str]:
    """Settings of the method that can be changed, with their present values."""
    result = []
    # Of an opponent that is too fast, of the head that predicts, of all.
    names = ("discriminator_rate", "head_learning_rate", "learning_rate")
    rates = [name for name in names if name in config]
    if rates:
        now = config[rates[0]]
        shown = f"{now!r}, which the log has as a number" if isinstance(now, str) else f"{now:g}"
        result.append(f"a {rate_word(config)} method.{rates[0]} (now {shown})")
    count, size = batching.num_positives, batching.batch_size
    # Elsewhere the number is fixed, or is half of the batch already.
    is_free = "positives_per_batch" in config and not config.get("classifier_batch_size", 0)
    if is_free and 0 < count < size // 2:
        result.append(
            "more labelled positives in a batch, method.positives_per_batch (now "
            f"{count} of {size})"
        )
    if config.get("ascent", False) and not config.get("keep_positive", False):
        setting = "keep_positive=True" if "keep_positive" in config else "ascent=False"
        result.append(f"correction steps that keep the positive part, method.{setting}")
    return result
