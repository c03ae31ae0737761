"""Digests of contents, and rows of a test set that training has, as found by whole keys."""

import collections

import numpy as np
import pandas as pd
import pytest

from pujax.data import preparation
from pujax.data.digests import Digests
from pujax.data.readers import columns, frames
from pujax.data.sources import own_table
from tests import memory


def of(contents):
    digests = Digests()
    for start in range(0, len(contents), 3):  # in parts, as chunks come
        digests.add(str(content).encode() for content in contents[start : start + 3])
    return digests


@pytest.mark.parametrize("kinds", [2, 30, 10**6])
def test_digests_compare_as_contents_do(kinds):
    rng = np.random.default_rng(kinds)
    first, others = rng.integers(0, kinds, 50).tolist(), rng.integers(0, kinds, 40).tolist()
    digests, counts = of(first), collections.Counter(first)
    assert len(digests) == 50 and {len(digest) for digest in digests} == {16}
    assert len(set(digests)) == len(counts)
    np.testing.assert_array_equal(of(others).among(digests), np.isin(others, first))
    assert digests.num_repeated() == sum(count for count in counts.values() if count > 1)
    # Of all pairs the one whose second comes first, which has one before it.
    second = next((i for i in range(50) if first[i] in first[:i]), None)
    pair = None if second is None else (first[:second].index(first[second]), second)
    assert digests.repeated() == pair


def test_without_contents_nothing_is_the_same():
    assert list(Digests()) == [] and Digests().repeated() is None
    assert Digests().num_repeated() == 0 and not of([1]).among(Digests()).any()


def table(rows, seed):
    """Rows of few different cells, of all kinds, so that many are equal."""
    rng = np.random.default_rng(seed)
    cells = {
        "number": ("0.0", "-0.0", "1.5", "", "?"),
        "comma": ("1,5", "-0,0", "2,25"),
        "truth": ("true", "False"),
        "day": ("2024-01-31", "2024-02-01", "", "1912-06-23"),
        "word": ("red", "re", "", "N/A"),
        "more": ("d", "é", "", "nothing"),  # re and d is not red and nothing
        "same": ("one",),
    }
    drawn = {name: [of[i] for i in rng.integers(0, len(of), rows)] for name, of in cells.items()}
    return frames.Frame(f"{seed}.csv", pd.DataFrame(drawn, dtype="str"), decimal_comma=True)


def by_whole_keys(rows, tested, learned):
    """The counts from a key of all cells of every row, as one table."""

    def keys(frame):
        parts = []
        for column in learned.columns:
            cells = frame.values[column.name] if column.kind != "dropped" else None
            if column.kind == "number":
                values, _ = columns.numbers(cells, column.marks, column.spelled)
                parts.append((values + 0.0).tolist())
            elif column.kind == "date":
                values, _ = columns.dates(cells, column.date_format)
                parts.append(values.astype("datetime64[ns]").astype("int64").tolist())
            elif cells is not None:
                parts.append(columns.text(cells).fillna("").tolist())
        return list(map(repr, zip(*parts, strict=True)))

    counts = collections.Counter(keys(rows.frame))
    equal = sum(key in counts for key in keys(tested))
    again = sum(count for count in counts.values() if count > 1) / rows.frame.num_rows
    return equal, again


def own_rows(frame):
    """The frame as rows without labels or ids, of which only the frame is looked at."""
    labels = own_table.pu_labels.Labels(np.zeros(frame.num_rows, np.int8), "label", "")
    return own_table.Rows(frame, labels, own_table.pu_labels.Ids(None, None, (), ()))


@pytest.mark.parametrize("size", [40, 8192])
def test_copies_are_those_that_whole_keys_find(size, monkeypatch):
    rows, tested = own_rows(table(400, 1)), table(150, 2)
    learned = preparation.fit(rows.frame)
    kinds = {column.name: column.kind for column in learned.columns}
    assert list(kinds.values()) == ["number"] * 3 + ["date", *["words"] * 2, "dropped"]
    equal, again = by_whole_keys(rows, tested, learned)
    assert 50 < equal < 150 and 0.2 < again < 0.9
    monkeypatch.setattr(preparation, "_ROWS", size)
    found = own_table._test_copies(rows, tested, learned)
    assert (found.rows, found.same_id, found.of) == (equal, 0, 150)
    assert found.among_training == again


def test_dates_are_the_same_whatever_the_finest_beside_them(monkeypatch):
    """pandas reads cells in nanoseconds where one of them has nine digits."""
    first, later, finer = "1912-06-23 10:00:00.25", "1912-06-23 10:00:00.5", "000000001"
    cells = [first, f"{first[:-2]}{finer}", first, "", later, later]
    table = pd.DataFrame({"when": pd.Series(cells, dtype="str")})
    learned = preparation.fit(table)
    monkeypatch.setattr(preparation, "_ROWS", 2)
    found = list(learned.row_digests(table))
    same = [[found[i] == found[k] for k in range(6)] for i in range(6)]
    assert same == [[a == b for b in cells] for a in cells]


def test_a_missing_number_is_the_same_whatever_its_bits():
    table = pd.DataFrame({"x": [np.nan, -np.nan, 1.0, 2.0]})
    first, second, *_ = preparation.fit(table).row_digests(table)
    assert first == second


def test_arrays_are_digested_too(monkeypatch):
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [1e-9, 1.0]])
    monkeypatch.setattr(preparation, "_ROWS", 2)
    first, second, third = preparation.fit(rows).row_digests(rows)
    assert first == second != third


def test_copies_take_little_memory_of_a_training_row(monkeypatch):
    rng = np.random.default_rng(0)
    frame = frames.of(pd.DataFrame(rng.normal(size=[5_000, 20])))
    learned = preparation.fit(frame, np.arange(100))
    monkeypatch.setattr(preparation, "_ROWS", 100)
    rows, tested = own_rows(frame), frame.take(np.arange(100))
    peak, found = memory.peak_of(lambda: own_table._test_copies(rows, tested, learned))
    assert found.rows == 100 and peak < 120 * frame.num_rows
