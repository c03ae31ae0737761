"""Turns the columns of a table into numbers for a network, as learned on training rows.

Numbers are kept, those with a decimal comma or with thousands set apart where all cells of the
column leave no doubt (`readers.written_numbers`); words of few kinds become a column of 0 and 1
each, of many kinds about 30 numbers of their spelling; dates become year, month, day and so on
(`table_encoder`). What is missing is replaced by the median of the training rows, and a column of 0
and 1 says where it was missing. Nothing is standardised here: the run does so with the statistics
of its training rows.

A saved preparation is two files: `preparation.json`, and `encoder.skops` where there are words or
dates. The former has the SHA-256 of the latter.
"""

import dataclasses
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from pujax import files, reading
from pujax.checks import require
from pujax.data import table_encoder
from pujax.data.readers import columns, frames, written_numbers

_JSON = "preparation.json"
_FORMAT = 1
_NOTHING_LEFT = (
    "{} has no column that differs between training rows; accepted: at least one feature besides "
    "the label and the id"
)
_MANY = 20
"""Cells of a column of words that are all numbers, from which on it is another column."""
_ALMOST = 0.9
"""Share of numbers in a column of words above which it is worth a message."""
_THOUSANDS = rf"[+\-{written_numbers.MINUS}]?([1-9]\d{{0,2}}(\.\d{{3}})+|\d+)"
"""Whole numbers, whose points, if they have any, may stand between thousands."""

Kind = Literal["number", "date", "words", "codes", "dropped"]


@dataclasses.dataclass(frozen=True)
class Column:
    """What training rows say of a column.

    Attributes:
      name: of the column.
      kind: 'number'; 'date'; 'words', none of which is a number; 'codes', words of which some are
        numbers; 'dropped', which may be anything.
      date_format: as in `columns.dates`; '' for other kinds.
      had_missing: whether a training row lacks it.
      marks: of a number in text, one of `written_numbers.MARKS`; '' is a decimal point alone.
      offset: what is subtracted from numbers, and from a date's seconds since 1970, before they are
        put into single precision.
    """

    name: str
    kind: Kind
    date_format: str = ""
    had_missing: bool = False
    marks: str = ""
    offset: float = 0.0


