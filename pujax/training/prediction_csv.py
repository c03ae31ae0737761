"""Predictions as CSV: of one label per row, or of several.

name,score,probability,rank,decision,...      file,dog,cat,score_dog,score_cat,...
"""

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_HEADING = ["score", "probability", "rank", "decision"]
"""Columns of predictions behind the id."""
_MORE = ["held_out", "probability_low", "probability_high"]
"""Columns of predictions behind these; the first only of a run's own."""
_SCORE, _KNOWN = "score_", "known_"
"""How columns of several labels begin, behind those of what is predicted; the second only of a
run's own."""


class _LineFeeds:
    """A text whose rows end in a line feed, for a `csv.writer` that ends them in both characters.

    One that is to end them in a line feed leaves a carriage return in a cell without quotes, where
    readers take it for the end of the row.
    """

    def __init__(self, lines: io.StringIO) -> None:
        self._lines = lines

    def write(self, row: str) -> int:
        return self._lines.write(row.removesuffix("\r\n") + "\n")


def text(
    id_name: str,
    ids: np.ndarray,
    scores: np.ndarray,
    probabilities: np.ndarray | None,
    ranks: np.ndarray,
    chosen: np.ndarray,
    is_held: np.ndarray | None = None,
    *,
    between: tuple[np.ndarray, np.ndarray] | None = None,
    with_header: bool = True,
) -> str:
    """A CSV text: the id under its own name, score, probability, rank, decision, then the rest.

    An id with the name of another column of predictions is called `id`, so that no two are alike.
    The rest is whether a row was held out, if that is told, and both ends of the probability.

    Args:
      id_name: what the rows are named by.
      ids: `[n]`, in the order of the rows.
      scores: `[n]`; a row of NaN has an id and empty cells.
      probabilities: `[n]`; None leaves them empty.
      ranks: int `[n]`.
      chosen: bool `[n]`, who is called positive.
      is_held: bool `[n]`, which rows training did not see; None leaves that column out.
      between: ends of the probability `[n]` each; None leaves them empty.
      with_header: False writes the rows only.
    """
    lines = io.StringIO()
    writer = csv.writer(_LineFeeds(lines))
    more = _MORE[1:] if is_held is None else _MORE
    if with_header:
        heading = "id" if id_name in (*_HEADING, *_MORE) else id_name
        writer.writerow([heading, *_HEADING, *more])
    for i, name in enumerate(ids):
        if math.isnan(scores[i]):
            writer.writerow([name, *[""] * (4 + len(more))])
            continue
        probability = "" if probabilities is None else f"{probabilities[i]:.6g}"
        last: list[Any] = [] if is_held is None else [int(is_held[i])]
        last += ["", ""] if between is None else [f"{end[i]:.6g}" for end in between]
        row = [name, f"{scores[i]:.8g}", probability, ranks[i], int(chosen[i]), *last]
        writer.writerow(row)
    return lines.getvalue()


def label_text(
    id_name: str,
    names: Sequence[str],
    ids: np.ndarray,
    scores: np.ndarray,
    decisions: np.ndarray,
    known: np.ndarray | None = None,
    *,
    with_header: bool = True,
) -> str:
    """A CSV text of several labels: the id, a 1 or 0 per label, then its score, then what is known.

    A column of decisions is called as its label and the others after it, so that id and decisions
    are a table that training reads, but for a label `split` or a single one `labels`. An id with
    the name of another column is called `id`, with underscores before it where that is one, too.

    Args:
      id_name: what the rows are named by.
      names: of the labels.
      ids: `[n]`, in the order of the rows.
      scores: `[n, labels]`; a row of NaN has an id and empty cells.
      decisions: bool `[n, labels]`, which labels are predicted.
      known: int `[n, labels]`, 1 for a label that training knew to be present, -1 for absent, 0
        for an unknown one, whose cell is empty; None leaves these columns out.
      with_header: False writes the rows only.
    """
    lines = io.StringIO()
    writer = csv.writer(_LineFeeds(lines))
    if with_header:
        heading = [*names, *_after(_SCORE, names)]
        heading += _after(_KNOWN, names) if known is not None else []
        own = "id" if id_name in heading else id_name
        while own in heading:
            own = f"_{own}"
        writer.writerow([own, *heading])
    words = {1: 1, -1: 0, 0: ""}
    for i, name in enumerate(ids):
        row: list[Any] = [""] * (2 * len(names))
        if not np.isnan(scores[i]).any():
            row = [*map(int, decisions[i]), *(f"{x:.8g}" for x in scores[i])]
        if known is not None:
            row += [words[x] for x in known[i].tolist()]
        writer.writerow([name, *row])
    return lines.getvalue()


def _after(prefix: str, names: Sequence[str]) -> list[str]:
    """Names of further columns, none of which is a label's."""
    while any(prefix + name in names for name in names):
        prefix = f"_{prefix}"
    return [prefix + name for name in names]


def is_of_new_rows(heading: Sequence[str]) -> bool:
    """Whether a line is the heading of predictions that `pujax predict` wrote, and no run did.

    A run's own say of every row whether it was held out, or which labels were known.
    """
    if list(heading[1:5]) == _HEADING:
        return "held_out" not in heading
    names, rest = heading[1 : len(heading) // 2 + 1], heading[len(heading) // 2 + 1 :]
    return len(names) > 0 and len(heading) % 2 == 1 and list(rest) == _after(_SCORE, names)
