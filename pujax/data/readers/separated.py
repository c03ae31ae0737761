"""Reads the cells of CSV and TSV files as text, with the line of every row."""

import csv
import itertools
from typing import Any

import numpy as np

from pujax.data.readers import columns, packed


def read(path: str) -> tuple[Any, np.ndarray]:
    """Reads a header and the records below it.

    Args:
      path: of the file, which may be packed.

    Returns:
      `(table, lines)`: a pandas DataFrame of text `[n, columns]`; int64 `[n]`, the line of the file
      in which a record begins.

    Raises:
      ValueError: in one line, naming file, line and column.
    """
    import pandas as pd

    try:
        with packed.open_text(path) as file:
            header, delimiter, lines = _scan(path, file)
        with packed.open_text(path) as file:
            table = pd.read_csv(
                file,
                sep=delimiter,
                names=header,
                header=0,
                index_col=False,
                dtype="str",
                na_filter=False,
            )
    except UnicodeDecodeError as error:
        raise ValueError(packed.encoding_error(path)) from error
    if len(table) != len(lines):
        raise ValueError(
            f"{path} has {len(lines)} or {len(table)} rows, depending on how its quotes are read; "
            "accepted: quotes around whole cells only, doubled within them"
        )
    return table, lines


def _scan(path: str, file: Any) -> tuple[list[str], str, np.ndarray]:
    """Header, delimiter and first line of every record, if each has as many cells as the header.

    pandas fills up short records without a word, and it does not know their lines.
    """
    first = file.readline()
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(itertools.chain([first], file), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    starts, start = [], 1
    try:
        for record in reader:
            if header is None:
                header = _header(path, first, [name.strip() for name in record])
            # A blank line is a record without cells, and so is one of spaces for pandas.
            elif len(record) > 1 or any(cell.strip() for cell in record):
                if len(record) != len(header):
                    raise ValueError(
                        f"{path}, line {start} has {len(record)} cells; accepted: {len(header)}, "
                        "as the header has"
                    )
                starts.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {start} cannot be read ({error}); accepted: quotes around whole cells "
            "only, doubled within them"
        ) from error
    if header is None or not starts:
        raise ValueError(f"{path} has no rows below the header; accepted: at least one")
    return header, delimiter, np.array(starts, np.int64)


def _header(path: str, line: str, names: list[str]) -> list[str]:
    """The names of the columns, unless line 1 is one of numbers."""
    whole = [name.lstrip("+-").isdigit() for name in names]
    numbers = [_is_number(name) for name in names]
    fractions = [is_one and not is_whole for is_one, is_whole in zip(numbers, whole, strict=True)]
    if not any(names) or all(numbers) or any(fractions):
        raise ValueError(
            f"{path}, line 1 is {line.strip()[:60]!r}; accepted: a header with the names of the "
            "columns"
        )
    # As pandas writes and reads a column without a name, such as the numbers of the rows.
    names = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
    columns.check_names(path, names)
    return names


def _is_number(name: str) -> bool:
    try:
        return np.isfinite(float(name))
    except ValueError:
        return False