@dataclasses.dataclass(frozen=True)
class Preparation:
    """What `fit` has learned; apply it with `transform`.

    Attributes:
      feature_names: of the `d` features.
      columns: of the table; empty where rows are arrays, which are handed on as they are.
      aside: columns that a new table may have as well, such as the label and the id.
      fill: what replaces a missing feature, per feature before `kept` is applied.
      kept: indices of the features that differ between training rows.
      first_index: of svmlight rows, 0 or 1; None for other rows.
      messages: what a person should know, one sentence each.
      encoder: skrub's TableVectorizer of words and dates; None where there are none.
      sources: the column that each of the `d` features is made of, as a name does not tell it: the
        word 'paid' of a column 'status' has the name of a column 'status_paid'. Empty in what an
        earlier version saved, and where rows are arrays.
    """

    feature_names: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    aside: tuple[str, ...] = ()
    fill: tuple[float, ...] = ()
    kept: tuple[int, ...] = ()
    first_index: int | None = None
    messages: tuple[str, ...] = ()
    encoder: Any = None
    sources: tuple[str, ...] = ()

    @property
    def takes(self) -> str:
        """What it accepts, for a person."""
        if not self.columns:
            return f"rows of {len(self.feature_names)} numbers"
        names = _listed([column.name for column in self.columns if column.kind != "dropped"])
        return f"a table with the columns {names}"

    def transform(self, rows: Any, *, dtype: type = np.float32) -> np.ndarray:
        """The features of rows, in their order; a row's features depend on no other row.

        A word that no training row has, and a missing cell, are accepted.

        Args:
          rows: `frames.Frame`, pandas DataFrame or array `[n, columns]`.
          dtype: of the result; float64 keeps all digits of numbers. All must fit into float32.

        Returns:
          `[n, d]` of that type, finite.

        Raises:
          ValueError: in one line, naming columns that are missing, extra, or hold something else
            than in training, with the line of the first such cell.
        """
        return np.concatenate(list(self.transform_parts([rows], dtype=dtype)))

    def transform_parts(
        self, parts: Iterable[Any], *, dtype: type = np.float32
    ) -> Iterator[np.ndarray]:
        """`transform` of rows that come in parts, which are parts of one table.

        Args:
          parts: each as `transform` takes it.
          dtype: as in `transform`.

        Yields:
          The features of every part.

        Raises:
          ValueError: as `transform`; what can be said of whole columns only, after the last part.
        """
        numbers: dict[str, _Numbers | None] = {}
        for part in parts:
            frame = frames.of(part)
            if not self.columns:
                yield self._array(frame, dtype)
                continue
            if not frame.is_table:
                raise ValueError(
                    f"{frame.path} holds numbers without names; accepted: a table with the columns "
                    f"{_listed([c.name for c in self.columns])}"
                )
            self._check_columns(frame)
            for column in self.columns:
                if column.kind == "words":
                    _note_numbers(frame, column, numbers)
            raw, *_ = _features(frame, self.columns, self.encoder, dtype)
            filled = np.where(np.isnan(raw), np.asarray(self.fill), raw)
            yield filled[:, list(self.kept)].astype(dtype)
        for noted in filter(None, numbers.values()):
            if noted.cells >= _MANY:
                raise noted.error

    def row_keys(self, rows: Any) -> list[bytes]:
        """What a row says, `[n]`, equal where all cells that features are made of are.

        Features are in single precision, in which times and large numbers that differ may be one.

        Args:
          rows: as `transform` takes them.

        Raises:
          ValueError: as `transform`.
        """
        frame = frames.of(rows)
        if not frame.is_table:
            values = np.ascontiguousarray(frame.values, np.float64) + 0.0  # -0 is 0
            return [row.tobytes() for row in values]
        self._check_columns(frame)
        parts = []
        for column in self.columns:
            cells = frame.values[column.name] if column.kind != "dropped" else None
            if column.kind == "number":
                parts.append((columns.numbers(cells, column.marks)[0] + 0.0).tolist())
            elif column.kind == "date":
                values, _ = columns.dates(cells, column.date_format)
                parts.append(values.astype("int64").tolist())
            elif cells is not None:
                parts.append(columns.text(cells).fillna("").tolist())
        return [repr(row).encode() for row in zip(*parts, strict=True)]

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the preparation into an existing folder; each file is replaced atomically.

        Raises:
          ValueError: `encoder` holds types that `load` would not create.
        """
        record = None if self.encoder is None else table_encoder.save(self.encoder, folder)
        fields = [field.name for field in dataclasses.fields(self) if field.name != "encoder"]
        document: dict[str, Any] = {"format": _FORMAT, "encoder": record}
        document |= {name: getattr(self, name) for name in fields}
        document["columns"] = [dataclasses.asdict(column) for column in self.columns]
        files.write_json(os.path.join(folder, _JSON), document)

    def _array(self, frame: frames.Frame, dtype: type) -> np.ndarray:
        if frame.is_table:
            raise ValueError(
                f"{frame.path} is a table with named columns; accepted: {len(self.feature_names)} "
                "numbers per row, as in training (.npy, .npz or svmlight)"
            )
        values, wanted = frame.values, len(self.feature_names)
        if self.first_index is not None and frame.is_sparse:
            if self.first_index == 1 and values[:, 0].any():
                row = int(np.flatnonzero(values[:, 0])[0])
                raise ValueError(
                    f"{frame.place(row)} has index 0; accepted: 1 to {wanted}, as in training"
                )
            values = values[:, self.first_index :]
            if values.shape[1] < wanted:  # what a row of svmlight does not name is 0
                values = np.pad(values, [(0, 0), (0, wanted - values.shape[1])])
        if values.shape[1] != wanted:
            raise ValueError(
                f"{frame.path} has {values.shape[1]} features; accepted: {wanted}, as in training"
            )
        return _fitting(frame, values, self.feature_names, dtype)

    def _check_columns(self, frame: frames.Frame) -> None:
        known = {column.name for column in self.columns}
        needed = [column.name for column in self.columns if column.kind != "dropped"]
        missing = [name for name in needed if name not in frame.names]
        extra = [name for name in frame.names if name not in known | set(self.aside)]
        problems = []
        if missing:
            problems.append(f"lacks {_listed(missing)}")
        if extra:
            problems.append(f"has {_listed(extra)}, which training rows do not have")
        if problems:
            raise ValueError(
                f"{frame.path} {' and '.join(problems)}; accepted: the columns {_listed(needed)}"
                + (f", and if you like {_listed(self.aside)}" if self.aside else "")
            )


def fit(rows: Any, indices: Any = None, *, aside: Sequence[str] = ()) -> Preparation:
    """Learns from training rows how columns become features.

    A column without a cell in training rows, or with one value throughout, is left out, and
    `messages` say so. How the cells of a column are read, as numbers, dates or words, is decided by
    all rows, so that one that cannot be read is met whatever rows are drawn; nothing else depends
    on others than those of `indices`.

    Args:
      rows: `frames.Frame`, pandas DataFrame or array `[n, columns]`.
      indices: int `[m]`, the training rows; None is all.
      aside: columns that are no features, such as the label and the id. They are left out here, and
        tables to come may have them or not.

    Returns:
      A `Preparation`.

    Raises:
      ValueError: no column is left; skrub is needed and not installed; a number is too large.
    """
    frame = frames.of(rows)
    names = [name for name in frame.names if name in aside]
    frame = frame.without(names)
    if not frame.is_table:
        return dataclasses.replace(_identity(frame), aside=tuple(aside))
    training = frame if indices is None else frame.take(np.asarray(indices, np.int64))
    require(training.num_rows > 0, "indices", "empty", "at least one training row")
    found: list[Column] = []
    messages: list[str] = []
    for name in training.values.columns:
        column, *texts = _column_of(frame, training, name)
        if column.kind == "date":
            column, text = _near_zero(training, column)
            texts.append(text)
        found.append(column)
        messages += filter(None, texts)
    messages += _of_written_numbers(training, found)
    if all(column.kind == "dropped" for column in found):
        raise ValueError(_NOTHING_LEFT.format(frame.path))
    encoder = None
    if any(column.kind in ("date", "words", "codes") for column in found):
        encoder = table_encoder.fit(frame.path, _encoded(training, found))
    raw, feature_names, sources = _features(training, found, encoder, np.float32)
    fill = _medians(raw)
    filled = np.where(np.isnan(raw), fill, raw).astype(np.float32)
    kept = np.flatnonzero(filled.min(0) < filled.max(0))
    if not len(kept):
        raise ValueError(_NOTHING_LEFT.format(frame.path))
    return Preparation(
        feature_names=tuple(feature_names[i] for i in kept),
        columns=tuple(found),
        aside=tuple(aside),
        fill=tuple(fill.tolist()),
        kept=tuple(kept.tolist()),
        messages=tuple(messages),
        encoder=encoder,
        sources=tuple(sources[i] for i in kept),
    )


def load(folder: str | os.PathLike) -> Preparation:
    """Reads what `Preparation.save` wrote; warns where packages have other versions than then.

    Raises:
      ValueError: naming the file that is missing, damaged, or holds other types than skrub's.
    """
    path = os.path.join(os.fspath(folder), _JSON)
    try:
        document = reading.read_json(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); accepted: a saved one") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"{path} is no preparation of format {_FORMAT}; accepted: a saved one")
    try:
        record = document["encoder"]
        document.setdefault("sources", [])  # which earlier versions did not save
        _check_document(document)
        return Preparation(
            feature_names=tuple(document["feature_names"]),
            columns=tuple(Column(**column) for column in document["columns"]),
            aside=tuple(document["aside"]),
            fill=tuple(document["fill"]),
            kept=tuple(document["kept"]),
            first_index=document["first_index"],
            messages=tuple(document["messages"]),
            encoder=None if record is None else table_encoder.load(folder, record),
            sources=tuple(document["sources"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); accepted: a saved one") from error


def _check_document(document: dict[str, Any]) -> None:
    """Raises a TypeError for a field that holds something else than `save` writes."""

    def listed(name: str, right: Any) -> bool:
        return isinstance(document[name], list) and all(map(right, document[name]))

    def is_text(value: Any) -> bool:
        return isinstance(value, str)

    def is_column(value: Any) -> bool:
        column = Column(**value)
        words = isinstance(column.name, str) and isinstance(column.date_format, str)
        known = column.kind in get_args(Kind) and column.marks in ("", *written_numbers.MARKS)
        is_number = isinstance(column.offset, (int, float)) and abs(column.offset) < np.inf
        return words and known and is_number and isinstance(column.had_missing, bool)

    width = len(document["fill"]) if isinstance(document["fill"], list) else 0
    rights = {
        **dict.fromkeys(("feature_names", "aside", "messages", "sources"), is_text),
        "columns": is_column,
        "fill": lambda value: isinstance(value, (int, float)) and abs(value) < np.inf,
        "kept": lambda value: type(value) is int and 0 <= value < width,
    }
    wrong = [name for name, right in rights.items() if not listed(name, right)]
    if document["first_index"] not in (None, 0, 1):
        wrong.append("first_index")
    if document["columns"] and len(document["kept"]) != len(document["feature_names"]):
        wrong.append("kept")
    if document["sources"] and len(document["sources"]) != len(document["feature_names"]):
        wrong.append("sources")
    if wrong:
        raise TypeError(f"{wrong[0]} is not as it is saved")


def _identity(frame: frames.Frame) -> Preparation:
    width = frame.values.shape[1]
    if not frame.is_sparse:
        return Preparation(tuple(str(i + 1) for i in range(width)))
    # A file whose indices begin at 1 has an empty column 0.
    first = 0 if frame.values[:, 0].any() else 1
    if first == width:
        raise ValueError(f"{frame.path} has no feature; accepted: at least one that is not 0")
    return Preparation(tuple(str(i) for i in range(first, width)), first_index=first)


def _column_of(frame: frames.Frame, training: frames.Frame, name: str) -> tuple[Column, str]:
    """`_column` of training rows, read as all rows can be."""
    column, message = _column(training, name)
    if column.kind not in ("number", "date") or training is frame:
        return column, message
    whole, of_all = _column(frame, name)
    if whole.kind == "number" == column.kind and whole.marks == column.marks:
        return column, message  # whose offset is that of training rows
    return dataclasses.replace(whole, had_missing=column.had_missing), of_all


def _near_zero(training: frames.Frame, column: Column) -> tuple[Column, str]:
    """A column of dates with the offset of training rows, and what to say of it."""
    dates, _ = columns.dates(training.values[column.name], column.date_format)
    offset = columns.offset(columns.seconds(dates))
    if not offset:
        return column, ""
    message = (
        f"column {column.name!r}: {offset:.15g} is subtracted from its seconds since 1970, since "
        "single precision would not tell them apart"
    )
    return dataclasses.replace(column, offset=offset), message


def _column(frame: frames.Frame, name: str) -> tuple[Column, str]:
    """The kind of a column by its training rows, and what to say of it, which may be nothing."""
    cells = frame.values[name]
    words = columns.text(cells)
    missing = words.isna()
    if missing.all():
        return Column(name, "dropped"), f"column {name!r} is left out: empty in all training rows"
    had_missing = bool(missing.any())
    values, wrong = columns.numbers(cells)
    writing = written_numbers.Writing("", "", "")
    if wrong.any():
        present = words[columns.is_text(cells)].dropna()
        if len(present):
            writing = written_numbers.of(present, decimal_comma=frame.decimal_comma)
        if writing.marks:
            values, wrong = columns.numbers(cells, writing.marks)
    if not wrong.any():
        offset = columns.offset(values)
        with np.errstate(over="ignore"):  # refused by name when the features are made
            single = (values[~np.isnan(values)] - offset).astype(np.float32)
        if not had_missing and single.min() == single.max():
            if values.min() == values.max():
                return Column(name, "dropped"), _constant(name, words.iloc[0])
            message = f"column {name!r} is left out: its numbers differ by less than a trillionth"
            return Column(name, "dropped"), f"{message}; subtract a constant from them"
        message = ""
        if offset:
            message = (
                f"column {name!r}: {offset:.15g} is subtracted, since its numbers are large for "
                "how little they differ, and single precision would not tell them apart"
            )
        return Column(name, "number", "", had_missing, writing.marks, offset), message
    if not had_missing and words.nunique() == 1:
        return Column(name, "dropped"), _constant(name, words.iloc[0])
    formats = columns.date_formats(cells)
    if formats:
        message = ""
        if len(formats) > 1:
            example = words.dropna().iloc[0]
            message = f"column {name!r}: dates such as {example!r} are read as {formats[0]}"
        return Column(name, "date", formats[0], had_missing), message
    share = 1 - wrong.sum() / (~missing).sum()
    message = _of_almost_dates(frame, name, words)
    if columns.may_be_short_dates(words.dropna()):
        message = (
            f"column {name!r} is read as words: if cells such as {words.dropna().iloc[0]!r} are "
            "dates, they do not say which number is the year, nor its century; write years with "
            "four digits, such as 2024-01-31"
        )
    if share >= _ALMOST or written_numbers.is_likely(words.dropna()):
        shown = (words == writing.example).fillna(False) if writing.example else wrong
        row = int(np.flatnonzero(shown)[0])
        doubt = f", {writing.doubt}" if writing.doubt else ""
        message = (
            f"column {name!r} is read as words, since {frame.place(row)} holds "
            f"{words.iloc[row]!r}{doubt}; numbers have a decimal point and nothing else beside "
            "their digits, and no cell is missing but if it is empty, NA or the like: write them "
            "so, or leave the column out"
        )
    return Column(name, "codes" if share else "words", "", had_missing), message


def _of_almost_dates(frame: frames.Frame, name: str, words: Any) -> str:
    """What to say of a column of words most of which are dates; '' of any other."""
    form = columns.usual_date_format(words.dropna())
    if not form:
        return ""
    values, wrong = columns.dates(words, form)
    row, example = int(np.flatnonzero(wrong)[0]), words[values.notna()].iloc[0]
    return (
        f"column {name!r} is read as words, since {frame.place(row)} holds {words.iloc[row]!r}, "
        f"which is no date like {example!r}; correct such cells or leave them empty, or leave the "
        "column out"
    )


def _of_written_numbers(frame: frames.Frame, found: Sequence[Column]) -> list[str]:
    """What to say of numbers that have another mark than a decimal point; may be nothing."""
    import pandas as pd

    messages = []
    for marks in written_numbers.MARKS:
        names = [column.name for column in found if column.marks == marks]
        if not names:
            continue
        cells = frame.values[names[0]]
        words = columns.text(cells)[columns.is_text(cells)].dropna()
        shown = {mark for mark in marks if words.str.contains(mark, regex=False).any()}
        example = next((x for x in words if shown <= set(x)), words.iloc[0])
        number = written_numbers.value(example, marks)
        messages.append(
            f"read as numbers with {written_numbers.described(marks)}, such as {example!r} for "
            f"{number:.10g}: {_listed(names)}"
        )
    if any(column.marks.startswith(",") for column in found):
        for column in found:
            is_text = isinstance(frame.values[column.name].dtype, pd.StringDtype)
            if column.kind != "number" or column.marks or not is_text:
                continue
            words = columns.text(frame.values[column.name]).dropna()
            points = words[words.str.contains(".", regex=False)]
            if len(points) and words.str.fullmatch(_THOUSANDS).all():
                number = columns.numbers(points)[0][0]
                messages.append(
                    f"column {column.name!r} is read with a decimal point, so that "
                    f"{points.iloc[0]!r} is {number:.10g}, though other columns "
                    "have a decimal comma; if the point stands between thousands, leave it out"
                )
    return messages


def _constant(name: str, cell: str) -> str:
    return f"column {name!r} is left out: {cell!r} in all training rows"


def _encoded(frame: frames.Frame, found: Sequence[Column]) -> Any:
    """Words and dates of a frame as skrub takes them, by name."""
    import pandas as pd

    cells = {}
    for column in found:
        if column.kind == "date":
            values, wrong = columns.dates(frame.values[column.name], column.date_format)
            _check_cells(frame, column, wrong, "a date as in training rows")
            cells[column.name] = values
        elif column.kind in ("words", "codes"):
            cells[column.name] = columns.text(frame.values[column.name])
    return pd.DataFrame(cells).reset_index(drop=True)


class _Numbers(NamedTuple):
    """Cells of a column of words that are all numbers, and the error that names the first."""

    cells: int
    error: ValueError


def _note_numbers(frame: frames.Frame, column: Column, found: dict[str, _Numbers | None]) -> None:
    """Notes of a column of words whether all its cells so far are numbers; None where not."""
    name = column.name
    if name in found and found[name] is None:
        return
    present = columns.text(frame.values[name]).notna().to_numpy()
    _, wrong = columns.numbers(frame.values[name])
    before = found.get(name)
    if wrong.any():
        found[name] = None
    elif before is not None:
        found[name] = before._replace(cells=before.cells + int(present.sum()))
    elif present.any():
        try:
            _check_cells(frame, column, present, "words as in training rows")
        except ValueError as error:
            found[name] = _Numbers(int(present.sum()), error)


def _check_cells(frame: frames.Frame, column: Column, wrong: np.ndarray, accepted: str) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        cell = frame.values[column.name].iloc[row]
        shown = cell if isinstance(cell, str) else str(cell)
        raise ValueError(
            f"{frame.place(row)}, column {column.name!r} is {shown!r}; accepted: {accepted}"
        )


def _features(
    frame: frames.Frame, found: Sequence[Column], encoder: Any, dtype: type
) -> tuple[np.ndarray, list[str], list[str]]:
    """float64 `[n, all features]`, NaN where missing, their names, and the column of each.

    Numbers have the digits of `dtype`.
    """
    parts, names, sources = [], [], []
    for column in found:
        if column.kind == "number":
            values, wrong = columns.numbers(frame.values[column.name], column.marks)
            accepted = "a number as in training rows"
            if column.marks:
                accepted += f", with {written_numbers.described(column.marks)}"
            _check_cells(frame, column, wrong, accepted)
            part = _fitting(frame, values[:, None] - column.offset, [column.name], dtype)
            parts.append(part.astype(np.float64))
            names.append(f"{column.name} - {column.offset:.15g}" if column.offset else column.name)
            sources.append(column.name)
    for column in found:
        if column.had_missing and column.kind in ("number", "date"):
            gone = columns.text(frame.values[column.name]).isna().to_numpy()
            parts.append(gone[:, None].astype(np.float64))
            names.append(f"{column.name} is missing")
            sources.append(column.name)
    if encoder is not None:
        cells = _encoded(frame, found)
        values, encoded = table_encoder.transform(encoder, cells)
        sources += table_encoder.sources(encoder, encoded)
        for column in found:
            feature = f"{column.name}_total_seconds"
            if column.kind == "date" and column.offset and feature in encoded:
                i = encoded.index(feature)
                values[:, i] = columns.seconds(cells[column.name]) - column.offset
                encoded[i] = f"{feature} - {column.offset:.15g}"
        parts.append(values)
        names += encoded
    return np.concatenate(parts, axis=1), names, sources


def _fitting(
    frame: frames.Frame, values: np.ndarray, names: Sequence[str], dtype: type
) -> np.ndarray:
    """The values as `dtype`; all must fit into single precision."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    bad = np.argwhere(np.isinf(single))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"{frame.place(row)}, column {names[column]!r} is {values[row, column]:g}; accepted: "
            f"numbers up to {np.finfo(np.float32).max:.1e}"
        )
    return single if dtype == np.float32 else values.astype(dtype)


def _medians(raw: np.ndarray) -> np.ndarray:
    """Median of what is there per feature; 0 where nothing is."""
    with warnings.catch_warnings():  # of a feature without a number
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nan_to_num(np.nanmedian(raw, axis=0))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:8]))
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
