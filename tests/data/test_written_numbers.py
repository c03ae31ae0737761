"""Decimal commas and thousands are read where a column leaves no doubt, and spoken of elsewhere."""

import math
import unicodedata

import numpy as np
import pandas as pd
import pytest

from pujax.data import preparation
from pujax.data.readers import columns, frame_chunks, frames, pu_labels, written_numbers
from pujax.training import new_rows

N = 40
AMOUNTS = np.random.default_rng(0).normal(1500, 900, N).round(2)


def points(value):
    """German writing."""
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def spaces(value):
    """Whole numbers with narrow spaces that do not break, as French programs write them."""
    return f"{value:,.0f}".replace(",", "\u202f")


@pytest.mark.parametrize(
    ("cells", "values", "marks"),
    [
        (["3,14", "-2,5", "7", ",5"], [3.14, -2.5, 7, 0.5], ","),
        (["0,123", "1,234"], [0.123, 1.234], ","),  # no thousands begin with 0
        (["1234,567", "1,234"], [1234.567, 1.234], ","),
        (["1,5e3", "2E-1"], [1500, 0.2], ","),
        (["1.234,5", "3,14", "1.234"], [1234.5, 3.14, 1234], ",."),
        (["1.234.567", "1,5", "999"], [1234567, 1.5, 999], ",."),
        (["1,234.5", "1,234", "7"], [1234.5, 1234, 7], ".,"),
        (["1,234,567", "950", "1,234"], [1234567, 950, 1234], ".,"),
        (["1.234.567", "12.345.678", "987.654.321"], [1234567, 12345678, 987654321], ",."),
        (["1.234.567.890", "12.345.678"], [1234567890, 12345678], ",."),
        (["1 234", "950", "-12\u00a0345\u202f678"], [1234, 950, -12345678], ". "),
        (["1,5e\u22123", "2,5"], [0.0015, 2.5], ","),
        (["1 234.5", "2.5"], [1234.5, 2.5], ". "),
        (["\u22121 234.5", "2.5"], [-1234.5, 2.5], ". "),
        (["1 234,5", "2,5"], [1234.5, 2.5], ", "),
        (["3'000", "7’777"], [3000, 7777], ".'"),
        (["3'000,5", "1"], [3000.5, 1], ",'"),
    ],
)
def test_what_is_in_no_doubt_is_read(cells, values, marks):
    found = written_numbers.of(cells, decimal_comma=True)
    assert (found.marks, found.doubt) == (marks, "")
    numbers, wrong = columns.numbers(pd.Series([*cells, "NA", "no"]), marks)
    np.testing.assert_array_equal(numbers, [*values, np.nan, np.nan])
    assert wrong.tolist() == [False] * (len(cells) + 1) + [True]
    assert written_numbers.is_likely(cells)


def test_any_kind_of_space_stands_between_thousands():
    kinds = [c for c in map(chr, range(0x10000)) if unicodedata.category(c) == "Zs"]
    assert len(kinds) > 10
    for space in kinds:
        cells = [f"1{space}234", "950"]
        assert written_numbers.of(cells, decimal_comma=True).marks == ". "
        assert [written_numbers.value(cell, ". ") for cell in cells] == [1234, 950]
        assert written_numbers.is_likely(cells)


@pytest.mark.parametrize(
    ("cells", "doubt"),
    [
        (["1,234"], "which may be 1234 or 1.234"),
        (["950", "12,345", "-1,234"], "which may be 12345 or 12.345"),
        (["3,14", "1.234"], "while other cells have a point"),
        (["1,234", "3.14"], "while other cells have a point"),
        (["1 234", "5 678"], "which may be a number or a code"),
        (["123.456.789", "987.654.321"], "which may be a number or a code"),
        (["123.456.789", "\u2212987.654.321"], "which may be a number or a code"),
        (["123,456,789", "-987,654,321"], "which may be a number or a code"),
        (["192.168.100.200", "10.128.100.150"], "which is an IP address as much as a number"),
        (["12,5"] * 30 + ["none left"], "while others are like '12,5'"),
    ],
)
def test_what_is_in_doubt_is_not_guessed(cells, doubt):
    for decimal_comma in (True, False):
        found = written_numbers.of(cells, decimal_comma=decimal_comma)
        assert found.marks == "" and found.doubt.startswith(doubt)
        assert found.example in cells
    assert written_numbers.is_likely(cells)


def test_a_minus_of_typography_is_no_odd_mark():
    assert written_numbers.of(["\u22122", "12,5", "3"], decimal_comma=False).example == "12,5"
    assert not written_numbers.is_likely(["\u22122.5", "3"])  # all have a decimal point at most


def test_a_decimal_comma_where_commas_separate_is_not_guessed_but_with_thousands_it_is():
    doubt = written_numbers.of(["3,14", "2,5"], decimal_comma=False).doubt
    assert doubt.startswith("which is taken for a number only in a text file whose cells something")
    assert written_numbers.of(["3,14", "1.234,5"], decimal_comma=False).marks == ",."
    # Points are decimal marks wherever commas separate cells.
    assert written_numbers.of(["1,234.5", "1,234", "7"], decimal_comma=False).marks == ".,"


