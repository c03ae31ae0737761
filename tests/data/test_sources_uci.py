"""The UCI tables: classes, packings and checks on made files, counts on the real ones."""

import bz2
import gzip
import lzma

import numpy as np
import pytest

from pujax.data import sources
from pujax.data.readers import download, uci_tables
from pujax.data.sources import letter, spambase
from tests import conftest

PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
COUNTS = (3, 4, 5)
SOURCE = uci_tables.UciSource(
    name="made",
    file="made.data",
    page="https://example.org/made",
    num_features=2,
    class_column=0,
    codes=("b", "a", "c"),  # not in the order of the alphabet
    counts=COUNTS,
    class_names=("bee", "ant", "cow"),
)
CLASSES = np.tile([2, 1, 0], 4)[:-1].tolist() + [2]  # 3 b, 4 a, 5 c


def lines(last=False):
    """Row i holds i and -i / 2."""
    codes = [SOURCE.codes[k] for k in CLASSES]
    cells = [[f"{i}", f" {-i / 2}"] for i in range(len(codes))]
    rows = [[*c, code] if last else [code, *c] for c, code in zip(cells, codes, strict=True)]
    return [",".join(row) + "\n" for row in rows]


def write(path, text, ending=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ending).write_bytes(PACKERS[ending]("".join(text).encode()))


def all_rows(data):
    inputs = np.concatenate([data.train_inputs, data.test_inputs])
    return inputs, np.concatenate([data.train_labels, data.test_labels])


@pytest.mark.parametrize("folder", ["", "made"])
@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("last", [False, True])
def test_every_row_keeps_its_numbers_and_its_class(last, ending, folder, tmp_path):
    text = lines(last)
    text[3] = text[3].replace("\n", "\r\n")
    write(tmp_path / folder / "made.data", [*text, "\n"], ending)  # UCI files end with a blank line
    source = SOURCE._replace(class_column=-1 if last else 0)
    data = uci_tables.load(source, tmp_path, test_fraction=0.4)
    inputs, labels = all_rows(data)
    assert inputs.dtype == np.float32 and labels.dtype == np.int32
    order = inputs[:, 0].astype(int)
    assert sorted(order) == list(range(12))
    np.testing.assert_array_equal(inputs[:, 1], -order / 2)
    np.testing.assert_array_equal(labels, np.array(CLASSES)[order])
    np.testing.assert_array_equal(np.bincount(data.test_labels), [1, 1, 2])  # 0.4 of 3, 4, 5
    np.testing.assert_allclose(data.mean, data.train_inputs.mean(0), rtol=1e-6)
    np.testing.assert_allclose(data.std, data.train_inputs.std(0), rtol=1e-6)
    assert data.class_names == ("bee", "ant", "cow")
    absent = uci_tables.without_data(source, test_fraction=0.4)
    for part in ("train", "test"):
        assert getattr(absent, f"{part}_inputs").shape == getattr(data, f"{part}_inputs").shape
        found = (getattr(d, f"{part}_labels") for d in (absent, data))
        np.testing.assert_array_equal(*map(np.bincount, found))


