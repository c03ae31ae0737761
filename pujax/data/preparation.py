"""Turns the columns of a table into numbers for a network, as learned on training rows.

Numbers are kept, those with a decimal comma or with thousands set apart where all cells of the
column leave no doubt (`readers.written_numbers`); words of fewer than 40 kinds become a column of 0
and 1 each, of more kinds about 30 numbers of their spelling; dates become year, month, day and so
on (`table_encoder`). What is missing is replaced by the median of the training rows, and a column
of 0 and 1 says where it was missing. Nothing is standardised here: the run does so with the
statistics of its training rows.

A saved preparation is two files: `preparation.json`, and `encoder.skops` where there are words or
dates. The former has the SHA-256 of the latter.
"""

import dataclasses
import decimal
import itertools
import logging
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from pujax import files, reading
from pujax.checks import require
from pujax.data import column_kinds, digests, table_encoder, unlike_training
from pujax.data.column_kinds import Column
from pujax.data.readers import columns, frame_chunks, frames, written_numbers
from pujax.data.readers.columns import listed

_LOG = logging.getLogger(__name__)
_JSON = "preparation.json"
_FORMATS = 1, 2
"""The second has `offsets`, which a version that does not know them would not subtract."""
_NOTHING_LEFT = (
    "{} has no column that differs between training rows; accepted: at least one feature besides "
    "the label and the id"
)
_UP_TO = f"numbers up to {np.finfo(np.float32).max:.1e}"
_NUMBER = "a number as in training rows"
_DURATION = "a duration as in training rows, such as '1 days 02:30:00'"
_ROWS = 8192
"""Rows of a table that are prepared at once: what leads to their numbers takes seven times as much
memory as the numbers."""
_INEXACT = 2.0**53  # from which on whole numbers that differ may be one in double precision
_CELL = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d.,]*")
"""What differs between sentences that say the same: cells, names and numbers."""
_MANY = 20
"""Cells of a column of words that are all numbers, from which on it is another column."""


