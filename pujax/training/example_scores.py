"""Scores of every example at the reported epoch, which a run leaves for `pujax report`.

`scores.npz` has an array per field of `ExampleScores`; what a run does not know is left out. It is
of problems with one label per example.
"""

import dataclasses
import io
import os
from typing import Any

import numpy as np

from pujax import calibration, reading
from pujax.data.pu_dataset import PUDataset
from pujax.files import replacing
from pujax.training.evaluation.summary import Final

FILE = "scores.npz"
_INTEGERS, _NUMBERS = "iu", "iufb"
"""Kinds of NumPy's types."""


@dataclasses.dataclass(frozen=True)
class ExampleScores:
    """What a run says of every example.

    Attributes:
      train_scores: float32 `[n]`, of P and U.
      train_labeled: bool `[n]`, True for a labelled positive.
      train_truth: int8 `[n]`, true classes, 1, 0 or -1 where unknown.
      train_ids: int64 `[n]`, rows of the source's training set.
      held_scores: float32 `[v]`, of the validation set; `v` may be 0, as may `t` below.
      held_labeled: bool `[v]`.
      held_truth: int8 `[v]`.
      held_ids: int64 `[v]`.
      test_scores: float32 `[t]`.
      test_labels: int8 `[t]`, true classes.
      train_probabilities: `[n]`, of rows of U with these scores; `[0]` without a calibration.
      held_probabilities: `[v]`, likewise.
      test_probabilities: `[t]`, of rows of the population.
      map_rows: int64 `[m]`, training examples of the maps of the representation.
      map_pca: float32 `[m, 2]`, their principal components.
      map_tsne: float32 `[m, 2]`, or `[0, 2]` where it is not drawn.
      map_remark: why it is not drawn, or ''.
    """

    train_scores: np.ndarray
    train_labeled: np.ndarray
    train_truth: np.ndarray
    train_ids: np.ndarray
    held_scores: np.ndarray
    held_labeled: np.ndarray
    held_truth: np.ndarray
    held_ids: np.ndarray
    test_scores: np.ndarray
    test_labels: np.ndarray
    train_probabilities: np.ndarray
    held_probabilities: np.ndarray
    test_probabilities: np.ndarray
    map_rows: np.ndarray
    map_pca: np.ndarray
    map_tsne: np.ndarray
    map_remark: str = ""


def write(
    folder: str,
    data: PUDataset,
    final: Final,
    *,
    learned: calibration.Calibration | None = None,
    maps: dict[str, Any] | None = None,
) -> None:
    """Writes `scores.npz` atomically; the same run writes the same bytes.

    Args:
      folder: of the run.
      data: the PU problem, truth included.
      final: evaluation of the reported state.
      learned: from scores to probabilities, where there is a calibration.
      maps: `map_*` fields, where the representation was drawn.
    """
    held = np.zeros(0, np.float32) if final.held_scores is None else final.held_scores
    arrays: dict[str, Any] = {
        "train_scores": final.train_scores.astype(np.float32),
        "train_labeled": data.labeled,
        "train_truth": data.truth.astype(np.int8),
        "train_ids": data.source_ids.astype(np.int64),
        "held_scores": held.astype(np.float32),
        "held_labeled": data.validation_labeled,
        "held_truth": data.validation_truth.astype(np.int8),
        "held_ids": data.validation_ids.astype(np.int64),
        "test_scores": final.test_scores.astype(np.float32),
        "test_labels": data.test_labels.astype(np.int8),
    }
    for part in ("train", "held", "test") if learned is not None else ():
        scores = arrays[f"{part}_scores"]
        if len(scores) and np.isfinite(scores).all():
            assert learned is not None
            arrays[f"{part}_probabilities"] = calibration.probabilities(
                learned, scores, unlabeled_only=part != "test"
            ).astype(np.float32)
    arrays |= {name: np.asarray(value) for name, value in (maps or {}).items()}
    content = io.BytesIO()
    np.savez_compressed(content, **{name: x for name, x in arrays.items() if x.size})
    with replacing(os.path.join(folder, FILE)) as file:
        file.write(content.getbuffer())


def read(folder: str | os.PathLike) -> ExampleScores | None:
    """Reads what `write` wrote; None where the run wrote nothing.

    Raises:
      ValueError: naming the file, if it is not what was written.
    """
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return None
    try:
        arrays: dict[str, Any] = reading.read_npz(path)
        return _checked(arrays)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); accepted: the file as written") from error


def _checked(arrays: dict[str, Any]) -> ExampleScores:
    """The fields, each of the right number of rows; an absent one has none."""
    names = [field.name for field in dataclasses.fields(ExampleScores)]
    found = {name: arrays.get(name, np.zeros([0, 2][: 1 + _is_map(name)])) for name in names}
    found["map_remark"] = str(arrays.get("map_remark", ""))
    for name in ("train_labeled", "held_labeled"):
        found[name] = found[name].astype(bool)
    for name, array in found.items():
        if name == "map_remark":
            continue
        kinds = _INTEGERS if name.endswith(("_ids", "_rows", "_truth", "_labels")) else _NUMBERS
        if array.size and array.dtype.kind not in kinds:
            raise ValueError(f"{name} holds {array.dtype}, which are no numbers of its kind")
        shape = array.shape[1:]
        if shape != ((2,) if _is_map(name) else ()):
            raise ValueError(f"{name} has shape {array.shape}")
        part = name.split("_")[0]
        counts = {len(found["map_rows" if part == "map" else f"{part}_scores"])}
        if name.endswith("_probabilities") or name in ("map_tsne", "held_ids"):
            counts.add(0)
        if len(array) not in counts:
            raise ValueError(f"{name} has {len(array)} rows and others of its part {counts}")
    for name, least in (("test_labels", 0), ("train_truth", -1), ("held_truth", -1)):
        if len(found[name]) and not (least <= found[name].min() and found[name].max() <= 1):
            raise ValueError(f"{name} holds other classes than 1, 0 and, where unknown, -1")
    rows = found["map_rows"] = found["map_rows"].astype(np.int64)
    if len(rows) and not (rows.min() >= 0 and rows.max() < len(found["train_scores"])):
        raise ValueError("map_rows holds rows that there are not")
    return ExampleScores(**found)


def _is_map(name: str) -> bool:
    return name in ("map_pca", "map_tsne")
