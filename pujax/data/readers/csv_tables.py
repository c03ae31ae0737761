"""Reads the text of CSV and TSV files: a header, numbers, and words as columns of 0 and 1."""

import csv
import math
from typing import NamedTuple, TextIO

import numpy as np

from pujax.data.readers import columns, separated, written_numbers

_MAX_CATEGORIES = 50
"""Distinct words of a column above which they are taken for names or dates, not for categories."""


_MISSING = ("", "?", "na", "n/a", "#n/a", "nan", "null", "none", "missing")
"""What stands for a missing number, in lower case."""


class Lines(NamedTuple):
    """The text of one file.

    Attributes:
      path: for messages.
      header: names of the columns.
      rows: cells of every example.
      numbers: line of the file of every example, that of the header is 1.
      delimiter: what separates the cells.
    """

    path: str
    header: list[str]
    rows: list[list[str]]
    numbers: list[int]
    delimiter: str


def lines(path: str, file: TextIO) -> Lines:
    """Splits a file into cells, see `separated.delimiter_of`.

    Args:
      path: for messages.
      file: opened with `newline=""`.

    Raises:
      ValueError: naming the file, without a header or examples, or where a line is too short.
    """
    text = separated.without_zeros(path, file)
    first = next(text, "")
    delimiter = separated.delimiter_of(first)
    header: list[str] = []
    numbered: list[tuple[list[str], int]] = []
    start = 1
    try:
        header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        start = 2
        for row in reader:
            if row:
                numbered.append((row, start))
            start = reader.line_num + 2  # the header is one
    except csv.Error as error:
        raise ValueError(separated.unreadable(f"{path}, line {start}", error)) from error
    if len(header) < 2 or all(_number(name) is not None for name in header):
        raise ValueError(
            f"{path} begins with {first.strip()[:60]!r}; accepted: a header with the names of at "
            "least one feature and the label"
        )
    if len(set(header)) < len(header):
        name = next(name for name in header if header.count(name) > 1)
        raise ValueError(f"{path} has two columns {name!r}; accepted: names that differ")
    for row, number in numbered:
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {number}, has {len(row)} cells; accepted: {len(header)}, as the "
                "header has"
            )
    rows, numbers = [row for row, _ in numbered], [number for _, number in numbered]
    if not rows:
        raise ValueError(f"{path} has no examples; accepted: at least one line below the header")
    return Lines(path, header, rows, numbers, delimiter)


def numbers(
    files: list[Lines], label: str | None, unknown: int
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """The cells of files with the same columns as numbers.

    Args:
      files: what `lines` returned, of one header. The first has the training rows, which say what a
        column holds.
      label: name of the label's column; None is the last.
      unknown: label of an empty cell.

    Returns:
      `(features [n, d], labels [n], names)` of the examples of all files, one after another.

    Raises:
      ValueError: naming the file and column that cannot be numbers.
    """
    path, header = ", ".join(file.path for file in files), files[0].header
    places = [(file.path, number) for file in files for number in file.numbers]
    if label is not None and label not in header:
        raise ValueError(f"label is {label!r}; accepted: {columns.listed(header, most=20)}")
    label = header[-1] if label is None else label
    rows = [row for file in files for row in file.rows]
    labels, features = np.zeros(0), []
    names: list[str] = []
    for name, column in zip(header, zip(*rows, strict=True), strict=True):
        cells = [cell.strip() for cell in column]
        if name == label:
            labels = _label_column(path, name, cells, unknown)
        else:
            marks = _marks(cells[: len(files[0].rows)], files[0].delimiter)
            values, added = _column(places, name, cells, len(files[0].rows), marks)
            features.append(values)
            names += added
    return np.concatenate(features, axis=1), labels, tuple(names)


def _number(text: str, marks: str = "") -> float | None:
    """The number of a cell, None if it is none; see `_marks`."""
    if marks:
        value = written_numbers.value(text, marks)
        return None if math.isnan(value) else value
    return written_numbers.plain(text)


def _marks(cells: list[str], delimiter: str) -> str:
    """How the numbers of a column are written, one of `written_numbers.MARKS`.

    '' is a decimal point alone, as it is where there are words and where two ways are possible.
    """
    present = [cell for cell in cells if cell.lower() not in _MISSING]
    if all(_number(cell) is not None for cell in present):
        return ""
    return written_numbers.of(present, decimal_comma=delimiter != ",").marks


def _label_column(path: str, name: str, cells: list[str], unknown: int) -> np.ndarray:
    values = [float(unknown) if cell == "" else _number(cell) for cell in cells]
    if None in values:
        raise ValueError(
            f"{path}: column {name!r} is taken for the label and holds "
            f"{cells[values.index(None)]!r}; accepted: 1, 0, -1 or nothing in its cells, or the "
            "name of another column"
        )
    return np.array(values)


def _column(
    places: list[tuple[str, int]], name: str, cells: list[str], num_training: int, marks: str
) -> tuple[np.ndarray, list[str]]:
    """One column as numbers `[n, 1]`, or as 0 and 1 for each word of its training rows.

    A word that none of these has is 0 throughout.

    Args:
      places: file and line of every cell.
      name: of the column.
      cells: its text.
      num_training: how many of them, the first, are of training rows.
      marks: how these write numbers, see `_marks`.
    """
    values = [None if cell.lower() in _MISSING else _number(cell, marks) for cell in cells]
    words = {cell for cell, value in zip(cells, values, strict=True) if value is None}
    infinite = next((i for i, x in enumerate(values) if x is not None and math.isinf(x)), None)
    if infinite is not None:
        path, line = places[infinite]
        raise ValueError(
            f"{path}, line {line}: column {name!r} holds {cells[infinite]!r}; accepted: finite "
            "numbers"
        )
    if not words:
        return np.array(values)[:, None], [name]
    missing = {word for word in words if word.lower() in _MISSING}
    if missing == words:
        path, line = places[next(i for i, cell in enumerate(cells) if cell in missing)]
        mark = next(cell for cell in cells if cell in missing)
        raise ValueError(
            f"{path}, line {line}: column {name!r} holds {mark!r}; accepted: numbers throughout "
            "(fill in or drop what is missing)"
        )
    if None not in values[:num_training]:
        path, line = places[values.index(None)]
        raise ValueError(
            f"{path}, line {line}: column {name!r} holds {cells[values.index(None)]!r}; accepted: "
            "a number, as in all training rows"
        )
    distinct = np.unique(cells[:num_training])
    if len(distinct) > _MAX_CATEGORIES:
        first = next(i for i, value in enumerate(values) if value is None)
        path, line = places[first]
        raise ValueError(
            f"{path}, line {line}: column {name!r} holds {cells[first]!r}, one of {len(distinct)} "
            f"different words; accepted: numbers, or at most {_MAX_CATEGORIES} words (drop names, "
            "dates and ids)"
        )
    table = np.array(cells)[:, None] == distinct
    return table.astype(np.float64), [f"{name}={word}" for word in distinct]
