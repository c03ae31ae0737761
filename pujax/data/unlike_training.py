"""Columns of new rows that are unlike training: empty, of other words, or far outside of the range.

Scores of such rows may be wrong and look like all others, so that a sentence names the column.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pujax.data.column_kinds import OF_WORDS, Column
from pujax.data.readers import columns, frames

_MANY = 20
"""Rows, or cells of a column, from which on it is said that they are unlike training."""
_SHOWN = 8
"""Columns of which it is said; of a table of genes in another unit it would be thousands."""


def _is_mostly_filled(column: Column) -> bool:
    """Whether most training rows have a cell of the column, as far as is known."""
    return not column.had_missing or column.missing is not None and column.missing < 0.5


def _shown(column: Column, value: float | None) -> str:
    """A number or a date of a column for a person."""
    assert value is not None
    if column.kind != "date":
        return f"{value:.6g}"
    if column.offset:  # they are of a day or two
        return str(np.datetime64(int(value), "s")).replace("T", " ")
    # Single precision has steps of 128 to 256 seconds.
    return str(np.datetime64(int(value) + 256, "s").astype("datetime64[D]"))


class _Measured(NamedTuple):
    """Numbers or dates of a column: how many, how many far outside of training rows, the ends."""

    cells: int = 0
    far: int = 0
    low: float = np.inf
    high: float = -np.inf

    def with_values(self, column: Column, values: np.ndarray) -> "_Measured":
        """Takes part of the rows in; far is by more than the width of the range of training."""
        assert column.low is not None and column.high is not None
        width = column.high - column.low
        # Without a width the column is constant but for gaps, or an earlier version saved it.
        if not len(values) or not width:
            return self
        far = (values < column.low - width) | (values > column.high + width)
        return _Measured(
            self.cells + len(values),
            self.far + int(far.sum()),
            min(self.low, float(values.min())),
            max(self.high, float(values.max())),
        )


class Unlike:
    """Counts columns of which new rows have nothing, or little, that training rows had.

    Take the rows in by `add`, in one part or several; then ask for `sentences`.
    """

    def __init__(self) -> None:
        self.path = ""
        self.rows = 0
        self.columns: Sequence[Column] = ()
        self.cells: dict[str, int] = {}
        self.known: dict[str, bool] = {}
        self.measured: dict[str, _Measured] = {}

    def add(
        self,
        frame: frames.Frame,
        found: Sequence[Column],
        raw: np.ndarray,
        names: Sequence[str],
        sources: Sequence[str],
    ) -> None:
        """Takes part of the rows in.

        Args:
          frame: `n` rows.
          found: what training rows said of the columns.
          raw: `[n, features]`, NaN where a cell is missing.
          names: of the features.
          sources: the column that each feature is made of.
        """
        self.path, self.rows, self.columns = frame.path, self.rows + frame.num_rows, found
        # How the feature begins that is the number, or the date in seconds.
        named = {c.name: c.name + "_total_seconds" * (c.kind == "date") for c in found}
        place: dict[str, int] = {}
        of_column: dict[str, list[int]] = {}
        for i, (feature, source) in enumerate(zip(names, sources, strict=True)):
            of_column.setdefault(source, []).append(i)
            if feature.startswith(named[source]):
                place.setdefault(source, i)
        for column in found:
            name = column.name
            if column.low is not None and name in place:
                values = raw[:, place[name]] + column.offset
                before = self.measured.get(name, _Measured())
                self.measured[name] = before.with_values(column, values[~np.isnan(values)])
            if column.kind == "dropped" or self.known.get(name):
                continue
            present = ~columns.is_missing(frame.values[name])
            self.cells[name] = self.cells.get(name, 0) + int(present.sum())
            self.known[name] = bool(present.any())
            if present.any() and column.kind in OF_WORDS:
                # A word that training rows lack is 0 in all features of its column.
                own = raw[:, of_column.get(name, [])]
                self.known[name] = bool(own[present].any())

    def sentences(self) -> list[str]:
        """What to say of such columns of many rows: of the first, and how many more there are."""
        found = [
            f"{self.path}: column {column.name!r} {said}"
            for column in self.columns
            if (said := self._said(column))
        ]
        more = len(found) - _SHOWN
        if more <= 0:
            return found
        what = f"{more:,} more columns are" if more > 1 else "one more column is"
        return [*found[:_SHOWN], f"{self.path}: {what} unlike training rows"]

    def _said(self, column: Column) -> str:
        """What to say of a column; '' of most."""
        count = self.cells.get(column.name, 0)
        may_be_empty = not count and not _is_mostly_filled(column)
        if not (self.known.get(column.name, True) or may_be_empty):
            if self.rows >= _MANY and not count:
                share = f"{100 * column.missing:.2g}% of" if column.missing else "no"
                row = "rows" if column.missing else "row"
                return (
                    f"is empty, and was in {share} training {row}; scores may be wrong: fill it "
                    "in, or train without it"
                )
            if count >= _MANY:
                return (
                    f"has {count} words, none of which training rows have; scores may be wrong: "
                    "write them as in training rows"
                )
        measured = self.measured.get(column.name, _Measured())
        if measured.cells < _MANY or 2 * measured.far <= measured.cells:
            return ""
        kind, hint = "numbers", "give them in the unit of training rows"
        if column.kind == "date":
            kind, hint = "dates", "train on rows of such dates, too"
        here = f"{_shown(column, measured.low)} to {_shown(column, measured.high)}"
        there = f"{_shown(column, column.low)} to {_shown(column, column.high)}"
        return (
            f"has {measured.cells} {kind}, {measured.far} of which are far outside of training "
            f"rows: {here} here, {there} there; scores may be wrong: {hint}, or train without it"
        )
