"""A preparation is learned on training rows only, and gives the same numbers ever after."""

import fractions
import hashlib
import json
import re
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn import datasets

from pujax.data import column_kinds, preparation, table_encoder
from pujax.data.readers import columns, frames, pu_labels

N = 300
TRAINING = np.arange(0, N, 2)


def customers(seed=0):
    """A realistic table as text, as a CSV file gives it."""
    rng = np.random.default_rng(seed)
    amount = rng.normal(100, 20, N).round(2).astype(str).astype(object)
    amount[[4, 11, 50]] = ["N/A", "", "null"]
    days = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 700, N), unit="D")
    seen = pd.Series(days.strftime("%d.%m.%Y"), dtype="str")
    seen[rng.random(N) < 0.1] = ""
    cells = {
        "amount": amount,
        "visits": rng.integers(0, 9, N),
        "colour": rng.choice(["red", "green", "blue"], N),
        "shop": [f"shop number {i}" for i in rng.integers(0, 2000, N)],
        "since": days.strftime("%Y-%m-%d"),
        "seen": seen,
        "member": rng.choice(["True", "False"], N),
        "empty": [""] * N,
        "country": ["DE"] * N,
    }
    return pd.DataFrame({name: pd.Series(c).astype("str") for name, c in cells.items()})


@pytest.fixture(scope="module")
def learned():
    return preparation.fit(customers(), TRAINING, aside=("is_fraud", "id"))


def feature(learned, x, name):
    return x[:, learned.feature_names.index(name)]


def saved(learned, folder):
    learned.save(folder)
    return preparation.load(folder)


def test_every_kind_of_column_becomes_numbers(learned):
    table = customers()
    x = learned.transform(table)
    assert x.shape == (N, len(learned.feature_names)) and x.dtype == np.float32
    assert np.isfinite(x).all()
    visits = table["visits"].astype(float)
    np.testing.assert_array_equal(feature(learned, x, "visits"), visits)
    np.testing.assert_array_equal(feature(learned, x, "member"), table["member"] == "True")
    for colour in ("red", "green", "blue"):
        is_so = feature(learned, x, f"colour_{colour}")
        np.testing.assert_array_equal(is_so, table["colour"] == colour)
    since = pd.to_datetime(table["since"])
    np.testing.assert_array_equal(feature(learned, x, "since_month"), since.dt.month)
    assert sum(name.startswith("shop_") for name in learned.feature_names) == 30
    there = (table["seen"] != "").to_numpy()
    seen = pd.to_datetime(table["seen"][there], format="%d.%m.%Y")
    np.testing.assert_array_equal(feature(learned, x, "seen_day")[there], seen.dt.day)
    np.testing.assert_array_equal(feature(learned, x, "seen is missing"), ~there)


def test_a_missing_number_is_the_median_of_training_rows_and_marked(learned):
    x = learned.transform(customers())
    amount = pd.to_numeric(customers()["amount"], errors="coerce").to_numpy()
    gone = np.isnan(amount)
    median = np.float32(np.median(amount[TRAINING][~gone[TRAINING]]))
    np.testing.assert_array_equal(
        feature(learned, x, "amount"), np.where(gone, median, amount).astype(np.float32)
    )
    np.testing.assert_array_equal(feature(learned, x, "amount is missing"), gone)


def test_what_says_nothing_is_left_out_with_a_message(learned):
    assert learned.messages == (
        "column 'empty' is left out: empty in all training rows",
        "column 'country' is left out: 'DE' in all training rows",
    )
    x = learned.transform(customers())[TRAINING]
    assert (x.min(0) < x.max(0)).all()
    assert not any(name.startswith(("empty", "country")) for name in learned.feature_names)
    anything = customers().assign(empty="now", country="FR")
    np.testing.assert_array_equal(learned.transform(anything)[TRAINING], x)
    without = customers().drop(columns=["empty", "country"])
    np.testing.assert_array_equal(learned.transform(without)[TRAINING], x)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_features_of_arrays_that_training_rows_do_not_differ_in_stay_as_they_were(
    is_sparse, tmp_path, monkeypatch
):
    monkeypatch.setattr(preparation, "_ROWS", 1)  # looked at one after the other
    rows = np.array([[0.0, 2, 7, 5], [0, 3, 7, 5], [0, 1, 7, 6], [0, 4, 9, 8]])
    given = rows
    if is_sparse:  # whose indices begin at 1, so that the column 0 is empty
        path = tmp_path / "rows.svmlight"
        datasets.dump_svmlight_file(rows[:, 1:], np.zeros(4), str(path), zero_based=False)
        given = frames.read(str(path))
    learned = preparation.fit(given, [2, 0, 1])
    learned.save(tmp_path)
    wanted = rows.copy()
    wanted[3, 2] = 7  # the same in the training rows, other than the last column
    for one in (learned, preparation.load(tmp_path)):
        np.testing.assert_array_equal(one.transform(given), wanted[:, int(is_sparse) :])
    unused = "1 of 3" if is_sparse else "2 of 4", "'2'" if is_sparse else "'1', '3'"
    said = "{} features are the same in all training rows and unused: {}".format(*unused)
    assert learned.messages == (said,)
    assert rows[3, 2] == 9  # what was given is left alone
    assert len(preparation.fit(given).messages) == (not is_sparse)  # the first column alone


@pytest.mark.parametrize("as_files", [False, True])
def test_large_numbers_of_arrays_are_told_apart_as_those_of_tables_are(
    as_files, tmp_path, monkeypatch
):
    monkeypatch.setattr(preparation, "_ROWS", 7)
    n = 60
    rows = np.stack([1.7e9 + np.arange(n), np.arange(n) % 5, np.full(n, 1e15)], axis=1)
    given = rows
    if as_files:
        np.savez(tmp_path / "rows.npz", x=rows, labels=np.arange(n) % 2)
        given = frames.read(str(tmp_path / "rows.npz"))
    learned = preparation.fit(given, np.arange(5, n))
    learned.save(tmp_path)
    for one in (learned, preparation.load(tmp_path)):
        found = one.transform(given)
        assert found.dtype == np.float32 and len(set(one.row_keys(given))) == n
        np.testing.assert_array_equal(found[:, 0] - found[0, 0], np.arange(n))
        np.testing.assert_array_equal(found[:, 1:], rows[:, 1:].astype(np.float32))
        # Rows to come have the same constant subtracted, whatever else is among them.
        np.testing.assert_array_equal(one.transform(rows[:1]), found[:1])
    # A version that would not subtract it refuses what it reads; others go on as before.
    assert json.loads((tmp_path / "preparation.json").read_text())["format"] == 2
    preparation.fit(rows[:, 1:2]).save(tmp_path)
    assert json.loads((tmp_path / "preparation.json").read_text())["format"] == 1
    table = preparation.fit(pd.DataFrame(rows[:, :2], columns=["1", "2"]), np.arange(5, n))
    assert learned.feature_names == (*table.feature_names, "3")
    np.testing.assert_array_equal(
        learned.transform(given)[:, :2],
        table.transform(pd.DataFrame(rows[:, :2], columns=["1", "2"])),
    )
    large, same = learned.messages
    assert large.startswith("1 of 3 features are large") and large.endswith("from each: '1'")
    assert same == "1 of 3 features are the same in all training rows and unused: '3'"