@dataclasses.dataclass(frozen=True)
class Preparation:
    """What `fit` has learned; apply it with `transform`.

    Attributes:
      feature_names: of the `d` features.
      columns: of the table; empty where rows are arrays, which are handed on as they are, but for
        `offsets`, and features that are the same in all training rows: these stay so, since
        nothing was learned of another value.
      aside: columns that a new table may have as well, such as the label and the id.
      fill: what replaces a missing feature, per feature before `kept` is applied; of arrays what
        replaces a feature that is not kept, and 0 of the others.
      kept: indices of the features that differ between training rows; with no `fill` all do.
      first_index: of svmlight rows, 0 or 1; None for other rows.
      messages: what a person should know, one sentence each.
      encoder: skrub's TableVectorizer of words and dates; None where there are none.
      sources: the column that each of the `d` features is made of, as a name does not tell it: the
        word 'paid' of a column 'status' has the name of a column 'status_paid'. Empty in what an
        earlier version saved, and where rows are arrays.
      offsets: of arrays, what is subtracted from each feature before it is put into single
        precision, see `readers.columns.offset`; empty where nothing is.
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
    offsets: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int]:
        """Of what a network sees of one row."""
        return (len(self.feature_names),)

    @property
    def takes(self) -> str:
        """What it accepts, for a person."""
        if not self.columns:
            return f"rows of {len(self.feature_names)} numbers"
        names = listed([column.name for column in self.columns if column.kind != "dropped"])
        return f"a table with the columns {names}"

    @property
    def formats(self) -> str:
        """Files that such rows are read from, for a person."""
        if self.columns:
            return frames.FORMATS
        return ".npy or .npz" if self.first_index is None else ".npy, .npz or svmlight"

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
        frame = frames.of(rows)
        if self.columns and frame.is_table:
            self._check_columns(frame)
            frame = _with_dates(frame, self.columns)
        result: np.ndarray = np.empty([frame.num_rows, *self.shape], dtype)
        end = 0
        for part in self.transform_parts(_parts(frame), dtype=dtype):
            start, end = end, end + len(part)
            result[start:end] = part
        return result

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
        unlike = unlike_training.Unlike()
        for part in parts:
            frame = frames.of(part)
            if not self.columns:
                yield self._array(frame, dtype)
                continue
            if not frame.is_table:
                raise ValueError(
                    f"{frame.path} holds numbers without names; accepted: a table with the columns "
                    f"{listed([c.name for c in self.columns])}"
                )
            self._check_columns(frame)
            for column in self.columns:
                if column.kind == "words":
                    _note_numbers(frame, column, numbers)
            raw, names, sources = _features(frame, self.columns, self.encoder, dtype)
            unlike.add(frame, self.columns, raw, names, sources)
            filled = np.where(np.isnan(raw), np.asarray(self.fill), raw)
            yield filled[:, list(self.kept)].astype(dtype)
        for noted in filter(None, numbers.values()):
            if noted.cells >= _MANY:
                raise noted.error
        for sentence in unlike.sentences():
            _LOG.warning("%s", sentence)

    def row_keys(self, rows: Any, *, beside: Any = None) -> list[bytes]:
        """What a row says, `[n]`, equal where all cells that features are made of are.

        Features are in single precision, in which times and large numbers that differ may be one:
        of a table its cells count, of an array its numbers.

        Args:
          rows: as `transform` takes them.
          beside: rows with whose keys these are compared, likewise. Numbers of arrays are then in
            the type that both have: in single precision where either is, such as of svmlight.

        Raises:
          ValueError: as `transform`.
        """
        frame = frames.of(rows)
        if not frame.is_table:
            values = self._aligned(frame)
            if self.fill:  # with which the features that are not kept are replaced
                values = values[:, list(self.kept)]
            other = frame if beside is None else frames.of(beside)
            if not other.is_table:
                values = _in_type_of_both(values, other.values.dtype)
            return list(digests.of_numbers(values))
        self._check_columns(frame)
        numbers, words = [np.zeros([frame.num_rows, 0], np.int64)], []
        beyond: dict[int, str] = {}  # by row, what double precision leaves of its cells
        for column in self.columns:
            cells = frame.values[column.name] if column.kind != "dropped" else None
            if column.kind == "number":
                values, _ = columns.numbers(cells, column.marks, column.spelled)
                values = np.where(np.isnan(values), np.nan, values + 0.0)  # of any bits, each once
                numbers.append(values.view(np.int64)[:, None])
                large = np.flatnonzero(np.abs(values) >= _INEXACT)
                written = columns.text(cells).tolist() if len(large) else []
                for row in large.tolist():
                    rest = _rest(written[row], values[row])
                    if rest:
                        beyond[row] = beyond.get(row, "") + repr((column.name, rest))
            elif column.kind == "date":
                values, _ = columns.dates(cells, column.date_format)
                numbers.append(columns.instants(values))
            elif cells is not None:
                words.append(column.words(cells).fillna("").tolist())
        said = map(repr, zip(*words, strict=True)) if words else itertools.repeat("")
        return [
            row.tobytes() + text.encode() + beyond.get(place, "").encode()
            for place, (row, text) in enumerate(
                zip(np.concatenate(numbers, axis=1), said, strict=False)
            )
        ]

    def row_digests(self, rows: Any, *, beside: Any = None) -> digests.Digests:
        """`row_keys` as 16 bytes each, of which the keys themselves take a hundred times as many.

        Args:
          rows: as `transform` takes them.
          beside: as in `row_keys`.

        Raises:
          ValueError: as `transform`.
        """
        found = digests.Digests()
        for part in _parts(frames.of(rows)):
            found.add(self.row_keys(part, beside=beside))
        return found

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the preparation into an existing folder; each file is replaced atomically.

        Raises:
          ValueError: `encoder` holds types that `load` would not create.
        """
        record = None if self.encoder is None else table_encoder.save(self.encoder, folder)
        fields = [field.name for field in dataclasses.fields(self) if field.name != "encoder"]
        plain, with_offsets = _FORMATS
        number = with_offsets if self.offsets else plain
        document: dict[str, Any] = {"format": number, "encoder": record}
        document |= {name: getattr(self, name) for name in fields}
        document["columns"] = [dataclasses.asdict(column) for column in self.columns]
        files.write_json(os.path.join(folder, _JSON), document)

    def _array(self, frame: frames.Frame, dtype: type) -> np.ndarray:
        values = self._aligned(frame)
        if self.offsets:
            values = values.astype(np.float64) - np.asarray(self.offsets)
        result = _fitting(frame, values, self.feature_names, dtype)
        if self.fill and len(self.kept) < values.shape[1]:
            fixed = np.setdiff1d(np.arange(values.shape[1]), self.kept)
            result[:, fixed] = np.asarray(self.fill)[fixed]
        return result

    def _aligned(self, frame: frames.Frame) -> np.ndarray:
        """The numbers of an array as they are, `[n, d]`, in the order of the features."""
        values, wanted = frame.values, len(self.feature_names)
        if frame.is_table:
            raise ValueError(
                f"{frame.path} is a table with named columns; accepted: {wanted} numbers per row, "
                f"as in training ({self.formats})"
            )
        if self.first_index is None and frame.is_sparse:
            raise ValueError(
                f"{frame.path} is svmlight, whose indices begin at 0 or at 1, and training rows do "
                f"not say which; accepted: {wanted} numbers per row, as in training "
                f"({self.formats})"
            )
        if frame.is_sparse:
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
        return values

    def _check_columns(self, frame: frames.Frame) -> None:
        names, known = set(frame.names), {*self.aside, *(column.name for column in self.columns)}
        needed = [column.name for column in self.columns if column.kind != "dropped"]
        missing = [name for name in needed if name not in names]
        extra = [name for name in frame.names if name not in known]
        problems = []
        if missing:
            problems.append(f"lacks {listed(missing)}")
        if extra:
            problems.append(f"has {listed(extra)}, which training rows do not have")
        if problems:
            raise ValueError(
                f"{frame.path} {' and '.join(problems)}; accepted: the columns {listed(needed)}"
                + (f", and if you like {listed(self.aside)}" if self.aside else "")
            )


