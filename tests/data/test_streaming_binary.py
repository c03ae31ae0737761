"""Binary problems of image files: the same problem, pixels and training as of images in memory."""

import numpy as np
import pytest
from PIL import Image

from pujax.data import batching, dataset, sources
from pujax.data.image_files import ImageFiles
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup, prior_estimation
from tests import tiny

SETTINGS = {
    "positive_classes": (0,),
    "num_labeled": 10,
    "num_support": 6,
    "setting": "one_sample",
    "sampling": "stratified",
}
ARRAYS = ("inputs", "support_inputs", "test_inputs", "validation_inputs")
LABELS = ("labeled", "source_ids", "support_labels", "test_labels", "truth", "validation_labeled")


def write(path, seed, bright, shape, mode):
    """An image whose bright or dark left half tells its class."""
    pixels = np.random.default_rng(seed).integers(0, 120, (*shape, 3)).astype(np.uint8)
    pixels[:, : shape[1] // 2] += 100 * np.uint8(bright)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of several sizes and modes, and one stored as it is read."""
    root = tmp_path_factory.mktemp("images")
    modes, endings = ("RGB", "L", "P"), (".png", ".png", ".gif")
    for split, count in (("train", 40), ("test", 15)):
        for name in ("bright", "dark"):
            for i in range(count):
                path = root / split / name / f"{i}{endings[i % 3]}"
                shape = (10 + i % 3, 9 + i % 4)
                write(path, 1000 * (name == "dark") + i, name == "bright", shape, modes[i % 3])
    write(root / "train" / "bright" / "10.jpg", 7, True, (8, 8), "RGB")
    for i in range(10):
        write(root / "train" / "unlabeled" / f"{i}.png", 2000 + i, i % 2, (12, 8), "RGB")
    return root


def both(name, folder, **options):
    """The set in memory and as files."""
    return [
        sources.load(name, directory=folder, streaming=streaming, **options)
        for streaming in ("off", "on")
    ]


def assert_same_problem(memory, files):
    assert memory.info == files.info
    assert files.streamed and not memory.streamed
    assert isinstance(files.support_inputs, np.ndarray)
    for name in ARRAYS:
        streamed = getattr(files, name)
        pixels = streamed.array() if isinstance(streamed, ImageFiles) else streamed
        np.testing.assert_array_equal(pixels, getattr(memory, name))
    for name in LABELS:
        np.testing.assert_array_equal(getattr(files, name), getattr(memory, name))
    assert memory.counts() == files.counts() and memory.labeling == files.labeling


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["image_folder", "alzheimer"])
def test_files_hold_the_pixels_and_statistics_of_the_set_in_memory(name, channels, folder):
    memory, files = both(name, folder, image_size=8, channels=channels)
    assert isinstance(memory.train_inputs, np.ndarray)
    assert isinstance(files.train_inputs, ImageFiles)
    assert (files.mean, files.std) == (memory.mean, memory.std)
    for split in ("train", "test"):
        images, pixels = getattr(files, f"{split}_inputs"), getattr(memory, f"{split}_inputs")
        assert (images.shape, images.dtype) == (pixels.shape, pixels.dtype)
        np.testing.assert_array_equal([images.read(i) for i in range(len(images))], pixels)
        np.testing.assert_array_equal(
            getattr(files, f"{split}_labels"), getattr(memory, f"{split}_labels")
        )


