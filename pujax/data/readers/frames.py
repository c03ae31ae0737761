"""Reads one file of a user's own rows: CSV, TSV, Parquet, NumPy arrays and svmlight.

What the columns mean is for others to say: `pu_labels` reads the label and the id, and
`pujax.data.preparation` turns the rest into numbers.
"""

import contextlib
import dataclasses
import datetime
import decimal
import difflib
import functools
import io
import lzma
import math
import numbers as number_types
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pujax import reading
from pujax.checks import require
from pujax.data.readers import columns, packed, separated

FORMATS = ".csv and .tsv with a header, .parquet, .npz, .npy, and svmlight"

_KINDS = {".csv": "text", ".tsv": "text", ".tab": "text", ".parquet": "parquet", ".pq": "parquet"}
_KINDS |= {".npz": "npz", ".npy": "npy"}
_SHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_MAX_VALUES = 2**30
"""Numbers of an svmlight file once it is dense, 4 GiB of them."""
_WHOLE = 2**53
"""Up to here float64 holds every whole number."""
_NOT_SPARSE = "save it as .npy, or leave out columns"
_IN_FULL = "save it with compression='none' and use_dictionary=False"
_CELLS: tuple[type, ...] = (str, number_types.Real, decimal.Decimal, np.bool_)
_CELLS += (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)


@dataclasses.dataclass(frozen=True)
class Frame:
    """The rows of one file.

    Attributes:
      path: of the file, for messages.
      values: what features are made of: a pandas DataFrame of `n` rows whose cells are as in the
        file (text for CSV and TSV), or a finite array `[n, d]` of real numbers.
      beside: arrays `[n]` by name that are no features, such as labels in an `.npz`.
      lines: int64 `[n]`, in which line of the file a row begins; None where it has no lines.
      is_sparse: whether an absent column stands for zeros (svmlight, whose column 0 is index 0).
      decimal_comma: whether a cell '3,14' may be a number, since the cells come from text and
        something else than a comma separates them; False for chunks, as what is learned from whole
        files says how their numbers are written.
      numbers: int64 `[n]`, which row of the file each is, from 0; None where they are all of its
        rows in its order, or `lines` says where they are.
      num_before: of two arrays, positives and unlabeled rows, how many are in the first; 0 of one.
    """

    path: str
    values: Any
    beside: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    lines: np.ndarray | None = None
    is_sparse: bool = False
    decimal_comma: bool = False
    numbers: np.ndarray | None = None
    num_before: int = 0

    @property
    def num_rows(self) -> int:
        """Number of rows `n`."""
        return len(self.values)

    @property
    def is_table(self) -> bool:
        """Whether the columns have names and any kind of cells."""
        return not isinstance(self.values, np.ndarray)

    @property
    def names(self) -> tuple[str, ...]:
        """What `column` accepts: the columns of a table, then the arrays beside."""
        return (*(self.values.columns if self.is_table else ()), *self.beside)

    def place(self, row: int) -> str:
        """Where a row is in the file, for messages."""
        if self.lines is not None:
            return f"{self.path}, line {self.lines[row]}"
        number = row if self.numbers is None else self.numbers[row]
        return f"{self.path}, row {number + 1}"

    def column(self, name: str, *, field: str) -> Any:
        """The pandas Series `[n]` of one name.

        Raises:
          ValueError: naming `field`, if there is no such column; with the most similar names.
        """
        import pandas as pd

        name = columns.plain(name)
        if name in self.beside:
            return pd.Series(self.beside[name], name=name)
        if not self.is_table or name not in self.values.columns:
            similar = difflib.get_close_matches(name.lower(), [n.lower() for n in self.names])
            matches = [known for known in self.names if known.lower() in similar]
            hint = f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""
            have = columns.listed(self.names, most=20) or "none: the file holds features only"
            raise ValueError(
                f"{field} is {name!r}; accepted: a column of {self.path}{hint}: {have}"
            )
        return self.values[name]

    def take(self, rows: np.ndarray) -> "Frame":
        """The frame of these rows, in this order.

        Args:
          rows: int `[m]`.
        """
        table = self.values.iloc[rows].reset_index(drop=True) if self.is_table else None
        numbers = np.asarray(rows, np.int64) if self.numbers is None else self.numbers[rows]
        return dataclasses.replace(
            self,
            values=self.values[rows] if table is None else table,
            beside={name: array[rows] for name, array in self.beside.items()},
            lines=None if self.lines is None else self.lines[rows],
            numbers=numbers if self.lines is None else None,
        )

    def without(self, names: Iterable[str]) -> "Frame":
        """The frame without columns and arrays of these names; others may be among them."""
        names = set(names)
        values = self.values
        if self.is_table:
            values = values.loc[:, [name not in names for name in values.columns]]
        beside = {name: array for name, array in self.beside.items() if name not in names}
        return dataclasses.replace(self, values=values, beside=beside)


