"""MNIST and Fashion-MNIST from idx files."""

import gzip

import numpy as np
import pytest

from pujax.data import raw, sources
from pujax.data.readers import idx
from tests import conftest
from tests.data import official_layouts

rng = np.random.default_rng(0)
ARRAYS = [
    rng.integers(0, 256, (6, 28, 28)).astype(np.uint8),
    np.array([0, 1, 2, 9, 8, 7], np.uint8),
    rng.integers(0, 256, (3, 28, 28)).astype(np.uint8),
    np.array([5, 6, 7], np.uint8),
]
IMAGES = "train-images-idx3-ubyte"


def check(data):
    np.testing.assert_array_equal(data.train_inputs[..., 0], ARRAYS[0])
    np.testing.assert_array_equal(data.train_labels, ARRAYS[1])
    np.testing.assert_array_equal(data.test_inputs[..., 0], ARRAYS[2])
    np.testing.assert_array_equal(data.test_labels, ARRAYS[3])
    assert data.train_inputs.shape == (6, 28, 28, 1)
    assert data.train_labels.dtype == np.int32


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("folder", ["", "mnist", "MNIST/raw", "raw", "mnist/MNIST/raw"])
def test_the_files_are_found_plain_and_gzipped_in_the_usual_folders(tmp_path, folder, suffix):
    official_layouts.write_idx_set(tmp_path / folder, ARRAYS, suffix)
    data = sources.load("mnist", directory=tmp_path)
    check(data)
    assert data.mean == (0.1307,) and data.std == (0.3081,)


def test_names_with_a_dot_are_found(tmp_path):
    official_layouts.write_idx_set(tmp_path, ARRAYS)
    for path in list(tmp_path.iterdir()):
        path.rename(tmp_path / path.name.replace("-idx", ".idx"))
    check(sources.load("mnist", directory=tmp_path))


def test_two_sets_below_one_directory_are_told_apart(tmp_path):
    official_layouts.write_idx_set(tmp_path / "fashion_mnist", ARRAYS, ".gz")
    official_layouts.write_idx_set(tmp_path / "mnist", [array[::-1] for array in ARRAYS], ".gz")
    data = sources.load("fashion_mnist", directory=tmp_path)
    check(data)
    assert data.class_names[9] == "Ankle boot" and data.mean == (0.2860,)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("cut", [2, 10, 16, 100])
def test_a_truncated_file_is_named(tmp_path, cut, suffix):
    official_layouts.write_idx_set(tmp_path, ARRAYS, suffix)
    path = tmp_path / f"{IMAGES}{suffix}"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=f"{path} is"):
        sources.load("mnist", directory=tmp_path)


def test_a_gzip_file_with_a_flipped_bit_is_named(tmp_path):
    official_layouts.write_idx_set(tmp_path, ARRAYS, ".gz")
    path = tmp_path / f"{IMAGES}.gz"
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # in the checksum of the content
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path} is damaged"):
        sources.load("mnist", directory=tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        b"\0\0\x08\x01",  # labels where images belong
        b"\0\0\x0d\x03",  # floats
        b"\1\0\x08\x03",
    ],
)
def test_another_kind_of_idx_file_is_refused(tmp_path, header):
    official_layouts.write_idx_set(tmp_path, ARRAYS)
    path = tmp_path / IMAGES
    path.write_bytes(header + path.read_bytes()[4:])
    with pytest.raises(ValueError, match=f"{path} is not an idx file .* 00000803"):
        sources.load("mnist", directory=tmp_path)


def test_a_gzip_file_under_a_plain_name_is_refused(tmp_path):
    official_layouts.write_idx_set(tmp_path, ARRAYS)
    (tmp_path / IMAGES).write_bytes(gzip.compress((tmp_path / IMAGES).read_bytes()))
    with pytest.raises(ValueError, match="is not an idx file"):
        sources.load("mnist", directory=tmp_path)


def test_a_file_longer_than_its_header_says_is_refused(tmp_path):
    official_layouts.write_idx_set(tmp_path, ARRAYS)
    path = tmp_path / IMAGES
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ValueError, match=f"{path} is longer"):
        sources.load("mnist", directory=tmp_path)


@pytest.mark.parametrize(("which", "images", "labels"), [(1, 6, 5), (3, 3, 2)])
def test_images_and_labels_must_be_equally_many(tmp_path, which, images, labels):
    arrays = [array[:labels] if i == which else array for i, array in enumerate(ARRAYS)]
    official_layouts.write_idx_set(tmp_path, arrays)
    with pytest.raises(ValueError, match=f"has {images} images, but .* has {labels} labels"):
        sources.load("mnist", directory=tmp_path)


def test_a_label_beyond_the_classes_is_refused(tmp_path):
    official_layouts.write_idx_set(tmp_path, [ARRAYS[0], ARRAYS[1] + 1, *ARRAYS[2:]])
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte holds the label 10"):
        sources.load("mnist", directory=tmp_path)


def test_a_header_that_promises_more_than_memory_holds_is_refused(tmp_path):
    path = tmp_path / "huge"
    path.write_bytes(b"\0\0\x08\x03" + b"\xff" * 12 + b"x")
    with pytest.raises(ValueError, match=f"{path} is"):
        idx.read_idx(path, rank=3)


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        (
            "mnist",
            (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        ),
        ("fashion_mnist", (6000,) * 10, (1000,) * 10),
    ],
)
def test_the_real_files_have_the_published_class_counts_and_statistics(name, train, test):
    data = sources.load(name, directory=conftest.real_data_folder(name))
    assert data.train_inputs.shape == (60000, 28, 28, 1)
    assert data.test_inputs.shape == (10000, 28, 28, 1)
    assert tuple(np.bincount(data.train_labels)) == train
    assert tuple(np.bincount(data.test_labels)) == test
    mean, std = raw.channel_statistics(data.train_inputs)
    np.testing.assert_allclose(data.mean, mean, atol=1e-4)  # published with four decimals
    np.testing.assert_allclose(data.std, std, atol=1e-4)
