"""Problems with one label per example: what they are compared with, and what a run says of them."""

import math
from typing import Any

import ml_collections
import numpy as np
from jax.sharding import Mesh

from pujax import metrics
from pujax.audit.label_counts import FEW as FEW_LABELS
from pujax.console import plural
from pujax.data.pu_dataset import PUDataset
from pujax.data.splits import labeling_mechanisms
from pujax.methods.base import Method
from pujax.training.evaluation import model_selection, one_class, summary
from pujax.training.evaluation.summary import Final

_NAMES_SHOWN = 10
COLUMNS = ("method", *(x.heading for x in model_selection.BINARY.values()), summary.RECOVERED)


def test_metrics(
    scores: np.ndarray, labels: np.ndarray, *, threshold: float = 0.5
) -> dict[str, float]:
    """Metrics on a test set; positive iff score > 0.

    Args:
      scores: `[t]`, raw scores.
      labels: `[t]`, true labels.
      threshold: has no effect with one label per example.

    Returns:
      The metrics `model_selection.BINARY`, and the share `predicted_positive`.
    """
    del threshold
    names = model_selection.BINARY_METRICS
    result = {name: float(getattr(metrics, name)(scores, labels)) for name in names}
    return result | {"predicted_positive": float(np.mean(scores > 0))}


def validation_metrics(
    scores: np.ndarray, data: PUDataset, *, plain_scores: np.ndarray | None = None
) -> dict[str, float]:
    """The criteria of every selection rule on a problem's validation set, see `model_selection`.

    Args:
      scores: `[v]`, raw scores of `data.validation_inputs`.
      data: the PU problem.
      plain_scores: `[v]`, scores before the method calibrates them; None if it does not.

    Returns:
      The columns `model_selection.COLUMNS`, and the share `val_predicted_positive`.
    """
    criteria = model_selection.criteria(
        scores,
        data.validation_labeled,
        data.validation_truth,
        prior=data.validation_prior(),
        setting=data.info.setting,
        plain_scores=plain_scores,
    )
    return criteria | {"val_predicted_positive": float(np.mean(scores > 0))}


def with_prior_error(estimates: dict[str, float], data: PUDataset) -> dict[str, float]:
    """Adds how far an estimated share of positives in U is from the true one.

    Args:
      estimates: what a method estimates; nothing is added without an `estimated_prior`.
      data: the PU problem.

    Returns:
      The estimates, with `prior_error`, the absolute difference, where the truth of all of U is
      known.
    """
    truth = data.truth[~data.labeled]
    if "estimated_prior" not in estimates or not len(truth) or (truth < 0).any():
        return estimates
    return estimates | {"prior_error": abs(estimates["estimated_prior"] - float(truth.mean()))}


def compare_labels(labels: np.ndarray, data: PUDataset) -> dict[str, float]:
    """How well labels of U (positive iff above one half) match the hidden truth.

    Args:
      labels: `[n]`, positive mass or probability.
      data: the PU problem.

    Returns:
      `label_accuracy` over the unlabeled examples of known class, `recovered_positives` and
      `hidden_positives` (counts), `label_precision` of the examples called positive; all NaN where
      the class of no unlabeled example is known.
    """
    rows = _hidden(data)
    if data.hidden().any() and not rows.any():
        return summary.unknown_match()
    return summary.label_match(labels[rows] > 0.5, data.truth[rows] == 1)


def label_metrics(labels: np.ndarray, data: PUDataset) -> dict[str, float]:
    """`compare_labels` of learned labels `[n]`, and their mean squared error, `label_mse`."""
    return compare_labels(labels, data) | {"label_mse": _mean_square(labels, data)}


