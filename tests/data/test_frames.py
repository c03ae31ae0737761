"""One file of a user's rows is read cell by cell, whatever its format, and refused by line."""

import bz2
import dataclasses
import datetime
import decimal
import gzip
import lzma
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pujax.data import preparation
from pujax.data.readers import columns, frame_chunks, frames, separated

CSV = "id,amount,city,day\n007,1.5,Ulm,2024-01-31\n008,N/A,,2024-02-01\n009,-2, Bonn ,\n"


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path):
    """The message with which a file is refused, which is one line and names the file."""
    with pytest.raises(ValueError) as error:
        frames.read(path)
    message = str(error.value)
    assert "\n" not in message and str(path) in message
    return message.replace(str(path), "FILE")


def test_cells_stay_as_they_are_written(tmp_path):
    frame = frames.read(write(tmp_path / "a.csv", CSV))
    assert frame.names == ("id", "amount", "city", "day")
    assert frame.values["id"].tolist() == ["007", "008", "009"]
    assert frame.values["city"].tolist() == ["Ulm", "", " Bonn "]
    np.testing.assert_array_equal(frame.lines, [2, 3, 4])
    assert frame.place(1) == f"{tmp_path / 'a.csv'}, line 3"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".tab"])
def test_the_header_says_what_separates_the_cells(tmp_path, delimiter, ending):
    path = write(tmp_path / f"a{ending}", CSV.replace(",", delimiter))
    assert frames.read(path).values["day"].tolist() == ["2024-01-31", "2024-02-01", ""]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_bar_in_a_header_with_another_separator_is_part_of_a_name(tmp_path, delimiter):
    path = write(tmp_path / "a.csv", "a|b|c|d,x\n1|2|3|4,5\n".replace(",", delimiter))
    assert frames.read(path).names == ("a|b|c|d", "x")


@pytest.mark.parametrize("header", ['"Size, in cm, left, top";Weight;y', "Size, cm;Weight, kg;y"])
def test_commas_within_names_separate_nothing(tmp_path, header):
    frame = frames.read(write(tmp_path / "a.csv", f"{header}\n1,5;2;1\n"))
    assert len(frame.names) == 3 and frame.values.iloc[0].tolist() == ["1,5", "2", "1"]


def test_a_name_is_found_however_its_accents_are_written(tmp_path):
    apart = unicodedata.normalize("NFD", "état")
    assert apart != "état"
    frame = frames.read(write(tmp_path / "a.csv", f"{apart},x\n1,2\n"))
    assert frame.names == ("état", "x")
    assert frame.column(apart, field="label").tolist() == ["1"]
    assert frames.of(pd.DataFrame({apart: [1]})).names == ("état",)


def test_a_name_with_an_underscore_is_no_number(tmp_path):
    frame = frames.read(write(tmp_path / "a.csv", "0_0,0_1,1_0\n1,2,3\n"))
    assert frame.names == ("0_0", "0_1", "1_0")


def test_an_index_that_is_a_column_too_is_left_out_if_it_says_the_same():
    table = pd.DataFrame({"id": ["a", "b"], "x": [1, 2]})
    assert frames.of(table.set_index("id", drop=False)).names == ("id", "x")
    table.index = pd.Index(["a", "c"], name="id")
    with pytest.raises(ValueError, match="an index and a column 'id' whose cells differ; accepted"):
        frames.of(table)


def test_dates_with_a_zone_keep_the_day_that_they_are_there():
    local = pd.Series(pd.to_datetime(["2024-03-05 00:00", "2024-07-01 23:30"]))
    values, wrong = columns.dates(local.dt.tz_localize("Europe/Berlin"), "ISO8601")
    assert values.equals(local) and not wrong.any()
    text = pd.Series(["2024-03-05 00:30:00+01:00", "2024-03-05 00:30:00+03:00"])
    assert columns.dates(text, "ISO8601")[0].dt.hour.tolist() == [23, 21]