def test_of_every_column_what_is_subtracted_is_found_by_itself():
    low = np.array([1.7e9, 0.0, 5.0, 1e15, 1e-306, -2e6])
    high = np.array([1.7e9 + 40, 0.0, 5.0, 1e15 + 1, 1e-306 + 1e-310, -2e6 + 50])
    found = columns.offsets(low, high)
    # 40 and 50 are rounded to tens; the third and fourth differ by too little, or by nothing.
    np.testing.assert_array_equal(found, [1_700_000_020, 0, 0, 0, 0, -1_999_980])
    assert columns.offset(np.array([np.nan, low[0], high[0]])) == found[0]


def test_whole_numbers_that_double_precision_merges_are_not_called_the_same():
    rows = np.stack([2**60 + np.arange(50), np.arange(50), np.full(50, 2**60)], axis=1)
    learned = preparation.fit(rows)
    assert learned.kept == (1,) and not learned.offsets
    assert learned.messages == (
        "1 of 3 features differ by less than a trillionth in training rows and are unused; "
        "subtract a constant: '1'",
        "1 of 3 features are the same in all training rows and unused: '3'",
    )


def test_what_is_said_of_more_than_three_columns_is_said_once():
    x = np.arange(6.0)

    def said(num_zeros, num_ones):
        zeros = {f"zero{i}": np.zeros(6, int) for i in range(num_zeros)}
        ones = {f"one{i}": np.ones(6, int) for i in range(num_ones)}
        return preparation.fit(pd.DataFrame({"x": x, **zeros, **ones})).messages

    assert said(2, 1) == (
        "column 'zero0' is left out: '0' in all training rows",
        "column 'zero1' is left out: '0' in all training rows",
        "column 'one0' is left out: '1' in all training rows",
    )
    assert said(2, 2) == (
        "column 'zero0' is left out: '0' in all training rows; likewise 3 more, with cells of "
        "their own: 'zero1', 'one0', 'one1'",
    )
    together = (
        "each of 4 columns is left out: '0' in all training rows "
        "('zero0', 'zero1', 'zero2', 'zero3')"
    )
    assert said(4, 0) == (together,)
    (many,) = said(1200, 0)
    assert many.startswith("each of 1,200 columns") and many.endswith("'zero7' and 1,192 more)")


def test_cells_that_differ_do_not_keep_sentences_apart():
    """Forty columns of another laboratory, and 40 that are written with a decimal point."""
    x = np.arange(30) % 7 + 0.5
    words = {f"low{i}": ["<0.1", *map(str, x[1:] + i)] for i in range(40)}
    (said,) = preparation.fit(pd.DataFrame({"x": x, **words})).messages
    assert said.startswith("column 'low0' is read as words, since") and "'<0.1'" in said
    assert "; likewise 39 more, with" in said and said.endswith(columns.listed([*words][1:]))
    told = pd.DataFrame({"x": x} | dict.fromkeys("abcde", words["low0"]))
    assert len(preparation.fit(frames.Frame("o'brien/a.csv", told)).messages) == 1
    points = {f"gene{i}": [f"{value + i:.3f}" for value in x] for i in range(1, 41)}
    comma = [f"{value},5" for value in range(30)]
    frame = frames.Frame("a.csv", pd.DataFrame({"y": comma, **points}), decimal_comma=True)
    said = preparation.fit(frame).messages
    assert len(said) == 2 and "such as '0,5' for 0.5: 'y'" in said[0]
    assert "though other columns have a decimal comma" in said[1] and "likewise 39 more" in said[1]


def test_rows_that_are_drawn_with_repeats_are_the_training_rows():
    table = pd.DataFrame({"x": np.arange(4.0)})
    learned = preparation.fit(table.assign(y=[1, 1, 1, 5]), np.array([0, 1, 2, 1]))
    assert learned.feature_names == ("x",)  # y is 1 in all of these
    every = preparation.fit(table, np.arange(4))
    assert every.fill == preparation.fit(table).fill == (1.5,)


def test_the_names_of_a_wide_table_are_not_listed_for_each_of_them(monkeypatch):
    listings = []
    names = frames.Frame.names.fget
    monkeypatch.setattr(
        frames.Frame, "names", property(lambda frame: listings.append(1) or names(frame))
    )

    def count(width):
        listings.clear()
        table = pd.DataFrame(np.random.default_rng(0).normal(size=[30, width]).astype(str))
        frame = frames.of(table)
        pu_labels.ids(frame)
        preparation.fit(frame).transform(frame)
        return len(listings)

    assert count(8) == count(24)


def test_an_array_column_that_differs_by_less_than_a_trillionth_stays_so():
    rows = np.c_[1e15 + 0.5 * np.arange(50), np.arange(50.0)]
    learned = preparation.fit(rows)
    later = learned.transform(rows + [1e9, 0])
    np.testing.assert_array_equal(later[:, 0], np.float32(1e15))
    assert "1 of 2 features differ by less than a trillionth" in learned.messages[0]


def test_other_rows_than_training_rows_do_not_matter(learned):
    table, others = customers(), customers(seed=1)
    table["colour"] = table["colour"].where(table.index.isin(TRAINING), "violet")
    others.iloc[TRAINING] = table.iloc[TRAINING]
    again = preparation.fit(others, TRAINING, aside=("is_fraud", "id"))
    assert again.feature_names == learned.feature_names
    assert again.fill == learned.fill and again.columns == learned.columns
    rows = table.iloc[TRAINING]
    np.testing.assert_array_equal(again.transform(rows), learned.transform(rows))


def test_a_cell_that_cannot_be_read_is_met_whatever_rows_are_drawn():
    cells = [str(i / 7) for i in range(40)]
    cells[30] = "n.a."
    days = [f"2024-01-{1 + i % 28:02d}" for i in range(40)]
    days[31] = "soon"
    table = pd.DataFrame({"x": cells, "day": days, "y": range(40)})
    for rows in (range(40), range(30), range(25, 40)):
        learned = preparation.fit(table, rows)
        kinds = {column.name: column.kind for column in learned.columns}
        assert kinds["x"] == ("codes" if 30 in rows else "category") and kinds["y"] == "number"
        assert kinds["day"] == ("words" if 31 in rows else "category")
        assert any("'n.a.'" in message for message in learned.messages)
        assert any("'soon'" in message for message in learned.messages)
        assert np.isfinite(learned.transform(table)).all()


def test_a_row_does_not_depend_on_its_neighbours_and_order_is_kept(learned):
    table, x = customers(), learned.transform(customers())
    order = np.random.default_rng(2).permutation(N)
    np.testing.assert_array_equal(learned.transform(table.iloc[order]), x[order])
    for row in (4, 11, 50, 77):
        np.testing.assert_array_equal(learned.transform(table.iloc[[row]]), x[[row]])


def test_the_same_numbers_after_saving_from_a_file_and_in_other_column_order(learned, tmp_path):
    x = learned.transform(customers())
    again = saved(learned, tmp_path)
    assert again.feature_names == learned.feature_names and again.messages == learned.messages
    np.testing.assert_array_equal(again.transform(customers()), x)
    table = customers().assign(is_fraud="", id=range(N))[[*customers().columns[::-1], "id"]]
    table.to_csv(tmp_path / "new.csv", index=False)
    np.testing.assert_array_equal(again.transform(frames.read(tmp_path / "new.csv")), x)
    table["visits"] = table["visits"].astype(int)
    table["since"] = pd.to_datetime(table["since"])
    table["member"] = table["member"] == "True"
    table["colour"] = table["colour"].astype("category")
    table.to_parquet(tmp_path / "new.parquet")
    np.testing.assert_array_equal(again.transform(frames.read(tmp_path / "new.parquet")), x)
    assert sorted(p.name for p in tmp_path.glob("*") if "new" not in p.name) == [
        "encoder.skops",
        "preparation.json",
    ]
    encoder = tmp_path / "encoder.skops"
    with zipfile.ZipFile(encoder) as archive:
        whole = sum(entry.file_size for entry in archive.infolist())
    assert encoder.stat().st_size * 10 < whole  # a model that is shared is small


