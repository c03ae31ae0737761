"""Reads the cells of CSV and TSV files as text, with the line of every row."""

import csv
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pujax import reading
from pujax.data.readers import columns, packed, written_numbers


def read(path: str) -> tuple[Any, np.ndarray, str]:
    """Reads a header and the records below it.

    Args:
      path: of the file, which may be packed.

    Returns:
      `(table, lines, delimiter)`: a pandas DataFrame of text `[n, columns]`; int64 `[n]`, the line
      of the file in which a record begins; what separates the cells.

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
    except pd.errors.ParserError as error:
        raise ValueError(f"{path} cannot be read ({reading.one_line(error)})") from error
    if len(table) != len(lines):
        raise _quotes(path, len(lines), len(table))
    return table, lines, delimiter


def read_chunks(path: str, num_rows: int) -> Iterator[tuple[Any, np.ndarray, int]]:
    """`read`, some rows at a time, so that no more of the file is in memory.

    Args:
      path: of the file, which may be packed.
      num_rows: of a chunk; the last may have fewer.

    Yields:
      `(table, lines, place)`: the former as `read`, and bytes of the file that were read so far; 0
      of a packed one, where they say nothing.

    Raises:
      ValueError: as `read`, when the place in the file is reached.
    """
    import pandas as pd

    _, is_packed = packed.split(path)
    try:
        with packed.open_text(path) as file:
            header, delimiter, _ = next(_records(path, file))
        with packed.open_text(path) as scanned, packed.open_text(path) as file:
            lines = (line for *_, line in _records(path, scanned) if line)
            options: dict[str, Any] = {"names": header, "header": 0, "index_col": False}
            options |= {"sep": delimiter, "dtype": "str", "na_filter": False}
            tables = pd.read_csv(file, chunksize=num_rows, **options)
            num_read = 0
            while True:
                # The scan is first: it finds what is wrong, and pandas may not.
                starts = np.array(list(itertools.islice(lines, num_rows)), np.int64)
                table = next(tables, None)
                size = 0 if table is None else len(table)
                if size != len(starts):
                    counts = len(starts) + sum(1 for _ in lines), size + sum(map(len, tables))
                    raise _quotes(path, *(num_read + count for count in counts))
                if table is None:
                    return
                num_read += size
                place = 0 if is_packed else scanned.buffer.tell()
                yield table.reset_index(drop=True), starts, place
    except UnicodeDecodeError as error:
        raise ValueError(packed.encoding_error(path)) from error
    except pd.errors.ParserError as error:
        raise ValueError(f"{path} cannot be read ({reading.one_line(error)})") from error


def without_zeros(path: str, lines: Iterable[str]) -> Iterator[str]:
    """The lines, unless one holds a zero byte, which is no text and would be part of a word.

    Args:
      path: for messages.
      lines: of the file.

    Raises:
      ValueError: naming file, line and character.
    """
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise ValueError(
                f"{path}, line {number}, character {line.index(chr(0)) + 1} is a zero byte; "
                "accepted: text in UTF-8 (a file in UTF-16 is full of them; save it with this "
                "encoding)"
            )
        yield line


def delimiter_of(header: str) -> str:
    """What separates the cells of a file: what its first line has most of.

    What stands in quotes does not count. Of as many semicolons as commas the semicolons separate,
    since names may have commas. A bar counts only where there is nothing else, since it also
    separates words within a cell.
    """
    plain = re.sub(r'"[^"]*"', "", header)
    usual = max(";,\t" if ";" in plain else ",\t", key=plain.count)
    return "|" if usual not in plain and "|" in plain else usual


def hint(content: bytes) -> str:
    """What to add where a file that cannot be read as svmlight looks like a table; may be ''.

    Args:
      content: of the file, unpacked.
    """
    first = content[:4096].split(b"\n", 1)[0].decode("utf-8", "replace")
    if first.startswith("#") or ":" in first or delimiter_of(first) not in first:
        return ""
    return "; if line 1 is the header of a table, give the file a name that ends in .csv"


def unreadable(place: str, error: csv.Error) -> str:
    """What to say of a record that the csv module refuses.

    Args:
      place: file and line where the record begins.
      error: the module's.
    """
    if "field limit" in str(error):
        return (
            f"{place} has a cell of more than {csv.field_size_limit()} characters; accepted: "
            "shorter cells, and a quote at the end of each cell that begins with one"
        )
    return (
        f"{place} cannot be read ({error}); accepted: quotes around whole cells only, doubled "
        "within them"
    )


def _quotes(path: str, scanned: int, read: int) -> ValueError:
    return ValueError(
        f"{path} has {scanned} or {read} rows, depending on how its quotes are read; "
        "accepted: quotes around whole cells only, doubled within them"
    )


def _scan(path: str, file: Any) -> tuple[list[str], str, np.ndarray]:
    """Header, delimiter and first line of every record; see `_records`."""
    records = _records(path, file)
    header, delimiter, _ = next(records)
    return header, delimiter, np.array([line for *_, line in records], np.int64)


def _records(path: str, file: Any) -> Iterator[tuple[list[str], str, int]]:
    """Header, delimiter and first line of every record, if each has as many cells as the header.

    The header itself comes first, with line 0. pandas fills up short records without a word, and it
    does not know their lines.
    """
    lines = without_zeros(path, file)
    first = next(lines, "")
    delimiter = delimiter_of(first)
    reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    start, is_empty = 1, True
    try:
        for record in reader:
            if header is None:
                header = _header(path, first, [columns.plain(name) for name in record])
                yield header, delimiter, 0
            # A blank line is a record without cells, and so is one of spaces for pandas. An empty
            # cell in quotes is a cell.
            elif len(record) > 1 or record == [""] or any(cell.strip() for cell in record):
                if len(record) != len(header):
                    raise ValueError(
                        f"{path}, line {start} has {len(record)} cells; accepted: {len(header)}, "
                        "as the header has"
                    )
                is_empty = False
                yield header, delimiter, start
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(unreadable(f"{path}, line {start}", error)) from error
    if is_empty:
        raise ValueError(f"{path} has no rows below the header; accepted: at least one")


def _header(path: str, line: str, names: list[str]) -> list[str]:
    """The names of the columns, unless line 1 is one of numbers."""
    whole = [name.lstrip("+-").isdigit() for name in names]
    numbers = [_is_number(name) for name in names]
    fractions = [is_one and not is_whole for is_one, is_whole in zip(numbers, whole, strict=True)]
    if not any(names) or all(numbers) or any(fractions):
        hint = ""
        if any(fractions) and not all(numbers):
            name = names[fractions.index(True)]
            hint = f" (if {name!r} is one, write it as 'x{name}', or give the table as Parquet)"
        raise ValueError(
            f"{path}, line 1 is {line.strip()[:60]!r}; accepted: a header with the names of the "
            f"columns{hint}"
        )
    # As pandas writes and reads a column without a name, such as the numbers of the rows.
    names = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
    columns.check_names(path, names)
    return names


def _is_number(name: str) -> bool:
    number = written_numbers.plain(name)
    return number is not None and math.isfinite(number)