@pytest.mark.parametrize(
    ("values", "offset"),
    [
        ([0.0, 1.0, np.nan], 0),
        ([5.0, 5.0], 0),  # one number
        ([1.0, 1 + 1e-15], 0),  # rounding
        ([1e9, 1e9 + 1e7], 0),  # single precision tells these well enough apart
        ([1e9, 1e9 + 1000], 1e9),
        ([-1e9 - 1000, -1e9], -1e9),
        ([1_700_000_000.25, 1_700_000_000.75], 1_700_000_000.5),
    ],
)
def test_only_what_single_precision_blurs_is_brought_near_0(values, offset):
    found = columns.offset(np.array(values))
    spread = np.nanmax(values) - np.nanmin(values)
    assert (found == 0) == (offset == 0) and abs(found - offset) <= spread


@pytest.mark.parametrize(("ending", "opener"), [("gz", gzip), ("bz2", bz2), ("xz", lzma)])
@pytest.mark.parametrize(("name", "content"), [("a.csv", CSV), ("a.svm", "1 1:2 3:4\n-1 2:1\n")])
def test_packed_files_equal_plain_ones(tmp_path, name, content, ending, opener):
    plain = frames.read(write(tmp_path / name, content))
    with opener.open(tmp_path / f"{name}.{ending}", "wt") as file:
        file.write(content)
    again = frames.read(tmp_path / f"{name}.{ending}")
    np.testing.assert_array_equal(np.asarray(again.values), np.asarray(plain.values))
    np.testing.assert_array_equal(again.lines, plain.lines)


def test_lines_count_quotes_blank_lines_and_windows_line_ends(tmp_path):
    content = b'\xef\xbb\xbf"a, in m",b\r\n1,"two\r\nlines"\r\n\r\n   \r\n3,"say ""x"""\r\n'
    frame = frames.read(write(tmp_path / "a.csv", content))
    assert frame.names == ("a, in m", "b")
    assert frame.values["b"].tolist() == ["two\r\nlines", 'say "x"']
    np.testing.assert_array_equal(frame.lines, [2, 6])
    np.testing.assert_array_equal(frame.take(np.array([1])).lines, [6])


@pytest.mark.parametrize("num_rows", [1, 2, 10])
def test_an_empty_cell_in_quotes_is_one_of_the_only_column(tmp_path, num_rows):
    """As pandas writes it; a blank line is no row."""
    cells = pd.DataFrame({"age": ["31", "", "45", ""]})
    cells.to_csv(tmp_path / "a.csv", index=False)
    path = write(tmp_path / "a.csv", (tmp_path / "a.csv").read_text().replace("45", "45\n"))
    frame = frames.read(path)
    assert frame.values["age"].tolist() == ["31", "", "45", ""]
    np.testing.assert_array_equal(frame.lines, [2, 3, 4, 6])
    parts = [table["age"].tolist() for table, *_ in separated.read_chunks(str(path), num_rows)]
    assert sum(parts, []) == ["31", "", "45", ""]


def test_a_header_with_fractions_says_what_to_do(tmp_path):
    path = write(tmp_path / "a.csv", "label,400.5,401.0\n1,2,3\n")
    said = r"\(if '400.5' is one, write it as 'x400.5', or give the table as Parquet\)$"
    with pytest.raises(ValueError, match=said):
        frames.read(path)
    with pytest.raises(ValueError, match="the names of the columns$"):
        frames.read(write(tmp_path / "a.csv", "1.5,400.5\n1,2\n"))


def test_a_column_without_a_name_is_called_as_pandas_calls_it(tmp_path):
    table = pd.DataFrame({"x": [1.5, 2.5], "2019": [3, 4]})
    table.to_csv(tmp_path / "a.csv")
    assert frames.read(tmp_path / "a.csv").names == ("Unnamed: 0", "x", "2019")


def test_missing_cells_are_those_of_pandas(tmp_path):
    words = ["", "NA", "N/A", "null", "NaN", "None", "#N/A", "<NA>", "n/a", "?"]
    path = write(tmp_path / "a.csv", "k,x\n" + "".join(f"k,{word}\n" for word in [*words, "1.5"]))
    values, wrong = columns.numbers(frames.read(path).values["x"])
    assert not wrong.any()
    np.testing.assert_array_equal(np.isnan(values), [True] * len(words) + [False])
    by_pandas = pd.read_csv(path)["x"]
    np.testing.assert_array_equal(by_pandas.isin(["?"]) | by_pandas.isna(), np.isnan(values))


def test_spaces_around_a_cell_are_no_part_of_it():
    cells = pd.Series([" 1.5 ", " NA", "\tx  y "], dtype="str")
    assert columns.text(cells).fillna("-").tolist() == ["1.5", "-", "x  y"]


