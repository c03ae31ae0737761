"""A user's table is read as it was written, whatever its format, and refused by name."""

import bz2
import gzip
import lzma
import re
import zipfile

import numpy as np
import pytest
import sklearn.datasets

from pujax.data.readers import separated, tables

CSV = "size,colour,labelled\n1.5,red,1\n-2,blue,\n3e2,red,0\n0,green,-1\n"


def read(path, label=None):
    """The one table of one file."""
    (table,) = tables.read_together([path], label=label)
    return table


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("header", "delimiter"),
    [
        ("a,b", ","),
        ("a;b,c", ";"),  # of as many the semicolons
        ("a;b,c,d", ","),
        ("a\tb\tc,d", "\t"),
        ('"a;b;c",d', ","),  # what stands in quotes does not count
        ('"x, y";"z, w"', ";"),
        ("a|b", "|"),
        ("a|b|c,d", ","),
        ("a", ","),
    ],
)
def test_what_separates_cells_is_what_the_header_has_most_of(header, delimiter):
    assert separated.delimiter_of(header) == delimiter


def test_csv_is_read_cell_by_cell_with_words_as_columns_of_their_own(tmp_path):
    table = read(write(tmp_path / "a.csv", CSV))
    assert table.names == ("size", "colour=blue", "colour=green", "colour=red")
    np.testing.assert_array_equal(
        table.features, [[1.5, 0, 0, 1], [-2, 1, 0, 0], [300, 0, 0, 1], [0, 0, 1, 0]]
    )
    np.testing.assert_array_equal(table.labels, [1, -1, 0, -1])
    assert table.labels.dtype == np.int32 and table.features.dtype == np.float64


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_the_header_says_what_separates_the_cells(tmp_path, delimiter, ending):
    path = write(tmp_path / f"a{ending}", CSV.replace(",", delimiter))
    np.testing.assert_array_equal(read(path).features[:, 0], [1.5, -2, 300, 0])


def test_the_label_may_be_any_column(tmp_path):
    path = write(tmp_path / "a.csv", "s,x,y\n1,5,6\n,7,8\n")
    table = read(path, label="s")
    assert table.names == ("x", "y")
    np.testing.assert_array_equal(table.features, [[5, 6], [7, 8]])
    np.testing.assert_array_equal(table.labels, [1, -1])


