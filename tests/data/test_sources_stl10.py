"""STL-10 from its binary files."""

import numpy as np
import pytest

from pujax.data import sources
from pujax.data.sources import stl10
from tests.data import official_layouts

rng = np.random.default_rng(0)
TRAIN, UNLABELED, TEST = (rng.integers(0, 256, (n, 96, 96, 3)).astype(np.uint8) for n in (3, 4, 2))
FILES = {
    "class_names.txt": b"airplane\nbird\n",
    "test_X.bin": official_layouts.stl_images(TEST),
    "test_y.bin": bytes([10, 5]),
    "train_X.bin": official_layouts.stl_images(TRAIN),
    "train_y.bin": bytes([1, 2, 10]),
    "unlabeled_X.bin": official_layouts.stl_images(UNLABELED),
}


def write(root, form, files=None):
    files = FILES if files is None else files
    if form == "archive":
        official_layouts.write_tar(root / "stl10_binary.tar.gz", "stl10_binary", files)
    else:
        official_layouts.write_files(root / ("stl10_binary" if form == "folder" else ""), files)


@pytest.mark.parametrize("below", ["", "stl10"])
@pytest.mark.parametrize("form", ["archive", "folder", "files"])
def test_labelled_images_come_first_and_unlabeled_ones_have_no_class(tmp_path, form, below):
    write(tmp_path / below, form)
    data = sources.load("stl10", directory=tmp_path)
    np.testing.assert_array_equal(data.train_inputs, np.concatenate([TRAIN, UNLABELED]))
    np.testing.assert_array_equal(data.train_labels, [0, 1, 9, -1, -1, -1, -1])
    np.testing.assert_array_equal(data.test_inputs, TEST)
    np.testing.assert_array_equal(data.test_labels, [9, 4])
    assert data.class_names[3] == "cat" and data.mean == (0.5, 0.5, 0.5)


def test_the_order_inside_an_archive_does_not_matter(tmp_path):
    write(tmp_path, "archive", dict(reversed(FILES.items())))
    data = sources.load("stl10", directory=tmp_path)
    np.testing.assert_array_equal(data.train_inputs, np.concatenate([TRAIN, UNLABELED]))


def test_images_are_stored_column_by_column(tmp_path):
    # By hand: the second byte of an image is the red pixel below the first one.
    red_top, red_below, green_top = 11, 22, 33
    image = bytearray(3 * 96 * 96)
    image[0], image[1], image[96 * 96] = red_top, red_below, green_top
    write(tmp_path, "folder", FILES | {"test_X.bin": bytes(image), "test_y.bin": b"\1"})
    pixels = sources.load("stl10", directory=tmp_path).test_inputs[0]
    assert pixels[0, 0, 0] == red_top and pixels[1, 0, 0] == red_below
    assert pixels[0, 0, 1] == green_top and pixels.astype(int).sum() == 66


def test_more_images_than_one_chunk_are_read_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(stl10, "_CHUNK", 2)
    write(tmp_path, "folder")
    data = sources.load("stl10", directory=tmp_path)
    np.testing.assert_array_equal(data.train_inputs, np.concatenate([TRAIN, UNLABELED]))


@pytest.mark.parametrize("form", ["archive", "folder"])
@pytest.mark.parametrize("name", ["train_X.bin", "unlabeled_X.bin", "test_X.bin"])
def test_a_file_that_ends_inside_an_image_is_named(tmp_path, form, name):
    write(tmp_path, form, FILES | {name: FILES[name][:-1]})
    with pytest.raises(ValueError, match=f"{name} is truncated"):
        sources.load("stl10", directory=tmp_path)


def test_a_truncated_archive_is_named(tmp_path):
    write(tmp_path, "archive")
    path = tmp_path / "stl10_binary.tar.gz"
    path.write_bytes(path.read_bytes()[:200_000])
    with pytest.raises(ValueError, match="stl10_binary.tar.gz is damaged or truncated"):
        sources.load("stl10", directory=tmp_path)


def test_a_missing_file_is_named(tmp_path):
    write(tmp_path, "folder", {k: v for k, v in FILES.items() if k != "unlabeled_X.bin"})
    with pytest.raises(ValueError, match="unlabeled_X.bin missing"):
        sources.load("stl10", directory=tmp_path)


@pytest.mark.parametrize("labels", [bytes([0, 1]), bytes([1, 11])])
def test_classes_outside_one_to_ten_are_refused(tmp_path, labels):
    write(tmp_path, "folder", FILES | {"test_y.bin": labels})
    with pytest.raises(ValueError, match="test_y.bin holds labels in .* accepted: 1..10"):
        sources.load("stl10", directory=tmp_path)


@pytest.mark.parametrize("split", ["train", "test"])
def test_images_and_labels_must_be_equally_many(tmp_path, split):
    write(tmp_path, "folder", FILES | {f"{split}_y.bin": b"\1"})
    with pytest.raises(ValueError, match=f"{split}_X.bin has . images, but {split}_y.bin has 1"):
        sources.load("stl10", directory=tmp_path)