def read(path: str | os.PathLike, *, dtype: type = np.float32, accepted: str = FORMATS) -> Frame:
    """Reads one file; the ending of its name says what it is.

    - `.csv`, `.tsv`, `.tab`: a header in line 1, then one row per record; commas, semicolons or
      tabs, whichever the header has most of; UTF-8.
    - `.parquet`, `.pq`: columns of numbers, words, truth values and dates.
    - `.npy`: features `[n, d]`, for example embeddings; more axes are flattened. It has no labels.
    - `.npz`: `x [n, d]` and any number of arrays `[n]` beside it, such as `labels` and `ids`; or
      `positives [m, d]` and `unlabeled [n, d]`, whose labels are then beside as `labels`, and no
      other array is looked at. One number per row needs no second axis.
    - anything else: svmlight, `LABEL INDEX:VALUE ...`, with its labels beside as `labels`.

    Text and svmlight may be packed, with `.gz`, `.bz2` or `.xz` at the end of the name.

    Args:
      path: of the file.
      dtype: of svmlight's numbers, which are held dense; float64 keeps all of their digits. Other
        formats have the numbers of the file.
      accepted: formats that messages name; a file of another one is read all the same.

    Raises:
      ValueError: in one line, naming the file and, as far as they apply, line and column.
    """
    path = os.fspath(path)
    _check_file(path, accepted)
    stem, is_packed = packed.split(path)
    ending = os.path.splitext(stem)[1]
    if ending in _SHEETS:
        remedy = " (save it as CSV)" if accepted == FORMATS else ""
        raise ValueError(f"{path} is a spreadsheet; accepted: {accepted}{remedy}")
    kind = _KINDS.get(ending, "svmlight")
    require(
        not is_packed or kind in ("text", "svmlight"), "path", path, f"an unpacked .{kind} file"
    )
    readers = {"text": _text, "parquet": _parquet, "npz": _npz, "npy": _npy}
    readers["svmlight"] = functools.partial(_svmlight, dtype=dtype, accepted=accepted)
    try:
        frame = readers[kind](path)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be read ({reason}); accepted: {accepted}") from error
    return _check(frame)


def of(data: Any, *, name: str = "the table") -> Frame:
    """The frame of data in memory.

    Args:
      data: a `Frame`, which is returned as it is, a pandas DataFrame, or an array `[n, d]`.
      name: what to call it in messages.

    Raises:
      ValueError: for anything else, and as `read`.
    """
    import pandas as pd

    if isinstance(data, Frame):
        return data
    if isinstance(data, pd.DataFrame):
        return _check(Frame(name, _plain_index(data)))
    if isinstance(data, np.ndarray) and not isinstance(data, np.ma.MaskedArray):
        return _check(Frame(name, _rows(name, "the array", data)))
    raise ValueError(
        f"{name} is a {type(data).__name__}; accepted: a pandas DataFrame or a NumPy array [n, d]"
    )


def _check_file(path: str, accepted: str) -> None:
    """Raises a ValueError unless there is a file that is not empty."""
    require(path != "", "path", path, f"a file, {accepted}")
    if os.path.isdir(path):
        raise ValueError(f"{path} is a folder; accepted: a file, {accepted}")
    if not os.path.exists(path):
        parent = os.path.dirname(path)
        while parent and not os.path.exists(parent) and parent != os.path.dirname(parent):
            parent = os.path.dirname(parent)
        if os.path.isfile(parent):
            raise ValueError(f"{path} is no file, as {parent} is a file and not a folder")
        raise ValueError(f"{path} does not exist; accepted: a file, {accepted}")
    if os.path.getsize(path) == 0:
        raise ValueError(f"{path} is empty; accepted: {accepted}")


