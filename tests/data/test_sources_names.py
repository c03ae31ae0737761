"""Finding sources by name, their options, and the checks on what they return."""

import numpy as np
import pytest

from pujax.data import raw, sources
from pujax.data.readers import download


def small_set(**changes):
    inputs = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    labels = np.array([0, 1], np.int32)
    fields = {
        "name": "small",
        "train_inputs": inputs,
        "train_labels": labels,
        "test_inputs": inputs,
        "test_labels": labels,
        "class_names": ("a", "b"),
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
    }
    return raw.RawDataset(**(fields | changes))


def test_the_names_are_the_files_of_the_package():
    assert set(sources.NAMES) == {
        "a9a",
        "alzheimer",
        "cifar10",
        "cifar100",
        "coco2014",
        "connect4",
        "digits",
        "fashion_mnist",
        "ijcnn1",
        "image_folder",
        "letter",
        "mnist",
        "multilabel",
        "mushrooms",
        "newsgroups",
        "own_folder",
        "own_table",
        "phishing",
        "spambase",
        "stl10",
        "table",
        "tfds",
        "usps",
        "voc2007",
    }


def test_sources_of_several_labels_say_so():
    found = {name for name in sources.NAMES if sources.is_multilabel(name)}
    assert found == {"coco2014", "multilabel", "voc2007"}


@pytest.mark.parametrize("name", ["imagenet", "", "_idx", None, "Digits"])
def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(name):
    with pytest.raises(ValueError, match="source is") as caught:
        sources.load(name)
    assert all(known in str(caught.value) for known in sources.NAMES)


@pytest.mark.parametrize(
    ("source", "field", "what"),
    [
        ("own_table", "path", "file"),
        ("own_folder", "path", "folder"),
        ("tfds", "tfds_name", "name"),
    ],
)
def test_an_option_that_a_source_needs_is_asked_for_by_what_it_is(source, field, what):
    accepted = f"^data.{field} is ''; accepted: a {what}, which data.source='{source}' needs$"
    with pytest.raises(ValueError, match=accepted):
        sources.check(source, **{field: ""})


def test_an_option_that_a_source_has_not_is_refused_unless_it_is_empty():
    plain = sources.load("digits")
    same = sources.load("digits", tfds_name="", image_size=0, label_set=None, directory="")
    np.testing.assert_array_equal(plain.train_inputs, same.train_inputs)
    with pytest.raises(
        ValueError, match="data.image_size is 32, .* no such option; accepted: test_frac"
    ):
        sources.load("digits", image_size=32)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100", "stl10"])
def test_without_files_and_network_the_error_names_file_address_and_folder(
    name, tmp_path, monkeypatch
):
    def offline(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    monkeypatch.setattr("pujax.data.readers.http_transfer.BACKOFF_SECONDS", 0.0)
    with pytest.raises(download.MissingDataError) as caught:
        sources.load(name, directory=tmp_path)
    message = str(caught.value)
    assert "http" in message and ".gz" in message and str(tmp_path / name) in message
    assert "md5:" in message or "sha256:" in message


def test_the_folder_alzheimer_is_named_when_it_is_missing(tmp_path):
    with pytest.raises(download.MissingDataError, match="train/CLASS/") as caught:
        sources.load("alzheimer", directory=tmp_path)
    assert str(tmp_path / "alzheimer") in str(caught.value)


def test_without_a_directory_the_default_one_is_used(monkeypatch, tmp_path):
    monkeypatch.setenv("PUJAX_DATA", str(tmp_path / "kept"))
    with pytest.raises(download.MissingDataError, match=str(tmp_path / "kept")):
        sources.load("alzheimer")


def test_a_consistent_set_passes_the_checks_unchanged():
    data = small_set()
    assert raw.check(data) is data
    assert raw.check(small_set(train_labels=np.array([-1, 1], np.int32))).train_labels[0] == -1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train_inputs", np.zeros((2, 4, 4, 3), np.float32)),
        ("train_inputs", np.zeros((2, 4), np.uint8)),
        ("train_inputs", np.zeros((2, 4), np.float64)),
        ("train_inputs", np.zeros((2, 0), np.float32)),
        ("train_inputs", np.zeros((2, 4, 4), np.uint8)),
        ("train_inputs", np.zeros((0, 4, 4, 3), np.uint8)),
        ("train_labels", np.array([0, 1], np.int64)),
        ("train_labels", np.array([0, 1, 1], np.int32)),
        ("train_labels", np.array([0, 2], np.int32)),
        ("test_labels", np.array([0, -2], np.int32)),
        ("mean", (0.5,)),
        ("std", (0.5, 0.5)),
        ("mean", (0.5, 0.5, float("nan"))),
        ("std", (0.5, 0.5, 0.0)),
    ],
)
def test_an_inconsistent_set_is_refused_by_field(field, value):
    with pytest.raises(ValueError, match=f"'small': {field}"):
        raw.check(small_set(**{field: value}))


