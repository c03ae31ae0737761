"""What every run reports at its end, whatever its task: parts of `summary.json` and the table."""

import datetime
import platform
import statistics
import sys
from typing import Any, NamedTuple

import flax
import jax
import jaxlib
import ml_collections
import numpy as np
from jax.sharding import Mesh

import pujax
from pujax.methods.base import Method
from pujax.training.evaluation import model_selection

RECOVERED = "hidden positives recovered"
LEARNED = "learned labels"


class Final(NamedTuple):
    """Evaluation of the state that a run reports.

    Attributes:
      test: metrics on the test set, empty where there is none.
      test_scores: `[t]` or `[t, classes]`, scores of the test examples.
      train_scores: `[n]` or `[n, classes]`, scores of the training examples.
      embeddings: `[m, dim]` of the training examples that figures show, or None where there are
        none.
      labels: learned labels against the hidden truth, empty where the method learns none.
      estimates: what the method estimated itself, and its error where the truth is known.
      held_scores: `[v]`, scores of the validation set, or None without one.
    """

    test: dict[str, float]
    test_scores: np.ndarray
    train_scores: np.ndarray
    embeddings: np.ndarray | None
    labels: dict[str, float]
    estimates: dict[str, float]
    held_scores: np.ndarray | None = None


def identity(
    config: ml_collections.FrozenConfigDict,
    method: Method,
    dataset: str,
    rows: list[dict[str, Any]],
) -> dict[str, Any]:
    """What was trained on what, and which epoch is reported; of every kind of problem."""
    handed_on = model_selection.handed_on(rows, method.stages)
    return {
        "method": config.method.name,
        "oracle": bool(method.reveals),
        "reveals": method.reveals,
        "dataset": dataset,
        "seed": config.seed,
        "num_epochs": len(rows),
        "selection": model_selection.describe(rows, config.run.selection),
        "selections": model_selection.table(rows),
    } | ({"handed_on": handed_on} if handed_on else {})


def costs(rows: list[dict[str, Any]], mesh: Mesh) -> dict[str, Any]:
    """Time, memory, versions and device of a run."""
    speeds = [row["examples_per_second"] for row in rows if row["stage"] == rows[-1]["stage"]]
    return {
        "undone_steps": sum(row.get("nonfinite") or 0 for row in rows),
        "finished_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": sum(row["seconds"] for row in rows),
        "examples_per_second": statistics.median(speeds),
        "peak_memory_bytes": peak_memory(),
        "versions": versions(),
        "device": device(mesh),
    }


def diagnosis(method: Method, final: Final) -> list[str]:
    """What the method itself says against its final estimates."""
    return method.diagnose(final.estimates) if method.diagnose else []


def peak_memory() -> int | None:
    """Peak bytes on the first device where it keeps count, else of this process.

    None on Windows, where Python does not tell that of a process.
    """
    stats = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return int(stats["peak_bytes_in_use"])
    try:
        import resource
    except ImportError:  # Windows
        return None
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


def label_match(called: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """How well predicted labels match hidden ones.

    Args:
      called: bool, which hidden labels are predicted positive.
      true: bool, which are.

    Returns:
      `label_accuracy` and `label_precision` (of those called positive), NaN over none;
      `recovered_positives` and `hidden_positives`, counts.
    """
    recovered_positives = float(np.sum(called & true))
    return {
        "label_accuracy": float(np.mean(called == true)) if len(called) else float("nan"),
        "label_precision": (
            recovered_positives / float(called.sum()) if called.any() else float("nan")
        ),
        "recovered_positives": recovered_positives,
        "hidden_positives": float(true.sum()),
    }


def unknown_match() -> dict[str, float]:
    """What `label_match` returns where labels are hidden and the truth of none is known: NaN."""
    return dict.fromkeys(label_match(np.zeros(1, bool), np.ones(1, bool)), float("nan"))


def hidden_positives(counts: dict[str, Any]) -> str:
    """How many positives are hidden, as far as the classes of the unlabeled examples are known."""
    unknown, hidden = counts["unlabeled_without_truth"], counts["hidden_positives"]
    if hidden is None:
        return "hidden positives unknown"
    return f"{hidden} hidden positives" + (f", {unknown} of unknown class" if unknown else "")


def recovered(result: dict[str, Any]) -> str | None:
    """How many hidden positives a result calls positive; None where no class in U is known.

    Those that a method has learned labels for while it trained are marked: other methods' are
    counted by the predictions of the network.
    """
    train = result["train"]
    count, hidden = train["recovered_positives"], train["hidden_positives"]
    if hidden is None:
        return None
    share = f" ({100 * count / hidden:.1f} %)" if hidden else ""
    learned = f", {LEARNED}" if train.get("labels_from") == LEARNED else ""
    return f"{count:.0f} / {hidden:.0f}{share}{learned}"


def remark(result: dict[str, Any]) -> str:
    """Marks results that used true labels."""
    if result["oracle"]:
        return " (true labels)"
    return " (oracle epoch)" if result["selection"]["is_oracle"] else ""
