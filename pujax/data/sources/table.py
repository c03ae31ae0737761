"""Your own table of numbers: `train.csv` and `test.csv`, or the same as TSV, NPZ or svmlight."""

import pathlib

import numpy as np

from pujax.data import raw
from pujax.data.readers import columns, download, tables

ENDINGS = (".csv", ".tsv", ".tab", ".npz", ".svm", ".svmlight", ".libsvm", ".txt", ".data")
CLASS_NAMES = ("negative", "positive")


def load(directory: pathlib.Path, *, label_column: str = "") -> raw.RawDataset:
    """Reads a training and a test file of the same columns; see `tables.read_together`.

    In the training file the label 1 is a known positive, 0 a known negative, and -1 or an empty
    cell an example of unknown class, which goes to U in every split. The test file is
    what results are measured on, so each of its labels is 1 or 0. Numbers become float32, less a
    constant where training rows are large for how little they differ, see `columns.offsets`; mean
    and deviation are those of the training rows, labelled or not.

    Args:
      directory: folder with `train.ENDING` and `test.ENDING`, or with `table/`; ENDING is one of
        `ENDINGS`, and `.gz`, `.bz2` or `.xz` may follow.
      label_column: name of the label's column in CSV and TSV files; '' is the last.

    Returns:
      A `RawDataset` of a table, with the classes 0 (negative) and 1 (positive).

    Raises:
      MissingDataError: a file is missing.
      ValueError: a file cannot be read, or a label or number is not accepted.
    """
    for root in (directory, directory / "table"):
        files = [_find(root, split) for split in ("train", "test")]
        paths = [path for path in files if path is not None]
        if len(paths) == 2:
            break
    else:
        raise download.MissingDataError(
            f"cannot find train.ENDING and test.ENDING in {directory} or {directory / 'table'}, "
            f"with ENDING one of {', '.join(ENDINGS)}; pass the folder that holds them as "
            "--config.data.dir",
            reason="not found",
        )
    train, test = tables.read_together(paths, label=label_column or None)
    unknown = int((test.labels == raw.UNKNOWN).sum())
    if unknown:
        raise ValueError(
            f"{paths[1]} has the label -1, or none, in {unknown} rows; accepted: 1 (positive) or 0 "
            "(negative) in every row of a test set"
        )
    # A number too large for float32 becomes infinite, which `raw.check` refuses by name.
    with np.errstate(over="ignore", invalid="ignore"):
        offsets = columns.offsets(train.features.min(axis=0), train.features.max(axis=0))
        rows = [(part.features - offsets).astype(np.float32) for part in (train, test)]
        mean, std = raw.feature_statistics(rows[0])
    return raw.RawDataset(
        name="table",
        train_inputs=rows[0],
        train_labels=train.labels,
        test_inputs=rows[1],
        test_labels=test.labels,
        class_names=CLASS_NAMES,
        mean=mean,
        std=std,
        known_at_random=False,
    )


def _find(root: pathlib.Path, split: str) -> pathlib.Path | None:
    """The one file of a split."""
    names = [split + ending + packed for ending in ENDINGS for packed in ("", ".gz", ".bz2", ".xz")]
    paths = [root / name for name in names if (root / name).is_file()]
    if len(paths) > 1:
        raise ValueError(f"{root} holds {', '.join(p.name for p in paths)}; accepted: one of them")
    return paths[0] if paths else None
