"""Tables of the UCI repository: one comma-separated file without a header, a class in every row."""

import lzma
import os
import pathlib
import zlib
from typing import NamedTuple

import numpy as np

from pujax import reading
from pujax.data import absent, raw
from pujax.data.readers import download, holdout, packed

_ENDINGS = ("", ".gz", ".bz2", ".xz")
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)


class UciSource(NamedTuple):
    """What distinguishes one table from another.

    Attributes:
      name: source name.
      file: name of its one file.
      page: where it is described and to be had.
      num_features: columns beside the class.
      class_column: 0 where the class comes first, -1 where it comes last.
      codes: how the file writes every class, in the order of their ids.
      counts: rows of every class.
      class_names: of the classes.
    """

    name: str
    file: str
    page: str
    num_features: int
    class_column: int
    codes: tuple[str, ...]
    counts: tuple[int, ...]
    class_names: tuple[str, ...]


def without_data(source: UciSource, *, test_fraction: float) -> raw.RawDataset:
    """The table without its numbers; `load` tells about `test_fraction`."""
    test = [holdout.size(count, test_fraction) for count in source.counts]
    train = [count - held for count, held in zip(source.counts, test, strict=True)]
    return absent.one_class(
        source.name, (source.num_features,), train=train, test=test, class_names=source.class_names
    )


def load(
    source: UciSource, directory: pathlib.Path, *, test_fraction: float, seed: int = 0
) -> raw.RawDataset:
    """Reads a table as float32 and holds a test set apart.

    Args:
      source: which table.
      directory: folder with the file, or with a folder of the source's name.
      test_fraction: share of each class in the test set, rounded down per class.
      seed: chooses another test set.

    Returns:
      A `RawDataset`; mean and deviation are those of its training rows.

    Raises:
      MissingDataError: the file is missing; the page publishes no checksum, so it is not
        downloaded.
      ValueError: it is damaged, or does not hold the rows that it should.
    """
    inputs, labels = _read(source, _find(source, directory))
    held = holdout.is_test(labels, test_fraction=test_fraction, seed=seed)
    mean, std = raw.feature_statistics(inputs[~held])
    return raw.RawDataset(
        name=source.name,
        train_inputs=inputs[~held],
        train_labels=labels[~held],
        test_inputs=inputs[held],
        test_labels=labels[held],
        class_names=source.class_names,
        mean=mean,
        std=std,
    )


def _find(source: UciSource, directory: pathlib.Path) -> str:
    for base in (directory, directory / source.name):
        for ending in _ENDINGS:
            path = base / (source.file + ending)
            if path.is_file():
                return os.fspath(path)
    raise download.MissingDataError(
        f"cannot find {source.file} (plain, .gz, .bz2 or .xz) in {directory} or "
        f"{directory / source.name}; get it from {source.page} and put it there",
        reason="not found",
    )


def _read(source: UciSource, path: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and class ids."""
    try:
        with packed.open_text(path) as stream:
            lines = stream.read().split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(packed.encoding_error(path)) from error
    except _DAMAGE as error:
        raise ValueError(f"{path} is damaged or truncated: {reading.one_line(error)}") from error
    ids = {code: k for k, code in enumerate(source.codes)}
    rows = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    inputs = np.empty([len(rows), source.num_features], np.float32)
    labels = np.empty(len(rows), np.int32)
    for row, (number, line) in enumerate(rows):
        cells = line.split(",")
        code = cells.pop(source.class_column).strip()
        where = f"{path}, line {number}"
        if len(cells) != source.num_features:
            raise ValueError(
                f"{where} has {len(cells)} features; accepted: {source.num_features}, as published"
            )
        if code not in ids:
            raise ValueError(f"{where} has the class {code!r}; accepted: {', '.join(source.codes)}")
        labels[row] = ids[code]
        try:
            inputs[row] = np.asarray(cells, np.float32)
        except ValueError as error:
            raise ValueError(f"{where} holds no numbers: {reading.one_line(error)}") from error
    counts = tuple(np.bincount(labels, minlength=len(ids)).tolist())
    if counts != source.counts:
        raise ValueError(
            f"{path} has {', '.join(map(str, counts))} rows of its classes; accepted: "
            f"{', '.join(map(str, source.counts))}, as published"
        )
    return inputs, labels
