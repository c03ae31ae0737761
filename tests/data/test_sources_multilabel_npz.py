"""Arrays in an archive with several labels per example: a user's own, and the real sets."""

import sys

import numpy as np
import pytest
from PIL import Image

from pujax.data import raw, sources
from tests import conftest

rng = np.random.default_rng(0)


def load(path, **options):
    return sources.load("multilabel", directory=path, **options)


def arrays(**changes):
    """A table of 4 training and 2 test rows, 3 features, 2 classes."""
    fields = {
        "X_train": np.arange(12.0).reshape(4, 3),
        "Y_train": np.array([[1, 0], [0, -1], [1, 1], [0, 0]]),
        "X_test": np.arange(6.0).reshape(2, 3),
        "Y_test": np.array([[1, 0], [0, 1]]),
    }
    fields |= changes
    return {name: value for name, value in fields.items() if value is not None}


def images(shape, **changes):
    draw = rng.integers(0, 256, (6, *shape)).astype(np.uint8)
    return arrays(X_train=draw[:4], X_test=draw[4:], **changes)


def test_a_table_in_an_archive(tmp_path):
    np.savez(tmp_path / "own.npz", **arrays(label_names=["cat", "dog"], ids=np.arange(4)))
    data = load(tmp_path / "own.npz")
    np.testing.assert_array_equal(data.train_inputs, np.arange(12).reshape(4, 3))
    np.testing.assert_array_equal(data.train_labels, [[1, 0], [0, -1], [1, 1], [0, 0]])
    np.testing.assert_array_equal(data.test_labels, [[1, 0], [0, 1]])
    assert data.train_inputs.dtype == data.test_inputs.dtype == np.float32
    assert data.train_labels.dtype == data.test_labels.dtype == np.int8
    assert data.class_names == ("cat", "dog")
    assert data.mean == (4.5, 5.5, 6.5) and data.std[0] == np.sqrt(11.25)


def test_rows_that_are_all_equal_are_refused(tmp_path):
    np.savez(tmp_path / "own.npz", **arrays(X_train=np.full([4, 3], 2.0)))
    with pytest.raises(ValueError, match="own.npz: all rows of X_train are equal; accepted: rows"):
        load(tmp_path / "own.npz")


def test_numbers_of_a_table_become_what_training_rows_say(tmp_path):
    rows = np.stack([1.7e9 + np.arange(4), np.full(4, 3.0), np.arange(4.0)], 1)
    changed = arrays(X_train=rows, X_test=rows[:2] + [0, 50, 0])
    np.savez(tmp_path / "own.npz", **changed)
    data = load(tmp_path / "own.npz")
    # Seconds stay apart in single precision; nothing was learned of another value than 3.
    np.testing.assert_array_equal(np.diff(data.train_inputs, axis=0), [[1, 0, 1]] * 3)
    np.testing.assert_array_equal(data.test_inputs, data.train_inputs[:2])
    new = data.own.preparation.transform(rows[2:] + [0, 50, 0])
    np.testing.assert_array_equal(new, data.train_inputs[2:])
    assert [note.partition(" ")[0] for note in data.own.notes] == ["1", "1"]


@pytest.mark.parametrize("kind", [bool, np.uint8, np.float64])
def test_labels_may_be_of_any_number_type_and_need_no_names(kind, tmp_path):
    y = np.eye(2)[[0, 1, 0, 0]].astype(kind)
    np.savez(tmp_path / "own.npz", **arrays(Y_train=y, Y_test=y[:2]))
    data = load(tmp_path)  # the only archive of its folder
    np.testing.assert_array_equal(data.train_labels, np.eye(2)[[0, 1, 0, 0]])
    assert data.class_names == ("0", "1")


def test_names_in_bytes_are_utf_8(tmp_path):
    np.savez(tmp_path / "own.npz", **arrays(label_names=["é".encode(), b"b"]))
    assert load(tmp_path / "own.npz").class_names == ("é", "b")


