"""What a column of a table is, numbers, dates or words, and what a person should know of it.

Training rows say what kind a column is and what is subtracted from it; how its cells are read as
numbers or dates is decided by all rows.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pujax.data.readers import columns, frames, written_numbers
from pujax.data.readers.columns import listed

_ALMOST = 0.9
"""Share of numbers in a column of words above which it is worth a message."""
_RANGED = 20
"""Cells of training rows from which on their range says what is usual."""
_ENDS = 0.01, 0.99
"""Quantiles that are the ends of that range, in place of the least and the greatest value, which a
few outliers move far and which may tell of one person, while a saved model may be shared. Where
there are fewer than a hundred cells, or the two quantiles are one number, the ends are the least
and the greatest value."""
_THOUSANDS = rf"[+\-{written_numbers.MINUS}]?([1-9]\d{{0,2}}(\.\d{{3}})+|\d+)"
"""Whole numbers, whose points, if they have any, may stand between thousands."""

Kind = Literal["number", "date", "words", "codes", "category", "dropped"]
OF_WORDS: tuple[Kind, ...] = ("words", "codes", "category")


@dataclasses.dataclass(frozen=True)
class Column:
    """What training rows say of a column.

    Attributes:
      name: of the column.
      kind: 'number'; 'date'; 'words', none of which is a number; 'codes', words of which some are
        numbers; 'category', words whatever they look like; 'dropped', which may be anything.
      date_format: as in `columns.dates`; '' for other kinds.
      had_missing: whether a training row lacks it.
      marks: of a number in text, one of `written_numbers.MARKS`; '' is a decimal point alone.
      offset: what is subtracted from numbers, and from a date's seconds since 1970, before they are
        put into single precision.
      spelled: of numbers, one of `columns.SPELLED`; None in what an earlier version saved.
      missing: share of training rows that lack it; None in what an earlier version saved.
      low: above one in a hundred of the numbers of training rows, or of their dates in seconds
        since 1970; the least of them where it would be `high`; None of words, of fewer than
        `_RANGED` cells, and in what an earlier version saved.
      high: below one in a hundred, or the greatest, as `low`.
      whole: of words, whether '10115.0' is the word '10115', see `columns.are_whole`; False in what
        an earlier version saved.
    """

    name: str
    kind: Kind
    date_format: str = ""
    had_missing: bool = False
    marks: str = ""
    offset: float = 0.0
    spelled: str | None = None
    missing: float | None = None
    low: float | None = None
    high: float | None = None
    whole: bool = False

    def words(self, cells: Any) -> Any:
        """The cells of a column of words as text, a Series `[n]`, NaN where one is missing.

        Args:
          cells: pandas Series `[n]` of any type.
        """
        found = columns.text(cells)
        return columns.without_point(found) if self.whole else found


def of_training_rows(
    frame: frames.Frame, training: frames.Frame, name: str, *, as_words: bool = False
) -> tuple[Column, list[str]]:
    """What training rows say of a column whose cells are read as those of all rows can be.

    Args:
      frame: all rows.
      training: those of them that are trained on.
      name: of the column.
      as_words: whether its cells are words, whatever they look like.

    Returns:
      `(column, sentences)`: what it is, and what a person should know of it, which may be nothing.
    """
    if as_words:
        column, message = _of_words(training, name)
        return column, list(filter(None, [message]))
    column, message = _read_alike(frame, training, name)
    messages = [message]
    if column.kind == "date":
        column, message = _near_zero(training, column)
        messages.append(message)
    return column, list(filter(None, messages))


def _of_words(training: frames.Frame, name: str) -> tuple[Column, str]:
    """A column of words by its training rows, and what to say of it, which may be nothing."""
    words = columns.text(training.values[name])
    missing = words.isna()
    if missing.all():
        return Column(name, "dropped"), _empty(name)
    had_missing, whole = bool(missing.any()), columns.are_whole(words)
    column = Column(
        name, "category", had_missing=had_missing, missing=float(missing.mean()), whole=whole
    )
    words = column.words(words)
    if not had_missing and words.nunique() == 1:
        return Column(name, "dropped"), _constant(name, words.iloc[0])
    return column, ""


def _read_alike(frame: frames.Frame, training: frames.Frame, name: str) -> tuple[Column, str]:
    """`_column` of training rows, but for the kind and marks of numbers and dates."""
    column, message = _column(training, name)
    if column.kind not in ("number", "date") or training is frame:
        return column, message
    whole, of_all = _column(frame, name)
    if whole.kind == "number" == column.kind and whole.marks == column.marks:
        # Its offset is that of training rows.
        return dataclasses.replace(column, spelled=whole.spelled), message
    found = dataclasses.replace(whole, had_missing=column.had_missing, missing=column.missing)
    if found.kind in OF_WORDS:  # whose training rows alone look like numbers or dates
        found = dataclasses.replace(found, kind="category")
    if found.kind == "number":
        values, _ = columns.numbers(training.values[name], found.marks, found.spelled)
        found = _with_range(found, values)
    return found, of_all


def _near_zero(training: frames.Frame, column: Column) -> tuple[Column, str]:
    """A column of dates with the offset of training rows, and what to say of it."""
    dates, _ = columns.dates(training.values[column.name], column.date_format)
    seconds = columns.seconds(dates)
    column, offset = _with_range(column, seconds), columns.offset(seconds)
    if not offset:
        return column, ""
    message = (
        f"column {column.name!r}: {offset:.15g} is subtracted from its seconds since 1970, since "
        "single precision would not tell them apart"
    )
    return dataclasses.replace(column, offset=offset), message


def _with_range(column: Column, values: np.ndarray) -> Column:
    """The column with the range of its numbers `[n]`, NaN where missing."""
    present = values[~np.isnan(values)]
    if len(present) < _RANGED:
        return dataclasses.replace(column, low=None, high=None)
    low, high = np.quantile(present, _ENDS, method="inverted_cdf")
    if low == high:
        low, high = present.min(), present.max()
    return dataclasses.replace(column, low=float(low), high=float(high))


def _column(frame: frames.Frame, name: str) -> tuple[Column, str]:
    """The kind of a column by its training rows, and what to say of it, which may be nothing."""
    cells = frame.values[name]
    words = columns.text(cells)
    missing = words.isna()
    if missing.all():
        return Column(name, "dropped"), _empty(name)
    had_missing, share_missing = bool(missing.any()), float(missing.mean())
    values, wrong = columns.numbers(cells)
    writing = written_numbers.Writing("", "", "")
    if wrong.any():
        present = words[columns.is_text(cells)].dropna()
        if len(present):
            writing = written_numbers.of(present, decimal_comma=frame.decimal_comma)
        if writing.marks:
            values, wrong = columns.numbers(cells, writing.marks)
    # As numbers neighbouring days would be one: single precision has steps of 2 there.
    is_day = columns.are_days_of_eight_digits(words[~missing])
    if not wrong.any() and not is_day:
        offset = columns.offset(values)
        with np.errstate(over="ignore"):  # refused by name when the features are made
            single = (values[~np.isnan(values)] - offset).astype(np.float32)
        if not had_missing and single.min() == single.max():
            # Of whole numbers above 2^53 several are one in double precision.
            is_exact = abs(values[0]) < 2.0**53 or words.nunique() == 1
            if values.min() == values.max() and is_exact:
                return Column(name, "dropped"), _constant(name, words.iloc[0])
            message = f"column {name!r} is left out: its numbers differ by less than a trillionth"
            return Column(name, "dropped"), f"{message}; subtract a constant from them"
        message = ""
        if offset:
            message = (
                f"column {name!r}: {offset:.15g} is subtracted, since its numbers are large for "
                "how little they differ, and single precision would not tell them apart"
            )
        message = _of_codes(name, words) or message
        spelled = columns.spelled(cells, values)
        column = Column(
            name, "number", "", had_missing, writing.marks, offset, spelled, share_missing
        )
        return _with_range(column, values), message
    if not had_missing and words.nunique() == 1:
        return Column(name, "dropped"), _constant(name, words.iloc[0])
    formats = columns.date_formats(cells)
    if formats:
        message = ""
        if len(formats) > 1:
            example = words.dropna().iloc[0]
            message = f"column {name!r}: dates such as {example!r} are read as {formats[0]}"
        if is_day:
            message = (
                f"column {name!r}: cells such as {words[~missing].iloc[0]!r} are read as dates; if "
                f"they are codes, data.words={name!r} reads them as words"
            )
        return Column(name, "date", formats[0], had_missing, missing=share_missing), message
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
            f"so, or leave the column out by data.leave_out={name!r}"
        )
    elif not message and (unit := written_numbers.unit_of(words.dropna())):
        message = (
            f"column {name!r} is read as words, since its cells have the unit {unit!r}, as "
            f"{words.dropna().iloc[0]!r}: if they are quantities, write the numbers alone"
        )
    kind: Kind = "codes" if share else "words"
    whole = kind == "codes" and columns.are_whole(words)
    return Column(name, kind, "", had_missing, missing=share_missing, whole=whole), message


def _of_codes(name: str, words: Any) -> str:
    """What to say of numbers that may be codes, as 01067 in a column of postcodes; '' of others."""
    present = words.dropna()
    width = len(present.iloc[0])
    if width < 2 or not (present.str.len() == width).all():
        return ""
    zeros = present[present.str.startswith("0")]
    if not len(zeros) or not present.str.fullmatch("[0-9]+").all():
        return ""
    example = zeros.iloc[0]
    return (
        f"column {name!r} is read as numbers, though all of its cells have {width} digits, "
        f"{len(zeros)} of {len(present)} with a 0 first, such as {example!r}: if they are codes, "
        f"data.words={name!r} reads them as words"
    )


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
        f"column out by data.leave_out={name!r}"
    )


def on_written_numbers(frame: frames.Frame, found: Sequence[Column]) -> list[tuple[str, str]]:
    """What to say of numbers that have another mark than a decimal point; may be nothing.

    Args:
      frame: training rows.
      found: all of its columns.

    Returns:
      A column and a sentence each; '' where it is of several columns.
    """
    import pandas as pd

    messages = []
    for marks in written_numbers.MARKS:
        names = [column.name for column in found if column.marks == marks]
        if not names:
            continue
        cells = frame.values[names[0]]
        words = columns.text(cells)[columns.is_text(cells)].dropna()
        example = written_numbers.example(words.tolist(), marks)
        number = written_numbers.value(example, marks)
        sentence = (
            f"read as numbers with {written_numbers.described(marks)}, such as {example!r} for "
            f"{number:.10g}: {listed(names)}"
        )
        messages.append(("", sentence))
    if any(column.marks.startswith(",") for column in found):
        for column in found:
            is_text = isinstance(frame.values[column.name].dtype, pd.StringDtype)
            if column.kind != "number" or column.marks or not is_text:
                continue
            words = columns.text(frame.values[column.name]).dropna()
            points = words[words.str.contains(".", regex=False)]
            if len(points) and words.str.fullmatch(_THOUSANDS).all():
                number = columns.numbers(points)[0][0]
                sentence = (
                    f"column {column.name!r} is read with a decimal point, so that "
                    f"{points.iloc[0]!r} is {number:.10g}, though other columns "
                    "have a decimal comma; if the point stands between thousands, leave it out"
                )
                messages.append((column.name, sentence))
    return messages


def _empty(name: str) -> str:
    return f"column {name!r} is left out: empty in all training rows"


def _constant(name: str, cell: str) -> str:
    return f"column {name!r} is left out: {cell!r} in all training rows"
