"""A user's own table as a source: files, labels, unknown classes, and PU problems made of it."""

import math

import numpy as np
import pytest

from pujax.data import dataset, sources
from pujax.data.readers import download

HEADER = "age,colour,label\n"
TRAIN = ["30,red,1\n", "40,blue,0\n", "50,red,\n", "60,green,-1\n", "70,blue,1\n"]
TEST = ["35,red,1\n", "45,green,0\n"]


def write(folder, train=TRAIN, test=TEST, header=HEADER, ending=".csv"):
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", train), ("test", test)):
        (folder / (split + ending)).write_text(header + "".join(rows))


@pytest.mark.parametrize("place", ["", "table"])
def test_numbers_words_and_unknown_labels(place, tmp_path):
    write(tmp_path / place)
    data = sources.load("table", directory=tmp_path)
    np.testing.assert_array_equal(data.train_labels, [1, 0, -1, -1, 1])
    np.testing.assert_array_equal(data.test_labels, [1, 0])
    assert data.class_names == ("negative", "positive")
    # Age, then one column per colour in alphabetical order.
    np.testing.assert_array_equal(data.train_inputs[:, 0], [30, 40, 50, 60, 70])
    np.testing.assert_array_equal(data.train_inputs[0, 1:], [0, 0, 1])
    np.testing.assert_array_equal(data.test_inputs, [[35, 0, 0, 1], [45, 0, 1, 0]])
    assert data.train_inputs.dtype == np.float32
    assert (data.mean[0], data.std[0]) == (50, math.sqrt(200))  # of all rows, labelled or not


def test_seconds_of_one_day_stay_apart_in_single_precision(tmp_path):
    rows = [f"{1_700_000_000 + i},{i},{i % 2}\n" for i in range(9)]
    write(tmp_path, rows[:6], rows[6:], "when,count,label\n")
    data = sources.load("table", directory=tmp_path)
    inputs = np.concatenate([data.train_inputs, data.test_inputs])
    np.testing.assert_array_equal(np.diff(inputs, axis=0), np.ones([8, 2]))
    np.testing.assert_array_equal(inputs[:, 1], range(9))  # such numbers stay what they are


def test_the_label_may_be_any_column(tmp_path):
    swap = [",".join(reversed(row.strip().split(","))) + "\n" for row in TRAIN + TEST]
    write(tmp_path, swap[:5], swap[5:], "is_positive,colour,age\n")
    data = sources.load("table", directory=tmp_path, label_column="is_positive")
    np.testing.assert_array_equal(data.train_labels, [1, 0, -1, -1, 1])
    with pytest.raises(ValueError, match="'class'.*accepted.*'is_positive'"):
        sources.load("table", directory=tmp_path, label_column="class")
    with pytest.raises(ValueError, match="data.label_column is 'x', but source 'digits' has no"):
        sources.load("digits", label_column="x")


def test_a_code_with_an_underscore_is_a_word(tmp_path):
    rows = ["1_2,1\n", "3_4,0\n", "1_2,\n"]
    write(tmp_path, rows, rows[:2], "code,label\n")
    data = sources.load("table", directory=tmp_path)
    np.testing.assert_array_equal(data.train_inputs, [[1, 0], [0, 1], [1, 0]])


def test_svmlight_and_numpy_files_are_read_too(tmp_path):
    write(tmp_path / "s", ["1 1:3\n", "0 2:4\n"], ["1 1:1 3:2\n"], header="", ending=".svm")
    data = sources.load("table", directory=tmp_path / "s")
    np.testing.assert_array_equal(data.train_inputs, [[3, 0, 0], [0, 4, 0]])
    np.testing.assert_array_equal(data.test_inputs, [[1, 0, 2]])
    (tmp_path / "n").mkdir()
    x = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "n" / "train.npz", x=x, labeled=[1, 0, -1])
    np.savez(tmp_path / "n" / "test.npz", x=x[:2], labeled=[1, 0])
    data = sources.load("table", directory=tmp_path / "n")
    np.testing.assert_array_equal(data.train_inputs, x)
    np.testing.assert_array_equal(data.train_labels, [1, 0, -1])


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (TRAIN, ["35,red,1\n", "45,green,\n"], "test.csv has the label -1, or none, in 1 rows"),
        (["1e39,red,1\n", *TRAIN], TEST, "'table': train_inputs is 'not finite in 1 places'"),
        (["nan,red,1\n", *TRAIN], TEST, "train.csv, line 2: column 'age' holds"),
        (["30,red,2\n", *TRAIN], TEST, "train.csv has the label 2; accepted: 1"),
    ],
)
def test_what_cannot_be_is_refused_by_file(train, test, message, tmp_path):
    write(tmp_path, train, test)
    with pytest.raises(ValueError, match=message):
        sources.load("table", directory=tmp_path)


def test_missing_or_ambiguous_files_are_named(tmp_path):
    with pytest.raises(download.MissingDataError, match="train.ENDING and test.ENDING") as caught:
        sources.load("table", directory=tmp_path)
    assert str(tmp_path / "table") in str(caught.value) and ".npz" in str(caught.value)
    write(tmp_path)
    (tmp_path / "train.svm").write_text("1 1:1\n")
    with pytest.raises(ValueError, match="train.csv, train.svm; accepted: one of them"):
        sources.load("table", directory=tmp_path)


def test_labelled_positives_and_unlabeled_rows_alone_make_a_problem(tmp_path):
    """What most users have: no row is known to be negative, and nobody knows the class prior."""
    train = [f"{i},red,{'1' if i < 20 else ''}\n" for i in range(100)]
    write(tmp_path, train)
    raw = sources.load("table", directory=tmp_path)
    settings = {
        "positive_classes": (1,),
        "num_labeled": 20,
        "num_support": 0,
        "setting": "one_sample",
        "sampling": "uniform",
        "seed": 0,
    }
    data = dataset.build(raw, **settings)
    assert (data.info.n_p, data.info.n_u) == (20, 80)
    assert data.info.is_table and data.info.input_dtype == "float32"
    assert sorted(data.inputs[data.labeled][:, 0]) == list(range(20))
    assert math.isnan(data.info.prior) and data.counts()["unlabeled_without_truth"] == 80
    assert dataset.build(raw, **settings, prior=0.5).info.prior_unlabeled == (50 - 20) / 80
    with pytest.raises(
        ValueError, match="data.num_validation is 10; accepted: 0, since no example"
    ):
        dataset.build(raw, **(settings | {"num_labeled": 10}), prior=0.5, num_validation=10)