def fit(
    rows: Any, indices: Any = None, *, aside: Sequence[str] = (), words: Sequence[str] = ()
) -> Preparation:
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
      words: columns whose cells are words, whatever they look like, such as postcodes.

    Returns:
      A `Preparation`.

    Raises:
      ValueError: no column is left; skrub is needed and not installed; a number is too large.
    """
    frame = frames.of(rows)
    no_features, as_words = frozenset(aside), frozenset(words)
    names = [name for name in frame.names if name in no_features]
    frame = frame.without(names)
    if not frame.is_table:
        return dataclasses.replace(_of_array(frame, indices), aside=tuple(aside))
    training = frame
    if indices is not None and not np.array_equal(indices, np.arange(frame.num_rows)):
        training = frame.take(np.asarray(indices, np.int64))
    require(training.num_rows > 0, "indices", "empty", "at least one training row")
    found: list[Column] = []
    said: list[tuple[str, str]] = []
    for name in training.values.columns:
        column, sentences = column_kinds.of_training_rows(
            frame, training, name, as_words=name in as_words
        )
        found.append(column)
        said += [(name, sentence) for sentence in sentences]
    said += column_kinds.on_written_numbers(training, found)
    messages = _together(said, frame.path)
    if all(column.kind == "dropped" for column in found):
        raise ValueError(_NOTHING_LEFT.format(frame.path))
    encoder = None
    if any(column.kind in ("date", *column_kinds.OF_WORDS) for column in found):
        training = _with_dates(training, found)
        encoder = table_encoder.fit(frame.path, _encoded(training, found))
    raw, feature_names, sources = _whole_features(training, found, encoder)
    fill = _medians(raw)
    kept = np.flatnonzero([_differ(*feature) for feature in zip(raw.T, fill, strict=True)])
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


def _rest(text: str, value: float) -> str:
    """What a whole number is more than its rounded value; '' where it is the same."""
    try:
        exact = int(decimal.Decimal(text))
    except decimal.InvalidOperation:  # written with marks between its digits
        exact = int(re.sub(r"\D", "", text) or 0) * (-1 if value < 0 else 1)
    rest = exact - int(value)
    return str(rest) if rest else ""


def _together(said: Sequence[tuple[str, str]], path: str) -> list[str]:
    """Sentences on columns, of those that say the same of many, but for a cell, one for all."""
    rests = [sentence.removeprefix(f"column {name!r}") for name, sentence in said]
    kinds = [_CELL.sub("", rest.replace(path, "")) for rest in rests]
    of: dict[str, list[int]] = {}
    for i, kind in enumerate(kinds):
        of.setdefault(kind, []).append(i)
    result = []
    for i, (_, sentence) in enumerate(said):
        alike = of[kinds[i]]
        names = [said[k][0] for k in alike]
        if len(alike) <= columns.FEW:
            result.append(sentence)
        elif i == alike[0] and len({rests[k] for k in alike}) == 1:
            result.append(f"each of {len(names):,} columns{rests[i]} ({listed(names)})")
        elif i == alike[0]:
            others = f"{len(names) - 1:,} more, with cells of their own: {listed(names[1:])}"
            result.append(f"{sentence}; likewise {others}")
    return result


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
    if not isinstance(document, dict) or document.get("format") not in _FORMATS:
        formats = " or ".join(map(str, _FORMATS))
        raise ValueError(f"{path} is no preparation of format {formats}; accepted: a saved one")
    try:
        record = document["encoder"]
        document = {"sources": [], "offsets": [], **document}  # which earlier versions did not save
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
            offsets=tuple(document["offsets"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); accepted: a saved one") from error


def _check_document(document: dict[str, Any]) -> None:
    """Raises a TypeError for a field that holds something else than `save` writes."""

    def is_list(name: str, right: Any) -> bool:
        return isinstance(document[name], list) and all(map(right, document[name]))

    def is_text(value: Any) -> bool:
        return isinstance(value, str)

    def is_column(value: Any) -> bool:
        column = Column(**value)
        words = isinstance(column.name, str) and isinstance(column.date_format, str)
        known = column.kind in get_args(column_kinds.Kind) and column.marks in (
            "",
            *written_numbers.MARKS,
        )
        is_number = is_finite(column.offset)
        known = known and column.spelled in (None, *columns.SPELLED)
        known = known and isinstance(column.had_missing, bool) and isinstance(column.whole, bool)
        shares = column.missing is None or 0 <= column.missing <= 1
        low, high = column.low, column.high
        if low is None or high is None:
            return words and known and is_number and shares and low is high
        return words and known and is_number and shares and -np.inf < low <= high < np.inf

    def is_finite(value: Any) -> bool:
        return isinstance(value, (int, float)) and abs(value) < np.inf

    width = len(document["fill"]) if isinstance(document["fill"], list) else 0
    rights = {
        **dict.fromkeys(("feature_names", "aside", "messages", "sources"), is_text),
        "columns": is_column,
        **dict.fromkeys(("fill", "offsets"), is_finite),
        "kept": lambda value: type(value) is int and 0 <= value < width,
    }
    wrong = [name for name, right in rights.items() if not is_list(name, right)]
    if document["first_index"] not in (None, 0, 1):
        wrong.append("first_index")
    if document["columns"] and len(document["kept"]) != len(document["feature_names"]):
        wrong.append("kept")
    for name in ("sources", "offsets"):
        if document[name] and len(document[name]) != len(document["feature_names"]):
            wrong.append(name)
    if wrong:
        raise TypeError(f"{wrong[0]} is not as it is saved")


def _of_array(frame: frames.Frame, indices: Any) -> Preparation:
    """All features, of which those that training rows do not differ in keep their value."""
    learned = _identity(frame)
    rows = np.arange(frame.num_rows) if indices is None else np.asarray(indices, np.int64)
    require(len(rows) > 0, "indices", "empty", "at least one training row")
    low = high = learned._array(frame.take(rows[:1]), frame.values.dtype)[0]
    for start in range(0, len(rows), _ROWS):
        part = learned._array(frame.take(rows[start : start + _ROWS]), frame.values.dtype)
        low, high = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0))
    differ_by_type = low != high  # of whole numbers above 2^53, too
    low, high = low.astype(np.float64), high.astype(np.float64)
    offsets = columns.offsets(low, high)
    # In single precision, in which a network sees them.
    differ = (low - offsets).astype(np.float32) != (high - offsets).astype(np.float32)
    if not differ.any():  # which is said where the problem is built
        return learned
    messages = []

    def say(what: np.ndarray, text: str) -> None:
        if what.any():
            names = [learned.feature_names[i] for i in np.flatnonzero(what)]
            messages.append(f"{len(names)} of {len(what)} features {text}: {listed(names)}")

    say(
        offsets != 0,
        "are large for how little they differ, so that single precision would not tell them apart; "
        "a constant is subtracted from each",
    )
    say(
        ~differ & differ_by_type,
        "differ by less than a trillionth in training rows and are unused; subtract a constant",
    )
    say(~differ & ~differ_by_type, "are the same in all training rows and unused")
    learned = dataclasses.replace(
        learned,
        feature_names=tuple(
            f"{name} - {offset:.15g}" if offset else name
            for name, offset in zip(learned.feature_names, offsets, strict=True)
        ),
        offsets=tuple(offsets.tolist()) if offsets.any() else (),
        messages=tuple(messages),
    )
    if differ.all():
        return learned
    return dataclasses.replace(
        learned,
        fill=tuple(np.where(differ, 0.0, low).tolist()),
        kept=tuple(np.flatnonzero(differ).tolist()),
    )


def _in_type_of_both(values: np.ndarray, other: np.dtype) -> np.ndarray:
    """Numbers of an array in the type in which those of another type can be compared with them.

    Of integers it is one that holds both, with fractions the coarser of single and double
    precision. No type holds the integers of 64 bits with and without a sign: their signs then are
    columns of their own.
    """
    types = [np.dtype(values.dtype), np.dtype(other)]
    sizes = [one.itemsize for one in types if one.kind == "f"]
    if not sizes and np.result_type(*types).kind == "f":
        return np.concatenate([values.astype(np.uint64), values < 0], axis=1, dtype=np.uint64)
    if not sizes:
        return values.astype(np.result_type(*types), copy=False)
    with np.errstate(over="ignore"):
        return values.astype(np.float32 if min(sizes) <= 4 else np.float64, copy=False)


def _identity(frame: frames.Frame) -> Preparation:
    width = frame.values.shape[1]
    if not frame.is_sparse:
        return Preparation(tuple(str(i + 1) for i in range(width)))
    # A file whose indices begin at 1 has an empty column 0.
    first = 0 if frame.values[:, 0].any() else 1
    if first == width:
        raise ValueError(f"{frame.path} has no feature; accepted: at least one that is not 0")
    return Preparation(tuple(str(i) for i in range(first, width)), first_index=first)


def _parts(frame: frames.Frame) -> Iterator[frames.Frame]:
    """The rows of a frame, some at a time, in their order."""
    return (chunk.frame for chunk in frame_chunks.read(frame, _ROWS))


def _with_dates(frame: frames.Frame, found: Sequence[Column]) -> frames.Frame:
    """A table whose columns of dates are read.

    pandas gives a column the unit that its finest cell needs, which decides how the seconds that
    are made of it are rounded: read in parts, a row would depend on its part.
    """
    table = frame.values.copy(deep=False)
    for column in found:
        if column.kind == "date":
            table[column.name] = _dates(frame, column)
    return dataclasses.replace(frame, values=table)


def _dates(frame: frames.Frame, column: Column) -> Any:
    """A column of dates as pandas' Series of datetime64."""
    values, wrong = columns.dates(frame.values[column.name], column.date_format)
    accepted = f"a date as in training rows, such as {columns.example(column.date_format)}"
    _check_cells(frame, column, wrong, accepted)
    return values


