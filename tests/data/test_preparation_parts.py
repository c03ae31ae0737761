"""A table prepared some rows at a time has the bits and the warnings of one prepared whole."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest

from pujax.data import preparation
from pujax.data.readers import columns, frames
from tests import memory

WORDS = ("category", "names")
"""Columns read as words, of which the former look like numbers."""


def table(count, seed=0, *, more=False):
    """Rows of all kinds of columns; of `more`, cells that other rows do not have."""
    rng = np.random.default_rng(seed)
    gone = rng.random(count) < 0.2
    number = rng.normal(size=count)
    seconds = rng.integers(0, 10**9, count) * 100  # within 100 s, so that they are moved near 0
    moment = pd.Series(pd.to_datetime("2024-01-31 10:00:00") + pd.to_timedelta(seconds, unit="ns"))
    moment = moment.dt.strftime("%Y-%m-%d %H:%M:%S.%f").to_numpy(object)
    moment[count // 2] += "123"  # pandas reads the whole column in nanoseconds
    days = [datetime.date(1990, 1, 1) + datetime.timedelta(int(i)) for i in seconds % 9000]
    cells = {
        "number": number,
        "large": 1.7e9 + number,
        "gaps": np.where(gone, np.nan, rng.normal(size=count)),
        "comma": [f"{x:.3f}".replace(".", ",") for x in number],
        "truth": np.where(gone, "", np.where(number > 0, "true", "false")),
        "lasts": pd.to_timedelta(rng.integers(0, 10**6, count), unit="s").astype(str),
        "money": [decimal.Decimal(int(i)) / 100 for i in seconds % 999],
        "moment": moment,
        "day": [None if g else d for g, d in zip(gone, days, strict=True)],
        "few": rng.choice(["red", "green", "", "new" if more else "blue"], count),
        "many": [f"street {i % 90}, {'town' if more else 'city'} {i % 7}" for i in seconds // 100],
        "codes": rng.choice(["A1", "12", "B7"], count),
        "category": rng.integers(0, 4 + more, count),
        "names": np.where(gone, None, rng.choice(["x", "y"], count)),
        "same": "one",
        "empty": "",
        "often_empty": ["word" if i % 10 == 3 else "" for i in range(count)],
    }
    found = pd.DataFrame(cells)
    for name in ("comma", "truth", "lasts", "moment", "few", "many", "codes"):
        found[name] = found[name].astype("str")
    return frames.Frame("t.csv", found, lines=np.arange(count) + 2, decimal_comma=True)


def at_once(learned, frame, dtype=np.float32):
    """The features of all rows as one part."""
    return np.concatenate(list(learned.transform_parts([frame], dtype=dtype)))


@pytest.mark.parametrize(
    ("count", "size", "dtype"),
    [
        (230, 40, np.float32),
        pytest.param(700, 97, np.float64, marks=pytest.mark.thorough),
    ],
)
def test_parts_have_the_bits_of_the_whole(count, size, dtype, monkeypatch):
    frame, others = table(count), table(count, 1, more=True)
    learned = preparation.fit(frame, np.arange(0, count, 2), words=WORDS)
    kinds = {column.name: column.kind for column in learned.columns}
    assert [kinds[name] for name in ("moment", "day", "few", "codes")] == [
        *["date"] * 2,
        "words",
        "codes",
    ]
    assert kinds["same"] == kinds["empty"] == "dropped" and kinds["names"] == "category"
    assert {c.spelled for c in learned.columns} >= {"", "truth", "duration"}
    assert any(c.kind == "date" and c.offset for c in learned.columns)
    assert len([source for source in learned.sources if source == "many"]) > 20  # of spellings
    monkeypatch.setattr(preparation, "_ROWS", size)
    for rows in (frame, others):
        found = learned.transform(rows, dtype=dtype)
        assert found.dtype == dtype and found.flags.c_contiguous and np.isfinite(found).all()
        assert found.tobytes() == at_once(learned, rows, dtype).tobytes()


@pytest.mark.parametrize("count", [230, 1300])
def test_what_is_learned_in_parts_is_what_the_whole_says(count, monkeypatch):
    frame, training = table(count), np.arange(0, count, 2)
    whole = preparation.fit(frame, training, words=WORDS)
    monkeypatch.setattr(preparation, "_ROWS", 100)
    found = preparation.fit(frame, training, words=WORDS)
    for field in ("feature_names", "columns", "fill", "kept", "messages", "sources"):
        assert getattr(found, field) == getattr(whole, field), field
    # As NumPy has it of all features at once.
    raw, names, _ = preparation._features(
        frame.take(training), found.columns, found.encoder, np.float32
    )
    fill = np.nan_to_num(np.nanmedian(raw, axis=0))
    filled = np.where(np.isnan(raw), fill, raw).astype(np.float32)
    kept = np.flatnonzero(filled.min(0) < filled.max(0))
    assert found.fill == tuple(fill.tolist()) and found.kept == tuple(kept.tolist())
    assert 0 < len(kept) < len(names)


@pytest.mark.parametrize("size", [30, 1000])
def test_parts_are_warned_about_as_the_whole_is(size, monkeypatch, caplog):
    learned = preparation.fit(table(400), words=WORDS)
    others = table(120, 1).values.assign(
        number=np.arange(120) + 1e6,
        gaps=np.nan,
        few="violet",
        codes="",
        often_empty=["other" if i >= 60 else "" for i in range(120)],
    )
    others = frames.Frame("t.csv", others, decimal_comma=True)
    at_once(learned, others)
    whole = [record.getMessage() for record in caplog.records]
    caplog.clear()
    monkeypatch.setattr(preparation, "_ROWS", size)
    learned.transform(others)
    assert [record.getMessage() for record in caplog.records] == whole
    assert len(whole) == 5 and "'often_empty' has 60 words, none of which training" in whole[-1]


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("comma", "x", "'comma' is 'x'; accepted: a number as in training rows, with"),
        ("number", 1e300, "'number' is 1e+300; accepted: numbers up to"),
        ("moment", "noon", "'moment' is 'noon'; accepted: a date as in training rows"),
    ],
)
@pytest.mark.parametrize("has_lines", [True, False])
def test_a_wrong_cell_is_named_by_its_place_in_the_whole(
    column, cell, said, has_lines, monkeypatch
):
    learned = preparation.fit(table(200), words=WORDS)
    others = table(200, 1).values.copy()
    others.loc[170, column] = cell
    lines = np.arange(200) * 2 + 2 if has_lines else None
    monkeypatch.setattr(preparation, "_ROWS", 40)
    place = "line 342" if has_lines else "row 171"
    with pytest.raises(ValueError) as error:
        learned.transform(frames.Frame("t.csv", others, lines=lines))
    assert str(error.value).startswith(f"t.csv, {place}, column {said}")


def test_arrays_are_prepared_in_parts_too(monkeypatch):
    rows = np.random.default_rng(0).normal(size=[50, 3])
    learned = preparation.fit(rows)
    monkeypatch.setattr(preparation, "_ROWS", 7)
    np.testing.assert_array_equal(learned.transform(rows), rows.astype(np.float32))
    np.testing.assert_array_equal(learned.transform(rows, dtype=np.float64), rows)
    rows[30, 1] = 1e300
    with pytest.raises(ValueError, match="the table, row 31, column '2' is 1e"):
        learned.transform(rows)


def test_what_is_missing_is_what_is_no_text():
    when = pd.Series(pd.to_datetime(["2024-01-31", None]))
    for cells in (
        pd.Series(["", "?", "n/a", "x", None], dtype="str"),
        pd.Series([1.5, np.nan, np.inf]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1.5, None], dtype="Float64"),
        pd.Series([True, False]),
        *(when, when.dt.tz_localize("Europe/Rome"), when - when[0]),
        pd.Series(["?", None, pd.NA, decimal.Decimal("NaN"), 1.5, "x"], dtype=object),
        pd.Series(["?", "x", None]).astype("category"),
    ):
        wanted = columns.text(cells).isna().to_numpy(bool)
        np.testing.assert_array_equal(columns.is_missing(cells), wanted)
        assert cells.dtype == bool or wanted.any()


def test_preparing_takes_little_more_than_its_result(monkeypatch):
    rng = np.random.default_rng(0)
    frame = frames.of(pd.DataFrame(rng.normal(size=[4000, 40])))
    monkeypatch.setattr(preparation, "_ROWS", 40)
    peak, learned = memory.peak_of(lambda: preparation.fit(frame))
    assert peak < 3.5 * 4000 * 40 * 4  # all features in double precision, and one column
    peak, result = memory.peak_of(lambda: learned.transform(frame))
    assert result.shape == (4000, 40) and peak < 1.5 * result.nbytes
