"""Streamed images with several labels: stops, signals, devices and compared methods."""

import os
import signal

import jax
import numpy as np
import pytest

from pujax import training
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup, preemption, run_state, train_loop
from pujax.training.seed_axis import Member
from tests import tiny
from tests.training import multilabel_runs as runs

pytest.importorskip("grain")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return runs.write_folders(tmp_path_factory.mktemp("images"))


pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def straight(folder, tmp_path_factory, one_device):
    """A run from start to end."""
    place = tmp_path_factory.mktemp("straight")
    summary = training.run(runs.folder_config(folder, figures=True), str(place))
    return place, summary


def encoder_in(place):
    with np.load(place / "encoder.npz") as file:
        return {name: file[name] for name in file.files}


def assert_same_run(place, other):
    assert runs.rows_in(place) == runs.rows_in(other)
    one, two = encoder_in(place), encoder_in(other)
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_a_streamed_run_leaves_what_one_in_memory_does(straight):
    place, summary = straight
    assert summary["counts"]["train"] == 40 and summary["counts"]["test"] == 21
    assert list(summary["classes"]) == ["green", "red"]
    assert len(runs.rows_in(place)) == 3
    assert {path.name for path in (place / "figures").iterdir()} == {"training.png", "scores.png"}
    train = summary["train"]
    assert train["hidden_positives"] == summary["counts"]["hidden_positives"] > 0


def test_stop_and_go_on_equals_a_straight_run_bit_for_bit(straight, folder, tmp_path):
    place, summary = straight
    assert training.run(runs.folder_config(folder, stop_after_epoch=1), str(tmp_path)) is None
    assert len(runs.rows_in(tmp_path)) == 1
    resumed = training.run(runs.folder_config(folder), str(tmp_path))
    assert_same_run(tmp_path, place)
    assert resumed["test"] == summary["test"] and resumed["train"] == summary["train"]


@pytest.mark.thorough
def test_a_signal_in_the_middle_of_an_epoch_loses_nothing(straight, folder, tmp_path, monkeypatch):
    original = train_loop._fetch

    def fetch(state):
        if state.position.epoch == 1 and state.position.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(state)

    monkeypatch.setattr(train_loop, "_fetch", fetch)
    with pytest.raises(SystemExit) as stop:
        training.run(runs.folder_config(folder, progress_seconds=0.0), str(tmp_path))
    assert stop.value.code == 128 + signal.SIGTERM
    assert len(runs.rows_in(tmp_path)) == 1  # it did not finish the second epoch
    monkeypatch.setattr(train_loop, "_fetch", original)
    training.run(runs.folder_config(folder), str(tmp_path))
    assert_same_run(tmp_path, straight[0])


@pytest.mark.thorough
def test_many_devices_compute_what_one_does(straight, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(8))
    # Batches of 8 are split over the devices, the 21 test images come in batches of 16.
    training.run(runs.folder_config(folder, eval_batch_size=20), str(tmp_path))
    first, other = (runs.rows_in(place) for place in (straight[0], tmp_path))
    for one, two in zip(first, other, strict=True):
        assert one.keys() == two.keys()
        for name in one:
            if isinstance(one[name], float):
                # float32 sums in another order; a label near the threshold may flip.
                np.testing.assert_allclose(two[name], one[name], atol=0.03, err_msg=name)
    for name, kernel in encoder_in(straight[0]).items():
        if name.endswith("kernel"):
            np.testing.assert_allclose(encoder_in(tmp_path)[name], kernel, atol=2e-3)


@pytest.mark.thorough
def test_a_compared_oracle_sees_the_true_labels_of_streamed_images(folder, tmp_path):
    config = runs.folder_config(folder, compare="multilabel_supervised")
    config.method.num_epochs = 1
    summary = training.run(config, str(tmp_path))
    inside = tmp_path / "multilabel_supervised"
    found = summary["comparison"]["multilabel_supervised"]
    assert found["hidden_positives"] == summary["counts"]["hidden_positives"]
    assert "loss_mixup" not in runs.rows_in(inside)[0]


@pytest.mark.thorough
def test_the_loop_trains_on_crops_of_the_images_whose_labels_it_takes(folder, tmp_path):
    config = config_lib.resolve(runs.folder_config(folder, "assume_negative"))
    data = experiment.load_data(config)
    setup = method_setup.build(config, data, tiny.mesh())
    (stage,) = setup.method.stages
    seen = []

    def step(state, batch, key):
        at = (batch.epoch, batch.ids, batch.inputs, batch.labeled)
        jax.debug.callback(lambda *x: seen.append(jax.tree.map(np.array, x)), *at, ordered=True)
        return stage.step(state, batch, key)

    short = setup.method._replace(stages=(stage._replace(step=step, num_epochs=2),))
    member = Member(setup._replace(method=short), data, str(tmp_path / "run"))
    run = run_state.prepare([member], tiny.mesh())
    try:
        train_loop.train(run, tiny.NoProgress(), preemption.StopRequest())
    finally:
        run.close()
    jax.effects_barrier()
    assert [int(epoch) for epoch, *_ in seen] == [0] * 5 + [1] * 5
    assert len({int(i) for _, ids, *_ in seen[:5] for i in ids}) == 40
    for epoch, ids, inputs, labeled in seen:
        np.testing.assert_array_equal(labeled, data.labeled[ids])
        for i, image in zip(ids, inputs, strict=True):
            crop = data.inputs.read_crop(i, np.random.default_rng((0, int(epoch), i)), (10, 7))
            np.testing.assert_array_equal(image, crop)


def test_a_load_size_needs_crops(folder, tmp_path):
    config = runs.folder_config(folder)
    config.method.crop_sizes = ()
    config.data.load_size = 10
    with pytest.raises(ValueError, match="data.load_size is 10; accepted: 0 without"):
        experiment.run(config, str(tmp_path / "run"))
    config = runs.folder_config(folder)
    config.data.load_size = 10
    config.method.augment = False  # so that nothing is cropped
    with pytest.raises(ValueError, match="data.load_size is 10; .* or with method.augment=False"):
        experiment.run(config, str(tmp_path / "run"))
