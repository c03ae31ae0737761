"""Reads two tables of numbers of the same columns: svmlight, CSV or TSV, and NumPy archives.

A label is 1 for a labelled positive. What the others mean is for the caller to say: 0 and -1 are
handed on as they are, and a cell that is empty is -1.
"""

import lzma
import os
import zipfile
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pujax import reading
from pujax.data.raw import UNKNOWN
from pujax.data.readers import csv_tables, packed

_SEPARATED_ENDINGS = (".csv", ".tsv", ".tab")
_MAX_VALUES = 2**30
"""Values of a dense table, 8 GiB of them."""
_ARRAYS = ("positives", "unlabeled"), ("x", "labeled")
_FORMATS = ".csv and .tsv with a header, .npz, and svmlight; all but .npz also .gz, .bz2 or .xz"


class Table(NamedTuple):
    """A table of numbers and its labels.

    Attributes:
      features: float64 `[n, d]`, finite.
      labels: int32 `[n]`, 1, 0 or -1 as in the file; -1 where its cell is empty.
      names: of the `d` features.
    """

    features: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]


def read_together(paths: Sequence[str | os.PathLike], *, label: str | None = None) -> list[Table]:
    """Reads files of one format and the same columns, for example a training and a test set.

    The ending of the name says what a file is:
    - `.csv`, `.tsv`: a header, then one example per line; commas, semicolons or tabs. A column with
      words becomes one column of 0 and 1 per word that the first of the files has.
    - `.npz`: `positives [m, ...]` and `unlabeled [n, ...]`, or `x [n, ...]` and `labeled [n]`.
    - anything else: svmlight, `LABEL INDEX:VALUE ...`.

    Args:
      paths: the files.
      label: name of the label's column in CSV and TSV; None is the last.

    Returns:
      One `Table` per file, all of the same features.

    Raises:
      ValueError: naming the file, and what in it cannot be read.
    """
    return _read_together([os.fspath(path) for path in paths], label)


def _read_together(paths: list[str], label: str | None) -> list[Table]:
    for path in paths:
        if not os.path.isfile(path):
            raise ValueError(f"{path} is no file; accepted: {_FORMATS}")
    kind = _kind(paths[0])
    for path in paths:
        if _kind(path) != kind:
            raise ValueError(f"{path} is {_kind(path)}; accepted: {kind}, as {paths[0]} is")
    if label is not None and kind != "separated":
        raise ValueError(f"label is {label!r}; accepted: a name only with .csv and .tsv ({kind})")
    try:
        if kind == "separated":
            tables = _separated_values(paths, label)
        else:
            tables = _archives(paths) if kind == "npz" else _svmlight(paths)
    except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError, zlib.error) as error:
        reason = reading.one_line(error)
        raise ValueError(f"{', '.join(paths)} cannot be read ({reason})") from error
    for path, table in zip(paths, tables, strict=True):
        _check(path, table)
    return tables


def _kind(path: str) -> str:
    ending = os.path.splitext(packed.split(path)[0])[1]
    return (
        "npz" if ending == ".npz" else "separated" if ending in _SEPARATED_ENDINGS else "svmlight"
    )


def _check(path: str, table: Table) -> None:
    """Raises a ValueError for numbers and labels that no table may have."""
    if not table.features.size:
        raise ValueError(f"{path} has shape {table.features.shape}; accepted: at least one number")
    bad = np.argwhere(~np.isfinite(table.features))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"{path}: {table.names[column]!r} of example {row + 1} is "
            f"{table.features[row, column]}; accepted: finite numbers"
        )


def _labels(path: str, values: np.ndarray) -> np.ndarray:
    bad = values[~np.isin(values, (-1, 0, 1))]
    if len(bad):
        raise ValueError(
            f"{path} has the label {bad[0]:g}; accepted: 1 (labelled positive), 0, -1 or none"
        )
    return values.astype(np.int32)


