"""What a page is made of: numbers as text, tables, figures and sections."""

import math
from typing import Any, NamedTuple

from pujax.console import fixed

UNKNOWN = "unknown"
_TINY = 1e-8
"""Below which a number is shown with an exponent."""
LEVEL = 0.9
"""Of all intervals of a page."""


class Number(NamedTuple):
    """A number and its interval; NaN where one is not known."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @property
    def is_known(self) -> bool:
        """Whether there is a value."""
        return math.isfinite(self.value)

    @property
    def has_interval(self) -> bool:
        """Whether both ends are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)


class Table(NamedTuple):
    """A table.

    Attributes:
      caption: what it shows.
      columns: headings; the first names the row.
      rows: cells as text, as many as columns each.
      note: a remark below it.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


class Figure(NamedTuple):
    """A figure.

    Attributes:
      svg: an SVG element, as `drawing.svg` makes it.
      label: what a reader who does not see it has to know.
      caption: below it.
    """

    svg: str
    label: str
    caption: str


class Card(NamedTuple):
    """One example with its picture.

    Attributes:
      picture: a `data:` address of a PNG file.
      name: of the example.
      facts: names and values.
    """

    picture: str
    name: str
    facts: tuple[tuple[str, str], ...]


class Cards(NamedTuple):
    """Examples of one kind."""

    caption: str
    cards: tuple[Card, ...]


class Section(NamedTuple):
    """A part of the page below one heading; empty parts are not shown.

    Attributes:
      name: an id, unique among the sections of a run.
      title: heading.
      texts: paragraphs.
      figures: side by side where there is room.
      tables: below them.
      cards: examples with pictures.
    """

    name: str
    title: str
    texts: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    cards: tuple[Cards, ...] = ()


def number(value: Any) -> float:
    """A number of a JSON document; NaN where it is None or absent."""
    return math.nan if value is None else float(value)


def percent(value: float, digits: int = 1) -> str:
    """A share in percent, 'unknown' where it is not known; no other than 0 and 1 reads as these."""
    return f"{fixed(100 * value, digits, most=100)} %" if math.isfinite(value) else UNKNOWN


def decimal(value: float, digits: int = 4) -> str:
    """A number with so many decimals, 'unknown' where it is not known; near 0 and 1 more."""
    if not math.isfinite(value):
        return UNKNOWN
    return f"{value:.1e}" if 0 < abs(value) < _TINY else fixed(value, digits, most=1)


def count(value: Any) -> str:
    """A count with separators, 'unknown' where it is not known."""
    return UNKNOWN if value is None else f"{int(value):,}"


def with_interval(known: Number, *, as_percent: bool = False) -> str:
    """A number and its interval in brackets, as the terminal shows them."""
    shown = percent if as_percent else decimal
    digits = 1 if as_percent else 4
    if not known.is_known:
        return UNKNOWN
    text = shown(known.value, digits)
    if known.has_interval:
        ends = [shown(end, digits).removesuffix(" %") for end in (known.low, known.high)]
        text += f" [{', '.join(ends)}]"
    return text