def test_a_byte_order_mark_quotes_blank_lines_and_windows_line_ends_are_no_data(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbf"x, in m",s\r\n" 2",1\r\n\r\n3,0\r\n')
    table = read(path)
    assert table.names == ("x, in m",)
    np.testing.assert_array_equal(table.features, [[2], [3]])


@pytest.mark.parametrize(("ending", "opener"), [("gz", gzip), ("bz2", bz2), ("xz", lzma)])
@pytest.mark.parametrize("name", ["a.csv", "a.svm"])
def test_packed_files_equal_plain_ones(tmp_path, name, ending, opener):
    text = CSV if name == "a.csv" else "1 1:2 3:4.5\n-1 2:1\n"
    plain = read(write(tmp_path / name, text))
    with opener.open(tmp_path / f"{name}.{ending}", "wt") as file:
        file.write(text)
    packed = read(tmp_path / f"{name}.{ending}")
    np.testing.assert_array_equal(packed.features, plain.features)
    np.testing.assert_array_equal(packed.labels, plain.labels)
    assert packed.names == plain.names


def test_svmlight_is_what_scikit_learn_wrote(tmp_path):
    features = np.random.default_rng(0).normal(size=[6, 3]) * [1, 0, 1]
    labels = np.array([1, -1, 0, 1, -1, -1])
    path = tmp_path / "a.txt"
    sklearn.datasets.dump_svmlight_file(features, labels, str(path), zero_based=False)
    table = read(path)
    np.testing.assert_allclose(table.features, features, rtol=1e-12)
    np.testing.assert_array_equal(table.labels, labels)


def test_archives_hold_two_samples_or_rows_with_labels(tmp_path):
    p, u = np.ones([2, 2, 2], np.uint8), np.zeros([3, 2, 2], np.uint8)
    np.savez(tmp_path / "a.npz", positives=p, unlabeled=u)
    np.savez(tmp_path / "b.npz", x=np.concatenate([p, u]), labeled=[True, True, 0, 0, 0])
    first, second = (read(tmp_path / name) for name in ("a.npz", "b.npz"))
    assert first.features.shape == (5, 4)
    np.testing.assert_array_equal(first.features, second.features)
    np.testing.assert_array_equal(first.labels, [1, 1, -1, -1, -1])
    np.testing.assert_array_equal(second.labels, [1, 1, 0, 0, 0])


def test_files_read_together_have_the_same_columns(tmp_path):
    first = write(tmp_path / "a.csv", "x,c,s\n1,red,1\n2,blue,0\n")
    second = write(tmp_path / "b.csv", "x,c,s\n3,green,1\n")
    train, test = tables.read_together([first, second])
    assert train.names == test.names == ("x", "c=blue", "c=red")
    np.testing.assert_array_equal(test.features, [[3, 0, 0]])  # no training row has the word
    np.testing.assert_array_equal(train.features, [[1, 0, 1], [2, 1, 0]])
    second = write(tmp_path / "b.csv", "x,c,s\n3,red,1\nthree,red,1\n")
    with pytest.raises(ValueError, match="b.csv, line 3: column 'x' holds 'three'; accepted: "):
        tables.read_together([first, second])
    a, b = write(tmp_path / "a", "1 1:1\n0 1:2\n"), write(tmp_path / "b", "1 5:1\n")
    assert [x.features.shape for x in tables.read_together([a, b])] == [(2, 5), (1, 5)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "accepted: a header"),
        ("a.csv", "1,2\n3,1\n", "begins with '1,2'; accepted: a header"),
        ("a.csv", "x,s\n", "has no examples"),
        ("a.csv", "x,x,s\n1,2,1\n", "two columns 'x'"),
        ("a.csv", "x,s\n1\n", "line 2, has 1 cells; accepted: 2"),
        ("a.csv", 'x,s\n1,1\n2,"0\n3,1\n', "a.csv, line 3 cannot be read"),
        ("a.csv", "x,s\n1,yes\n", "column 's' is taken for the label and holds 'yes'"),
        ("a.csv", "x,s\n1,2\n", "has the label 2; accepted: 1"),
        ("a.csv", "x,s\n1,1\n,0\n", "line 3: column 'x' holds ''; accepted: numbers"),
        ("a.csv", "x,s\n1,1\nnan,0\n", "line 3: column 'x' holds 'nan'; accepted: numbers"),
        (
            "a.csv",
            "x,s\n" + "".join(f"n{i},0\n" for i in range(51)),
            "column 'x' holds 'n0', one of 51 different words",
        ),
        ("a.txt", "some text\n", r"read as svmlight \(could not .*: 'some'\); accepted"),
        ("a.svm", "2 1:1\n", "has the label 2"),
        ("a.npz", "no archive", r"a\.npz"),
        ("a.csv.gz", "not packed", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, text, message):
    path = write(tmp_path / name, text)
    with pytest.raises(ValueError, match=message) as error:
        read(path)
    assert name in str(error.value)


def test_wrong_files_labels_and_arrays_are_named(tmp_path):
    with pytest.raises(ValueError, match="nothing.csv is no file"):
        read(tmp_path / "nothing.csv")
    path = write(tmp_path / "a.csv", CSV)
    with pytest.raises(ValueError, match="label is 'y'; accepted: 'size', 'colour', 'labelled'"):
        read(path, label="y")
    with pytest.raises(ValueError, match="label is 'y'; accepted: a name only with"):
        read(write(tmp_path / "a.svm", "1 1:1\n"), label="y")
    np.savez(tmp_path / "a.npz", rows=np.ones(3))
    with pytest.raises(ValueError, match=r"holds \['rows'\]; accepted: 'positives'"):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", positives=np.ones([2, 3]), unlabeled=np.ones([2, 4]))
    with pytest.raises(ValueError, match=r"unlabeled has shape \(2, 4\)"):
        read(tmp_path / "a.npz")
    points = np.ones([2, 3])
    for arrays, message in (
        ({"positives": np.float64(1), "unlabeled": points}, r"positives is float64 of shape \(\)"),
        ({"positives": points, "unlabeled": np.array(2)}, r"unlabeled is int64 of shape \(\)"),
        ({"x": points, "labeled": np.int32(1)}, r"labeled is int32 of shape \(\); accepted: real"),
        ({"x": points, "labeled": ["yes", "no"]}, "labeled is <U3 of shape .2,.; accepted: real"),
        ({"x": points, "labeled": np.array([1, None])}, "x or labeled cannot be read .*Object"),
        ({"x": points + 1j, "labeled": [1, 0]}, "x is complex128"),
    ):
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(ValueError, match=rf"a\.npz: {message}"):
            read(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        for name in ("positives", "unlabeled.npy"):
            file.writestr(name, b"no array")
    with pytest.raises(ValueError, match=r"a\.npz: positives"):
        read(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="is npz; accepted: separated"):
        tables.read_together([path, tmp_path / "a.npz"])
    with pytest.raises(ValueError, match="has the columns"):
        tables.read_together([path, write(tmp_path / "b.csv", "x,s\n1,1\n")])


@pytest.mark.parametrize("mark", ["N/A", "NA", "?", "null", ""])
def test_a_missing_number_does_not_turn_its_column_into_words(tmp_path, mark):
    path = tmp_path / "a.csv"
    path.write_text(f"x,s\n1.5,1\n2.5,0\n\n{mark},0\n")
    wanted = rf"a.csv, line 5: column 'x' holds '{re.escape(mark)}'; accepted: numbers throughout"
    with pytest.raises(ValueError, match=wanted):
        read(path)


def test_an_infinite_number_is_named_with_its_line(tmp_path):
    (tmp_path / "a.csv").write_text("x,s\n1,1\n-inf,0\n")
    with pytest.raises(ValueError, match="a.csv, line 3: column 'x' holds '-inf'; accepted: fini"):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_decimal_commas_are_numbers_where_something_else_separates_the_cells(tmp_path, delimiter):
    text = "x;t;v;s\n1,5;1.234,5;a;1\n-2;7;b;0\n,25;1.000.000,0;a;0\n".replace(";", delimiter)
    table = read(write(tmp_path / "a.csv", text))
    assert table.names == ("x", "t", "v=a", "v=b")
    np.testing.assert_array_equal(table.features[:, 0], [1.5, -2, 0.25])
    np.testing.assert_array_equal(table.features[:, 1], [1234.5, 7, 1e6])


def test_training_rows_say_how_numbers_are_written_and_others_follow(tmp_path):
    train = write(tmp_path / "a.csv", "x;s\n1,5;1\n2,5;0\n")
    test = write(tmp_path / "b.csv", "x;s\n3;1\n4,5;0\n")
    _, table = tables.read_together([train, test])
    np.testing.assert_array_equal(table.features, [[3], [4.5]])
    for cell in ("2.5", "many"):
        write(test, f"x;s\n3;1\n{cell};0\n")
        with pytest.raises(ValueError, match=rf"b.csv, line 3: column 'x' holds '{cell}'; accept"):
            tables.read_together([train, test])
    write(test, "x;s\n3,5;1\n;0\n")
    with pytest.raises(ValueError, match=r"b.csv, line 3: column 'x' holds ''; accepted: numbers"):
        tables.read_together([train, test])


def test_what_may_be_two_numbers_or_one_of_two_stays_words(tmp_path):
    assert read(write(tmp_path / "a.csv", 'x,s\n"1,5",1\n"2,5",0\n')).names == ("x=1,5", "x=2,5")
    assert len(read(write(tmp_path / "b.csv", "x;s\n1,234;1\n5,678;0\n")).names) == 2