def test_it_is_learned_the_same_way_twice(learned, tmp_path):
    again = preparation.fit(customers(), TRAINING, aside=("is_fraud", "id"))
    np.testing.assert_array_equal(again.transform(customers()), learned.transform(customers()))


def test_new_words_and_missing_cells_are_accepted(learned):
    table = customers().iloc[:3].copy()
    table.loc[0, ["colour", "shop"]] = ["violet", "a market stall"]
    table.loc[1] = ""
    x = learned.transform(table)
    assert np.isfinite(x).all()
    colours = [feature(learned, x, f"colour_{c}") for c in ("red", "green", "blue")]
    np.testing.assert_array_equal(np.sum(colours, axis=0), [0, 0, 1])
    assert feature(learned, x, "visits")[1] == np.median(
        customers()["visits"].iloc[TRAINING].astype(float)
    )


def test_what_is_missing_and_whether_cells_are_true_or_false_is_told_by_the_right_rows():
    cells = {
        "since": ["2024-01-31", "2024-02-28", "2024-03-31", "2024-04-30", "", "2024-05-01"],
        "flag": ["0", "1", "1", "0", "5", ""],
        "one": ["5", "", "5", "5", "5", "5"],
        "word": ["x", "", "x", "x", "x", "x"],
    }
    frame = frames.of(pd.DataFrame(cells))
    training = frame.take(np.arange(4))
    found = {x: column_kinds.of_training_rows(frame, training, x)[0] for x in cells}
    # A cell that is missing elsewhere is none of the features; what is written so, all rows say.
    assert (found["since"].kind, found["since"].had_missing) == ("date", False)
    assert (found["flag"].kind, found["flag"].had_missing, found["flag"].spelled) == (
        "number",
        False,
        "",
    )
    # One value throughout, but where it is missing, differs between rows.
    for name, kind in (("one", "number"), ("word", "words")):
        assert (found[name].kind, found[name].had_missing) == (kind, True)


def test_a_part_of_the_rows_may_have_nothing_that_training_had(learned, caplog):
    table = customers(1)
    table["colour"] = ["red"] * (N // 2) + ["RED"] * (N - N // 2)
    frame = frames.of(table)
    list(learned.transform_parts(frame.take(rows) for rows in np.split(np.arange(N), 2)))
    assert not caplog.records


@pytest.mark.parametrize(("count", "is_said"), [(19, False), (20, True)])
def test_twenty_unknown_words_are_worth_a_warning(learned, count, is_said, caplog):
    learned.transform(frames.of(customers(1).assign(colour="RED")).take(np.arange(count)))
    assert ("column 'colour' has 20 words" in caplog.text) is is_said


def test_a_zero_with_a_sign_is_the_same_cell():
    table = pd.DataFrame({"a": ["0.0", "-0.0", "1.5"], "b": ["x", "x", "y"]})
    first, second, other = preparation.fit(table).row_keys(table)
    assert first == second != other


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("colour", "RED", f"t.csv: column 'colour' has {N} words, none of which training rows"),
        ("colour", "", "t.csv: column 'colour' is empty, and was in no training row; scores may"),
        ("visits", "", "t.csv: column 'visits' is empty, and was in no training row; scores may"),
        ("amount", "", "t.csv: column 'amount' is empty, and was in 1.3% of training rows; scores"),
        ("seen", "", "t.csv: column 'seen' is empty, and was in 7.3% of training rows; scores may"),
        ("often_empty", "", ""),
        ("colour", "red", ""),
    ],
)
def test_a_column_with_nothing_of_training_is_warned_about(column, cell, said, tmp_path, caplog):
    gaps = {"often_empty": [*"123456", *[""] * 4, *[""] * 10] * (N // 20)}
    learned = preparation.fit(customers().assign(**gaps), TRAINING)
    table = customers(1).assign(**gaps)
    table[column] = cell
    table.to_csv(tmp_path / "t.csv", index=False)
    frame = frames.read(str(tmp_path / "t.csv"))
    list(learned.transform_parts(frame.take(np.arange(i, N, 2)) for i in (0, 1)))
    assert said in caplog.text and bool(said) == bool(caplog.text)
    caplog.clear()
    learned.transform(frame.take(np.arange(19)))  # few rows may well be unlike the others
    table.loc[N - 1, column] = customers().get(column, {0: "1"})[0]
    list(learned.transform_parts([table[: N - 1], table[N - 1 :]]))
    assert not caplog.text


def measured(count=60):
    """A table of numbers and dates, most of which have gaps."""
    days = pd.Timestamp("2023-01-01") + pd.to_timedelta(np.arange(count) * 7, unit="D")
    hours = pd.Timestamp("2023-01-01") + pd.to_timedelta(np.arange(count) * 600, unit="s")
    table = pd.DataFrame(
        {
            "amount": np.linspace(-1.5, 10, count),
            "large": 1_700_000_000 + np.arange(count),
            "same": 5.0,
            "flag": np.arange(count) == 7,
            "day": days,
            "hour": hours,
        }
    )
    table.loc[3, ["amount", "same", "day"]] = None
    return table


@pytest.mark.parametrize(
    ("width", "last"), [(9, "one more column is"), (1208, "1,200 more columns are")]
)
def test_of_many_columns_unlike_training_eight_are_named(width, last, caplog):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=[40, width]))
    learned = preparation.fit(table)
    learned.transform(1e6 * table)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 9 and all("far outside of training" in x for x in said[:8])
    assert said[8] == f"the table: {last} unlike training rows"


@pytest.mark.parametrize(
    ("column", "moved", "said"),
    [
        (
            "amount",
            lambda x: x * 1e6,
            "column 'amount' has 59 numbers, 59 of which are far outside of training rows: "
            "-1.5e+06 to 1e+07 here, -1.5 to 10 there; scores may be wrong: give them in the unit",
        ),
        ("amount", lambda x: x - 20, "59 numbers, 43 of which are far outside"),
        ("amount", lambda x: x - 15, ""),  # most are no further than the range is wide
        ("amount", lambda x: x.where(x.index < 40, 1e9), ""),  # 19 numbers
        ("large", lambda x: x + 1000, "column 'large' has 60 numbers, 60 of which are far outside"),
        ("large", lambda x: x + 30, ""),
        ("same", lambda x: x + 1, ""),
        ("flag", lambda x: ~x, ""),
        (
            "day",
            lambda x: x + pd.Timedelta(days=3650),
            "column 'day' has 59 dates, 59 of which are far outside of training rows: 2032-12-29 "
            "to 2034-02-15 here, 2023-01-01 to 2024-02-18 there; scores may be wrong: train on",
        ),
        ("day", lambda x: x + pd.Timedelta(days=365), ""),
        (
            "hour",
            lambda x: x + pd.Timedelta(days=2),
            "2023-01-03 00:00:00 to 2023-01-03 09:50:00 here, 2023-01-01 00:00:00 to 2023-01-01 0",
        ),
    ],
)
def test_numbers_and_dates_far_outside_of_training_are_warned_about(
    column, moved, said, tmp_path, caplog
):
    table = measured()
    learned = saved(preparation.fit(table), tmp_path)
    table[column] = moved(table[column])
    whole = learned.transform(table)
    assert said in caplog.text and caplog.text.count("far outside") == bool(said)
    caplog.clear()
    parts = list(learned.transform_parts([table[:7], table[7:]]))
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert said in caplog.text and caplog.text.count("far outside") == bool(said)
    caplog.clear()
    learned.transform(table[:19])  # few rows may well be unlike the others
    few = preparation.fit(measured()[:19])  # whose range is that of few rows
    few.transform(table)
    assert "far outside" not in caplog.text