def _encoded(frame: frames.Frame, found: Sequence[Column]) -> Any:
    """Words and dates of a frame as skrub takes them, by name."""
    import pandas as pd

    cells = {}
    for column in found:
        if column.kind == "date":
            cells[column.name] = _dates(frame, column)
        elif column.kind in column_kinds.OF_WORDS:
            words = column.words(frame.values[column.name])
            # Text is made numbers and dates of where all of it looks so; categories are not.
            is_category = column.kind == "category"
            cells[column.name] = words.astype("category") if is_category else words
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
    _, wrong = columns.numbers(frame.values[name], spelled="")  # true and false are words here
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


def _accepted_number(column: Column, cell: Any) -> str:
    """What to ask for in place of a cell of a column of numbers that is none."""
    if column.spelled == "duration":
        return _DURATION
    try:
        if np.isinf(float(cell)):  # such as 1e400, beside cells none of which is a number
            return _UP_TO
    except (TypeError, ValueError):
        pass
    marks = written_numbers.described(column.marks) if column.marks else "a decimal point"
    return f"{_NUMBER}, with {marks}"


def _features(
    frame: frames.Frame, found: Sequence[Column], encoder: Any, dtype: type
) -> tuple[np.ndarray, list[str], list[str]]:
    """float64 `[n, all features]`, NaN where missing, their names, and the column of each.

    Numbers have the digits of `dtype`.
    """
    parts, names, sources = [], [], []
    for column in found:
        if column.kind == "number":
            cells = frame.values[column.name]
            values, wrong = columns.numbers(cells, column.marks, column.spelled)
            if wrong.any():
                accepted = _accepted_number(column, cells.iloc[int(wrong.argmax())])
                _check_cells(frame, column, wrong, accepted)
            part = _fitting(frame, values[:, None] - column.offset, [column.name], dtype)
            parts.append(part.astype(np.float64))
            names.append(f"{column.name} - {column.offset:.15g}" if column.offset else column.name)
            sources.append(column.name)
    for column in found:
        if column.had_missing and column.kind in ("number", "date"):
            gone = columns.is_missing(frame.values[column.name])
            parts.append(gone[:, None].astype(np.float64))
            names.append(f"{column.name} is missing")
            sources.append(column.name)
    if encoder is not None:
        cells = _encoded(frame, found)
        values, encoded, made_of = table_encoder.transform(encoder, cells)
        sources += made_of
        for column in found:
            feature = f"{column.name}_total_seconds"
            if column.kind == "date" and column.offset and feature in encoded:
                i = encoded.index(feature)
                values[:, i] = columns.seconds(cells[column.name]) - column.offset
                encoded[i] = f"{feature} - {column.offset:.15g}"
        parts.append(values)
        names += encoded
    return np.concatenate(parts, axis=1), names, sources