def test_images_that_are_not_resized_may_be_no_squares(folder, tmp_path):
    for split in ("train", "test"):
        for name in ("bright", "dark"):
            for i in range(3):
                write(tmp_path / split / name / f"{i}.png", i, name == "bright", (6, 9), "RGB")
    memory, files = both("alzheimer", tmp_path)
    assert files.train_inputs.shape == memory.train_inputs.shape == (6, 6, 9, 3)
    np.testing.assert_array_equal(files.train_inputs.array(), memory.train_inputs)
    write(tmp_path / "train" / "dark" / "2.png", 0, False, (6, 8), "RGB")
    for streaming in ("off", "on"):
        with pytest.raises(ValueError, match="2.png has the shape .6, 8, 3.*set image_size"):
            sources.load("alzheimer", directory=tmp_path, streaming=streaming)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_validation": 20, "prior": 0.5},
        {"setting": "two_sample", "sampling": "uniform"},
        {"num_unlabeled": 20, "class_prior": 0.4, "num_validation": 12, "num_support": 0},
        {"labeling": "power", "labeling_power": 2.0},
        {"sampling": "file_order", "num_support": 0},
    ],
)
def test_a_problem_of_files_is_that_of_arrays(folder, changes):
    memory, files = (
        dataset.build(raw, seed=1, **(SETTINGS | changes))
        for raw in both("image_folder", folder, image_size=8)
    )
    assert_same_problem(memory, files)
    training = files.training_data()
    assert training.inputs.shape == (2, 8, 8, 3)
    np.testing.assert_array_equal(training.labeled, memory.labeled)
    for which in dataset.REVEALS:
        revealed = files.reveal(which)
        assert revealed.info == memory.reveal(which).info
        np.testing.assert_array_equal(revealed.inputs.array(), memory.reveal(which).inputs)


def test_counts_that_stay_are_taken_from_files_too(tmp_path, folder):
    del tmp_path
    changes = {"num_positives": 12, "num_negatives": 20, "num_support": 4}
    (raw,) = both("image_folder", folder, image_size=8)[1:]
    known = raw.train_labels >= 0
    raw = raw._replace(train_inputs=raw.train_inputs[known], train_labels=raw.train_labels[known])
    memory = raw._replace(
        train_inputs=raw.train_inputs.array(), test_inputs=raw.test_inputs.array()
    )
    settings = SETTINGS | changes | {"num_labeled": 6}
    assert_same_problem(*(dataset.build(x, seed=0, **settings) for x in (memory, raw)))


def test_the_digest_of_files_tells_other_files_and_labels(folder):
    raw = both("image_folder", folder, image_size=8)[1]
    settings = SETTINGS | {"num_validation": 20, "prior": 0.5}
    data = dataset.build(raw, seed=0, **settings)
    assert data.digest() == dataset.build(raw, seed=0, **settings).digest()
    others = [
        data._replace(inputs=data.inputs[::-1]),
        data._replace(labeled=~data.labeled),
        data._replace(validation_inputs=data.validation_inputs[::-1]),
        data._replace(validation_labeled=~data.validation_labeled),
        data._replace(test_inputs=data.test_inputs[::-1]),
        data._replace(truth=1 - data.truth),
    ]
    assert data.digest() not in {other.digest() for other in others}


def test_rows_of_files_are_masks_slices_and_ids(folder):
    files = both("image_folder", folder, image_size=8)[1].test_inputs
    mask = np.arange(len(files)) % 7 == 0
    assert files[mask].paths == files[np.flatnonzero(mask)].paths == files[::7].paths
    assert files[mask].resample == "bilinear"
    for wrong in (mask[1:], np.array([len(files)]), np.array(0)):
        with pytest.raises(ValueError, match="rows .*accepted"):
            files[wrong]


def test_map_batches_maps_over_files_and_arrays_alike(folder):
    pytest.importorskip("grain")
    memory, files = both("image_folder", folder, image_size=8)
    results = [
        batching.map_batches(lambda x: x.astype("float32").mean((1, 2)), inputs, batch_size=16)
        for inputs in (np.asarray(memory.test_inputs), files.test_inputs)
    ]
    np.testing.assert_array_equal(*results)