def test_numbers_are_read_to_the_last_bit():
    values = np.random.default_rng(0).normal(size=600) * 10.0 ** np.arange(-300, 300)
    read, _ = columns.numbers(pd.Series([repr(float(v)) for v in values], dtype="str"))
    np.testing.assert_array_equal(read, values)


def test_typed_cells_are_the_same_as_text():
    cells = pd.DataFrame(
        {
            "whole": pd.array([2**60 + 1, None, 3], dtype="Int64"),
            "truth": pd.array([True, None, False], dtype="boolean"),
            "gone": [1.0, np.nan, 3.0],
            "kind": pd.Categorical(["a", None, "b"]),
            "mixed": [decimal.Decimal("1.5"), None, 2],
        }
    )
    frame = frames.of(cells)
    assert columns.text(frame.values["whole"]).fillna("-").tolist() == [str(2**60 + 1), "-", "3"]
    assert columns.text(frame.values["gone"]).fillna("-").tolist() == ["1", "-", "3"]
    assert columns.text(frame.values["kind"]).fillna("-").tolist() == ["a", "-", "b"]
    for name, wanted in {"truth": [1, np.nan, 0], "mixed": [1.5, np.nan, 2]}.items():
        values, wrong = columns.numbers(frame.values[name])
        np.testing.assert_array_equal(values, wanted)
        assert not wrong.any()
    words = pd.Series(["TRUE", "", "false", "1"], dtype="str")
    np.testing.assert_array_equal(columns.numbers(words)[0], [1, np.nan, 0, 1])
    assert columns.numbers(pd.Series(["true", "7"], dtype="str"))[1].tolist() == [True, False]


def test_durations_in_a_file_are_seconds_as_in_a_column_of_their_type(tmp_path):
    spans = pd.Series(pd.to_timedelta([6122, -3600.5, None, 86400 * 3], unit="s"))
    pd.DataFrame({"span": spans}).to_csv(tmp_path / "a.csv", index=False, na_rep="NA")
    written = frames.read(tmp_path / "a.csv").values["span"]
    for cells in (spans, written):
        values, wrong = columns.numbers(cells)
        np.testing.assert_array_equal(values, [6122, -3600.5, np.nan, 86400 * 3])
        assert not wrong.any()
    mixed = pd.Series(["0 days 01:42:02", "many"])
    assert columns.numbers(mixed)[1].all()


def test_cells_that_are_numbers_keep_their_value_beside_text_with_other_marks():
    cells = pd.Series([1.234, "2.345,5", decimal.Decimal("7.125"), None, "3,5", "x"], dtype=object)
    values, wrong = columns.numbers(cells, ",.")
    np.testing.assert_array_equal(values, [1.234, 2345.5, 7.125, np.nan, 3.5, np.nan])
    assert wrong.tolist() == [False] * 5 + [True]
    learned = preparation.fit(pd.DataFrame({"a": ["1.234,5", "2,5", "3"]}))
    later = learned.transform(pd.DataFrame({"a": [decimal.Decimal("1.234"), 2.5]}))
    np.testing.assert_array_equal(later[:, 0], np.float32([1.234, 2.5]))
    mixed = preparation.fit(pd.DataFrame({"a": [1.5, "2.345,5", 7, "3,5"]}))
    assert [column.marks for column in mixed.columns] == [",."]
    whole = preparation.fit(pd.DataFrame({"a": [1.234, "1.234.567", "950"]}))
    assert "such as '1.234.567' for 1234567: 'a'" in whole.messages[0]


def test_the_minus_of_typography_is_one():
    cells = pd.Series(["\u22121.5", "2", "\u2212x", "3e\u22122"], dtype="str")
    np.testing.assert_array_equal(columns.numbers(cells)[0], [-1.5, 2, np.nan, 0.03])
    np.testing.assert_array_equal(
        columns.numbers(cells[:2].str.replace(".", ","), ",")[0], [-1.5, 2]
    )


