"""Numbers of text with a decimal comma, or with thousands set apart, such as '1.234,5'.

How a column is written is told from all of its training cells, and only where they leave no doubt:
'1,234' alone may be 1234 or 1.234. It is then remembered, so that new rows are read alike.
"""

import collections
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

MARKS = (",.", ".,", ", ", ". ", ",'", ".'", ",")
"""How numbers may be written but with a decimal point alone: the decimal mark, then what sets
thousands apart, where a space stands for any kind of space. A decimal comma alone is last."""

_ALMOST = 0.9
"""Share of cells that are numbers above which a column is taken for one of numbers."""
_NAMES = {".": "a point", ",": "a comma", " ": "a space", "'": "an apostrophe"}
_SPACES = " \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
"""All that Unicode counts among its space separators (Zs)."""
_CLASSES = {".": r"\.", ",": ",", " ": f"[{_SPACES}]", "'": "['’]"}
_THOUSANDS = "(?:" + "|".join(_CLASSES[mark] for mark in ". '") + ")"
MINUS = "\u2212"
"""The minus of typography, which some programs write instead of a hyphen."""
_SIGN = rf"[+\-{MINUS}]?"
_EXPONENT = rf"(?:[eE]{_SIGN}\d+)?"
_ADDRESS = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}")
"""Addresses of the Internet Protocol (version 4)."""
_PLAIN = re.compile(rf"{_SIGN}(?:\d+\.?\d*|\.\d+){_EXPONENT}")
_LIKELY = re.compile(
    rf"{_SIGN}\s*[€$£¥]?\s*{_SIGN}"
    rf"(?:\d+(?:[.,]\d+)?|[.,]\d+|\d{{1,3}}(?:(?:,|{_THOUSANDS})\d{{3}})+(?:[.,]\d+)?"
    rf"|\d{{1,2}}(?:,\d\d)+,\d{{3}}(?:\.\d+)?){_EXPONENT}\s*[€$£¥%]?"
)
"""Numbers in any of these ways, and with a currency, a percent sign or Indian groups as well; no IP
addresses."""


_QUANTITY = re.compile(
    rf"{_SIGN}(?:\d+|(?=[.,]))(?P<decimals>[.,]\d+)?\s*(?P<unit>[^\W\d_]{{1,5}}(?:/[^\W\d_]{{1,3}})?)"
)
"""A number and a unit of letters."""


def _pattern(marks: str) -> re.Pattern[str]:
    decimal = _CLASSES[marks[0]]
    if len(marks) == 1:
        # With a fraction behind them, thousands are in no doubt, whatever sets them apart.
        grouped = rf"[1-9]\d{{0,2}}(?:(?P<mark>{_THOUSANDS})\d{{3}})(?:(?P=mark)\d{{3}})*,\d+"
        number = rf"\d+(?:,\d+)?|,\d+|{grouped}"
    else:
        whole = rf"(?:\d+|[1-9]\d{{0,2}}(?:{_CLASSES[marks[1]]}\d{{3}})+)"
        number = rf"{whole}(?:{decimal}\d+)?|{decimal}\d+"
    return re.compile(rf"{_SIGN}(?:{number}){_EXPONENT}")


_PATTERNS = {marks: _pattern(marks) for marks in MARKS}
_GROUPING = {marks: re.compile(_CLASSES[marks[1]]) for marks in MARKS if len(marks) == 2}


class Writing(NamedTuple):
    """How the numbers of a column are written.

    Attributes:
      marks: one of `MARKS`; '' where they are not read.
      doubt: why they are not, as a part of a sentence about `example`; '' where they are read, and
        where it says so by itself.
      example: the first cell that is no number with a decimal point; of cells most of which are
        numbers, the first that is none; '' where there is no such cell.
    """

    marks: str
    doubt: str
    example: str


def described(marks: str) -> str:
    """What numbers are written with, for a person.

    Args:
      marks: one of `MARKS`.
    """
    parts = ["a decimal comma"] if marks[0] == "," else []
    parts += [f"{_NAMES[mark]} between thousands" for mark in marks[1:]]
    return " and ".join(parts)


def example(words: Sequence[str], marks: str) -> str:
    """The first cell that has all of the marks that any cell has; else the first cell.

    Args:
      words: the cells that are not missing, one at least.
      marks: one of `MARKS`.
    """
    patterns = [re.compile(_CLASSES[mark]) for mark in marks]
    present = [pattern for pattern in patterns if any(map(pattern.search, words))]
    full = (word for word in words if all(pattern.search(word) for pattern in present))
    return next(full, words[0])


def plain(cell: str) -> float | None:
    """The number of a cell as Python writes it; None if it is none.

    An underscore, which Python takes for a mark between thousands, stands in codes: '1_2' is none.
    """
    if "_" in cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def value(cell: str, marks: str) -> float:
    """The number of a cell, NaN if it is none.

    Args:
      cell: without spaces at its ends.
      marks: one of `MARKS`.
    """
    if not _PATTERNS[marks].fullmatch(cell):
        return np.nan
    pointed = _pointed(cell.replace(MINUS, "-"), marks[0])
    return float(re.sub(r"[^\d.+\-eE]", "", pointed))