def _check(frame: Frame) -> Frame:
    """Returns the frame if it has cells, its columns differ and no number is infinite."""
    if not frame.num_rows or not frame.values.shape[1]:
        raise ValueError(f"{frame.path} has shape {frame.values.shape}; accepted: rows and columns")
    if frame.is_table:
        columns.check_names(frame.path, list(frame.values.columns))
        for name in frame.values.columns:
            _check_cells(frame, name)
        return frame
    bad = ~np.isfinite(frame.values)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        index = column if frame.is_sparse else column + 1
        raise ValueError(
            f"{frame.place(row)}, column {index} is {frame.values[row, column]}; accepted: finite "
            "numbers (only tables with a header may have missing cells)"
        )
    return frame


def _check_cells(frame: Frame, name: str) -> None:
    """Raises a ValueError for cells that are neither numbers, words nor dates, and for infinity."""
    import pandas as pd

    cells = frame.values[name]
    if cells.dtype == object:
        for row, cell in enumerate(cells):
            if cell is not None and cell is not pd.NA and not isinstance(cell, _CELLS):
                raise ValueError(
                    f"{frame.place(row)}, column {name!r} holds a {type(cell).__name__}; accepted: "
                    "numbers, words, truth values and dates"
                )
    if pd.api.types.is_complex_dtype(cells.dtype):
        raise ValueError(f"{frame.path}, column {name!r} is {cells.dtype}; accepted: real numbers")
    if isinstance(cells.dtype, pd.StringDtype):
        return  # a word, whatever it says; numbers are told from words by the training rows
    if not pd.api.types.is_float_dtype(cells.dtype) and cells.dtype != object:
        return
    values, wrong = columns.numbers(cells)
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite) and not wrong.any():
        raise ValueError(
            f"{frame.place(infinite[0])}, column {name!r} is {values[infinite[0]]}; accepted: "
            "finite numbers, or nothing where the number is unknown"
        )


def _plain_index(table: Any) -> Any:
    """A DataFrame with text as names and rows numbered from 0; an index with a name is a column.

    Raises:
      ValueError: an index has the name of a column and other cells.
    """
    for name in [name for name in table.index.names if name is not None]:
        if name in table.columns:
            cells = table.index.get_level_values(name)
            if not cells.equals(type(cells)(table[name])):
                raise ValueError(
                    f"the table has an index and a column {name!r} whose cells differ; accepted: "
                    "names that differ"
                )
            table = table.reset_index(level=name, drop=True)
    has_name = any(name is not None for name in table.index.names)
    table = table.reset_index(drop=not has_name)
    return table.set_axis([columns.plain(str(name)) for name in table.columns], axis=1)


def _text(path: str) -> Frame:
    table, lines, delimiter = separated.read(path)
    return Frame(path, table, lines=lines, decimal_comma=delimiter != ",")


def _parquet(path: str) -> Frame:
    with parquet_errors(path):
        import pyarrow.parquet as pq

        check_parquet(path)
        with pq.ParquetFile(path) as file:
            return Frame(path, table_of(file.read()))


def table_of(table: Any, index: Any = None) -> Any:
    """The DataFrame of a pyarrow Table, whose text must be UTF-8: Arrow does not look by itself.

    Args:
      table: all rows of a file, or a part of them.
      index: of a part, whose metadata speak of the whole file: see `range_index`.
    """
    import pandas as pd
    import pyarrow as pa

    table.validate(full=True)
    result = table.to_pandas()
    names = {str(name): name for name in result.columns}  # metadata may make numbers of them
    exact = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    for text, cells in zip(table.column_names, table.columns, strict=True):
        if text in names and _is_blurred(cells):
            series = cells.to_pandas(types_mapper=exact.get)
            result[names[text]] = series.set_axis(result.index)
    return _plain_index(result if index is None else result.set_axis(index))


