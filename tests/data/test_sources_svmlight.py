"""The LIBSVM tables: labels, packings and checks on made files, counts on the real ones."""

import bz2
import gzip
import lzma

import numpy as np
import pytest

from pujax.data import sources
from pujax.data.readers import download, svmlight
from pujax.data.sources import connect4, mushrooms, phishing, usps
from tests import conftest

PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
# Row i of the made table holds the value i + 1 in column i % 4, and nothing else.
NEGATIVE, POSITIVE = 6, 4
SOURCE = svmlight.SvmlightSource(
    name="made",
    train_files=(("made",), ("made.tr", "made.val")),
    test_file="made.t",
    num_features=5,
    train_counts=(NEGATIVE, POSITIVE),
    test_counts=(NEGATIVE, POSITIVE),
    class_names=("no", "yes"),
)


def lines(codes=("-1", "+1"), rows=range(NEGATIVE + POSITIVE)):
    return [f"{codes[i >= NEGATIVE]} {i % 4 + 1}:{i + 1}\n" for i in rows]


def write(path, text, ending=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ending).write_bytes(PACKERS[ending]("".join(text).encode()))


def dense():
    table = np.zeros([NEGATIVE + POSITIVE, 5], np.float32)
    for i in range(len(table)):
        table[i, i % 4] = i + 1
    return table


@pytest.mark.parametrize("folder", ["", "made", "libsvm"])
@pytest.mark.parametrize("ending", PACKERS)
def test_every_packing_and_place_gives_the_same_table(ending, folder, tmp_path):
    write(tmp_path / folder / "made", lines(), ending)
    write(tmp_path / folder / "made.t", lines(), ending)
    data = svmlight.load(SOURCE, tmp_path)
    assert data.train_inputs.dtype == np.float32
    for inputs, labels in ((data.train_inputs, data.train_labels), data[3:5]):
        np.testing.assert_array_equal(inputs, dense())
        np.testing.assert_array_equal(labels, [0] * NEGATIVE + [1] * POSITIVE)
    # The last column is in no row: a constant, which is left in place.
    np.testing.assert_allclose(data.mean, dense().mean(0), rtol=1e-6)
    np.testing.assert_allclose(data.std[:4], dense().std(0)[:4], rtol=1e-6)
    assert data.std[4] == 1.0


@pytest.mark.parametrize("codes", [("-1", "1"), ("-1.0", "+1"), ("0", "1"), ("1", "2")])
def test_the_larger_of_two_labels_is_positive(codes, tmp_path):
    write(tmp_path / "made", lines(codes))
    write(tmp_path / "made.t", lines())
    labels = svmlight.load(SOURCE, tmp_path).train_labels
    np.testing.assert_array_equal(labels, [0] * NEGATIVE + [1] * POSITIVE)


def test_classes_of_several_codes_are_counted_from_0(tmp_path):
    source = SOURCE._replace(
        train_files=(("made",),),
        test_file="",
        train_counts=(4, 4, 2),
        test_counts=(0, 0, 0),
        class_names=("loss", "draw", "win"),
        codes=((-1, 0, 1),),
    )
    codes = ["-1", "0", "1", "0", "-1"] * 2
    text = [code + line[2:] for code, line in zip(codes, lines(), strict=True)]
    write(tmp_path / "made", text)
    data = svmlight.load(source, tmp_path, test_fraction=0.5)
    inputs = np.concatenate([data.train_inputs, data.test_inputs]).max(1).astype(int)
    labels = np.concatenate([data.train_labels, data.test_labels])
    np.testing.assert_array_equal(labels, [int(codes[i - 1]) + 1 for i in inputs])
    np.testing.assert_array_equal(np.bincount(data.test_labels), [2, 2, 1])
    absent = svmlight.without_data(source, test_fraction=0.5)
    for part in ("train_labels", "test_labels"):
        found, expected = getattr(absent, part), getattr(data, part)
        np.testing.assert_array_equal(np.bincount(found), np.bincount(expected))
    write(tmp_path / "made", [*text, text[0]])
    with pytest.raises(ValueError, match="has 5, 4, 2 rows of its classes; accepted: 4, 4, 2 rows"):
        svmlight.load(source, tmp_path)
    write(tmp_path / "made", [*text, "2 1:1\n"])
    with pytest.raises(
        ValueError, match=r"\(-1.0, 0.0, 1.0, 2.0\); accepted: \(-1, 0, 1\), as pub"
    ):
        svmlight.load(source, tmp_path)


@pytest.mark.parametrize(
    ("source", "codes", "names"),
    [
        (usps.SOURCE, range(1, 11), "0123456789"),  # of the ten digits 1 stands for 0
        (connect4.SOURCE, (-1, 0, 1), ("loss", "draw", "win")),
    ],
    ids=("usps", "connect4"),
)
def test_the_labels_of_a_table_of_several_classes_stand_for_their_names(
    source, codes, names, tmp_path
):
    write(tmp_path / "made", [f"{code} {i + 1}:1\n" for i, code in enumerate(codes)])
    inputs, labels = svmlight._read(source, [tmp_path / "made"], (1,) * len(names))
    assert [source.class_names[label] for label in labels] == list(names)
    np.testing.assert_array_equal(inputs, np.eye(len(names), source.num_features))