def test_a_nearly_constant_column_has_the_range_of_all_of_its_cells(tmp_path, caplog):
    discounts = np.zeros(300)
    discounts[[20, 40]] = 1, 2
    table = pd.DataFrame({"discount": discounts, "flag": discounts == 1, "n": np.arange(300)})
    learned = saved(preparation.fit(table), tmp_path)
    learned.transform(table.assign(discount=2, flag=True))  # as a few training rows have
    assert not caplog.text
    learned.transform(table.assign(discount=1000))
    assert "300 numbers, 300 of which are far outside" in caplog.text
    assert "1000 to 1000 here, 0 to 2 there" in caplog.text


def test_what_an_earlier_version_learned_of_columns_is_loaded_and_says_nothing(tmp_path, caplog):
    learned = preparation.fit(measured())
    learned.save(tmp_path)
    document = json.loads((tmp_path / "preparation.json").read_text())
    for column in document["columns"]:
        for name in ("missing", "low", "high", "whole"):
            del column[name]
    (tmp_path / "preparation.json").write_text(json.dumps(document))
    table = measured().assign(amount=1e9, day=None)
    x = preparation.load(tmp_path).transform(table)
    assert not caplog.text
    np.testing.assert_array_equal(x, learned.transform(table))
    assert caplog.text.count("scores may be wrong") == 2


def test_the_range_of_a_column_is_that_of_training_rows():
    table = customers()
    table.loc[1, ["amount", "since"]] = ["1e6", "1950-01-01"]
    table.loc[3, "visits"] = "many"  # by which a column of numbers is one of words
    ranges = {c.name: (c.missing, c.low, c.high) for c in preparation.fit(table, TRAINING).columns}
    # Of 100 to 200 cells one is below the range and one above.
    amount = pd.to_numeric(table["amount"][TRAINING], errors="coerce")
    second = amount.sort_values().iloc[1], amount.dropna().sort_values().iloc[-2]
    assert ranges["amount"] == (amount.isna().mean(), *second)
    days = pd.to_datetime(table["since"][TRAINING]).astype("datetime64[s]").astype("int64")
    assert ranges["since"] == (0, *np.sort(days)[[1, -2]])
    assert ranges["visits"] == ranges["colour"] == (0, None, None)


def test_an_outlier_of_training_hides_no_other_unit_and_is_in_no_model(tmp_path, caplog):
    table = pd.DataFrame({"amount": [*np.linspace(10, 20, 199), 1.25e9]})
    learned = saved(preparation.fit(table), tmp_path)
    assert "1250000000" not in (tmp_path / "preparation.json").read_text()
    learned.transform(100 * table)
    assert "column 'amount' has 200 numbers, 200 of which are far outside" in caplog.text


def test_a_word_that_is_new_differs_from_both_of_two():
    table = pd.DataFrame({"sex": ["f", "m"] * 10})
    learned = preparation.fit(table)
    x = learned.transform(pd.DataFrame({"sex": ["f", "m", "x"]}))
    assert len(np.unique(x, axis=0)) == 3


def test_a_year_that_is_constant_in_training_is_no_feature():
    days = pd.date_range("2023-01-01", periods=N).strftime("%Y-%m-%d")
    learned = preparation.fit(pd.DataFrame({"day": days}))
    assert "day_year" not in learned.feature_names and "day_month" in learned.feature_names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns=["shop"]), "FILE lacks 'shop'; accepted: the columns 'amount'"),
        (lambda t: t.assign(age=1), "FILE has 'age', which training rows do not have; accepted"),
        (
            lambda t: t.rename(columns={"shop": "Shop"}),
            "FILE lacks 'shop' and has 'Shop', which training rows do not have",
        ),
        (
            lambda t: put(t, "visits", "often"),
            "FILE, line 4, column 'visits' is 'often'; accepted: a number as in training "
            "rows, with a decimal point",
        ),
        (
            lambda t: put(t, "since", "soon"),
            "FILE, line 4, column 'since' is 'soon'; accepted: a date as in training rows, "
            "such as '2024-01-31'",
        ),
        (
            lambda t: put(t, "seen", "2024-01-31"),
            "FILE, line 4, column 'seen' is '2024-01-31'; accepted: a date as in training "
            "rows, such as '31.01.2024'",
        ),
        (
            lambda t: put(t, "visits", "1e400"),
            "FILE, line 4, column 'visits' is inf; accepted: numbers up to 3.4e+38",
        ),
        (
            lambda t: t.assign(visits="1e400"),
            "FILE, line 2, column 'visits' is '1e400'; accepted: numbers up to 3.4e+38",
        ),
        (
            lambda t: put(t, "visits", "95,29"),
            "FILE, line 4, column 'visits' is '95,29'; accepted: a number as in training "
            "rows, with a decimal point",
        ),
        (lambda t: put(t, "since", "31.01.2024"), "FILE, line 4, column 'since' is '31.01.2024'"),
        (lambda t: put(t, "since", "17"), "FILE, line 4, column 'since' is '17'"),
        (
            lambda t: t.assign(colour=range(N)),
            "FILE, line 2, column 'colour' is '0'; accepted: words",
        ),
        (
            lambda t: put(t, "visits", "1e39"),
            "FILE, line 4, column 'visits' is 1e+39; accepted: numb",
        ),
    ],
)
def test_other_columns_are_refused_by_name(learned, tmp_path, change, message):
    path = tmp_path / "new.csv"
    change(customers()).to_csv(path, index=False)
    with pytest.raises(ValueError) as error:
        learned.transform(frames.read(path))
    assert str(error.value).replace(str(path), "FILE").startswith(message)
    assert "\n" not in str(error.value)


def put(table, column, cell):
    """The table with another cell in its third row."""
    table.loc[2, column] = cell
    return table


def test_words_are_told_apart_where_training_rows_have_numbers_only(caplog):
    """What is read as words is no number that is missing, though skrub would take it for one."""
    cells = [str(i % 5) for i in range(40)]
    cells[30] = "unknown"
    table = pd.DataFrame({"x": cells, "y": range(40)})
    learned = preparation.fit(table, range(30))
    names = [f"x_{i}" for i in range(5)]
    x = learned.transform(table)[:, [learned.feature_names.index(name) for name in names]]
    expected = np.eye(5)[np.arange(40) % 5]
    expected[30] = 0
    np.testing.assert_array_equal(x, expected)
    learned.transform(pd.DataFrame({"x": ["lost", "gone"] * 20, "y": range(40)}))
    assert "column 'x' has 40 words, none of which training rows have" in caplog.text