def _is_blurred(cells: Any) -> bool:
    """Whether pandas would make float64 of whole numbers that it cannot hold, beside a null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not cells.null_count or cells.type not in (pa.int64(), pa.uint64()):
        return False
    ends = pc.min_max(cells).as_py().values()
    return any(end is not None and abs(end) > _WHOLE for end in ends)


def range_index(file: Any) -> Any:
    """The pandas RangeIndex of a ParquetFile, which has no column of it; None where there is none.

    It has no name, and so is no column, where it counts other rows than there are: pandas leaves it
    out then.
    """
    import pandas as pd

    num_rows = file.metadata.num_rows
    levels = (file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
    for level in levels:
        if isinstance(level, dict) and level.get("kind") == "range":
            steps = level["start"], level["stop"], level["step"]
            index = pd.RangeIndex(*steps, name=level["name"])
            return index if len(index) == num_rows else pd.RangeIndex(num_rows)
    return None


@contextlib.contextmanager
def parquet_errors(path: str) -> Iterator[None]:
    """Turns the errors of a damaged Parquet file into a `ValueError` of one line that names it."""
    try:
        yield
    except ImportError as error:
        raise ValueError(f"{path} needs pyarrow: pip install 'pujax[tables]'") from error
    except Exception as error:  # pyarrow's and pandas', which have no common base
        if isinstance(error, ValueError) and str(error).startswith(path):  # it is one of ours
            raise
        reason = reading.one_line(error)
        raise ValueError(f"{path} cannot be read as Parquet ({reason})") from error


def check_parquet(path: str) -> None:
    """Requires that the table of a Parquet file is in proportion to the file.

    A run of one value takes a few bytes however long it is, and so does a long text that many rows
    refer to; both are counted here without being written out.

    Args:
      path: of the file.

    Raises:
      ValueError: in one line; pyarrow's errors of a damaged file, see `parquet_errors`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        meta, fields = file.metadata, list(file.schema_arrow)
    for field in fields:
        if pa.types.is_nested(field.type):
            raise ValueError(
                f"{path}, column {field.name!r} holds a {field.type}; accepted: numbers, words, "
                "truth values and dates"
            )
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
    shape = f"{meta.num_rows} rows of {meta.num_columns} columns"
    width = sum(_bytes_of_cell(field.type) for field in fields)
    reading.check_size(path, meta.num_rows * max(width, 8), shape, remedy=_IN_FULL)
    packed_sizes = [group.column(i) for group in groups for i in range(group.num_columns)]
    unpacked = sum(column.total_uncompressed_size for column in packed_sizes)
    reading.check_size(path, unpacked, "its pages unpack to", remedy=_IN_FULL)
    needed = 0
    text = [field.name for field in fields if _is_text(field.type)]
    with pq.ParquetFile(path, read_dictionary=text) as file:
        for number, group in enumerate(groups):
            for i in range(group.num_columns):
                column = group.column(i)
                if column.path_in_schema not in text:
                    continue
                most = group.num_rows * column.total_uncompressed_size
                if needed + most <= reading.most_bytes(path):
                    needed += most
                    continue
                require(
                    "DELTA_BYTE_ARRAY" not in column.encodings,
                    f"the encoding of {column.path_in_schema!r}",
                    "DELTA_BYTE_ARRAY",
                    "plain or by a dictionary, in a file of this size",
                )
                read = file.read_row_group(number, columns=[column.path_in_schema])
                needed += sum(_written_out(part) for one in read.columns for part in one.chunks)
                what = f"the text of {column.path_in_schema!r}"
                reading.check_size(path, needed, what, remedy=_IN_FULL)


def _bytes_of_cell(kind: Any) -> int:
    """Bytes that a cell takes at least; of words, those that refer to it."""
    import pyarrow as pa

    # Of a table of many columns of ones and zeros, most are packed into next to nothing.
    is_small = pa.types.is_boolean(kind) or pa.types.is_int8(kind) or pa.types.is_uint8(kind)
    return 1 if is_small else 8


def _is_text(kind: Any) -> bool:
    """Whether cells are words or bytes of any length."""
    import pyarrow as pa

    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return any(test(kind) for test in (*tests, pa.types.is_large_binary))