def _svmlight(paths: list[str]) -> list[Table]:
    from sklearn import datasets  # where it is needed: it loads for a second

    files = []
    try:
        for path in paths:
            files.append(packed.open_binary(path))
        parts = datasets.load_svmlight_files(files)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{', '.join(paths)} cannot be read as svmlight "
            f"({reading.one_line_of_text(error)}); accepted: {_FORMATS}"
        ) from error
    finally:
        for file in files:
            file.close()
    tables = []
    for path, sparse, labels in zip(paths, parts[::2], parts[1::2], strict=True):
        _check_size(path, *sparse.shape)
        names = tuple(str(i + 1) for i in range(sparse.shape[1]))
        tables.append(Table(sparse.toarray(), _labels(path, labels), names))
    return tables


def _check_size(path: str, rows: int, columns: int) -> None:
    if rows * columns > _MAX_VALUES:
        raise ValueError(
            f"{path} has {rows} x {columns} values; accepted: at most {_MAX_VALUES}, since a table "
            "is held dense"
        )
    try:
        remedy = "save it as .npz, or leave out columns"
        reading.check_size(path, 8 * rows * columns, f"{rows} x {columns} numbers", remedy=remedy)
    except ValueError as error:
        raise ValueError(f"{path} is held dense: {error}") from error


def _archives(paths: list[str]) -> list[Table]:
    tables = []
    for path in paths:
        pair, (first, second) = _arrays(path)
        if pair == _ARRAYS[0]:
            if first.shape[1:] != second.shape[1:]:
                raise ValueError(
                    f"{path}: unlabeled has shape {second.shape}; accepted: "
                    f"[n, {', '.join(map(str, first.shape[1:]))}], as positives has"
                )
            labels = np.repeat(np.array([1, UNKNOWN], np.int32), [len(first), len(second)])
            first = np.concatenate([first, second])
        else:
            if second.shape != first.shape[:1]:
                raise ValueError(
                    f"{path}: labeled has shape {second.shape}; accepted: {first.shape[:1]}, one "
                    "number per row of x"
                )
            labels = _labels(path, second.astype(np.float64))
        if not first.size:
            raise ValueError(f"{path} holds {first.shape}; accepted: at least one number")
        features = first.reshape(len(first), -1).astype(np.float64)
        names = tuple(str(i + 1) for i in range(features.shape[1]))
        tables.append(Table(features, labels, names))
    if len({table.names for table in tables}) > 1:
        raise ValueError(f"{', '.join(paths)} have different numbers of features; accepted: one")
    return tables


def _arrays(path: str) -> tuple[tuple[str, str], list[np.ndarray]]:
    """Names of the two arrays of an archive, and these, real numbers with at least one axis."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is no archive; accepted: what numpy.savez writes")
    try:
        held = reading.npz_names(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error})") from error
    names = next((pair for pair in _ARRAYS if set(pair) <= set(held)), None)
    if names is None:
        accepted = " or ".join(f"{a!r} and {b!r}" for a, b in _ARRAYS)
        raise ValueError(f"{path} holds {sorted(held)}; accepted: {accepted}")
    try:
        arrays = list(reading.read_npz(path, names).values())
    except ValueError as error:  # of Python objects, or cut short
        raise ValueError(
            f"{path}: {' or '.join(names)} cannot be read ({error}); accepted: real numbers"
        ) from error
    for name, array in zip(names, arrays, strict=True):
        if array.dtype.kind not in "fiub" or not array.ndim:
            raise ValueError(
                f"{path}: {name} is {array.dtype} of shape {array.shape}; accepted: real numbers, "
                "one entry per example"
            )
    return names, arrays


def _separated_values(paths: list[str], label: str | None) -> list[Table]:
    files = []
    for path in paths:
        with packed.open_text(path) as file:
            files.append(csv_tables.lines(path, file))
        if files[-1].header != files[0].header:
            raise ValueError(
                f"{path} has the columns {files[-1].header}; accepted: {files[0].header}, as "
                f"{paths[0]} has"
            )
    features, labels, names = csv_tables.numbers(files, label, UNKNOWN)
    ends = np.cumsum([len(file.rows) for file in files])[:-1]
    parts = zip(paths, np.split(features, ends), np.split(labels, ends), strict=True)
    return [Table(x, _labels(path, y), names) for path, x, y in parts]