def label_gradient_metrics(gradients: np.ndarray, data: PUDataset) -> dict[str, float]:
    """How often gradients of learned labels point to the true class, and how often by their size.

    Args:
      gradients: `[n]`, above 0 where a label is drawn towards positive; 0 is no gradient.
      data: the PU problem.

    Returns:
      `label_gradient_agreement`, the share of unlabeled examples of known class whose gradient
      has the sign of the truth, and the same of each quarter by size as
      `label_gradient_agreement_q1` (smallest) to `label_gradient_agreement_q4`; NaN over none.
      Empty where the class of no unlabeled example is known.
    """
    rows = _hidden(data)
    if not rows.any():
        return {}
    gradients, truth = gradients[rows], data.truth[rows]
    given = gradients != 0
    order = np.argsort(np.abs(gradients[given]), kind="stable")
    agrees = ((gradients > 0) == (truth == 1))[given][order]
    parts = {"": agrees}
    parts |= {f"_q{i}": part for i, part in enumerate(np.array_split(agrees, 4), start=1)}
    return {
        f"label_gradient_agreement{name}": float(part.mean()) if len(part) else float("nan")
        for name, part in parts.items()
    }


def figure_points(
    train_scores: np.ndarray, data: PUDataset
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, true classes and labels of the training examples, one point each."""
    return train_scores, data.truth, data.labeled


def _hidden(data: PUDataset) -> np.ndarray:
    """Mask of examples with a hidden label whose true class is known."""
    return data.hidden() & (data.truth >= 0)


def _mean_square(labels: np.ndarray, data: PUDataset) -> float:
    """Mean squared error of soft labels of U against the truth (LaGAM Fig. 4)."""
    rows = _hidden(data)
    return float(np.mean((labels[rows] - data.truth[rows]) ** 2)) if rows.any() else float("nan")


def describe(config: ml_collections.FrozenConfigDict, data: PUDataset, device: str) -> str:
    """The counts printed at the start; `device` is what they are computed on."""
    info, counts = data.info, data.counts()
    interval = ""
    if data.prior_interval:
        interval = ", 90 % interval {:.4f} to {:.4f}".format(*data.prior_interval)
    prior = "prior unknown"
    if math.isfinite(info.prior):
        prior = f"prior {info.prior:.4f} ({info.prior_source}{interval}), in U "
        prior += f"{info.prior_unlabeled:.4f}"
    test = "no test set"
    if counts["test"]:
        test = f"test {counts['test']} ({counts['test_positives']} positive)"
    lines = [f"  labeling {describe_labeling(data.labeling)}"]
    if any(data.class_sides):
        sides = (_some(names) or "unlabeled examples only" for names in data.class_sides)
        lines.insert(0, "  positive: {}; negative: {}".format(*sides))
    if counts["validation"]:
        lines.append(
            f"  validation {counts['validation']} ({counts['validation_labeled']} labeled), "
            f"selection by {config.run.selection}"
        )
    return (
        f"{config.method.name} on {info.name} ({info.setting}), {device}\n"
        f"  labeled positives {counts['labeled']}, unlabeled {counts['unlabeled']} "
        f"({summary.hidden_positives(counts)}), support {counts['support']} "
        f"({counts['support_positives']} positive), {test}\n"
        f"  {prior}\n" + "\n".join(lines)
    )


def _some(names: tuple[str, ...]) -> str:
    """The first names of a list that may be long."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def summarize(
    config: ml_collections.FrozenConfigDict,
    method: Method,
    final: Final,
    data: PUDataset,
    rows: list[dict[str, Any]],
    mesh: Mesh,
) -> dict[str, Any]:
    """Gathers everything that `summary.json` holds.

    Args:
      config: resolved configuration.
      method: what was trained.
      final: evaluation of the reported state, that of the epoch that `run.selection` chooses.
      data: the PU problem, truth included.
      rows: one dict per epoch, as in `metrics.jsonl`.
      mesh: devices.

    Returns:
      A dict that JSON can hold.
    """
    info = data.info
    by_prediction = compare_labels((final.train_scores > 0).astype(np.float32), data)
    stage = method.stages[-1]
    tested = [row for row in rows if row.get("test_accuracy") is not None]
    best = max(tested, key=lambda row: row["test_accuracy"], default={})
    copies = data.own.test_copies if data.own else None
    return {
        **summary.identity(config, method, info.name, rows),
        "setting": info.setting,
        "counts": data.counts(),
        "prior": info.prior,
        "prior_source": info.prior_source,
        "prior_interval": data.prior_interval,
        "prior_choice": data.prior_choice and data.prior_choice._asdict(),
        "prior_unlabeled": info.prior_unlabeled,
        "labeling": data.labeling._asdict(),
        "test": final.test,
        "test_copies": copies and copies.numbers(),
        # Chosen on test labels, so never the result: it says how much choosing could give.
        "oracle_best_epoch": {key: best.get(key) for key in ("epoch", "test_accuracy")},
        "train": {
            "labels_from": summary.LEARNED if final.labels else "predictions",
            **(final.labels or by_prediction),
            "prediction_accuracy": by_prediction["label_accuracy"],
        },
        "estimates": final.estimates,
        "predicts_one_class": _sides(final),
        # Epochs in which a run fell into one class, whichever epoch is reported.
        "one_class": [period._asdict() for period in one_class.periods(rows)],
        "warnings": [
            *warnings(final, rows, config.run.selection),
            *model_selection.by_few_positives(
                rows, method.stages, config.run.selection, int(data.validation_labeled.sum())
            ),
            *one_class.warnings(rows, config.method, stage.batching),
            *_few_labels(data),
            *([copies.sentence] if copies else []),
            *summary.diagnosis(method, final),
        ],
        **summary.costs(rows, mesh),
    }