@pytest.mark.parametrize("module", [connect4, mushrooms, phishing], ids=lambda m: m.SOURCE.name)
def test_the_share_and_the_seed_of_the_test_set_reach_the_reader(module, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(svmlight, "load", lambda *args, **options: given.append((args, options)))
    module.load(tmp_path, test_fraction=0.3, seed=7)
    assert given == [((module.SOURCE, tmp_path), {"test_fraction": 0.3, "seed": 7})]


def test_a_training_set_in_two_parts_is_joined(tmp_path):
    write(tmp_path / "made.tr", lines(rows=range(7)))
    write(tmp_path / "made.val", lines(rows=range(7, 10)), ".xz")
    write(tmp_path / "made.t", lines())
    (tmp_path / "made").mkdir()  # a folder of the source's name is no file of that name
    np.testing.assert_array_equal(svmlight.load(SOURCE, tmp_path).train_inputs, dense())


def test_a_training_set_of_which_one_part_is_there_is_missing(tmp_path):
    write(tmp_path / "made.tr", lines(rows=range(7)))
    write(tmp_path / "made.t", lines())
    with pytest.raises(
        download.MissingDataError, match="cannot find made or made.tr with made.val"
    ):
        svmlight.load(SOURCE, tmp_path)


def test_the_test_file_has_counts_of_its_own(tmp_path):
    source = SOURCE._replace(test_counts=(2, 1))
    write(tmp_path / "made", lines())
    write(tmp_path / "made.t", lines(rows=(0, 1, 9)))
    data = svmlight.load(source, tmp_path)
    np.testing.assert_array_equal(data.test_inputs, dense()[[0, 1, 9]])
    np.testing.assert_array_equal(data.test_labels, [0, 0, 1])
    assert len(data.train_labels) == 10
    write(tmp_path / "made.t", lines())
    with pytest.raises(ValueError, match="made.t has 6 negatives and 4 positives; accepted: 2 neg"):
        svmlight.load(source, tmp_path)


def test_without_a_test_file_a_fixed_part_of_each_class_is_held_out(tmp_path):
    source = SOURCE._replace(test_file="", test_counts=(0, 0))
    write(tmp_path / "made", lines())
    first, again, other = (
        svmlight.load(source, tmp_path, test_fraction=0.5, seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(np.bincount(first.test_labels), [3, 2])
    values = np.concatenate([first.train_inputs, first.test_inputs]).max(1)
    assert sorted(values) == list(range(1, 11))
    np.testing.assert_array_equal(first.test_inputs, again.test_inputs)
    assert not np.array_equal(first.test_inputs, other.test_inputs)
    with pytest.raises(ValueError, match="test_fraction is 0.1; accepted"):
        svmlight.load(source, tmp_path, test_fraction=0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lines()[:-1], "made has 6 negatives and 3 positives; accepted: 6 negatives and 4 pos"),
        (
            lines(("+1", "-1")),
            "made has 4 negatives and 6 positives; accepted: 6 negatives and 4 pos",
        ),
        (lines(("3", "4")), r"made has the labels \(3.0, 4.0\); accepted: \(-1.0, 1.0\)"),
        (lines(("1", "1")), r"made has the labels \(1.0,\); accepted"),
        ([*lines()[:-1], "+1 6:1\n"], "made is not svmlight text of 5 features"),
        ([*lines()[:-1], "+1 0:1\n"], "made is not svmlight text of 5 features"),
        (["\n"], "made"),
        (["age,income\n", "3,4\n"], "made is not svmlight text .* to float: 'age,income'"),
    ],
)
def test_a_file_with_other_rows_is_refused_by_name(text, message, tmp_path):
    write(tmp_path / "made", text)
    write(tmp_path / "made.t", lines())
    with pytest.raises(ValueError, match=message):
        svmlight.load(SOURCE, tmp_path)


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_a_truncated_file_is_named(ending, tmp_path):
    write(tmp_path / "made", lines(), ending)
    write(tmp_path / "made.t", lines())
    path = tmp_path / f"made{ending}"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=f"made{ending} is damaged or truncated"):
        svmlight.load(SOURCE, tmp_path)


@pytest.mark.parametrize("name", ["a9a", "ijcnn1", "mushrooms", "phishing", "usps", "connect4"])
def test_missing_files_are_named_with_folder_and_page(name, tmp_path):
    with pytest.raises(download.MissingDataError) as caught:
        sources.load(name, directory=tmp_path)
    message = str(caught.value)
    page = svmlight.MULTICLASS_PAGE if name in ("usps", "connect4") else svmlight.PAGE
    assert page in message and str(tmp_path / name) in message
    files = {
        "a9a": ("a9a", "a9a.t"),
        "ijcnn1": ("ijcnn1.tr", "ijcnn1.t"),
        "usps": ("usps", "usps.t"),
        "connect4": ("connect-4",),
    }
    assert all(file in message for file in files.get(name, (name,)))


@pytest.mark.parametrize(
    ("name", "shapes", "positives"),
    [
        ("a9a", ((32561, 123), (16281, 123)), (7841, 3846)),
        ("ijcnn1", ((49990, 22), (91701, 22)), (4853, 8712)),
        # A fifth of each class, rounded down, is the test set.
        ("mushrooms", ((6500, 112), (1624, 112)), (3133, 783)),
        ("phishing", ((8845, 68), (2210, 68)), (4926, 1231)),
    ],
)
def test_the_real_tables_have_their_published_shapes(name, shapes, positives):
    data = sources.load(name, directory=conftest.real_data_folder("libsvm"))
    assert (data.train_inputs.shape, data.test_inputs.shape) == shapes
    assert (int(data.train_labels.sum()), int(data.test_labels.sum())) == positives
    assert len(data.mean) == len(data.std) == shapes[0][1]
    if name == "a9a":  # its first row, by its text
        columns = np.flatnonzero(data.train_inputs[0]) + 1
        assert columns.tolist() == [3, 11, 14, 19, 39, 42, 55, 64, 67, 73, 75, 76, 80, 83]
        assert set(np.unique(data.train_inputs)) == {0.0, 1.0}