def test_sources_without_image_files_refuse_to_stream_and_name_those_that_can():
    with pytest.raises(ValueError, match="data.streaming is 'on'.*'digits'.*alzheimer.*image_fol"):
        sources.load("digits", streaming="on")
    config = config_lib.default_config("nnpu")
    config.data.streaming = "on"
    with pytest.raises(ValueError, match="data.streaming is 'on'"):
        config_lib.resolve(config)
    config.data.streaming = "maybe"
    with pytest.raises(ValueError, match="data.streaming is 'maybe'; accepted: 'auto', 'on', 'off"):
        config_lib.resolve(config)


def test_files_with_several_labels_are_always_streamed(tmp_path):
    for i in range(10):
        write(tmp_path / "bright" / f"{i}.png", i, True, (8, 8), "RGB")
    with pytest.raises(ValueError, match="data.streaming is 'off'; accepted: 'auto' or 'on'"):
        sources.load("multilabel", directory=tmp_path, streaming="off")
    data = sources.load("multilabel", directory=tmp_path, streaming="on")
    assert isinstance(data.train_inputs, ImageFiles)


def test_arrays_with_several_labels_are_not_streamed(tmp_path):
    table = {"X_train": np.eye(4, 3), "Y_train": np.eye(4, 2)}
    table |= {"X_test": np.eye(2, 3), "Y_test": np.eye(2)}
    np.savez(tmp_path / "own.npz", **table)
    with pytest.raises(ValueError, match="data.streaming is 'on'; accepted: 'auto' or 'off'"):
        sources.load("multilabel", directory=tmp_path, streaming="on")


@pytest.mark.thorough
def test_a_streamed_run_gives_the_numbers_of_one_in_memory(folder, tmp_path):
    pytest.importorskip("grain")
    rows = []
    for streaming in ("off", "on"):
        data = {"source": "image_folder", "dir": str(folder), "streaming": streaming}
        data |= {"image_size": 8, "num_validation": 20, "prior": 0.5, **SETTINGS}
        config = tiny.config("nnpu", data=data, num_epochs=1, augment=False)
        data = experiment.load_data(config)
        rows.append(tiny.train_in(tmp_path / streaming, config, data)[1])
    assert len(rows[0]) == len(rows[1]) == 1
    # Two programs, whose sums are rounded differently.
    for name, value in rows[0][0].items():
        assert value == (value if name == "stage" else pytest.approx(rows[1][0][name], rel=1e-5))


def test_what_needs_all_streamed_images_at_once_is_refused(folder):
    data = {"source": "image_folder", "dir": str(folder), "streaming": "on", "image_size": 8}
    config = tiny.config("vpu", data=data | SETTINGS)
    problem = prior_estimation.provisional(config, experiment.load_data(config))
    with pytest.raises(ValueError, match="'vpu', whose calibration looks at all examples at once"):
        method_setup.build(config, problem, tiny.mesh())


@pytest.mark.thorough
def test_the_prior_is_estimated_from_streamed_images_or_a_part_of_them(folder, monkeypatch):
    shown = {}

    def estimated(streaming):
        data = {"source": "image_folder", "dir": str(folder), "streaming": streaming}
        data |= {"image_size": 8, "prior": "auto", "prior_method": "best_bin", **SETTINGS}
        config = tiny.config("nnpu", data=data, augment=False)
        problem = prior_estimation.provisional(config, experiment.load_data(config))
        method_setup.build(config, problem, tiny.mesh())
        p, u = prior_estimation._shuffled(config, problem)
        shown[streaming] = [len(p), len(u)]
        return prior_estimation.estimate_all(config, problem, tiny.mesh()).estimate

    assert estimated("on") == estimated("off")
    assert shown["on"] == shown["off"] and min(shown["on"]) > 8
    monkeypatch.setattr(prior_estimation, "_MAX_STREAMED_BYTES", 16 * 8 * 8 * 3)
    part = estimated("on")
    assert shown["on"] == [8, 8] and 0 <= part.value <= 1
    assert estimated("off") != part  # what is in memory is used whole