def test_days_of_eight_digits_are_dates():
    days = pd.date_range("2023-12-01", periods=60)
    for cells in (days.strftime("%Y%m%d"), days.strftime("%Y%m%d").astype(int)):
        table = pd.DataFrame({"x": cells, "y": range(60)})
        learned = preparation.fit(table, range(50))
        assert [c.kind for c in learned.columns] == ["date", "number"]
        assert any("'20231201' are read as dates; if they are codes" in m for m in learned.messages)
        x = learned.transform(table)
        seconds = feature(learned, x, next(n for n in learned.feature_names if "seconds" in n))
        np.testing.assert_allclose(np.diff(seconds), 24 * 3600)
        as_words = preparation.fit(table, range(50), words=("x",))
        assert [c.kind for c in as_words.columns] == ["category", "number"]
    for odd in ("20241301", "20240230", "18991231", "2024013", "202401311"):
        cells = [*days.strftime("%Y%m%d"), odd]
        learned = preparation.fit(pd.DataFrame({"x": cells}))
        assert [c.kind for c in learned.columns] == ["number"]


def test_codes_may_be_numbers_in_a_new_file():
    learned = preparation.fit(pd.DataFrame({"icd": ["V27", "250", "401"] * 5}))
    x = learned.transform(pd.DataFrame({"icd": [250, 401]}))
    np.testing.assert_array_equal(feature(learned, x, "icd_250"), [1, 0])


def test_columns_that_are_named_are_words_whatever_they_look_like():
    cells = ["01067", "80331", "04109", "", "80331"] * 3
    table = pd.DataFrame({"plz": cells, "day": ["2024-01-31", "2023-05-06", "", "", ""] * 3})
    read = preparation.fit(table)
    assert {c.name: c.kind for c in read.columns} == {"plz": "number", "day": "date"}
    learned = preparation.fit(table, words=("plz", "day"))
    assert {c.name: c.kind for c in learned.columns} == {"plz": "category", "day": "category"}
    found = [(c.had_missing, c.missing) for c in learned.columns]
    assert learned.messages == () and found == [(True, 0.2), (True, 0.6)]
    new = pd.DataFrame({"plz": ["01067", "1067", None, "99999"], "day": ["2024-01-31"] * 4})
    x = learned.transform(new)
    np.testing.assert_array_equal(feature(learned, x, "plz_01067"), [1, 0, 0, 0])
    assert feature(learned, x, "day_2024-01-31").all()
    # As a number of Parquet or a DataFrame it has no zeros first; a missing cell makes it a float.
    whole = preparation.fit(pd.DataFrame({"plz": [1067, 80331] * 5}), words=("plz",))
    parts = preparation.fit(pd.DataFrame({"plz": [1067.0, 80331.0, np.nan] * 5}), words=("plz",))
    for one in (whole, parts):
        found = one.transform(pd.DataFrame({"plz": [1067, 80331]}))
        seen = one.transform(pd.DataFrame({"plz": [1067.0, 80331.0]}))
        np.testing.assert_array_equal(found, seen)
        assert not np.array_equal(found[0], found[1])


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([10115, 80331, 4109], ("x",)),
        (["10115", "80331", "4109"], ("x",)),
        (["10115.0", "80331,0", "4109.0"], ("x",)),
        (["V27", "80331", "4109"], ()),  # some of which are numbers
        (["V27", "80331.0", "4109.0"], ()),
    ],
)
def test_a_word_that_is_a_whole_number_is_the_same_with_a_point(tmp_path, cells, words):
    """pandas writes a column of whole numbers so once a cell of it is missing."""
    table = pd.DataFrame({"x": cells * 5, "y": range(15)})
    learned = saved(preparation.fit(table, words=words), tmp_path)
    forms = [["80331", "4109"], ["80331.0", "4109.0"], ["80331,0", "4109,0"], [80331.0, 4109.0]]
    new = [pd.DataFrame({"x": form, "y": [0, 1]}) for form in forms]
    x = learned.transform(new[0])
    np.testing.assert_array_equal(feature(learned, x, "x_80331"), [1, 0])
    for other in new[1:]:
        np.testing.assert_array_equal(learned.transform(other), x)
        assert learned.row_keys(other) == learned.row_keys(new[0])


def test_a_word_with_a_point_stays_beside_numbers_with_fractions(tmp_path):
    table = pd.DataFrame({"version": ["1.0", "1", "1.5", "2.10", "2.1"] * 5})
    learned = saved(preparation.fit(table, words=("version",)), tmp_path)
    assert {name.removeprefix("version_") for name in learned.feature_names} == {*table["version"]}
    assert len(set(learned.row_keys(table))) == 5