@pytest.mark.parametrize("shape", [(5, 4, 3), (5, 4), (5, 4, 1)])
def test_images_in_an_archive(shape, tmp_path):
    wanted = images(shape)
    np.savez(tmp_path / "own.npz", **wanted)
    data = load(tmp_path / "own.npz")
    channels = 3 if shape[-1] == 3 else 1
    assert data.train_inputs.shape == (4, 5, 4, channels)
    np.testing.assert_array_equal(data.train_inputs.reshape(4, *shape), wanted["X_train"])
    assert (data.mean, data.std) == raw.channel_statistics(data.train_inputs)
    small = load(tmp_path / "own.npz", image_size=3)
    assert small.test_inputs.shape == (2, 3, 3, channels) and small.test_inputs.dtype == np.uint8
    picture = Image.fromarray(wanted["X_test"][1].reshape(shape[:2] if channels == 1 else shape))
    pixels = np.asarray(picture.resize((3, 3), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(small.test_inputs[1].squeeze(), pixels)


def test_test_rows_that_are_training_rows_are_counted(tmp_path):
    train = np.array([[0, 1.5], [0, 1.5], [-0.0, 2], [3, 4]])
    np.savez(tmp_path / "own.npz", **arrays(X_train=train, X_test=[[1.5, 0], [5, 6]]))
    assert load(tmp_path).own.test_copies is None
    np.savez(tmp_path / "own.npz", **arrays(X_train=train, X_test=[[0, 2], [5, 6]]))
    copies = load(tmp_path).own.test_copies
    assert copies == raw.SharedRows(1, 0, 2, 0.5, "examples")
    assert copies.sentence == (
        "1 of 2 test examples (50.0%) are also training examples, equal in every number; of the "
        "training examples 50.0% equal another one. Unless equal examples are different cases, "
        "the numbers of the test set are too good: leave them out of X_train and Y_train or of "
        "X_test and Y_test"
    )


def test_test_images_that_are_training_images_are_counted(tmp_path):
    wanted = images((5, 4))
    wanted["X_test"][1] = wanted["X_train"][3]
    np.savez(tmp_path / "own.npz", **wanted)
    for options in ({}, {"image_size": 3}):
        copies = load(tmp_path, **options).own.test_copies
        assert copies == raw.SharedRows(1, 0, 2, 0, "examples")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Y_test": None}, "lacks Y_test and holds X_test, X_train, Y_train|lacks Y_test"),
        ({"X_train": np.zeros((4, 3, 2))}, "X_train is float64 .4, 3, 2.; accepted: numbers"),
        ({"X_train": np.zeros((4, 8, 8, 3))}, "X_train is float64 .* uint8 images"),
        ({"X_train": np.zeros((4, 8, 8, 2), np.uint8)}, "X_train is uint8 .4, 8, 8, 2."),
        ({"X_train": np.zeros((4, 0))}, "X_train is float64 .4, 0."),
        ({"X_train": np.full((4, 3), "a")}, "X_train is <U1"),
        ({"X_test": np.array([None, 1])}, "Object arrays"),
        ({"Y_train": np.full((4, 2), 2)}, "Y_train holds 2; accepted: -1, 0, 1"),
        ({"Y_train": np.full((4, 2), 0.5)}, "Y_train holds 0.5; accepted"),
        (
            {"Y_train": np.full((4, 2), np.nan)},
            "holds nan; accepted: -1, 0, 1, of which -1 is unknown",
        ),
        ({"Y_train": np.full((4, 2), 257)}, "Y_train holds 257; accepted"),
        ({"Y_test": np.full((2, 2), -1)}, "Y_test holds -1; accepted: 0, 1"),
        ({"Y_train": np.ones(4)}, "Y_train is float64 .4,.; accepted: numbers .n, classes"),
        ({"Y_train": np.ones((3, 2))}, "Y_train has shape .3, 2.; accepted: .4, 2."),
        ({"Y_test": np.ones((2, 3))}, "Y_test has shape .2, 3.; accepted: .2, 2."),
        ({"label_names": ["a"]}, "label_names has shape .1,.; accepted: .2,., one name"),
        ({"label_names": [b"a", b"\xe9"]}, r"label_names is b'\\xe9'; accepted: text"),
        ({"label_names": ["a", "a"]}, "class_names is .*'a'. more than once"),
        ({"label_names": ["\u00e9", "e\u0301"]}, "npz: label_names has two names that look like"),
        ({"label_names": ["a", " "]}, r"class_names is .empty in places .2..; accepted: a name"),
        ({"Y_train": np.zeros((4, 2))}, "train_labels is 'without a 1'; accepted"),
        (
            {"X_train": np.full((4, 3), np.nan)},
            "own.npz: X_train holds nan in the first of 12 places; accepted: numbers up to 3.4e",
        ),
        (
            {"X_test": np.array([[1, 1e39, 0], [0, 1, -1e40]])},
            r"own.npz: X_test holds 1e\+39 in the first of 2 places; accepted",
        ),
        ({"X_test": np.zeros((2, 4))}, "own.npz: X_test has 4 features; accepted: 3, as in train"),
    ],
)
def test_an_archive_that_cannot_be_is_refused_by_name(changes, message, tmp_path):
    np.savez(tmp_path / "own.npz", **arrays(**changes))
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_an_archive_of_packed_images_says_how_to_unpack_it(tmp_path):
    strip = np.zeros(9, np.uint8)
    np.savez(tmp_path / "voc.npz", **arrays(X_train=None), X_train_webp_000=strip)
    with pytest.raises(
        ValueError, match="X_train_webp_000.* in place of X_train; unpack .*load.py"
    ):
        load(tmp_path)


