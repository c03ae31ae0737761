"""Cells of one column of a table as text, numbers or dates, whatever the file stored them as.

A column of a text file holds text only, one of a Parquet file or of a pandas DataFrame may hold
numbers or dates already. The functions here give the same result for both, so that a preparation
learned on one format can be applied to the other.
"""

import collections
import datetime
import decimal
import numbers as number_types
import re
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from pujax.data.readers import written_numbers

MISSING = frozenset(
    ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"]
    + ["<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]
    + ["?", "...", "none"]
)
"""Words that stand for a missing cell: those of pandas, then those that skrub adds."""

_TRUTH = {"true": 1.0, "false": 0.0}
SPELLED = ("", "truth", "duration")
"""What text of a column of numbers may be besides numbers: nothing, true and false, durations."""
_ISO = "ISO8601"
_ISO_DAY = r"\s*\d{4}(?:[-/. ]\d{1,2}[-/. ]\d{1,2}|\d{4})(?!\d)"
_EIGHT_DIGITS = r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
_FRACTION = r"[+-]?\d*[.,]\d+"
_WHOLE = r"(-?(?:0|[1-9]\d*))[.,]0"
"""A `_FRACTION` that is none: pandas writes whole numbers so where a cell of theirs is missing."""
_DURATION = r"-?\d+ days [+-]?\d\d:\d\d:\d\d(?:\.\d+)?"
MOST = 0.9
"""Share of numbers, or of dates of one format, from which other cells are taken for mistakes."""
FEW = 3
"""Columns that a sentence of their own is said of; what is said of more is said once."""
_SAMPLED = 20
"""Cells whose format is tried on such a column, as its first may be the one that is no date."""


def text(cells: Any) -> Any:
    """The cells as text without spaces at the ends.

    A whole number is written without a decimal point, as its column may have become floating-point
    only because a cell is missing.

    Args:
      cells: pandas Series `[n]` of any type.

    Returns:
      Series `[n]` of text, of the same index; NaN where the cell is missing or one of `MISSING`.
    """
    import pandas as pd

    if isinstance(cells.dtype, pd.StringDtype):
        words = cells.astype("str")
    else:
        values = [None if gone else _word(cell) for cell, gone in _with_missing(cells)]
        words = pd.Series(values, index=cells.index, dtype="str", name=cells.name)
    words = words.str.strip()
    gone = words.isin(MISSING)
    return words.mask(gone) if gone.any() else words


def is_missing(cells: Any) -> np.ndarray:
    """Which cells are missing or one of `MISSING`, bool `[n]`: those that are NaN in `text`.

    Args:
      cells: pandas Series `[n]` of any type.
    """
    import pandas as pd

    kinds = pd.api.types
    if kinds.is_numeric_dtype(cells.dtype) or kinds.is_datetime64_any_dtype(cells.dtype):
        return cells.isna().to_numpy(bool)  # to write all of them as text takes long
    return text(cells).isna().to_numpy(bool)


def _with_missing(cells: Any) -> Any:
    return zip(cells.astype(object), cells.isna(), strict=True)


def _word(cell: Any) -> str:
    if isinstance(cell, number_types.Integral) and not isinstance(cell, bool):
        return str(int(cell))
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else repr(float(cell))
    return str(cell)


def are_whole(words: Any) -> bool:
    """Whether `without_point` may be applied: no number among the words has a fraction but '.0'.

    Beside '1.5' a '1.0' may be the name of a version, and '250.0' is another disease than '250'.

    Args:
      words: Series `[n]` of text, NaN where missing.
    """
    fractions = words[words.str.fullmatch(_FRACTION).fillna(False).astype(bool)]
    return bool(fractions.str.fullmatch(_WHOLE).all())


def without_point(words: Any) -> Any:
    """The words with '10115' for '10115.0', as `text` writes a number.

    pandas writes a column of whole numbers in the latter way as soon as a cell is missing, so that
    two files may differ in it.

    Args:
      words: Series `[n]` of text, NaN where missing.

    Returns:
      Series `[n]` of text, of the same index.
    """
    if not words.str.endswith((".0", ",0")).fillna(False).any():  # most columns need no more
        return words
    return words.str.replace(rf"^{_WHOLE}$", r"\1", regex=True)


def is_text(cells: Any) -> np.ndarray:
    """Which cells have to be read as text, bool `[n]`; others are numbers or missing already.

    A column of a Parquet file or of a DataFrame may hold both, and decimals of a database.

    Args:
      cells: pandas Series `[n]` of any type.
    """
    import pandas as pd

    if isinstance(cells.dtype, pd.StringDtype):
        return cells.notna().to_numpy()
    own = (number_types.Number, decimal.Decimal)
    return np.fromiter((not isinstance(cell, own) for cell in cells), bool, len(cells))


def numbers(
    cells: Any, marks: str = "", spelled: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The cells as numbers; true and false are 1 and 0, and a duration is in seconds.

    Text is a duration as pandas writes it, '1 days 02:30:00', in all cells.

    Args:
      cells: pandas Series `[n]` of any type.
      marks: how text is written, one of `written_numbers.MARKS`; '' is with a decimal point, and
        nothing between thousands. Cells that are numbers already stay what they are.
      spelled: one of `SPELLED`, of a column that is known already: whether a cell is a number then
        depends on no other cell. None is what all cells allow together.

    Returns:
      `(values, wrong)`: float64 `[n]`, NaN where the cell is missing or no number; bool `[n]`,
      whether the cell is there and no number. Infinity is a number among numbers only.
    """
    import pandas as pd

    kinds = pd.api.types
    is_truth = kinds.is_bool_dtype(cells.dtype)
    if kinds.is_numeric_dtype(cells.dtype) or is_truth:
        values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        is_other = spelled == "duration" or is_truth and spelled == ""
        return values, ~np.isnan(values) & is_other
    if kinds.is_timedelta64_dtype(cells.dtype):
        values = cells.dt.total_seconds().to_numpy(np.float64)
        return values, ~np.isnan(values) & (spelled in ("", "truth"))
    words = text(cells)
    if marks:
        gone = words.isna().to_numpy()
        read = (written_numbers.value(word, marks) for word in words.fillna(""))
        values = np.fromiter(read, np.float64, len(words))
        own = ~is_text(cells) & ~gone
        values[own] = pd.to_numeric(words[own], errors="coerce").to_numpy(np.float64)
        return values, np.isnan(values) & ~gone
    if spelled == "duration":
        is_one = words.str.fullmatch(_DURATION).fillna(False).astype(bool)
        values = pd.to_timedelta(words.where(is_one)).dt.total_seconds().to_numpy(np.float64)
        return values, (words.notna() & ~is_one).to_numpy()
    # Most columns have no such sign, and the search costs six times what reading the numbers does.
    if words.str.contains(written_numbers.MINUS, regex=False, na=False).any():
        words = words.str.replace(rf"(^|[eE]){written_numbers.MINUS}(?=[\d.])", r"\1-", regex=True)
    values = pd.to_numeric(words, errors="coerce").to_numpy(np.float64, na_value=np.nan).copy()
    wrong = np.isnan(values) & words.notna().to_numpy()
    if wrong.any() or not np.isfinite(values).any():  # 'INF' is a word among words
        wrong |= np.isinf(values)
        values[wrong] = np.nan
    if wrong.any() and spelled == "truth":
        values[wrong] = words[wrong].str.lower().map(_TRUTH).to_numpy(np.float64)
        wrong &= np.isnan(values)
    elif wrong.any() and spelled is None:
        truth = words[wrong].str.lower().map(_TRUTH)
        others = values[~np.isnan(values)]
        if truth.notna().all() and np.isin(others, (0, 1)).all():
            values[wrong] = truth.to_numpy(np.float64)
            wrong[:] = False
        elif words.dropna().str.fullmatch(_DURATION).all():
            values = pd.to_timedelta(words).dt.total_seconds().to_numpy(np.float64)
            wrong[:] = False
    return values, wrong


def spelled(cells: Any, values: np.ndarray) -> str:
    """Which of `SPELLED` a column of numbers is: 'truth' for 0 and 1, however they are written.

    Args:
      cells: pandas Series `[n]` of any type, each a number or missing.
      values: float64 `[n]`, the numbers, NaN where missing.
    """
    import pandas as pd

    if pd.api.types.is_timedelta64_dtype(cells.dtype):
        return "duration"
    words = text(cells[is_text(cells)]).dropna()
    if len(words) and words.str.fullmatch(_DURATION).all():
        return "duration"
    return "truth" if np.isin(values[~np.isnan(values)], (0, 1)).all() else ""


def offset(values: np.ndarray) -> float:
    """What to subtract from numbers before they are put into single precision, see `offsets`.

    Args:
      values: float64 `[n]`, NaN where missing, with a number.
    """
    present = values[~np.isnan(values)]
    return float(offsets(present.min(keepdims=True), present.max(keepdims=True))[0])


def offsets(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """What to subtract from columns before they are put into single precision; mostly 0.

    Seconds since 1970 have steps of 128 there. Numbers whose spread is less than a thousand such
    steps are first brought near 0; where it is less than double precision tells for certain, they
    are one number.

    Args:
      low: float64 `[columns]`, the smallest number of each.
      high: the largest.

    Returns:
      `[columns]`, rounded to about the spread.
    """
    with np.errstate(over="ignore"):
        spread = high - low
    largest = np.maximum(np.abs(low), np.abs(high))
    step = largest * np.finfo(np.float32).eps
    result = np.zeros(len(low))
    for i in np.flatnonzero((1e-12 * largest < spread) & (spread < 1000 * step)):
        # Where it cannot be rounded so finely, numbers are too small for any network.
        with np.errstate(over="ignore", invalid="ignore"):
            middle = np.round(low[i] + spread[i] / 2, -int(np.floor(np.log10(spread[i]))))
        result[i] = middle if np.isfinite(middle) else 0.0
    return result


def date_formats(cells: Any) -> list[str]:
    """The formats in which every cell is a date, the usual one first; none if it is no such column.

    A date has a year, a month and a day, so that neither a year nor a time of day is taken for one.
    The year has four digits, see `may_be_short_dates`.
    Two formats are returned where no cell says whether the month or the day comes first; the usual
    one is that with the month, and between points that with the day.

    Args:
      cells: pandas Series `[n]` of any type, with a cell that is not missing.
    """
    if _are_dates(cells):
        return [_ISO]
    first = text(cells).dropna().iloc[0]
    found = [form for form in _guesses(first) if not dates(cells, form)[1].any()]
    if len(found) == 2 and dates(cells, found[0])[0].equals(dates(cells, found[1])[0]):
        return found[:1]
    return found


def _guesses(word: str) -> list[str]:
    """The formats in which a word may be a date, the usual one first."""
    from pandas.tseries.api import guess_datetime_format

    found: list[str] = []
    orders = (True, False) if re.match(r"\d+\.", word) else (False, True)
    for day_first in orders:  # points stand in dates of countries where the day comes first
        with warnings.catch_warnings():  # that the guess is not what day_first says
            warnings.simplefilter("ignore", UserWarning)
            guess = guess_datetime_format(word, dayfirst=day_first)
        if guess is None or "%Y" not in guess or re.match("%Y[^%]?%d", guess):
            continue
        guess = _ISO if guess.startswith("%Y-%m-%d") else guess
        found += [guess, guess.replace("%B", "%b")]  # May is May in short and in full
    return list(dict.fromkeys(found))


def are_days_of_eight_digits(words: Any) -> bool:
    """Whether every cell is a date such as 20240131, of the years 1900 to 2099.

    Args:
      words: Series `[n]` of text, none missing.
    """
    if not len(words) or not re.fullmatch(_EIGHT_DIGITS, words.iloc[0]):  # most need no more
        return False
    return bool(words.str.fullmatch(_EIGHT_DIGITS).all() and not dates(words, "%Y%m%d")[1].any())


def example(form: str) -> str:
    """A date in quotes as `dates` reads it.

    Args:
      form: one of `date_formats`.
    """
    if form == _ISO:
        return "'2024-01-31'"
    return repr(datetime.datetime(2024, 1, 31, 14, 5, tzinfo=datetime.UTC).strftime(form))


def usual_date_format(words: Any) -> str:
    """The format in which nine of ten cells are dates, though not all; '' where there is none.

    Args:
      words: Series `[n]` of text, one or more, none missing, that `date_formats` has no format for.
    """
    some = np.unique(np.linspace(0, len(words) - 1, _SAMPLED).astype(int))
    for form in dict.fromkeys(form for word in words.iloc[some] for form in _guesses(word)):
        if MOST <= (~dates(words, form)[1]).mean() < 1:
            return form
    return ""


def may_be_short_dates(words: Any) -> bool:
    """Whether every cell may be a date such as 31.12.24, in some order of day, month and year.

    They are not read as dates: 12-03-10 has three meanings, and 55 is 1955 or 2055.

    Args:
      words: Series `[n]` of text, one or more, none missing.
    """
    form = r"^(\d\d?)(?P<mark>[./-])(\d\d?)(?P=mark)(\d\d?)$"
    if not re.match(form, words.iloc[0]):  # most columns need no more
        return False
    parts = words.str.extract(form)
    marks = parts.pop("mark")
    if parts.isna().any(axis=None) or marks.nunique() != 1:
        return False
    length = [parts[name].str.len().min() for name in parts]
    first, second, third = (parts[name].astype(int) for name in parts)

    def is_right(day: Any, month: Any) -> bool:
        return bool(day.between(1, 31).all() and month.between(1, 12).all())

    if length[2] == 2 and (is_right(first, second) or is_right(second, first)):
        return True
    return bool(length[0] == 2 and is_right(third, second))


def dates(cells: Any, form: str) -> tuple[Any, np.ndarray]:
    """The cells as dates, without their time zone.

    A column of dates with a zone keeps the time on its clock, so that a day stays the day that it
    is there. Text with an offset such as +01:00, of which a column may have several, is converted
    to UTC.

    Args:
      cells: pandas Series `[n]` of any type.
      form: one of `date_formats`, for cells that are text.

    Returns:
      `(values, wrong)`: Series `[n]` of datetime64, NaT where the cell is missing or no date; bool
      `[n]`, whether the cell is there and no date.
    """
    import pandas as pd

    if _are_dates(cells):
        if not isinstance(cells.dtype, pd.DatetimeTZDtype):
            cells = pd.to_datetime(cells, utc=True)
        return cells.dt.tz_localize(None), np.zeros(len(cells), bool)
    words = text(cells)
    values = pd.to_datetime(words, format=form, errors="coerce", utc=True).dt.tz_localize(None)
    if form == _ISO:  # pandas takes "today" for one, too, and a year or a month for its first day
        values = values.where(words.str.match(_ISO_DAY).fillna(False).astype(bool))
    return values, (values.isna() & words.notna()).to_numpy()


def seconds(dates: Any) -> np.ndarray:
    """Seconds since 1970, float64 `[n]`, NaN where a date is missing.

    Args:
      dates: pandas Series `[n]` of datetime64, as `dates` returns them.
    """
    values = dates.to_numpy()
    # In the unit of the dates: nanoseconds end in the year 2262.
    in_a_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[dates.dt.unit]
    return np.where(np.isnat(values), np.nan, values.astype(np.int64) / in_a_second)


def instants(dates: Any) -> np.ndarray:
    """Seconds since 1970 and nanoseconds after them, int64 `[n, 2]`, the same in every unit.

    pandas gives dates the unit that the finest of them needs.

    Args:
      dates: pandas Series `[n]` of datetime64, as `dates` returns them.
    """
    values = dates.to_numpy()
    whole = values.astype("datetime64[s]")
    rest = (values - whole).astype("timedelta64[ns]")
    return np.stack([whole.astype(np.int64), rest.astype(np.int64)], axis=1)


def _are_dates(cells: Any) -> bool:
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return True
    is_object = cells.dtype == object
    return is_object and pd.api.types.infer_dtype(cells, skipna=True) in ("date", "datetime")


def plain(name: str) -> str:
    """The name of a column without spaces around it, each letter with its accent one character.

    The same name can be written in two ways that look alike; files of macOS often have the other.
    """
    return unicodedata.normalize("NFC", name.strip())


def listed(names: Sequence[str], *, most: int = 8) -> str:
    """Names of columns as a message shows them: the first, and how many more there are."""
    shown = ", ".join(map(repr, names[:most]))
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def check_names(path: str, names: list[str]) -> None:
    """Raises a ValueError that names the file where two columns have the same name."""
    counts = collections.Counter(names)
    twice = next((name for name in names if counts[name] > 1), None)
    if twice is not None:
        first, second = [i + 1 for i, name in enumerate(names) if name == twice][:2]
        raise ValueError(
            f"{path} has two columns {twice!r}, numbers {first} and {second}; accepted: names that "
            "differ"
        )
