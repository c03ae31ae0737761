"""Sets of tensorflow-datasets, prepared and read without TensorFlow."""

import io
import json
import pathlib
import sys
import types

import numpy as np
import pytest
from PIL import Image

from pujax.data import sources
from pujax.data.readers import download, tfds_builder, tfds_records

tfds = pytest.importorskip("tensorflow_datasets")
tfds.disable_progress_bar()

SIZES = {"train": 7, "test": 4}


def image(split, i, channels=1, side=6):
    seed = 100 * list(SIZES).index(split) + i if split in SIZES else i
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (side, side, channels)).astype(np.uint8)


class _Builder(tfds.core.GeneratorBasedBuilder):
    """Images of a known seed per split and number; the label is the number modulo 3."""

    VERSION = tfds.core.Version("1.0.0")
    FEATURE = tfds.features.Tensor(shape=(6, 6, 1), dtype=np.uint8)
    SPLITS = ("train", "test")
    KEYS = ("image", "label")

    def _info(self):
        features = {"image": self.FEATURE, "label": tfds.features.ClassLabel(names=["x", "y", "z"])}
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=self.KEYS,
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in self.SPLITS}

    def _generate_examples(self, split):
        for i in range(SIZES.get(split, 3)):
            yield i, {"image": self.encoded(split, i), "label": i % 3}

    def encoded(self, split, i):
        return image(split, i)


class PujaxTensor(_Builder):
    """Plain arrays."""


class PujaxValidation(_Builder):
    """No test split, and no statement of which feature is which."""

    SPLITS = ("train", "validation")
    KEYS = None


class PujaxOnlyTrain(_Builder):
    """Neither test nor validation."""

    SPLITS = ("train",)


class PujaxPng(_Builder):
    """Colour images that are handed over as PNG bytes."""

    FEATURE = tfds.features.Image(shape=(None, None, 3), encoding_format="png")

    def encoded(self, split, i):
        stream = io.BytesIO()
        side = 6 if split == "train" else 6 + i
        Image.fromarray(image(split, i, 3, side)).save(stream, "PNG")
        stream.seek(0)
        return stream


class PujaxPixels(_Builder):
    """Images that tensorflow-datasets would have to encode, which takes TensorFlow."""

    FEATURE = tfds.features.Image(shape=(6, 6, 1), encoding_format="png")


class PujaxFloats(_Builder):
    """Not bytes."""

    FEATURE = tfds.features.Tensor(shape=(6, 6, 1), dtype=np.float32)

    def encoded(self, split, i):
        return image(split, i).astype(np.float32)


def load(name, folder, **options):
    return sources.load("tfds", directory=folder, tfds_name=name, **options)