def test_images_of_two_sizes_are_refused():
    with pytest.raises(ValueError, match="test image"):
        raw.check(small_set(test_inputs=np.zeros((2, 5, 5, 3), np.uint8)))


def small_table(**changes):
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    numbers = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    return small_set(**({"train_inputs": rows, "test_inputs": rows} | numbers | changes))


def test_a_table_of_numbers_passes_and_an_infinite_one_does_not():
    assert raw.check(small_table()).train_inputs.shape == (2, 3)
    rows = np.array([[1, 2, np.inf], [np.nan, 5, 6]], np.float32)
    with pytest.raises(ValueError, match="'small': test_inputs is 'not finite in 2 places'"):
        raw.check(small_table(test_inputs=rows))
    with pytest.raises(ValueError, match="'small': test row is .4,.; accepted: .3,"):
        raw.check(small_table(test_inputs=np.zeros((2, 4), np.float32)))
    with pytest.raises(ValueError, match="'small': mean is .*; accepted: 3 finite numbers"):
        raw.check(small_table(mean=(0.0,) * 2))


def test_feature_statistics_equal_those_of_float64_and_a_constant_column_has_deviation_1():
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(2500, 4)) * [1e-6, 1, 1e6, 0] + [1, 0, 1e7, 0.1]).astype(np.float32)
    mean, std = raw.feature_statistics(rows)
    wanted = rows.astype(np.float64)
    np.testing.assert_allclose(mean, wanted.mean(0), rtol=1e-12)  # float64 rounding
    np.testing.assert_allclose(std[:3], wanted.std(0)[:3], rtol=1e-9)
    assert std[3] == 1.0
    # Too small for a float32 to divide by: a column of zeros rather than of infinities.
    assert raw.feature_statistics(np.float32([[0.0], [1e-44]]))[1] == (1.0,)


def test_channel_statistics_equal_those_of_floats():
    images = np.random.default_rng(0).integers(0, 256, (5, 7, 6, 3)).astype(np.uint8)
    mean, std = raw.channel_statistics(images)
    pixels = images.astype(np.float64) / 255
    np.testing.assert_allclose(mean, pixels.mean((0, 1, 2)), rtol=1e-12)  # float64 rounding
    np.testing.assert_allclose(std, pixels.std((0, 1, 2)), rtol=1e-12)


def test_a_constant_channel_is_refused():
    with pytest.raises(ValueError, match="channel 1 .* constant"):
        raw.channel_statistics(np.stack([np.arange(16), np.full(16, 3)], -1).reshape(1, 4, 4, 2))


def test_a_data_folder_below_a_file_is_named(tmp_path):
    (tmp_path / "notes").write_text("")
    for folder in (tmp_path / "notes", tmp_path / "notes" / "mnist"):
        with pytest.raises(ValueError, match=r"data.dir is '.*', .*a?.*file.*; accepted: a folder"):
            sources.load("mnist", directory=folder)