def warnings(final: Final, rows: list[dict[str, Any]], rule: str) -> list[str]:
    """Sentences about an implausible result; usually none.

    Args:
      final: evaluation of the reported state.
      rows: one dict per epoch.
      rule: the selection rule.
    """
    sentences = []
    for part, side in _sides(final).items():
        if side is not None:
            sentences.append(f"every {part} example is predicted {side} at the reported epoch")
    without = rows[-1].get("batches_without_positives") or 0
    if without:
        sentences.append(
            f"{without} batches of the last epoch held no labelled positive and taught only about "
            "unlabeled examples; method.batching='separate', where a method has it, or a larger "
            "method.batch_size avoids that"
        )
    if model_selection.choose(rows, rule) is None:
        sentences.append(f"run.selection={rule!r} had no value at any epoch; the last is reported")
    return sentences


def _few_labels(data: PUDataset) -> list[str]:
    """A sentence about one's own rows with few labels; those of benchmarks are meant to be few."""
    held = int(data.validation_labeled.sum())
    count = data.info.sample_labeled + held
    if data.own is None or count >= FEW_LABELS:
        return []
    return [
        f"{plural(count, 'labelled positive')}, {held} of them held out, are too few to judge a "
        f"result by; label at least {FEW_LABELS}, and until then read rankings only"
    ]


def _sides(final: Final) -> dict[str, str | None]:
    return one_class.sides(test=final.test_scores, training=final.train_scores)


def describe_labeling(report: labeling_mechanisms.Report) -> str:
    """One line on how the labelled positives were chosen."""
    within = " within class" if report.within_class else ""
    text = f"{report.mechanism}{within}"
    text += ", c unknown" if report.c is None else f", c {report.c:.4f}"
    if report.power is not None:
        text += f", power {report.power:g}"
    if report.posterior_accuracy is not None or report.within_class:
        text += (
            f", relative e {report.e_min:.3g} / {report.e_median:.3g} / {report.e_max:.3g} "
            "(min / median / max)"
        )
    if report.posterior_accuracy is not None:
        text += f", r is right on {100 * report.posterior_accuracy:.2f} %"
    return text


def table_row(result: dict[str, Any]) -> dict[str, Any]:
    """One line of the final table; a number that is undefined is left to the table's dash."""
    shown = {name: result["test"].get(name) for name in model_selection.BINARY_METRICS}
    if shown["accuracy"] is not None:
        shown["accuracy"] = f"{100 * shown['accuracy']:.2f} %"
    return {
        "method": result["method"] + summary.remark(result),
        **{metric.heading: shown[name] for name, metric in model_selection.BINARY.items()},
        summary.RECOVERED: summary.recovered(result),
    }