def test_a_damaged_archive_is_named(tmp_path):
    path = tmp_path / "own.npz"
    np.savez_compressed(path, **images((40, 40, 3)))
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-100])
    with pytest.raises(ValueError, match=f"{path} cannot be read as an archive"):
        load(path)
    content[2000:2100] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path} cannot be read as an archive"):
        load(path)


@pytest.mark.parametrize("option", [{"image_size": 8}, {"load_size": 8}])
def test_a_table_has_no_image_size(option, tmp_path):
    np.savez(tmp_path / "own.npz", **arrays())
    with pytest.raises(ValueError, match=f"{next(iter(option))} is 8; accepted: 0 with"):
        load(tmp_path, **option)


@pytest.mark.parametrize(
    ("name", "train", "test", "classes", "per_row"),
    [
        ("scene", (1211, 294), (1196, 294), 6, (1.062, 1.086)),
        ("yeast", (1500, 103), (917, 103), 14, (4.228, 4.252)),
        ("emotions", (391, 72), (202, 72), 6, (1.813, 1.975)),
        ("coco128_96", (128, 96, 96, 3), (128, 96, 96, 3), 80, (2.828, 2.914)),
    ],
)
def test_the_real_sets_have_the_published_counts(name, train, test, classes, per_row):
    data = load(conftest.real_data_folder("multilabel") / f"{name}.npz")
    assert (data.train_inputs.shape, data.test_inputs.shape) == (train, test)
    assert len(data.class_names) == data.test_labels.shape[1] == classes
    means = data.train_labels.sum(1).mean(), data.test_labels.sum(1).mean()
    assert tuple(round(float(mean), 3) for mean in means) == per_row
    if name == "coco128_96":  # 71 and 73 of the 80 classes occur
        assert len(raw.empty_classes(data.train_labels)) == 80 - 71
        assert len(raw.empty_classes(data.test_labels)) == 80 - 73


def test_a_real_set_of_packed_images_is_read_once_unpacked(tmp_path):
    real = conftest.real_data_folder("multilabel")
    with pytest.raises(ValueError, match="unpack it with the load.py"):
        load(real / "voc5_64.npz")
    sys.path.insert(0, str(real))
    try:
        import load as packed
    finally:
        sys.path.remove(str(real))
        sys.modules.pop("load", None)
    np.savez(tmp_path / "voc5.npz", **packed.load("voc5_64"))
    data = load(tmp_path)
    assert data.train_inputs.shape == (1906, 64, 64, 3) and data.test_inputs.shape[0] == 100
    assert data.train_labels.sum(0).tolist() == [229, 989, 456, 516, 347]
    assert data.class_names == ("bus", "car", "cat", "person", "train")
