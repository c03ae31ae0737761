"""Problems with several labels per example: comparison with the truth, and what a run says."""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np
from jax.sharding import Mesh
from scipy import special

from pujax import methods, metrics
from pujax.data import raw
from pujax.data.multilabel_dataset import MultilabelDataset
from pujax.methods.base import Method
from pujax.training.evaluation import model_selection, one_class, summary
from pujax.training.evaluation.summary import Final

COLUMNS = ("method", "test mAP", "OF1", "CF1", summary.RECOVERED)
MAIN = model_selection.MULTILABEL_METRICS[0]
_CHOSEN = (*model_selection.MULTILABEL_METRICS, *model_selection.ORACLE_METRICS)


def test_metrics(
    scores: np.ndarray, labels: np.ndarray, *, threshold: float = 0.5
) -> dict[str, float]:
    """Metrics on a test set.

    Args:
      scores: `[t, classes]`, raw scores.
      labels: `[t, classes]`, true labels.
      threshold: probability from which on a label is predicted.

    Returns:
      `mean_average_precision`; precision, recall and F1 over all labels (`overall_*`: OP, OR, OF1)
      and averaged over classes (`class_*`: CP, CR, CF1) at the threshold; the best OF1 and CF1 over
      the thresholds 0.01 to 0.99, chosen on these labels (`oracle_*`); `tied_scores`.
    """
    probabilities = special.expit(np.asarray(scores, np.float64))
    report = metrics.multilabel_report(probabilities, labels, threshold=threshold)
    tuned = metrics.oracle_multilabel_f1(probabilities, labels)
    return {
        MAIN: metrics.mean_average_precision(scores, labels),
        **report._asdict(),
        "oracle_overall_f1": tuned.overall,
        "oracle_class_f1": tuned.per_class,
        "tied_scores": metrics.tied_scores(scores),
    }


def is_predicted(scores: np.ndarray, threshold: float) -> np.ndarray:
    """Which labels are predicted, as `metrics.multilabel_report` counts them.

    Args:
      scores: raw scores of any shape; NaN is not predicted.
      threshold: probability from which on a label is predicted.

    Returns:
      bool, like `scores`.
    """
    return special.expit(np.asarray(scores, np.float64)) >= threshold


def compare_labels(scores: np.ndarray, data: MultilabelDataset) -> dict[str, float]:
    """How well the signs of training scores match hidden labels.

    Args:
      scores: `[n, classes]`, raw scores of the training examples.
      data: the problem.

    Returns:
      `label_accuracy` over the hidden labels whose truth is known, `recovered_positives` and
      `hidden_positives` (counts), `label_precision` of those called positive; NaN over none.
    """
    rows = (data.labeled == 0) & (data.truth >= 0)
    if (data.labeled == 0).any() and not rows.any():
        return summary.unknown_match()
    return summary.label_match(scores[rows] > 0, data.truth[rows] == 1)


def validation_metrics(
    scores: np.ndarray, data: MultilabelDataset, *, plain_scores: np.ndarray | None = None
) -> dict[str, float]:
    """None: there are no selection rules for several labels, so there is no validation set."""
    del scores, data, plain_scores
    return {}


def label_metrics(labels: np.ndarray, data: MultilabelDataset) -> dict[str, float]:
    """`compare_labels` of learned labels `[n, classes]`, a positive mass from 0 to 1."""
    return compare_labels(labels - 0.5, data)


def label_gradient_metrics(gradients: np.ndarray, data: MultilabelDataset) -> dict[str, float]:
    """None: no method for several labels has such gradients."""
    del gradients, data
    return {}


def with_prior_error(estimates: dict[str, float], data: MultilabelDataset) -> dict[str, float]:
    """The estimates as they are: there is one share of positives per class."""
    del data
    return estimates


