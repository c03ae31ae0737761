"""What an audit looks at, and what it returns."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pujax.arrays import check_codes
from pujax.checks import one_of, unmasked
from pujax.data import digests
from pujax.data.readers.columns import offsets

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
"""The most severe first: training would be worthless; a result may be wrong; good to know."""

SHOWN = 5
"""Columns and rows that a finding names; the rest is counted."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is worth saying of the data.

    Attributes:
      name: of the check, such as 'leak'.
      severity: one of `SEVERITIES`.
      title: what was found, in one sentence.
      evidence: the numbers, one sentence each.
      advice: what to do.
      numbers: the same numbers for programs.
    """

    name: str
    severity: str
    title: str
    evidence: tuple[str, ...]
    advice: str
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        one_of("severity", self.severity, SEVERITIES)


class Problem(NamedTuple):
    """P and U in numbers.

    Attributes:
      features: float32 `[n, d]`, finite; large numbers that differ by little less a constant.
      labeled: bool `[n]`, whether a row is a labelled positive; all others are unlabeled.
      columns: `[d]`, the column of the file that a feature is made of; several may be of one.
      keys: int `[n]`, equal where rows are copies of one another.
      ids: `[n]`, what the rows are called.
      facts: float64 `[n, k]` of what is known of the files of images and is no feature, such as
        their width; `[n, 0]` for tables.
      fact_names: `[k]`.
    """

    features: np.ndarray
    labeled: np.ndarray
    columns: tuple[str, ...]
    keys: np.ndarray
    ids: np.ndarray
    facts: np.ndarray
    fact_names: tuple[str, ...] = ()

    def without(self, names: Iterable[str]) -> "Problem":
        """The problem without the features of these columns, if any is left."""
        names = set(names)
        kept = [i for i, column in enumerate(self.columns) if column not in names]
        if not kept:
            return self
        return self._replace(
            features=self.features[:, kept], columns=tuple(self.columns[i] for i in kept)
        )


def problem(
    features: np.ndarray,
    labeled: np.ndarray,
    columns: Iterable[str] | None = None,
    *,
    ids: np.ndarray | None = None,
) -> Problem:
    """A `Problem` of rows of numbers.

    Args:
      features: `[n, d]`, finite numbers. A constant is subtracted from columns whose numbers single
        precision would not tell apart, such as seconds since 1970, and stands in their names; rows
        are copies of one another where all of their digits are the same.
      labeled: `[n]`, True, or 1 beside 0 or -1, for the labelled positives.
      columns: names `[d]`; None is '1', '2' and so on.
      ids: names of the rows `[n]`; None counts from 1.

    Raises:
      ValueError: the shapes do not fit one another, a feature is no finite number, or a label none
        of these.
    """
    given_features, labeled = _array("features", features), _array("labeled", labeled)
    if given_features.dtype.kind not in "biufV":  # V is bfloat16's
        what = f"{type(features).__name__} of {given_features.dtype}"
        raise ValueError(f"features is a {what}; accepted: an array of real numbers")
    check_codes("labeled", labeled, ((0, 1), (-1, 1)))
    labeled = labeled > 0
    shape = given_features.shape
    if len(shape) != 2 or labeled.shape != shape[:1] or not given_features.size:
        raise ValueError(
            f"features is of shape {shape} and labeled of {labeled.shape}; accepted: "
            "[n, d] and [n], not empty"
        )
    if given_features.dtype.kind == "V":
        given_features = given_features.astype(np.float32)
    # What is too large or not finite is refused by name below.
    with np.errstate(over="ignore", invalid="ignore"):
        ends = (end(axis=0).astype(np.float64) for end in (given_features.min, given_features.max))
        constants = offsets(*ends)
        near_zero = given_features - constants if constants.any() else given_features
        features = np.ascontiguousarray(near_zero, np.float32)
    bad = np.argwhere(~np.isfinite(features))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"features, row {row + 1}, column {column + 1}, is {given_features[row, column]}; "
            "accepted: finite numbers up to 3.4e38"
        )
    given = tuple(map(str, range(1, features.shape[1] + 1)) if columns is None else columns)
    if len(given) != features.shape[1]:
        raise ValueError(f"columns has {len(given)} names; accepted: {features.shape[1]}")
    given = tuple(
        f"{name} - {constant:.15g}" if constant else name
        for name, constant in zip(given, constants, strict=True)
    )
    return Problem(
        features=features,
        labeled=labeled,
        columns=given,
        keys=same(digests.of_numbers(given_features)),
        ids=np.arange(1, len(features) + 1) if ids is None else ids,
        facts=np.zeros([len(features), 0]),
    )


def _array(name: str, values: Any) -> np.ndarray:
    unmasked(name, values)
    try:
        return np.asarray(values)
    except ValueError as error:  # such as of rows of different lengths
        raise ValueError(f"{name} is no array ({error}); accepted: numbers") from error


def same(contents: Iterable[bytes]) -> np.ndarray:
    """Numbers int `[n]` that are equal where contents are."""
    known: dict[bytes, int] = {}
    return np.array([known.setdefault(content, len(known)) for content in contents], np.int64)


def listed(names: Iterable[Any]) -> str:
    """The first of some names, and how many more there are."""
    names = [str(name) for name in names]
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Findings, the most severe first; equal ones in the order given."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