@pytest.mark.parametrize(("num_words", "by_and_large"), [(1, True), (2, False), (9, False)])
def test_nine_of_ten_cells_make_a_column_of_numbers(num_words, by_and_large):
    cells = ["12,5"] * (10 - num_words) + ["none left"] * num_words
    assert written_numbers.is_likely(cells) is by_and_large
    assert written_numbers.is_likely([*cells, "3.5"]) is by_and_large  # plain ones do not count
    found = written_numbers.of(cells, decimal_comma=True)
    said = ("while others are like '12,5'", "none left") if by_and_large else ("", "12,5")
    assert (found.marks, found.doubt, found.example) == ("", *said)


@pytest.mark.parametrize(
    ("cells", "unit"),
    [
        (["0.56 kg", "12 kg", "3,5 kg"], "kg"),
        (["12kg", "7.5kg"], "kg"),
        (["1.5m", "2.25m"], "m"),
        (["50 km/h", "-70.5 km/h"], "km/h"),
        (["12 EUR", ".3 EUR"], "EUR"),
        (["1.5 kg"] * 9 + ["heavy"], "kg"),
        (["1.5 kg"] * 8 + ["heavy"], ""),
        # Codes, postcodes, dates and ranks as much as quantities.
        (["12B", "7B"], ""),
        (["100000EU", "100001EU"], ""),
        (["90210 CA", "90211 CA"], ""),
        (["12 Jan", "13 Jan"], ""),
        (["4th", "5th"], ""),
        (["1.2 kg", "7.5 g"], ""),  # several units, of which no one is usual
        (["1.2 kg each", "7 kg each"], ""),
        (["kg", "kg"], ""),
        ([], ""),
    ],
)
def test_a_unit_that_nearly_all_cells_share_is_found(cells, unit):
    assert written_numbers.unit_of(cells) == unit
    assert not written_numbers.is_likely(cells)  # ids may end in letters that are all alike


@pytest.mark.parametrize(
    "cells",
    [
        ["192.168.1.17", "10.0.0.1"],
        ["12345", "A12"] * 20,  # codes of which some are words
        ["030 123 456", "030 123 457"],  # no number of thousands begins with 0
        ["1.2.3", "1.10.1"],
        ["Rome", "Paris"],
        ["1_000", "2_000"],
    ],
)
def test_words_are_no_numbers(cells):
    assert written_numbers.of(cells, decimal_comma=True).marks == ""
    if not cells[0].startswith("030"):
        assert not written_numbers.is_likely(cells)


def test_a_cell_that_is_written_in_another_way_is_no_number():
    assert math.isnan(written_numbers.value("3.14", ","))
    assert math.isnan(written_numbers.value("1.234", ","))  # a number or thousands
    assert written_numbers.value("1.234,5", ",") == written_numbers.value("1 234,5", ",") == 1234.5
    assert math.isnan(written_numbers.value("1.234 567,5", ","))
    assert math.isnan(written_numbers.value("3,14", ".,"))
    assert math.isnan(written_numbers.value("1,23,456", ".,"))


def table(path, separator, **cells):
    """A file of columns, and its frame."""
    pd.DataFrame(cells).to_csv(path, sep=separator, index=False)
    return frames.read(path)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_file_of_decimal_commas_gives_the_numbers_of_one_of_points(tmp_path, separator):
    rest = np.arange(N) % 3
    plain = table(tmp_path / "a.csv", ",", x=AMOUNTS, y=AMOUNTS, z=AMOUNTS.round(), r=rest)
    cells = {"x": [str(a).replace(".", ",") for a in AMOUNTS], "y": [*map(points, AMOUNTS)]}
    cells["z"] = [*map(spaces, AMOUNTS.round())]
    german = table(tmp_path / "b.csv", separator, **cells, r=rest)
    assert pu_labels.ids(german) == pu_labels.ids(plain)
    assert pu_labels.ids(german).aside == ()
    learned = preparation.fit(german, np.arange(0, N, 2))
    assert learned.feature_names == ("x", "y", "z", "r")
    np.testing.assert_array_equal(
        learned.transform(german), preparation.fit(plain, np.arange(0, N, 2)).transform(plain)
    )
    said = " ".join(learned.messages)
    assert len(learned.messages) == 3 and "with a decimal comma, such as" in said
    assert "decimal comma and a point between thousands, such as" in said and ": 'y'" in said


@pytest.mark.parametrize("mark", ["\u00a0", "\u2009", "\u202f", "’"])
def test_the_example_of_a_message_has_the_mark_in_whatever_form_it_is_written(mark):
    cells = pd.DataFrame({"x": ["950", "7", f"1{mark}234"], "y": [1, 2, 3]})
    (said,) = preparation.fit(cells).messages
    assert f"such as {f'1{mark}234'!r} for 1234: 'x'" in said