@pytest.mark.parametrize(
    ("cells", "form", "first"),
    [
        (["2024-01-31", "2024-02-01 10:30:00", None], "ISO8601", "2024-01-31"),
        (["2024-01-31T23:30:00-02:00", "2024-01-31"], "ISO8601", "2024-02-01 01:30"),
        (["31.12.2023", "01.02.2024"], "%d.%m.%Y", "2023-12-31"),
        (["12/31/2023", "01/02/2024"], "%m/%d/%Y", "2023-12-31"),
        (["05 Jan 2020", "06 Feb 2021"], "%d %b %Y", "2020-01-05"),
        (["2024.01.05", "2024.02.06"], "%Y.%m.%d", "2024-01-05"),
        (["2024/01/05 10:00", "2024/02/06 11:00"], "%Y/%m/%d %H:%M", "2024-01-05 10:00"),
        # Only the second says that the day comes first.
        (["01/02/2024", "31/12/2023"], "%d/%m/%Y", "2024-02-01"),
    ],
)
def test_dates_are_read_in_one_format(cells, form, first):
    cells = pd.Series(cells, dtype="str")
    assert columns.date_formats(cells) == [form]
    values, wrong = columns.dates(cells, form)
    assert values.iloc[0] == pd.Timestamp(first) and not wrong.any()


def test_days_and_months_that_nothing_tells_apart_have_two_formats():
    cells = pd.Series(["01/02/2024", "03/04/2024"], dtype="str")
    assert columns.date_formats(cells) == ["%m/%d/%Y", "%d/%m/%Y"]
    assert columns.date_formats(pd.Series(["02/02/2024"], dtype="str")) == ["%m/%d/%Y"]


@pytest.mark.parametrize(
    ("cells", "may_be"),
    [
        (["May", "June"], False),
        (["10:30"], False),
        (["A12"], False),
        (["2024-01-31", "soon"], False),
        (["1.2.3"], False),
        (["31.12/23"], False),
        (["31.12.23", "1/2/24"], False),
        (["31.12.23", "1.2.24"], True),
        (["12/31/23", "01/02/24"], True),
        (["12/31/23", "31/12/24"], False),
        (["23-05-14", "24-01-31"], True),
        (["32.05.14", "24.01.32"], False),
        (["98/7/1", "99/12/31"], True),
    ],
)
def test_what_is_no_date_and_what_may_be_one_with_a_short_year(cells, may_be):
    cells = pd.Series(cells, dtype="str")
    assert columns.date_formats(cells) == []
    assert columns.may_be_short_dates(cells) is may_be


def test_parquet_keeps_types_and_a_named_index(tmp_path):
    index = pd.Index(["r1", "r2"], name="key")
    table = pd.DataFrame({"x": [1.5, None], "day": [datetime.date(2024, 1, 31), None]}, index)
    table.to_parquet(tmp_path / "a.parquet")
    frame = frames.read(tmp_path / "a.parquet")
    assert frame.names == ("key", "x", "day") and frame.place(1).endswith(", row 2")
    assert columns.date_formats(frame.values["day"]) == ["ISO8601"]
    assert columns.text(frame.values["key"]).tolist() == ["r1", "r2"]