def _pointed(cell: str, decimal: str) -> str:
    """The cell with a point at most where its decimal mark is."""
    return cell if decimal == "." else cell.replace(".", "").replace(",", ".")


def is_likely(words: Iterable[str]) -> bool:
    """Whether cells, of which some have no decimal point alone, are meant as numbers, by and large.

    Args:
      words: the cells that are not missing, without spaces at their ends.
    """
    others = [word for word in words if not _PLAIN.fullmatch(word)]
    likely = sum(1 for word in others if _LIKELY.fullmatch(word))
    return bool(others) and likely >= _ALMOST * len(others)


def unit_of(words: Iterable[str]) -> str:
    """The unit of cells most of which are quantities of it, as of '0.5 kg' and '12 kg'; else ''.

    Whole numbers alone with something behind them are as often codes, dates or ranks ('90210 CA',
    '12 Jan', '4th'), so that one of the quantities has decimals.

    Args:
      words: the cells that are not missing, without spaces at their ends.
    """
    words = list(words)
    found = [match for word in words if (match := _QUANTITY.fullmatch(word))]
    counted = collections.Counter(match["unit"] for match in found).most_common(1)
    if not counted or counted[0][1] < _ALMOST * len(words):
        return ""
    unit = counted[0][0]
    return unit if any(match["unit"] == unit and match["decimals"] for match in found) else ""


def of(words: Iterable[str], *, decimal_comma: bool) -> Writing:
    """How the numbers of a column are written, if all of its cells are numbers.

    Args:
      words: the cells that are not missing, without spaces at their ends; one at least is no number
        with a decimal point.
      decimal_comma: whether '3,14' may be a number: not where commas separate the cells, since it
        may be two numbers there. Where another cell is like '1.234,5', it is one anyway.

    Returns:
      A `Writing`.
    """
    words = list(words)
    cells = list(dict.fromkeys(words))
    fitting = [marks for marks in MARKS if all(map(_PATTERNS[marks].fullmatch, cells))]
    example = next((cell for cell in cells if not _PLAIN.fullmatch(cell)), "")
    if not fitting:
        return _odd_one(words) or Writing("", "", example)
    if "," in fitting and ".," in fitting:
        shown = " or ".join(f"{value(example, marks):.10g}" for marks in (".,", ","))
        return Writing("", f"which may be {shown}", example)
    sure = [marks for marks in fitting if _is_sure(cells, marks)]
    commas = any("," in cell for cell in cells)
    both = any(re.search(rf"\d{_THOUSANDS}\d+,\d", cell) for cell in cells)
    if sure and sure[0][0] == "," and commas and not decimal_comma and not both:
        doubt = (
            "which is taken for a number only in a text file whose cells something else than a "
            "comma separates"
        )
        return Writing("", doubt, example)
    if sure:
        return Writing(sure[0], "", example)
    if _are_addresses(cells):
        doubt = "which is an IP address as much as a number"
    elif len(_forms(cells)) == 1:
        doubt = "which may be a number or a code, as all cells have the same form"
    else:
        doubt = "while other cells have a point, and none says which mark stands between thousands"
    return Writing("", doubt, example)


def _is_sure(cells: list[str], marks: str) -> bool:
    """Whether cells that all fit are numbers that are written so, and nothing else."""
    decimals = [cell for cell in cells if marks[0] in cell]
    if len(marks) == 1:
        return bool(decimals)
    groups = [len(_GROUPING[marks].findall(cell)) for cell in cells]
    if not any(groups) or (marks[0] == "," and marks[1] in " '" and not decimals):
        return False  # another one says the same of these cells
    is_no_code = bool(decimals) or len(_forms(cells)) > 1
    if marks[1] in ".,":
        both = any(count and marks[0] in cell for cell, count in zip(cells, groups, strict=True))
        return both or (max(groups) > 1 and is_no_code and not _are_addresses(cells))
    return marks[1] == "'" or is_no_code


def _are_addresses(cells: list[str]) -> bool:
    return all(map(_ADDRESS.fullmatch, cells))


def _forms(cells: list[str]) -> set[str]:
    """Cells with all digits and signs alike."""
    return {re.sub(r"\d", "9", cell.lstrip(f"+-{MINUS}")) for cell in cells}


def _odd_one(cells: list[str]) -> Writing | None:
    """A `Writing` about the first cell that is unlike the others, if nearly all are alike."""
    for marks in MARKS:
        misfits = [cell for cell in cells if not _PATTERNS[marks].fullmatch(cell)]
        if len(cells) - len(misfits) >= _ALMOST * len(cells):
            odd = set(misfits)
            like = next((c for c in cells if c not in odd and not _PLAIN.fullmatch(c)), "")
            return Writing("", f"while others are like {like!r}" if like else "", misfits[0])
    return None
