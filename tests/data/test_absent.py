"""Sources without their data have the sizes of the real ones, and make the same problems."""

import numpy as np
import pytest

from pujax.data import dataset, multilabel_dataset, sources
from pujax.data.absent import Absent
from pujax.data.image_files import ImageFiles
from tests.conftest import real_data_folder

TABLES = ("a9a", "ijcnn1", "mushrooms", "phishing")
PUBLISHED = (
    *("cifar10", "cifar100", "mnist", "fashion_mnist", "stl10", "digits", "voc2007", "coco2014"),
    *TABLES,
    *("newsgroups", "letter", "spambase", "usps", "connect4"),
)


@pytest.mark.parametrize(
    "rows",
    [
        slice(2, 9, 3),
        slice(None, -4),
        np.array([3, 3, 1]),
        [0, 9],
        np.arange(10) % 3 == 0,
        np.zeros(0, int),
    ],
)
def test_rows_of_an_absent_array_have_the_shape_of_those_of_a_real_one(rows):
    real = np.zeros((10, 4, 2), np.float32)
    absent = Absent(real.shape, real.dtype)
    assert absent[rows].shape == real[rows].shape and absent[rows].dtype == real.dtype
    assert len(absent[rows]) == len(real[rows])


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_parts_of_a_source_fit_one_another(name):
    raw = sources.without_data(name)
    assert len(raw.train_inputs) == len(raw.train_labels)
    assert len(raw.test_inputs) == len(raw.test_labels) > 0
    assert raw.train_inputs.shape[1:] == raw.test_inputs.shape[1:]
    assert len(raw.mean) == len(raw.std) == raw.train_inputs.shape[-1] and min(raw.std) > 0
    classes = raw.train_labels.shape[1] if raw.is_multilabel else raw.train_labels.max() + 1
    assert classes == len(raw.class_names)


@pytest.mark.parametrize("name", ["digits", *TABLES[2:], "letter", "spambase", "connect4"])
def test_the_part_that_is_held_out_is_as_large_as_it_is_said_to_be(name):
    whole, half = (sources.without_data(name, test_fraction=x, seed=3) for x in (0.1, 0.5))
    total = len(whole.train_labels) + len(whole.test_labels)
    assert total == len(half.train_labels) + len(half.test_labels)
    classes = len(half.class_names)
    for made, share in ((whole, 0.1), (half, 0.5)):  # rounded down in each class
        assert 0 <= share * total - len(made.test_labels) < classes


def folder_of(name):
    return real_data_folder("libsvm" if name in TABLES else name)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "digits", *TABLES, "newsgroups"])
def test_sizes_are_those_of_the_data(name):
    folder = None if name == "digits" else folder_of(name)
    real, absent = sources.load(name, directory=folder), sources.without_data(name)
    for part in ("train_inputs", "test_inputs"):
        assert getattr(real, part).shape == getattr(absent, part).shape
        assert getattr(real, part).dtype == getattr(absent, part).dtype
    for part in ("train_labels", "test_labels"):
        counts = [np.bincount(getattr(x, part)).tolist() for x in (real, absent)]
        assert counts[0] == counts[1]
    assert real.class_names == absent.class_names


def test_sizes_are_those_of_cifar10():
    folder = real_data_folder("cifar10")
    files = [np.load(folder / f"cifar10_{x}.npz") for x in ("train_1", "train_2", "test")]
    train = np.concatenate([files[0]["train_y"], files[1]["train_y"]])
    raw = sources.without_data("cifar10")
    assert np.bincount(train).tolist() == np.bincount(raw.train_labels).tolist()
    assert np.bincount(files[2]["test_y"]).tolist() == np.bincount(raw.test_labels).tolist()
    assert raw.train_inputs.shape == (50000, 32, 32, 3) and raw.train_inputs.dtype == np.uint8


SETTINGS = {
    "one_sample": {"num_labeled": 1000, "num_support": 500, "setting": "one_sample"},
    "two_sample": {"num_labeled": 700, "num_support": 0, "setting": "two_sample"},
    "validation": {
        **{"num_labeled": 1000, "num_support": 0, "setting": "one_sample"},
        "num_validation": 500,
    },
    "drawn": {
        **{"num_labeled": 300, "num_support": 0, "setting": "two_sample"},
        **{"num_unlabeled": 5000, "class_prior": 0.3},
    },
}


@pytest.mark.thorough
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_problem_has_the_numbers_of_one_with_data(settings):
    folder = real_data_folder("mnist")
    real, absent = (
        dataset.build(raw, seed=3, positive_classes=(1, 3), sampling="stratified", **settings)
        for raw in (sources.load("mnist", directory=folder), sources.without_data("mnist"))
    )
    assert real.info == absent.info
    assert real.counts() == absent.counts()
    for mine, other in zip(real.training_data()[:4], absent.training_data()[:4], strict=True):
        assert mine.shape == other.shape and mine.dtype == other.dtype


def test_labels_that_are_revealed_leave_the_rows_that_they_leave_with_data():
    settings = {"num_support": 0, "setting": "one_sample", "sampling": "uniform"}
    data = dataset.build(
        sources.without_data("stl10"), seed=0, positive_classes=(0, 2), num_labeled=200, **settings
    )
    assert data.inputs.shape == (105000, 96, 96, 3)
    assert data.reveal("all").inputs.shape == (5000, 96, 96, 3)


@pytest.mark.parametrize(
    ("name", "images", "classes"), [("voc2007", (5011, 4952), 20), ("coco2014", (82783, 40504), 80)]
)
def test_photographs_are_files_of_the_size_that_was_asked_for(name, images, classes):
    raw = sources.without_data(name, image_size=64, load_size=80)
    data = multilabel_dataset.build(raw, seed=0, known_ratio=0.5)
    assert isinstance(data.inputs, ImageFiles) and data.streamed
    assert (len(data.inputs), len(data.test_inputs)) == images
    assert data.info.num_classes == classes and data.info.load_side == 80
    assert data.inputs.shape[1:] == (64, 64, 3)
    assert sources.without_data(name).train_inputs.load_side == 512


def test_both_sorts_of_labels_have_their_number_of_classes():
    assert len(sources.without_data("cifar100").class_names) == 20
    fine = sources.without_data("cifar100", label_set="fine")
    assert np.bincount(fine.train_labels).tolist() == [500] * 100


def test_a_source_whose_files_tell_its_sizes_is_refused():
    with pytest.raises(ValueError, match=r"data.source is 'image_folder'; accepted: a9a, cifar10"):
        sources.without_data("image_folder")
    with pytest.raises(ValueError, match="data.label_set is 'fine'.*no such option"):
        sources.without_data("cifar10", label_set="fine")