@pytest.mark.parametrize("ending", ["parquet", "npy", "csv"])
def test_a_row_is_named_by_its_place_in_the_file_wherever_it_was_taken_to(tmp_path, ending):
    path, table = tmp_path / f"a.{ending}", pd.DataFrame({"x": np.arange(9.0), "y": 1.0})
    match ending:
        case "parquet":
            table.to_parquet(path)
        case "npy":
            np.save(path, table.to_numpy())
        case _:
            table.to_csv(path, index=False)
    whole = frames.read(path)
    taken = whole.take(np.array([7, 2, 5])).without(["y"]).take(np.array([2, 0]))
    assert [taken.place(row) for row in (0, 1)] == [whole.place(row) for row in (5, 7)]
    chunks = [chunk.frame for chunk in frame_chunks.read(path, 4)]
    assert chunks[1].take(np.array([3, 1])).place(0) == whole.place(7)
    cut = [chunk.frame for chunk in frame_chunks.read(whole.take(np.arange(8, -1, -1)), 4)]
    assert cut[2].place(0) == whole.place(0)
    if ending != "npy":  # of a training set that was drawn, too
        learned = preparation.fit(whole, aside=("y",))
        cells = whole.values.assign(x=[str(i) if i != 4 else "no" for i in range(9)])
        with pytest.raises(ValueError, match=f"^{re.escape(whole.place(4))}, column 'x' is 'no'"):
            learned.transform(dataclasses.replace(whole, values=cells).take(np.array([1, 4, 7])))


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_large_whole_numbers_beside_a_missing_one_keep_all_digits(tmp_path, kind):
    codes = [2**60 + i if i != 3 else None for i in range(1, 7)]
    columns_of = {"code": pa.array(codes, kind), "few": pa.array([1, None, 3, 4, 5, 6], kind)}
    pq.write_table(pa.table(columns_of), tmp_path / "a.parquet")
    wanted = [np.nan if code is None else str(code) for code in codes]
    whole = frames.read(tmp_path / "a.parquet")
    assert whole.values["few"].dtype == np.float64  # as numbers that it holds always were
    for size in (1, 4, 6):
        parts = [part.frame for part in frame_chunks.read(tmp_path / "a.parquet", size)]
        for read in (parts, [whole]):
            found = pd.concat([columns.text(part.values["code"]) for part in read])
            assert found.tolist() == pytest.approx(wanted, nan_ok=True)
            missing = np.concatenate([columns.is_missing(part.values["code"]) for part in read])
            np.testing.assert_array_equal(missing, [code is None for code in codes])
    learned = preparation.fit(whole, words=("code",))
    trained = learned.transform(whole)
    assert len(np.unique(trained, axis=0)) == 6
    for size in (1, 4, 6):
        chunks = (part.frame for part in frame_chunks.read(tmp_path / "a.parquet", size))
        predicted = np.concatenate(list(learned.transform_parts(chunks)))
        np.testing.assert_array_equal(predicted, trained)
    assert len(set(learned.row_keys(whole))) == 6


def test_arrays_are_rows_with_what_is_beside_them(tmp_path):
    x = np.arange(12.0).reshape(3, 2, 2)
    np.save(tmp_path / "a.npy", x)
    frame = frames.read(tmp_path / "a.npy")
    np.testing.assert_array_equal(frame.values, x.reshape(3, 4))
    assert frame.names == () and not frame.is_table
    np.savez(tmp_path / "a.npz", x=x, labels=[1, 0, -1], ids=["u", "v", "w"])
    frame = frames.read(tmp_path / "a.npz").take(np.array([2, 0]))
    np.testing.assert_array_equal(frame.values, x.reshape(3, 4)[[2, 0]])
    assert frame.column("ids", field="id").tolist() == ["w", "u"]
    assert frame.without(["ids"]).names == ("labels",)
    np.savez(tmp_path / "b.npz", positives=x[:1], unlabeled=x[1:])
    frame = frames.read(tmp_path / "b.npz")
    np.testing.assert_array_equal(frame.values, x.reshape(3, 4))
    np.testing.assert_array_equal(frame.beside["labels"], [1, np.nan, np.nan])
    assert frame.num_before == 1 and frame.place(1).endswith("b.npz, row 2")
    np.savez(tmp_path / "c.npz", positives=[0.5], unlabeled=[0.1, 0.2], names=["a score"])
    frame = frames.read(tmp_path / "c.npz")  # one number per row, and what is no row
    assert frame.values.tolist() == [[0.5], [0.1], [0.2]] and frame.names == ("labels",)
    np.savez(tmp_path / "c.npz", x=[0.5, 0.1], labels=[1, 0])
    assert frames.read(tmp_path / "c.npz").values.tolist() == [[0.5], [0.1]]