def figure_points(
    train_scores: np.ndarray, data: MultilabelDataset
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, true classes and known positives of the training labels, one point each."""
    return train_scores.ravel(), data.truth.ravel(), data.labeled.ravel() == 1


def describe(config: ml_collections.FrozenConfigDict, data: MultilabelDataset, device: str) -> str:
    """The counts printed at the start; `device` is what they are computed on."""
    info, counts = data.info, data.counts()
    lines = [
        f"{config.method.name} on {info.name} (multi-label), {device}",
        f"  {counts['train']} training and {counts['test']} test examples, "
        f"{counts['classes']} classes; known_ratio {info.known_ratio:g}",
        f"  known positives {counts['labeled']}, known negatives {counts['labeled_negatives']}, "
        f"unknown {counts['unlabeled']} ({summary.hidden_positives(counts)})",
    ]
    for name, value in methods.from_labels(config, data.labeled).items():
        lines.append(f"  method.{name}={config.method[name]} is {value:.4f}, by the known labels")
    lines += [f"  {sentence}" for sentence in methods.label_warnings(config, data.labeled)]
    empty = _empty(data, data.labeled)
    if empty:
        lines.append(f"  no known positive in {_classes(empty)}: {_some(empty, data)}")
    if copies := _copies(data):
        lines.append(f"  warning: {copies.sentence}")
    return "\n".join(lines)


def summarize(
    config: ml_collections.FrozenConfigDict,
    method: Method,
    final: Final,
    data: MultilabelDataset,
    rows: list[dict[str, Any]],
    mesh: Mesh,
) -> dict[str, Any]:
    """Gathers everything that `summary.json` holds; arguments as in `binary.summarize`."""
    info, copies = data.info, _copies(data)
    return {
        **summary.identity(config, method, info.name, rows),
        "setting": "multilabel",
        "known_ratio": info.known_ratio,
        "counts": data.counts(),
        "threshold": config.run.threshold,
        "test": final.test,
        "test_copies": copies and copies.numbers(),
        "classes": by_class(final.test_scores, data),
        # Chosen on test labels, so never the result: the protocol of the authors' code.
        "oracle_best_epoch": best(rows, alternatives=tuple(method.alternatives or ())),
        "train": {
            "labels_from": "predictions",
            **compare_labels(final.train_scores - special.logit(config.run.threshold), data),
        },
        "estimates": methods.from_labels(config, data.labeled),
        "predicts_one_class": _sides(final, config.run.threshold),
        "warnings": [
            *warnings(final, data, config.run.threshold),
            *methods.label_warnings(config, data.labeled),
            *summary.diagnosis(method, final),
        ],
        **summary.costs(rows, mesh),
    }


def by_class(scores: np.ndarray, data: MultilabelDataset) -> dict[str, dict[str, float]]:
    """Average precision and counts of every class; NaN where the test set has no positive."""
    precisions = metrics.average_precisions(scores, data.test_labels)
    known, tested = (data.labeled == 1).sum(0), data.test_labels.sum(0)
    return {
        name: {
            "average_precision": float(precisions[i]) if tested[i] else float("nan"),
            "known_positives": int(known[i]),
            "test_positives": int(tested[i]),
        }
        for i, name in enumerate(data.info.class_names)
    }


def best(rows: Sequence[Mapping[str, Any]], *, alternatives: Sequence[str] = ()) -> dict[str, Any]:
    """The largest value of each test metric over epochs and alternatives, each chosen for itself.

    Args:
      rows: one per epoch.
      alternatives: of the method, for example 'raw'.

    Returns:
      `test_*` for every metric, and the `epoch` of the largest mean average precision, the first
      of several.
    """
    result: dict[str, Any] = {"epoch": None}
    for name in _CHOSEN:
        columns = [f"test_{name}", *(f"test_{prefix}_{name}" for prefix in alternatives)]
        values = [(row.get(column), row["epoch"]) for row in rows for column in columns]
        known: list[tuple[Any, Any]] = [pair for pair in values if pair[0] is not None]
        value, epoch = max(known, key=lambda pair: pair[0], default=(None, None))
        result[f"test_{name}"] = value
        if name == MAIN:
            result["epoch"] = epoch
    return result


def warnings(final: Final, data: MultilabelDataset, threshold: float) -> list[str]:
    """Sentences about an implausible result; usually none.

    Args:
      final: evaluation of the reported state.
      data: the problem.
      threshold: probability from which on a label is predicted.
    """
    sentences = []
    for part, side in _sides(final, threshold).items():
        if side is not None:
            word = {"positive": "present", "negative": "absent"}[side]
            sentences.append(f"every label of every {part} example is predicted {word}")
    names = data.info.class_names
    constant = [name for name, x in zip(names, final.test_scores.T, strict=True) if np.ptp(x) == 0]
    if constant and len(final.test_scores) > 1:
        which = f"{_classes(constant)}: {_some(constant, data)}"
        sentences.append(f"all test scores are equal in {which}")
    unknown = _empty(data, data.labeled)
    if unknown:
        sentences.append(f"no known positive in {_classes(unknown)}: {_some(unknown, data)}")
    empty = _empty(data, data.test_labels)
    if empty:
        s = "s" * (len(empty) == 1)  # of the verbs
        sentences.append(
            f"no test positive in {_classes(empty)}, which count{s} as average precision 0 and "
            f"leave{s} CR and CF1 undefined: {_some(empty, data)}"
        )
    if copies := _copies(data):
        sentences.append(copies.sentence)
    return sentences


def _sides(final: Final, threshold: float) -> dict[str, str | None]:
    cut = special.logit(threshold)
    return one_class.sides(test=final.test_scores - cut, training=final.train_scores - cut)


def table_row(result: dict[str, Any]) -> dict[str, Any]:
    """One line of the final table."""
    test = result["test"]
    value = test[MAIN]
    return {
        "method": result["method"] + summary.remark(result),
        "test mAP": None if value is None else f"{100 * value:.2f} %",
        "OF1": test["overall_f1"],
        "CF1": test["class_f1"],
        summary.RECOVERED: summary.recovered(result),
    }


def _copies(data: MultilabelDataset) -> raw.SharedRows | None:
    """The test examples that are also training examples, of a user's own."""
    return data.own.test_copies if data.own else None


def _empty(data: MultilabelDataset, labels: np.ndarray) -> list[str]:
    """Names of the classes without a positive."""
    return [data.info.class_names[i] for i in raw.empty_classes(labels)]


def _classes(names: Sequence[str]) -> str:
    """How many classes."""
    return f"{len(names)} class{'es' * (len(names) != 1)}"


def _some(names: Sequence[str], data: MultilabelDataset, most: int = 5) -> str:
    """The first few names; a number alone, where labels have no names, would look like a count."""
    shown = ", ".join(names[:most]) + (", ..." if len(names) > most else "")
    if list(data.info.class_names) == [str(i) for i in range(len(data.info.class_names))]:
        return f"label{'s' * (len(names) != 1)} number {shown} (the first is number 0)"
    return shown