def _written_out(array: Any) -> int:
    """Bytes of a column of text whose rows may refer to a dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(array.type):
        return array.nbytes
    lengths = pc.cast(pc.binary_length(array.dictionary), pa.int64())
    return pc.sum(pc.take(lengths, array.indices)).as_py() or 0


def _npy(path: str) -> Frame:
    if zipfile.is_zipfile(path):
        raise ValueError(f"{path} is an archive of arrays; accepted: the ending .npz for it")
    try:
        array = reading.read_npy(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}); accepted: real numbers") from error
    return Frame(path, _rows(path, "the array", array))


def _npz(path: str) -> Frame:
    accepted = "'x' and one entry per row in each other array, or 'positives' and 'unlabeled'"
    try:
        names = reading.npz_names(path)
        is_pair = {"positives", "unlabeled"} <= set(names) and "x" not in names
        arrays = reading.read_npz(path, ("positives", "unlabeled") if is_pair else names)
    except ValueError as error:  # Python objects, no archive
        raise ValueError(f"{path} cannot be read ({error}); accepted: {accepted}") from error
    if is_pair:
        parts = [_rows(path, name, _with_axis(array)) for name, array in arrays.items()]
        if parts[0].shape[1] != parts[1].shape[1]:
            raise ValueError(
                f"{path}: unlabeled has {parts[1].shape[1]} features; accepted: "
                f"{parts[0].shape[1]}, as positives has"
            )
        # NaN is a label that is not there, as nobody has written one.
        labels = np.repeat([1.0, np.nan], [len(part) for part in parts])
        return Frame(path, np.concatenate(parts), {"labels": labels}, num_before=len(parts[0]))
    x = arrays.pop("x", None)
    if x is None:
        raise ValueError(f"{path} holds {sorted(arrays)}; accepted: {accepted}")
    rows = _rows(path, "x", _with_axis(x))
    for name, array in arrays.items():
        if array.shape != (len(rows),) or array.dtype.kind not in "fiubUM":
            raise ValueError(
                f"{path}: {name} is {array.dtype} of shape {array.shape}; accepted: "
                f"({len(rows)},), one entry per row of x"
            )
    return Frame(path, rows, arrays)


def _with_axis(array: np.ndarray) -> np.ndarray:
    """The array with an axis of features, where it holds one number per row."""
    return array[:, None] if array.ndim == 1 else array


def _rows(path: str, name: str, array: np.ndarray) -> np.ndarray:
    """An array of real numbers as `[n, d]`."""
    if array.dtype.kind not in "fiub" or array.ndim < 2:
        raise ValueError(
            f"{path}: {name} is {array.dtype} of shape {array.shape}; accepted: real numbers of "
            "shape [n, d]"
        )
    return array.reshape(len(array), math.prod(array.shape[1:]))


def _svmlight(path: str, *, dtype: type, accepted: str) -> Frame:
    from sklearn import datasets  # where it is needed: it loads for a second

    with packed.open_binary(path) as file:
        content = file.read()
    lines = [i + 1 for i, line in enumerate(content.split(b"\n")) if line.split(b"#")[0].strip()]
    try:
        # Indices are kept as they are: "auto" would shift those of one file and not of another.
        matrix, labels = datasets.load_svmlight_file(io.BytesIO(content), zero_based=True)
    except (ValueError, OverflowError) as error:
        line, reason = _first_bad_line(content, lines, error)
        hint = separated.hint(content) if accepted == FORMATS else ""
        raise ValueError(
            f"{path}, line {line} cannot be read as svmlight ({reason}), which a file is taken for "
            f"whose name ends in no other way; accepted: {accepted}{hint}"
        ) from error
    size = matrix.shape[0] * matrix.shape[1]
    if size > _MAX_VALUES:
        raise ValueError(
            f"{path} has {matrix.shape[0]} x {matrix.shape[1]} values; accepted: at most "
            f"{_MAX_VALUES}, since a table is held dense"
        )
    try:
        what = f"{matrix.shape[0]} x {matrix.shape[1]} numbers"
        reading.check_size(path, np.dtype(dtype).itemsize * size, what, remedy=_NOT_SPARSE)
    except ValueError as error:
        raise ValueError(f"{path} is held dense: {error}") from error
    with np.errstate(over="ignore"):  # becomes infinite, which is refused by name
        dense = matrix.astype(dtype).toarray()
    return Frame(path, dense, {"labels": labels}, np.array(lines, np.int64), is_sparse=True)


def _first_bad_line(content: bytes, lines: list[int], error: Exception) -> tuple[int, str]:
    """Number of the line that cannot be read by itself, and why."""
    from sklearn import datasets

    texts = content.split(b"\n")
    for line in lines:
        try:
            datasets.load_svmlight_file(io.BytesIO(texts[line - 1]), zero_based=True)
        except (ValueError, OverflowError) as reason:
            return line, reading.one_line_of_text(reason)
    return 1, reading.one_line_of_text(error)