def test_another_seed_holds_out_other_rows(tmp_path):
    write(tmp_path / "made.data", lines())
    first, again, other = (
        uci_tables.load(SOURCE, tmp_path, test_fraction=0.4, seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.test_inputs, again.test_inputs)
    assert not np.array_equal(first.test_inputs, other.test_inputs)
    with pytest.raises(ValueError, match="test_fraction is 0.1; accepted"):
        uci_tables.load(SOURCE, tmp_path, test_fraction=0.1)


@pytest.mark.parametrize(
    ("row", "text", "message"),
    [
        (4, "", "made.data has 3, 3, 5 rows of its classes; accepted: 3, 4, 5, as published"),
        # As many rows, and other classes.
        (4, "b,1,2\n", "made.data has 4, 3, 5 rows of its classes; accepted: 3, 4, 5"),
        (4, "d,1,2\n", "made.data, line 5 has the class 'd'; accepted: b, a, c"),
        (4, "a,1\n", "made.data, line 5 has 1 features; accepted: 2, as published"),
        (4, "a,1,2,3\n", "made.data, line 5 has 3 features; accepted: 2, as published"),
        (4, "a,1,?\n", r"made.data, line 5 holds no numbers: .*'\?'"),
        (0, "class,x,y\n", "made.data, line 1 has the class 'class'; accepted: b, a, c"),
        (4, "\n\na,1,?\n", "made.data, line 7 holds no numbers"),  # lines of the file are counted
    ],
)
def test_a_file_with_other_rows_is_refused_by_its_line(row, text, message, tmp_path):
    changed = lines()
    changed[row] = text
    write(tmp_path / "made.data", changed)
    with pytest.raises(ValueError, match=message):
        uci_tables.load(SOURCE, tmp_path, test_fraction=0.4)


@pytest.mark.parametrize(
    ("source", "line", "first", "last", "name"),
    [
        (letter.SOURCE, "T,2,8,3,5,1,8,13,0,6,6,10,8,0,8,0,8", [2, 8, 3], 8, "T"),
        (spambase.SOURCE, f"0,0.64,0.64{',0' * 53},278,1", [0, 0.64, 0.64], 278, "spam"),
        (spambase.SOURCE, f"0,0.31,0.42{',0' * 53},88,0", [0, 0.31, 0.42], 88, "no spam"),
    ],
    ids=("letter", "spam", "no spam"),
)
def test_a_row_as_published_has_its_numbers_and_its_class(
    source, line, first, last, name, tmp_path
):
    write(tmp_path / source.file, [line + "\n"])
    alone = source._replace(counts=tuple(int(known == name) for known in source.class_names))
    (row,), (label,) = uci_tables._read(alone, str(tmp_path / source.file))
    np.testing.assert_array_equal(row[[0, 1, 2, -1]], np.float32([*first, last]))
    assert source.class_names[label] == name and len(row) == source.num_features


@pytest.mark.parametrize("module", [letter, spambase], ids=lambda m: m.SOURCE.name)
def test_the_share_and_the_seed_of_the_test_set_reach_the_reader(module, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(uci_tables, "load", lambda *args, **options: given.append((args, options)))
    module.load(tmp_path, test_fraction=0.3, seed=7)
    assert given == [((module.SOURCE, tmp_path), {"test_fraction": 0.3, "seed": 7})]


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_a_truncated_file_is_named(ending, tmp_path):
    write(tmp_path / "made.data", lines(), ending)
    path = tmp_path / f"made.data{ending}"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=f"made.data{ending} is damaged or truncated"):
        uci_tables.load(SOURCE, tmp_path, test_fraction=0.4)


def test_text_that_is_not_utf8_is_named_by_its_byte(tmp_path):
    (tmp_path / "made.data").write_bytes(b"b,1,2\na,\xff,1\n")
    with pytest.raises(ValueError, match="made.data, line 2, byte 3 is 0xff"):
        uci_tables.load(SOURCE, tmp_path, test_fraction=0.4)


@pytest.mark.parametrize("source", [letter.SOURCE, spambase.SOURCE], ids=lambda s: s.name)
def test_a_missing_file_is_named_with_folder_and_page(source, tmp_path):
    with pytest.raises(download.MissingDataError) as caught:
        sources.load(source.name, directory=tmp_path)
    message = str(caught.value)
    assert all(part in message for part in (source.file, source.page, str(tmp_path / source.name)))


@pytest.mark.parametrize(
    ("name", "shapes", "first"),
    [
        ("letter", ((18_013, 16), (1987, 16)), [2, 8, 3, 5, 1, 8, 13, 0, 6, 6, 10, 8, 0, 8, 0, 8]),
        ("spambase", ((3682, 57), (919, 57)), [0, 0.64, 0.64, 0, 0.32]),
    ],
)
def test_the_real_tables_have_their_published_shapes(name, shapes, first):
    data = sources.load(name, directory=conftest.real_data_folder("uci"))
    assert (data.train_inputs.shape, data.test_inputs.shape) == shapes
    inputs, labels = all_rows(data)
    found = (inputs[:, : len(first)] == np.array(first, np.float32)).all(1)
    assert found.any() and data.class_names[labels[found][0]] == {"letter": "T"}.get(name, "spam")