def test_new_rows_are_read_as_in_training_whatever_separates_them(tmp_path):
    cells = [str(a).replace(".", ",") for a in AMOUNTS]
    frame = table(tmp_path / "a.csv", ";", x=cells, y=AMOUNTS)
    preparation.fit(frame).save(tmp_path)
    learned = preparation.load(tmp_path)
    assert learned.columns[0].marks == ","
    wanted = preparation.fit(frame).transform(frame)
    np.testing.assert_array_equal(wanted[:, 0], AMOUNTS.astype(np.float32))
    table(tmp_path / "b.csv", ",", x=cells, y=AMOUNTS)
    for name in ("a.csv", "b.csv"):
        rows = new_rows.of_table(learned, str(tmp_path / name), id_name="row", num_rows=7)
        found = np.concatenate([chunk.inputs for chunk in rows.chunks])
        np.testing.assert_array_equal(found, wanted)
    in_memory = pd.DataFrame({"x": AMOUNTS, "y": AMOUNTS})  # numbers are numbers
    np.testing.assert_array_equal(learned.transform(in_memory), wanted)
    table(tmp_path / "c.csv", ";", x=["3,1", "1.234"], y=[1, 2])
    with pytest.raises(
        ValueError, match=r"c.csv, line 3, column 'x' is '1.234'; accepted: .*comma"
    ):
        for chunk in frame_chunks.read(tmp_path / "c.csv", 10):
            learned.transform(chunk.frame)


def test_a_column_with_points_takes_no_commas_later(tmp_path):
    learned = preparation.fit(table(tmp_path / "a.csv", ";", x=AMOUNTS, y=AMOUNTS))
    cells = [str(a).replace(".", ",") for a in AMOUNTS]
    new = table(tmp_path / "b.csv", ";", x=cells, y=AMOUNTS)
    with pytest.raises(
        ValueError, match=r"b.csv, line 2, column 'x' is '\d+,\d+'; accepted: a num"
    ):
        learned.transform(new)


def test_damaged_marks_are_refused(tmp_path):
    frame = table(tmp_path / "a.csv", ";", x=["3,14", "2,5"], y=[1, 2])
    preparation.fit(frame).save(tmp_path)
    path = tmp_path / "preparation.json"
    path.write_text(path.read_text().replace('"marks": ","', '"marks": ";"'))
    with pytest.raises(ValueError, match="is damaged .*columns is not as it is saved"):
        preparation.load(tmp_path)


def test_points_beside_decimal_commas_are_spoken_of(tmp_path):
    cells = {"x": ["1.234", "5.678", "950"], "y": ["3,14", "2,5", "1"], "z": ["1.5", "2.234", "3"]}
    learned = preparation.fit(table(tmp_path / "a.csv", ";", **cells))
    (of_x,) = [message for message in learned.messages if message.startswith("column")]
    assert of_x.startswith("column 'x' is read with a decimal point, so that '1.234' is 1.234")
    del cells["y"]
    assert preparation.fit(table(tmp_path / "a.csv", ";", **cells)).messages == ()


@pytest.mark.parametrize(
    ("name", "write", "separator", "is_id"),
    [
        ("amount", points, ",", False),
        ("amount", spaces, ",", False),
        ("amount", lambda a: f"{1000 + a % 7999:,.0f}", ",", False),  # in doubt, and no id
        ("amount", lambda a: f"€{a:.2f}", ",", False),
        ("price_index", points, ";", False),  # as fractions with a point are none
        ("customer_id", lambda a: f"{1e6 + a * 7:,.0f}", ",", True),
    ],
)
def test_numbers_that_differ_in_every_row_are_no_ids_unless_called_so(
    tmp_path, name, write, separator, is_id
):
    amounts = np.abs(AMOUNTS) + np.arange(N) * 20
    frame = table(tmp_path / "a.csv", separator, **{name: [*map(write, amounts)]}, x=AMOUNTS)
    assert frame.values[name].is_unique
    assert pu_labels.ids(frame).aside == ((name,) if is_id else ())


def test_ip_addresses_are_ids_still(tmp_path):
    cells = [f"192.168.{i}.{i + 7}" for i in range(N)]
    frame = table(tmp_path / "a.csv", ",", host=cells, x=AMOUNTS)
    assert pu_labels.ids(frame).aside == ("host",)


def test_labels_may_have_a_decimal_comma(tmp_path):
    frame = table(tmp_path / "a.csv", ";", x=[1, 2, 3], s=["1,0", "0,0", ""])
    assert pu_labels.read(frame, "s").values.tolist() == [1, 0, -1]
    frame = table(tmp_path / "a.csv", ";", x=[1, 2], s=["1,000", "0"])
    with pytest.raises(ValueError, match="column 's' is '1,000'; accepted: a label"):
        pu_labels.read(frame, "s")
