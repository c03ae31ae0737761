"""The checks on a data set with several labels per example."""

import numpy as np
import pytest

from pujax.data import image_files, raw


def small(**changes):
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    labels = np.array([[1, 0], [0, 1]], np.int8)
    fields = {
        "name": "small",
        "train_inputs": rows,
        "train_labels": labels,
        "test_inputs": rows,
        "test_labels": labels,
        "class_names": ("a", "b"),
        "mean": (0.0,) * 3,
        "std": (1.0,) * 3,
    }
    return raw.RawDataset(**(fields | changes))


def test_a_consistent_set_passes_the_checks_unchanged_with_empty_classes_too():
    data = small(train_labels=np.array([[1, -1], [0, 0]], np.int8))
    assert raw.check(data) is data
    assert raw.empty_classes(data.train_labels) == [1]
    assert raw.empty_classes(data.test_labels) == []
    data = small(test_labels=np.zeros((2, 2), np.int8))
    assert raw.check(data) is data


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train_inputs", np.zeros((2, 3))),
        ("train_inputs", np.zeros((0, 3), np.float32)),
        ("test_inputs", np.full((2, 3), np.inf, np.float32)),
        ("train_labels", np.ones((2, 2), np.int32)),
        ("train_labels", np.ones((2, 3), np.int8)),
        ("train_labels", np.ones((3, 2), np.int8)),
        ("train_labels", np.ones(2, np.int8)),
        ("train_labels", np.full((2, 2), 2, np.int8)),
        ("train_labels", np.zeros((2, 2), np.int8)),
        ("test_labels", np.full((2, 2), -1, np.int8)),
        ("class_names", ()),
        ("class_names", ("a", "a")),
        ("mean", (0.0,)),
        ("std", (1.0, 1.0, 0.0)),
    ],
)
def test_an_inconsistent_set_is_refused_by_field(field, value):
    with pytest.raises(ValueError, match=f"'small': {field} is .*; accepted: "):
        raw.check(small(**{field: value}))


def test_files_and_arrays_do_not_go_together():
    files = small(
        train_inputs=image_files.ImageFiles(("a.jpg", "b.jpg"), 224, 256),
        test_inputs=image_files.ImageFiles(("c.jpg", "d.jpg"), 224, 256),
    )
    assert raw.check(files) is files
    pixels = np.zeros((2, 224, 224, 3), np.uint8)
    with pytest.raises(ValueError, match="test_inputs is 'ndarray'; accepted: ImageFiles"):
        raw.check(files._replace(test_inputs=pixels))
    other = image_files.ImageFiles(("c.jpg", "d.jpg"), 64, 64)
    with pytest.raises(ValueError, match="test image is .64, 64, 3.; accepted: .224, 224, 3."):
        raw.check(files._replace(test_inputs=other))
    none = image_files.ImageFiles((), 224, 256)
    with pytest.raises(ValueError, match="train_inputs is 'uint8 .0, 224, 224, 3.'; accepted"):
        raw.check(files._replace(train_inputs=none))