def test_svmlight_has_all_digits_when_asked(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:0.1\n-1 2:3\n")
    assert frames.read(path, dtype=np.float64).values[0, 1] == 0.1
    assert frames.read(path).values[0, 1] == np.float32(0.1)


@pytest.mark.parametrize(("separator", "wanted"), [(",", False), (";", True), ("\t", True)])
def test_a_frame_knows_whether_commas_separate_its_cells(tmp_path, separator, wanted):
    frame = frames.read(write(tmp_path / "a.csv", f"x{separator}s\n1{separator}2\n"))
    assert frame.decimal_comma is wanted
    assert frame.take(np.array([0])).without(["s"]).decimal_comma is wanted


def test_svmlight_keeps_its_indices_and_lines(tmp_path):
    frame = frames.read(write(tmp_path / "a", "# made by hand\n1 1:2.5 3:4\n\n-1 2:1 # last\n"))
    np.testing.assert_array_equal(frame.values, [[0, 2.5, 0, 4], [0, 0, 1, 0]])
    np.testing.assert_array_equal(frame.beside["labels"], [1, -1])
    np.testing.assert_array_equal(frame.lines, [2, 4])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "FILE is empty"),
        ("a,b\n", "FILE has no rows below the header"),
        ("a,b\n1,2\n3\n", "FILE, line 3 has 1 cells; accepted: 2"),
        ("a,b\n\n1,2\n3,4,5\n", "FILE, line 4 has 3 cells; accepted: 2"),
        ("a,b,a\n1,2,3\n", "FILE has two columns 'a', numbers 1 and 3"),
        ("0.5,red,1\n0.7,blue,0\n", "FILE, line 1 is '0.5,red,1'; accepted: a header"),
        ("5,6\n7,8\n", "FILE, line 1 is '5,6'; accepted: a header"),
        (b"a,b\n1,M\xfcnchen\n", "FILE, line 2, byte 4 is 0xfc; accepted: text in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "FILE, line 1, byte 1 is 0xff; accepted: text in UTF-8"),
        (f"a,b\n1,2\n3,{'x' * 140000}\n", "FILE, line 3 has a cell of more than 131072 char"),
        ('a,b\n1,"2\n' + "3,4\n" * 40000, "FILE, line 2 has a cell of more than 131072 char"),
        ('a,b\n1,2\n3,"4\n5,6\n', "FILE, line 3 cannot be read (unexpected end of data)"),
    ],
)
def test_text_is_refused_by_line_and_column(tmp_path, content, message):
    assert refusal(write(tmp_path / "a.csv", content)).startswith(message)


def test_a_word_that_means_infinity_is_a_word_among_words(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n1,inf\n2,sup\n")
    assert frames.read(path).values["b"].tolist() == ["inf", "sup"]


def test_what_is_no_file_is_refused(tmp_path):
    assert refusal(tmp_path / "a.csv").startswith("FILE does not exist")
    assert refusal(tmp_path).startswith("FILE is a folder")
    with pytest.raises(ValueError, match="path is ''; accepted: a file"):
        frames.read("")
    file = write(tmp_path / "a.csv", CSV)
    for below in (file / "b.csv", file / "deep" / "b.csv"):
        message = refusal(below)
        assert message == f"FILE is no file, as {file} is a file and not a folder"


@pytest.mark.parametrize("ending", [".csv.gz", ".csv.xz", ".svm.bz2", ".parquet", ".npz", ".npy"])
def test_damaged_files_are_refused(tmp_path, ending):
    assert "cannot be read" in refusal(write(tmp_path / f"a{ending}", b"not what it says"))


def test_a_file_that_breaks_off_is_refused(tmp_path):
    whole = gzip.compress(CSV.encode() * 50)
    assert "cannot be read" in refusal(write(tmp_path / "a.csv.gz", whole[: len(whole) // 2]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 1:2\nyes 1:3\n", "FILE, line 2 cannot be read as svmlight"),
        ("1 1:2\n\n0 3:1 2:4\n", "FILE, line 3 cannot be read as svmlight"),
        ("# note\n1 1:2\n0 2:inf\n", "FILE, line 3, column 2 is inf"),
        ("1 1:2\n0 99999999999:1\n", "FILE"),
    ],
)
def test_svmlight_is_refused_by_line(tmp_path, content, message):
    assert refusal(write(tmp_path / "a.svm", content)).startswith(message)


@pytest.mark.parametrize("mark", "|,;\t")
def test_a_table_by_another_name_is_told_which_one_it_needs(tmp_path, mark):
    content = f"größe{mark}amount{mark}{'x' * 99}\n1{mark}2{mark}3\n"
    message = refusal(write(tmp_path / "a.txt", content))
    assert message.startswith(
        "FILE, line 1 cannot be read as svmlight (could not convert string to float: 'größe"
    )
    assert "b'" not in message and "x" * 41 not in message
    assert message.endswith("header of a table, give the file a name that ends in .csv")
    for other in ("yes 1:3\n", "# a, b\nyes 1:3\n", "1,2 1:x\n"):
        assert "header of a table" not in refusal(write(tmp_path / "a.txt", other))


def test_svmlight_too_large_when_dense_is_refused(tmp_path):
    message = refusal(write(tmp_path / "a.svm", "1 1:2\n0 2000000000:1\n"))
    assert "values; accepted: at most" in message


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.ones((2, 2))}, "FILE holds ['a']; accepted: 'x'"),
        ({"x": np.float64(3)}, "FILE: x is float64 of shape ()"),
        ({"x": np.ones((2, 2)), "labels": [1, 0, 1]}, "FILE: labels is int64 of shape (3,)"),
        ({"x": np.array([["a"]])}, "FILE: x is <U1"),
        ({"x": np.array([[None]])}, "FILE cannot be read"),
        ({"x": np.ones((0, 2))}, "FILE has shape (0, 2)"),
        ({"x": np.array([[1, 2], [3, np.nan]])}, "FILE, row 2, column 2 is nan"),
        (
            {"positives": np.ones((2, 2)), "unlabeled": np.ones((2, 3))},
            "FILE: unlabeled has 3 features; accepted: 2",
        ),
    ],
)
def test_arrays_are_refused_by_name(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    assert refusal(tmp_path / "a.npz").startswith(message)


def test_an_array_alone_is_refused_by_shape(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(4))
    assert refusal(tmp_path / "a.npy").startswith("FILE: the array is float64 of shape (4,)")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([[1], [2]], "FILE, column 'o' holds a list<"),
        ([b"1", b"2"], "FILE, row 1, column 'o' holds a bytes"),
        ([1.0, np.inf], "FILE, row 2, column 'o' is inf"),
    ],
)
def test_parquet_cells_are_refused_by_column(tmp_path, cells, message):
    pd.DataFrame({"o": cells}).to_parquet(tmp_path / "a.parquet")
    assert refusal(tmp_path / "a.parquet").startswith(message)


