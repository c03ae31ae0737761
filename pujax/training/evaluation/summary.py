"""What a run reports at its end: `summary.json` and the rows of the final table."""

import platform
import resource
import statistics
import sys
from typing import Any

import flax
import jax
import jaxlib
import ml_collections
import numpy as np
from jax.sharding import Mesh

import pujax
from pujax import metrics
from pujax.data.pu_dataset import PUDataset
from pujax.data.splits import labeling_mechanisms
from pujax.methods.base import Method
from pujax.training.evaluation import evaluator, model_selection
from pujax.training.evaluation.evaluator import Final

RECOVERED = "hidden positives recovered"
COLUMNS = ("method", "test accuracy", "F1", "AUC", "AP", RECOVERED)


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
    by_prediction = evaluator.compare_labels((final.train_scores > 0).astype(np.float32), data)
    tested = [row for row in rows if row.get("test_accuracy") is not None]
    best = max(tested, key=lambda row: row["test_accuracy"], default={})
    return {
        **identity(config, method, info.name, rows),
        "setting": info.setting,
        "counts": data.counts(),
        "prior": info.prior,
        "prior_source": info.prior_source,
        "prior_interval": data.prior_interval,
        "prior_unlabeled": info.prior_unlabeled,
        "labeling": data.labeling._asdict(),
        "test": final.test,
        # Chosen on test labels, so never the result: it says how much choosing could give.
        "oracle_best_epoch": {key: best.get(key) for key in ("epoch", "test_accuracy")},
        "train": {
            "labels_from": "learned labels" if final.labels else "predictions",
            **(final.labels or by_prediction),
            "prediction_accuracy": by_prediction["label_accuracy"],
        },
        "estimates": final.estimates,
        "warnings": warnings(final, rows, config.run.selection) + diagnosis(method, final),
        **costs(rows, mesh),
    }


def identity(
    config: ml_collections.FrozenConfigDict,
    method: Method,
    dataset: str,
    rows: list[dict[str, Any]],
) -> dict[str, Any]:
    """What was trained on what, and which epoch is reported; of every kind of problem."""
    return {
        "method": config.method.name,
        "oracle": bool(method.reveals),
        "reveals": method.reveals,
        "dataset": dataset,
        "seed": config.seed,
        "num_epochs": len(rows),
        "selection": model_selection.describe(rows, config.run.selection),
        "selections": model_selection.table(rows),
    }


def costs(rows: list[dict[str, Any]], mesh: Mesh) -> dict[str, Any]:
    """Time, memory, versions and device of a run."""
    speeds = [row["examples_per_second"] for row in rows if row["stage"] == rows[-1]["stage"]]
    return {
        "undone_steps": sum(row.get("nonfinite") or 0 for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
        "examples_per_second": statistics.median(speeds),
        "peak_memory_bytes": peak_memory(),
        "versions": versions(),
        "device": device(mesh),
    }


def describe(config: ml_collections.FrozenConfigDict, data: PUDataset, device: str) -> str:
    """The counts printed at the start; `device` is what they are computed on."""
    info, counts = data.info, data.counts()
    interval = ""
    if data.prior_interval:
        interval = ", 90 % interval {:.4f} to {:.4f}".format(*data.prior_interval)
    lines = [f"  labeling {describe_labeling(data.labeling)}"]
    if counts["validation"]:
        lines.append(
            f"  validation {counts['validation']} ({counts['validation_labeled']} labeled), "
            f"selection by {config.run.selection}"
        )
    return (
        f"{config.method.name} on {info.name} ({info.setting}), {device}\n"
        f"  labeled positives {counts['labeled']}, unlabeled {counts['unlabeled']} "
        f"({counts['hidden_positives']} hidden positives), support {counts['support']} "
        f"({counts['support_positives']} positive), test {counts['test']} "
        f"({counts['test_positives']} positive)\n"
        f"  prior {info.prior:.4f} ({info.prior_source}{interval}), in U "
        f"{info.prior_unlabeled:.4f}\n" + "\n".join(lines)
    )


def warnings(final: Final, rows: list[dict[str, Any]], rule: str) -> list[str]:
    """Sentences about a result that should not be taken at face value; mostly there are none.

    Args:
      final: evaluation of the reported state.
      rows: one dict per epoch.
      rule: the selection rule.
    """
    found = []
    for name, scores in (("test", final.test_scores), ("training", final.train_scores)):
        if metrics.predicts_one_class(scores):
            side = "positive" if np.all(scores > 0) else "negative"
            found.append(f"every {name} example is predicted {side} at the reported epoch")
    if model_selection.choose(rows, rule) is None:
        found.append(f"run.selection={rule!r} had no value at any epoch; the last is reported")
    return found


def diagnosis(method: Method, final: Final) -> list[str]:
    """What the method itself says against its final estimates."""
    return method.diagnose(final.estimates) if method.diagnose else []


def describe_labeling(report: labeling_mechanisms.Report) -> str:
    """One line on how the labelled positives were chosen."""
    within = " within class" if report.within_class else ""
    text = f"{report.mechanism}{within}, c {report.c:.4f}"
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


def peak_memory() -> int:
    """Peak bytes on the first device where it keeps count, else of this process."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage: bytes on macOS, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    return {
        "pujax": pujax.__version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "flax": flax.__version__,
        "numpy": np.__version__,
    }


def device(mesh: Mesh) -> str:
    """Kind and number of devices, for example '8 x NVIDIA H200'."""
    return f"{mesh.size} x {mesh.devices.flat[0].device_kind}"


def table_row(summary: dict[str, Any]) -> dict[str, Any]:
    """One line of the final table; a number that is undefined is left to the table's dash."""
    test = summary["test"]
    accuracy = test["accuracy"]
    return {
        "method": summary["method"] + remark(summary),
        "test accuracy": None if accuracy is None else f"{100 * accuracy:.2f} %",
        "F1": test["f1"],
        "AUC": test["auc"],
        "AP": test["average_precision"],
        RECOVERED: recovered(summary),
    }


def recovered(summary: dict[str, Any]) -> str:
    """How many hidden positives a result calls positive."""
    train = summary["train"]
    found, hidden = train["recovered_positives"], train["hidden_positives"]
    share = f" ({100 * found / hidden:.1f} %)" if hidden else ""
    return f"{found:.0f} / {hidden:.0f}{share}"


def remark(summary: dict[str, Any]) -> str:
    """Marks results that used true labels."""
    if summary["oracle"]:
        return " (true labels)"
    return " (oracle epoch)" if summary["selection"]["is_oracle"] else ""