def test_codes_that_are_all_new_are_warned_about(caplog):
    learned = preparation.fit(pd.DataFrame({"plz": ["01067", "80331"] * 20}), words=("plz",))
    learned.transform(pd.DataFrame({"plz": ["01067"] * 30}))
    assert not caplog.text
    learned.transform(pd.DataFrame({"plz": ["1067"] * 30}))
    assert "column 'plz' has 30 words, none of which training rows" in caplog.text


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["", None], "column 'plz' is left out: empty in all training rows"),
        (["01067"], "column 'plz' is left out: '01067' in all training rows"),
    ],
)
def test_a_column_of_words_that_says_nothing_is_left_out(cells, message):
    table = pd.DataFrame({"plz": cells * (6 // len(cells)), "x": range(6)})
    learned = preparation.fit(table, words=("plz",))
    assert learned.feature_names == ("x",) and learned.messages == (message,)


def test_a_number_too_large_is_refused_when_it_is_learned():
    with pytest.raises(ValueError, match="the table, row 2, column 'x' is 1e"):
        preparation.fit(pd.DataFrame({"x": ["1", "1e300"]}))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1"] * 15 + ["2"] * 15 + ["unknown"], "since the table, row 31 holds 'unknown'"),
        (
            ["3,5", "4,25", "7"],
            "since the table, row 1 holds '3,5', which is taken for a number only",
        ),
        (
            ["1,234", "950", "5,678"],
            "row 1 holds '1,234', which may be 1234 or 1.234; numbers have",
        ),
        (["12 345", "67 890"], "'12 345', which may be a number or a code, as all cells have the"),
        (["3,14", "2,7", "1.234"], "'3,14', while other cells have a point, and none says which"),
        (["1'500", "950"] * 15 + ["many"], "row 31 holds 'many', while others are like \"1'500\""),
        (["01.02.24", "03.04.24"], "if cells such as '01.02.24' are dates, they do not say which"),
        (["01.02.2024", "03.04.2024"], "dates such as '01.02.2024' are read as %d.%m.%Y"),
        (["01/02/2024", "03/04/2024"], "dates such as '01/02/2024' are read as %m/%d/%Y"),
        (
            ["80331", "01067", "", "04109"],
            "column 'x' is read as numbers, though all of its cells have 5 digits, 2 of 3 with "
            "a 0 first, such as '01067': if they are codes, data.words='x' reads them as words",
        ),
    ],
)
def test_what_is_doubtful_is_spoken_of(cells, words):
    learned = preparation.fit(pd.DataFrame({"x": cells}))
    assert len(learned.messages) == 1 and words in learned.messages[0]


@pytest.mark.parametrize(
    "cells",
    [["0", "1"], ["80331", "10667"], ["01067", "4109"], ["00.50", "12.25"], ["0012", "-123"]],
)
def test_numbers_that_are_no_codes_are_not_spoken_of(cells):
    assert preparation.fit(pd.DataFrame({"x": cells * 10})).messages == ()


def test_codes_with_a_letter_before_them_are_words():
    codes = ["c01067", "c04109", "c80331"] * 10
    learned = preparation.fit(pd.DataFrame({"x": codes}))
    assert learned.columns[0].kind == "words" and learned.messages == ()


def test_large_numbers_that_differ_by_little_are_brought_near_0(tmp_path):
    seconds = 1_700_000_000 + np.arange(80)
    table = pd.DataFrame({"x": seconds, "y": range(80), "z": 1e12 + np.arange(80) * 1e9})
    learned = preparation.fit(table, range(60))
    assert learned.feature_names == ("x - 1700000030", "y", "z")
    assert learned.messages[0].startswith("column 'x': 1700000030 is subtracted, since")
    learned.save(tmp_path)
    x = preparation.load(tmp_path).transform(table)
    np.testing.assert_array_equal(x[:, 0], np.arange(80) - 30.0)
    np.testing.assert_array_equal(x[:, 2], table.z.to_numpy(np.float32))


def test_times_of_one_hour_keep_their_seconds(tmp_path):
    seconds = np.arange(240.0) * 15 + 0.25
    times = pd.Timestamp("2024-03-05 10:00:00") + pd.to_timedelta(seconds, unit="s")
    first = 1_709_632_800.0  # of 10:00
    table = pd.DataFrame({"when": times.astype(str), "x": np.arange(240) % 2})
    table.loc[3, "when"] = None
    learned = preparation.fit(table, range(200))
    offset = learned.columns[0].offset
    assert learned.feature_names[-1] == f"when_total_seconds - {offset:.15g}"
    assert learned.messages[0].startswith(f"column 'when': {offset:.15g} is subtracted from")
    assert offset == round(first + 200 * 15 / 2, -3)  # the middle of training rows
    learned.save(tmp_path)
    x = preparation.load(tmp_path).transform(table)[:, -1]
    there = np.arange(240) != 3
    np.testing.assert_array_equal(x[there], (first + seconds - offset)[there])
    assert x[3] == np.float32(np.median(np.delete(x[:200], 3)))
    as_dates = table.assign(when=pd.to_datetime(table.when))
    np.testing.assert_array_equal(preparation.fit(as_dates, range(200)).transform(table)[:, -1], x)


def test_dates_of_many_years_are_not_moved():
    days = pd.Series(pd.date_range("2000-01-01", "9998-01-01", 50)).dt.strftime("%Y-%m-%d")
    learned = preparation.fit(pd.DataFrame({"when": days, "x": np.arange(50) % 2}))
    assert "when_total_seconds" in learned.feature_names and not learned.messages


def test_numbers_that_double_precision_cannot_tell_apart_are_spoken_of():
    table = pd.DataFrame({"x": [1.0, 1 + 1e-15], "y": [1, 2]})
    learned = preparation.fit(table)
    assert learned.feature_names == ("y",)
    assert learned.messages[0].startswith("column 'x' is left out: its numbers differ by less")


def test_whole_numbers_that_double_precision_does_not_tell_apart_are_not_the_same():
    codes = 2**60 + np.arange(40)
    table = pd.DataFrame({"code": codes, "x": np.arange(40) % 2})
    learned = preparation.fit(table)
    assert "'code' is left out: its numbers differ by less than a tril" in learned.messages[0]
    spelled = pd.DataFrame({"one": ["1", "1.0"] * 20, "x": np.arange(40) % 2})
    assert "'1' in all training rows" in preparation.fit(spelled).messages[0]
    spread = pd.DataFrame({"code": codes * np.where(np.arange(40) < 20, 1, 2), "x": 0.0})
    spread = pd.concat([spread[:39], spread[38:39]], ignore_index=True)
    learned = preparation.fit(spread.assign(x=np.arange(40) % 3))
    keys = learned.row_keys(spread.assign(x=1.0))
    assert len(set(keys)) == 39 and keys[38] == keys[39]
    # Not how a number is written counts, but what it is.
    floats = pd.DataFrame({"code": np.arange(1.0, 41) * 1e17, "x": np.arange(40) % 3})
    written = floats.astype({"code": "str"})
    assert written["code"][0] == "1e+17"
    learned_floats = preparation.fit(floats)
    assert learned_floats.row_keys(written) == learned_floats.row_keys(floats)
    assert preparation._rest("-9,007,199,254,740,993", -9007199254740992.0) == "-1"
    # By themselves and among others.
    np.testing.assert_array_equal(learned.row_keys(spread.assign(x=1.0)[:1])[0], keys[0])


def test_rows_are_the_same_where_all_cells_are_not_where_features_are():
    times = pd.Series(pd.to_datetime(1_709_632_800 + 10 * np.arange(40), unit="s"))
    table = pd.DataFrame({"when": times.astype(str), "x": np.arange(40) % 2})
    table.loc[39] = table.loc[37]
    learned = preparation.fit(table)
    keys = learned.row_keys(table)
    assert len(set(keys)) == 39 and keys[37] == keys[39]
    with pytest.raises(ValueError, match="lacks 'when'"):
        learned.row_keys(table[["x"]])
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [1e-9, 1.0]])
    keys = preparation.fit(rows).row_keys(rows)
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("first", [0, 1])
def test_a_row_of_svmlight_is_the_same_in_a_file_of_another_width(tmp_path, first):
    def read(text):
        (tmp_path / "a.svm").write_text(text)
        return frames.read(tmp_path / "a.svm")

    training = read(f"1 {first}:5 4:7\n0 {first}:5\n0 2:6\n")
    learned = preparation.fit(training)
    trained = learned.row_digests(training)
    tested = read(f"1 2:6\n1 2:7\n0 {first}:5\n")
    np.testing.assert_array_equal(learned.row_digests(tested).among(trained), [1, 0, 1])
    with pytest.raises(ValueError, match="features; accepted: "):
        learned.row_keys(read("0 9:1\n"))


def test_a_row_of_an_array_is_the_same_in_another_type():
    rows = np.random.default_rng(0).normal(size=(5, 3))
    learned = preparation.fit(rows)

    def same(tested, trained):
        keys = learned.row_digests(trained, beside=tested)
        return learned.row_digests(tested, beside=trained).among(keys)

    for other in (rows.astype(np.float32), np.asfortranarray(rows), rows.astype(np.longdouble)):
        assert same(other, rows).all() and same(rows, other).all()
    assert not same(rows + 0.01, rows).any()
    assert not same(rows + 1e-12, rows).any() and same(rows + 1e-12, rows.astype(np.float32)).all()
    whole = 10**8 * np.arange(1, 16).reshape(5, 3)
    for kind in (np.int64, np.uint64, np.float64):
        assert same(whole.astype(kind), whole).all()
        assert not same((whole + 1).astype(kind), whole).any()
    assert same(whole + 1, whole.astype(np.float32)).all()
    large = 2**60 + whole
    assert not same(large + 1, large).any() and same(large + 1, large.astype(float)).all()
    assert not same((large + 1).astype(np.uint64), large).any()
    assert same(large.astype(np.uint64), large).all()
    assert not same((-large).astype(np.uint64), -large).any()


def test_a_feature_that_is_unused_makes_no_row_of_an_array_another_one():
    rows = np.stack([np.arange(4.0), np.full(4, 7.0)], 1)
    learned = preparation.fit(rows)
    assert learned.row_keys(rows + [0, 1]) == learned.row_keys(rows)