def test_a_packed_archive_is_refused(tmp_path):
    assert "an unpacked .npz file" in refusal(write(tmp_path / "a.npz.gz", b"x"))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"x": [1, 2]}).to_parquet(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert refusal(path) == "FILE needs pyarrow: pip install 'pujax[tables]'"


def test_a_column_is_suggested(tmp_path):
    frame = frames.read(write(tmp_path / "a.csv", CSV))
    with pytest.raises(ValueError, match=r"label is 'Amunt'.*did you mean 'amount'\?"):
        frame.column("Amunt", field="label")


def test_data_in_memory_is_checked_as_a_file_is():
    with pytest.raises(ValueError, match="two columns 'x'"):
        frames.of(pd.DataFrame([[1, 2]], columns=["x", "x"]))
    with pytest.raises(ValueError, match="the table, row 2, column 'x' is -inf"):
        frames.of(pd.DataFrame({"x": [1.0, -np.inf]}))
    with pytest.raises(ValueError, match="complex"):
        frames.of(pd.DataFrame({"x": [1j, 2j]}))
    with pytest.raises(ValueError, match="is a MaskedArray; accepted: a pandas DataFrame or a Nu"):
        frames.of(np.ma.array(np.ones([2, 2])))
    with pytest.raises(ValueError, match="is a list"):
        frames.of([[1, 2]])
    frame = frames.of(np.ones((2, 3), np.int64))
    assert frames.of(frame) is frame


@pytest.mark.thorough
def test_nothing_of_the_extra_is_imported_before_it_is_needed(tmp_path):
    code = (
        "import sys, numpy as np\n"
        "from pujax.data import preparation\n"
        "from pujax.data.readers import frames, pu_labels\n"
        "print(preparation.fit(frames.read(sys.argv[1])).transform(np.ones((1, 2))).shape)\n"
        "assert not {'skrub', 'skops', 'pyarrow', 'pandas'} & (set(sys.modules) - before)\n"
    )
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    # pandas itself is imported by scikit-learn or jax where it is installed, or not at all.
    code = "import sys, sklearn.datasets, jax\nbefore = set(sys.modules)\n" + code
    subprocess.run([sys.executable, "-c", code, tmp_path / "a.npy"], check=True)


@pytest.mark.parametrize("ending", ["xlsx", "XLS", "ods"])
def test_a_spreadsheet_is_refused_in_words(tmp_path, ending):
    said = refusal(write(tmp_path / f"a.{ending}", b"PK\x03\x04" + bytes(100)))
    assert said.startswith("FILE is a spreadsheet; accepted: .csv") and "save it as CSV" in said