def check(data, train="train", test="test"):
    for split, inputs, labels in (
        (train, data.train_inputs, data.train_labels),
        (test, data.test_inputs, data.test_labels),
    ):
        expected = [image(split, i) for i in range(SIZES.get(split, 3))]
        np.testing.assert_array_equal(inputs, np.stack(expected))
        np.testing.assert_array_equal(labels, np.arange(len(expected)) % 3)
        assert labels.dtype == np.int32


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A data directory in which pujax_tensor was prepared by the first call."""
    folder = tmp_path_factory.mktemp("data")
    check(load("pujax_tensor", folder))
    return folder


def test_a_set_of_tensors_is_prepared_in_the_data_directory_and_read_from_there(
    prepared, monkeypatch
):
    assert (prepared / "tfds" / "pujax_tensor" / "1.0.0" / "dataset_info.json").is_file()
    monkeypatch.setattr(tfds_builder, "_prepare", None)  # would fail if it were called again
    data = load("pujax_tensor", prepared)
    check(data)
    assert data.name == "pujax_tensor" and data.class_names == ("x", "y", "z")
    pixels = data.train_inputs / 255.0
    np.testing.assert_allclose(data.mean, pixels.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(data.std, pixels.std((0, 1, 2)), rtol=1e-12)


@pytest.mark.parametrize("name", ["pujax_tensor:1.0.0", "pujax_tensor:1.*.*"])
def test_a_version_may_be_named(prepared, name):
    check(load(name, prepared))


def test_a_directory_that_tensorflow_datasets_made_itself_is_read(prepared):
    check(load("pujax_tensor", prepared / "tfds"))


def test_parts_of_splits_can_be_chosen(prepared):
    data = load("pujax_tensor", prepared, train_split="train[2:]+test", test_split="train[:2]")
    everything = load("pujax_tensor", prepared)
    np.testing.assert_array_equal(
        data.train_inputs,
        np.concatenate([everything.train_inputs[2:], everything.test_inputs]),
    )
    np.testing.assert_array_equal(data.test_inputs, everything.train_inputs[:2])


@pytest.mark.parametrize("option", ["train_split", "test_split"])
def test_an_unknown_split_is_refused_and_the_known_ones_are_listed(prepared, option):
    with pytest.raises(ValueError, match="no split 'dev'.*train, test"):
        load("pujax_tensor", prepared, **{option: "dev"})


def as_tfrecord(prepared, folder):
    """A copy of pujax_tensor in the format that tensorflow-datasets writes by default."""
    old = prepared / "tfds" / "pujax_tensor" / "1.0.0"
    new = folder / "pujax_tensor" / "1.0.0"
    new.mkdir(parents=True)
    info = json.loads((old / "dataset_info.json").read_text())
    info["fileFormat"] = "tfrecord"
    (new / "dataset_info.json").write_text(json.dumps(info))
    (new / "features.json").write_bytes((old / "features.json").read_bytes())
    builder = tfds.builder("pujax_tensor", data_dir=str(prepared / "tfds"))
    for split in SIZES:
        raw_bytes = tfds.decode.DeserializeMethod.RAW_BYTES
        records = builder.as_data_source(split, deserialize_method=raw_bytes)
        content = b"".join(
            len(record).to_bytes(8, "little") + b"crc1" + record + b"crc2" for record in records
        )
        (new / f"pujax_tensor-{split}.tfrecord-00000-of-00001").write_bytes(content)
    return new


def test_a_set_prepared_as_tfrecord_is_read_without_tensorflow(prepared, tmp_path):
    as_tfrecord(prepared, tmp_path)
    check(load("pujax_tensor", tmp_path))
    part = load("pujax_tensor", tmp_path, train_split="train[2:5]")
    whole = load("pujax_tensor", tmp_path)
    np.testing.assert_array_equal(part.train_inputs, whole.train_inputs[2:5])


@pytest.mark.parametrize("cut", [5, 20, -1, -40])
def test_a_truncated_tfrecord_file_is_named(prepared, tmp_path, cut):
    path = as_tfrecord(prepared, tmp_path) / "pujax_tensor-train.tfrecord-00000-of-00001"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=f"{path} is truncated"):
        load("pujax_tensor", tmp_path)


def test_a_format_that_cannot_be_read_is_named():
    info = types.SimpleNamespace(
        full_name="some/1.0.0", file_format=types.SimpleNamespace(value="riegeli")
    )
    with pytest.raises(ValueError, match="some/1.0.0 is stored as riegeli; accepted: array_record"):
        list(tfds_records.examples(types.SimpleNamespace(info=info), "train"))


def test_validation_stands_in_for_a_missing_test_split_and_features_are_found(tmp_path):
    check(load("pujax_validation", tmp_path), test="validation")


def test_without_a_test_split_one_has_to_be_cut_out(tmp_path):
    with pytest.raises(ValueError, match="no split 'validation'.*accepted.*train"):
        load("pujax_only_train", tmp_path)
    data = load("pujax_only_train", tmp_path, train_split="train[:5]", test_split="train[5:]")
    assert len(data.train_inputs) == 5 and len(data.test_inputs) == 2


def test_encoded_images_are_decoded_and_brought_to_one_size(tmp_path):
    with pytest.raises(ValueError, match="image 1 has the shape .*set image_size"):
        load("pujax_png", tmp_path)
    data = load("pujax_png", tmp_path, image_size=6)
    np.testing.assert_array_equal(data.train_inputs, [image("train", i, 3) for i in range(7)])
    last = Image.fromarray(image("test", 3, 3, 9)).resize((6, 6), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(data.test_inputs[3], np.asarray(last))


def test_grey_images_keep_their_channel_when_resized(prepared):
    data = load("pujax_tensor", prepared, image_size=4)
    assert data.train_inputs.shape == (7, 4, 4, 1)


def test_images_that_are_not_bytes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="images of type float32; accepted: uint8"):
        load("pujax_floats", tmp_path)


@pytest.mark.skipif(tfds_builder.has_package("tensorflow"), reason="TensorFlow is installed")
def test_where_tensorflow_is_needed_the_error_says_so(tmp_path):
    with pytest.raises(download.MissingDataError, match="pip install tensorflow"):
        load("pujax_pixels", tmp_path)


def fake_builder(**fields):
    original = types.SimpleNamespace(filename="original.zip", checksum="0" * 64, size=12)
    info = types.SimpleNamespace(full_name="mnist/3.0.1")
    infos = {"http://127.0.0.1:9/original.zip": original}
    return types.SimpleNamespace(name="mnist", info=info, url_infos=infos, **fields)


def test_a_set_that_is_a_source_too_names_it(tmp_path, monkeypatch):
    def prepared(name, directory):
        raise download.MissingDataError(f"{name} is not in {directory}", reason="no network")

    monkeypatch.setattr(tfds_builder, "prepared", prepared)
    with pytest.raises(download.MissingDataError, match="is not in .* Source 'mnist' reads") as e:
        load("mnist:3.0.1", tmp_path)
    assert e.value.reason == "no network"
    with pytest.raises(download.MissingDataError, match=f"pujax_pixels is not in {tmp_path}$"):
        load("pujax_pixels", tmp_path)


def test_a_set_with_originals_names_the_package_that_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_builder, "has_package", lambda name: name != "tensorflow")
    with pytest.raises(download.MissingDataError) as caught:
        tfds_builder._prepare(tfds, fake_builder(), "mnist:3.0.1", tmp_path, originals_in=())
    for part in (
        "pip install tensorflow",
        "builder('mnist:3.0.1')",
        str(tmp_path),
    ):
        assert part in str(caught.value)


def test_without_a_network_the_missing_originals_and_their_folder_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_builder, "has_package", lambda name: True)
    with pytest.raises(download.MissingDataError) as caught:
        tfds_builder._prepare(tfds, fake_builder(), "mnist:3.0.1", tmp_path, originals_in=())
    folder = tmp_path / "downloads" / "manual"
    for part in ("original.zip", "http://127.0.0.1:9/", "sha256:000", str(folder), "12 bytes"):
        assert part in str(caught.value)


def test_originals_that_are_on_disk_are_handed_over_as_manual_downloads(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(tfds_builder, "has_package", lambda name: True)
    builder = fake_builder(download_and_prepare=lambda **options: calls.append(options))
    folder = tmp_path / "mnist"
    folder.mkdir()
    (folder / "original.zip").write_bytes(b"x")
    tfds_builder._prepare(
        tfds, builder, "mnist", tmp_path / "tfds", originals_in=(folder, tmp_path)
    )
    (options,) = calls
    assert pathlib.Path(options["download_config"].manual_dir) == folder
    assert options["file_format"] == "array_record"


def test_the_package_to_install_is_named_when_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds_builder, "has_package", lambda name: name != "tensorflow_datasets")
    with pytest.raises(download.MissingDataError, match="pip install tensorflow-datasets"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("name", ["pujax_tensr", "pujax_tensor:9.9.9", "a b"])
def test_an_unknown_set_or_version_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=f"tfds_name is '{name}'; accepted"):
        load(name, tmp_path)


def test_a_misspelt_set_brings_similar_names(tmp_path):
    with pytest.raises(ValueError, match="similar names: .*cifar10"):
        load("cifar_10", tmp_path)


def test_a_name_is_required(tmp_path):
    with pytest.raises(ValueError, match="tfds_name is ''"):
        load("", tmp_path)


def test_tensorflow_is_not_imported(prepared):
    load("pujax_tensor", prepared)
    assert "tensorflow" not in sys.modules