def test_svmlight_is_refused_where_training_rows_do_not_say_where_indices_begin(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:10 2:20 3:30\n0 1:11 2:21\n")
    rows = np.random.default_rng(0).normal(size=(5, 4))
    learned = saved(preparation.fit(rows), tmp_path)
    message = r"a.svm is svmlight, whose .*; accepted: 4 numbers .* \(.npy or .npz\)$"
    for read in (learned.transform, learned.row_keys):
        with pytest.raises(ValueError, match=message):
            read(frames.read(tmp_path / "a.svm"))
    of_svmlight = preparation.fit(frames.read(tmp_path / "a.svm"))
    assert of_svmlight.transform(rows[:, :3]).shape == (5, 3)
    with pytest.raises(ValueError, match=r"accepted: 3 numbers .* \(.npy, .npz or svmlight\)$"):
        of_svmlight.transform(pd.DataFrame(rows))


@pytest.mark.parametrize(("count", "features"), [(39, 39), (40, 30), (41, 30)])
def test_words_of_fewer_than_forty_kinds_are_a_column_each(count, features):
    kinds = [f"word {i}" for i in range(count)]
    learned = preparation.fit(pd.DataFrame({"x": kinds * 3, "y": range(3 * count)}), words=("x",))
    assert len(learned.feature_names) == 1 + features


def test_one_missing_cell_leaves_a_column_numeric():
    learned = preparation.fit(pd.DataFrame({"x": ["1.5", "N/A", "2.5", "4.5"]}))
    x = learned.transform(pd.DataFrame({"x": ["N/A", "7"]}))
    assert learned.feature_names == ("x", "x is missing")
    np.testing.assert_array_equal(x, [[2.5, 1], [7, 0]])


@pytest.mark.parametrize("table", [{"x": [1, 1]}, {"x": ["", ""]}, {"s": [1, 0]}, {}])
def test_a_table_without_a_feature_is_refused(table):
    with pytest.raises(ValueError, match="accepted: (at least one feature|rows and columns)"):
        preparation.fit(pd.DataFrame(table), aside=("s",))
    with pytest.raises(ValueError, match="indices is 'empty'"):
        preparation.fit(pd.DataFrame({"x": [1, 2]}), [])


def test_numbers_alone_need_neither_skrub_nor_skops(monkeypatch, tmp_path):
    for name in ("skrub", "skops", "skops.io"):
        monkeypatch.setitem(sys.modules, name, None)
    table = pd.DataFrame({"x": [1.5, None, 3.0], "y": [True, False, True]})
    learned = preparation.fit(table)
    np.testing.assert_array_equal(
        saved(learned, tmp_path).transform(table), [[1.5, 1, 0], [2.25, 0, 1], [3, 1, 0]]
    )
    with pytest.raises(ValueError, match=r"need skrub: pip install 'pujax\[tables\]'"):
        preparation.fit(pd.DataFrame({"x": ["a", "b"]}))


def test_without_skops_words_are_not_saved(learned, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(ValueError, match=r"needs skops: pip install 'pujax\[tables\]'"):
        learned.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_arrays_are_handed_on_as_they_are(tmp_path):
    x = np.random.default_rng(0).normal(size=(5, 3))
    again = saved(preparation.fit(x), tmp_path)
    np.testing.assert_array_equal(again.transform(x), x.astype(np.float32))
    assert again.feature_names == ("1", "2", "3")
    for other, message in [
        (x[:, :2], "has 2 features; accepted: 3"),
        (pd.DataFrame(x), "is a table with named columns; accepted: 3 numbers"),
        (x * 1e300, "is .*accepted: numbers up to 3.4e"),
    ]:
        with pytest.raises(ValueError, match=message):
            again.transform(other)
    with pytest.raises(ValueError, match="numbers without names; accepted: a table with the"):
        preparation.fit(pd.DataFrame({"x": [1, 2]})).transform(x)


@pytest.mark.parametrize("first", [0, 1])
def test_indices_of_svmlight_keep_their_meaning_in_another_file(tmp_path, first):
    def read(text):
        (tmp_path / "a.svm").write_text(text)
        return frames.read(tmp_path / "a.svm")

    learned = preparation.fit(read(f"1 {first}:5 3:7\n0 2:6\n"))
    assert learned.feature_names == tuple(str(i) for i in range(first, 4))
    x = saved(learned, tmp_path).transform(read("0 2:8\n"))
    np.testing.assert_array_equal(x, [[0] * (2 - first) + [8, 0]])
    with pytest.raises(ValueError, match=f"has {5 - first} features; accepted: {4 - first}"):
        learned.transform(read("0 4:1\n"))
    if first:
        with pytest.raises(ValueError, match="line 2 has index 0; accepted: 1 to 3"):
            learned.transform(read("0 1:1\n0 0:1\n"))


def test_damaged_files_are_refused(learned, tmp_path):
    with pytest.raises(ValueError, match="preparation.json cannot be read"):
        preparation.load(tmp_path)
    learned.save(tmp_path)
    encoder = tmp_path / "encoder.skops"
    content = encoder.read_bytes()
    encoder.write_bytes(content + b"x")
    with pytest.raises(ValueError, match="encoder.skops is not the file that was saved"):
        preparation.load(tmp_path)
    encoder.unlink()
    with pytest.raises(ValueError, match="encoder.skops cannot be read"):
        preparation.load(tmp_path)
    (tmp_path / "preparation.json").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="is no preparation of format 1"):
        preparation.load(tmp_path)


def test_another_version_is_spoken_of(learned, tmp_path):
    learned.save(tmp_path)
    document = json.loads((tmp_path / "preparation.json").read_text())
    document["encoder"]["versions"]["skrub"] = "0.10.9"
    (tmp_path / "preparation.json").write_text(json.dumps(document))
    with pytest.warns(UserWarning, match=r"saved with skrub 0\.10\.9, here \d.*may differ"):
        again = preparation.load(tmp_path)
    np.testing.assert_array_equal(again.transform(customers()), learned.transform(customers()))


def test_what_a_saved_file_may_not_hold_is_not_created(tmp_path):
    with pytest.raises(ValueError, match="holds fractions.Fraction; accepted: types of skrub"):
        table_encoder.save({"x": fractions.Fraction(1, 2)}, tmp_path)
    content = skops.io.dumps({"x": fractions.Fraction(1, 2)})
    record = table_encoder.save({"x": 1}, tmp_path)
    (tmp_path / "encoder.skops").write_bytes(content)
    record["sha256"] = hashlib.sha256(content).hexdigest()
    with pytest.raises(ValueError, match="encoder.skops holds fractions.Fraction"):
        table_encoder.load(tmp_path, record)


def test_infinity_is_refused_among_numbers_and_a_word_among_words(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\nnan,3\n4,-Inf\n")
    with pytest.raises(ValueError, match=r"a.csv, line 4, column 'b' is -inf; accepted: numbers"):
        preparation.fit(frames.read(path))
    words = pd.DataFrame({"dept": ["INF", "HR", "IT", "HR"] * 10})
    learned = preparation.fit(words)
    assert [column.kind for column in learned.columns] == ["words"]
    whole = learned.transform(words)
    np.testing.assert_array_equal(learned.transform(words[:1]), whole[:1])
    for count in (1, 19):  # which may be new words
        assert len(learned.transform(pd.DataFrame({"dept": ["1"] * count}))) == count
    with pytest.raises(ValueError, match="'dept' is '1'; accepted: words as in training rows"):
        learned.transform(pd.DataFrame({"dept": ["1"] * 20}))
    parts = [pd.DataFrame({"dept": ["1"] * 10})] * 2
    with pytest.raises(ValueError, match="'dept' is '1'; accepted: words as in training rows"):
        list(learned.transform_parts(parts))
    assert len(list(learned.transform_parts([*parts, words]))) == 3


@pytest.mark.parametrize(
    "trained, new, wrong",
    [
        (["0", "3"], ["true"] * 9 + ["3"], "true"),
        (["0", "3"], ["1 days 02:30:00"] * 10, "1 days 02:30:00"),
        (["1 days 02:30:00", "0 days 00:00:01"], ["5"] * 10, "5"),
        (["0", "1"], ["true"] * 9 + ["2"], ""),
        (["True", "False"], ["0"] * 5 + ["1"] * 5, ""),
        (["1 days 02:30:00", "0 days 00:00:01"], ["9 days 00:00:00", ""] * 5, ""),
    ],
)
def test_whether_a_cell_is_a_number_depends_on_no_other_new_cell(tmp_path, trained, new, wrong):
    learned = preparation.fit(pd.DataFrame({"x": trained * 10}))
    assert saved(learned, tmp_path) == learned
    for size in (1, 9, 10):
        parts = [pd.DataFrame({"x": new[i : i + size]}) for i in range(0, len(new), size)]
        if not wrong:
            assert sum(map(len, learned.transform_parts(parts))) == len(new)
            continue
        with pytest.raises(ValueError, match=f"row 1, column 'x' is '{wrong}'; accepted: a"):
            list(learned.transform_parts(parts))


@pytest.mark.parametrize("cells", [["true", "false"], ["1 days 02:30:00", "2 days 00:00:00"]])
def test_truth_values_and_durations_among_words_are_words(cells):
    words = pd.DataFrame({"paid": [*cells, "unknown"] * 10})
    learned = preparation.fit(words)
    assert [column.kind for column in learned.columns] == ["words"]
    few = pd.DataFrame({"paid": cells * 15})  # none of which is unknown
    np.testing.assert_array_equal(learned.transform(few)[:2], learned.transform(words)[:2])


@pytest.mark.parametrize("cell", ["12,34,567", "€12", "12 %", "$ 1,250", "3 000", "-4,5"])
def test_numbers_that_are_written_in_another_way_are_spoken_of(cell):
    table = pd.DataFrame({"x": [cell, re.sub(r"\d", "7", cell)] * 15, "y": range(30)})
    (message,) = preparation.fit(table).messages
    assert message.startswith("column 'x' is read as words") and cell in message


def test_ids_beside_arrays_stay_what_they_are(tmp_path):
    rows = np.random.default_rng(0).normal(size=[5, 2])
    np.savez(tmp_path / "a.npz", x=rows, ids=np.arange(5))
    learned = preparation.fit(frames.read(tmp_path / "a.npz"), aside=("labels", "ids"))
    learned.save(tmp_path)
    assert preparation.load(tmp_path).aside == ("labels", "ids")


def test_a_file_without_its_fields_is_damaged(learned, tmp_path):
    learned.save(tmp_path)
    (tmp_path / "preparation.json").write_text('{"format": 1}')
    with pytest.raises(ValueError, match="preparation.json is damaged .*'encoder'"):
        preparation.load(tmp_path)


@pytest.mark.parametrize(("odd", "row"), [("2024-02-31", 7), ("unknown", 0)])
def test_a_date_column_with_a_bad_cell_says_which_it_is(tmp_path, odd, row):
    days = pd.date_range("2024-01-01", periods=30).strftime("%Y-%m-%d").tolist()
    days[row] = odd
    pd.DataFrame({"when": days, "x": range(30)}).to_csv(tmp_path / "a.csv", index=False)
    learned = preparation.fit(frames.read(tmp_path / "a.csv"))
    assert learned.columns[0].kind == "words"
    (said,) = learned.messages
    where = f"{tmp_path / 'a.csv'}, line {row + 2} holds {odd!r}"
    assert said.startswith(f"column 'when' is read as words, since {where}, which is no date like")
    days[:10] = ["soon"] * 10
    assert preparation.fit(pd.DataFrame({"when": days, "x": range(30)})).messages == ()


@pytest.mark.parametrize("form", ["{} {} 2024", "{1} {0}, 2024", "{}-{}-2024"])
def test_may_is_a_month_in_short_and_in_full(form):
    for other in ("Jun", "June"):
        days = [form.format(5, "May"), *(form.format(i % 28 + 1, other) for i in range(40))]
        learned = preparation.fit(pd.DataFrame({"when": days, "x": range(41)}))
        assert learned.columns[0].kind == "date", days[0]
        assert not any("read as words" in text for text in learned.messages)


def test_every_feature_says_which_column_it_is_made_of(tmp_path):
    table = pd.DataFrame(
        {
            "status": ["new", "old", "paid"] * 8,
            "status_paid": [*range(1, 24), None],
            "paid": pd.date_range("2024-01-01", periods=24),
            "status_old": ["a", "b"] * 12,
        }
    )
    learned = preparation.fit(table)
    assert len(learned.sources) == len(learned.feature_names)
    x = learned.transform(table)
    made = {name: np.flatnonzero([s == name for s in learned.sources]) for name in table}
    assert [len(made[name]) for name in ("status", "status_paid", "status_old")] == [3, 2, 2]
    is_paid = x[:, made["status"]] == (table["status"] == "paid").to_numpy()[:, None]
    assert is_paid.all(0).sum() == 1
    assert len(made["paid"]) == len(learned.sources) - 7
    again = saved(learned, tmp_path)
    assert again.sources == learned.sources
    document = json.loads((tmp_path / "preparation.json").read_text())
    del document["sources"]  # as an earlier version saved it
    (tmp_path / "preparation.json").write_text(json.dumps(document))
    old = preparation.load(tmp_path)
    assert old.sources == ()
    np.testing.assert_array_equal(old.transform(table), x)


def test_two_columns_that_make_one_name_have_the_same_names_every_time():
    table = pd.DataFrame(
        {
            "status": ["paid_late", "open", "open"] * 8,
            "status_paid": ["late", "early", "late (2)"] * 8,
        }
    )
    first, second = preparation.fit(table), preparation.fit(table)
    assert first.feature_names == second.feature_names
    assert len(set(first.feature_names)) == len(first.feature_names)
    made = dict(zip(first.feature_names, first.sources, strict=True))
    assert made["status_paid_late"] == "status" and made["status_paid_late (3)"] == "status_paid"


@pytest.mark.parametrize(
    "cell", ["31.01.2024", "12/31/2024", "5 Jan 2024", "5 January 2024", "31.01.2024 10:30:00"]
)
def test_the_example_of_a_format_is_a_date_of_it(cell):
    for form in columns.date_formats(pd.Series([cell])):
        _, wrong = columns.dates(pd.Series([columns.example(form).strip("'")]), form)
        assert not wrong.any()


@pytest.mark.parametrize("cell", ["today", "now", "2024", "2024-03", "202403"])
def test_what_has_no_day_is_no_date(cell):
    cells = pd.Series(["2024-03-05", "2024-03-05T10:00", "2024/03/05", "20240305", cell])
    values, wrong = columns.dates(cells, "ISO8601")
    assert wrong.tolist() == [False, False, False, False, True]
    assert values[:4].dt.strftime("%Y-%m-%d").unique().tolist() == ["2024-03-05"]
    assert columns.date_formats(cells[[0, 4]]) == []