def _whole_features(
    frame: frames.Frame, found: Sequence[Column], encoder: Any
) -> tuple[np.ndarray, list[str], list[str]]:
    """`_features` in single precision of all rows, made some rows at a time; columns lie together.

    They are float64, as seconds from which an offset is subtracted have more digits.
    """
    raw, end = np.empty([0, 0]), 0
    names: list[str] = []
    sources: list[str] = []
    for part in _parts(frame):
        values, names, sources = _features(part, found, encoder, np.float32)
        if not end:
            raw = np.empty([frame.num_rows, values.shape[1]], order="F")
        start, end = end, end + len(values)
        raw[start:end] = values
    return raw, names, sources


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
            f"{_UP_TO}"
        )
    return single if dtype == np.float32 else values.astype(dtype)


def _medians(raw: np.ndarray) -> np.ndarray:
    """Median of what is there per feature; 0 where nothing is."""
    with warnings.catch_warnings():  # of a feature without a number
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nan_to_num(np.nanmedian(raw, axis=0))


def _differ(feature: np.ndarray, fill: float) -> bool:
    """Whether the numbers of a feature differ in single precision, with what replaces NaN."""
    filled = np.where(np.isnan(feature), fill, feature).astype(np.float32)
    return bool(filled.min() < filled.max())
