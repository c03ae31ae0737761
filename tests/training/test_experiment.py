"""Runs from the command line down: what a folder holds, stops and goes on, refuses and reports."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import training
from pujax.methods import _optimizer
from pujax.training import config as config_lib
from pujax.training import experiment, loop
from pujax.training.checkpoint import Position
from tests import tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
NETWORK = {"channels": (4, 8, 8), "hidden": (16,)}


def small(method="lagam", **run):
    """LaGAM on the digits with a very small net and few epochs."""
    config = config_lib.default_config(method)
    config.data.update({"num_labeled": 200, "num_support": 60})
    config.model.options = NETWORK
    config.method.update({"num_epochs": 4, "batch_size": 128, "padding": 1, "flip": False})
    if method == "lagam":
        config.method.update(
            {
                "warmup_epochs": 2,
                "support_batch_size": 32,
                "num_clusters": 4,
                "embedding_dim": 16,
                "learning_rate": 0.02,
            }
        )
    config.run.update({"figures": False, "checkpoint_every": 1} | run)
    return config


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
    """Runs here use one device: eight simulated ones are slow and tested elsewhere."""
    monkeypatch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))


def rows(folder):
    """Metrics without the wall-clock columns."""
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    timing = ("seconds", "examples_per_second")
    return [{k: v for k, v in json.loads(x).items() if k not in timing} for x in lines]


def last_state(folder):
    """The newest checkpoint as a flat list of arrays."""
    import orbax.checkpoint as ocp

    step = max(int(p.name) for p in (pathlib.Path(folder) / "checkpoints").iterdir())
    path = pathlib.Path(folder).resolve() / "checkpoints" / str(step) / "tree"
    with ocp.StandardCheckpointer() as reader:
        return [np.asarray(x) for x in jax.tree.leaves(reader.restore(path))]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run from start to end with everything on."""
    folder = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))
        summary = training.run(
            small(figures=True, compare="naive,supervised"), str(folder), name="x"
        )
    return folder, summary


def test_a_run_leaves_what_the_design_lists(straight):
    folder, summary = straight
    assert json.loads((folder / "summary.json").read_text()) == summary
    wanted = {
        "method": "lagam",
        "dataset": "digits",
        "seed": 0,
        "num_epochs": 4,
        "setting": "one_sample",
        "selection": {"rule": "last", "epoch": 3},
    }
    assert {key: summary[key] for key in wanted} == wanted
    assert summary["counts"]["labeled"] == 200 and summary["counts"]["support"] == 60
    assert 0 < summary["prior"] < 1 and summary["prior_source"]
    assert set(summary["test"]) >= {"accuracy", "f1", "auc", "average_precision"}
    assert 0 <= summary["train"]["label_accuracy"] <= 1
    for key in ("seconds", "examples_per_second", "peak_memory_bytes", "versions", "device"):
        assert summary[key]
    assert set(summary["comparison"]) == {"naive", "supervised"}
    config = json.loads((folder / "config.json").read_text())
    assert config["method"]["name"] == "lagam" and config["data"]["num_labeled"] == 200
    assert len(rows(folder)) == 4
    header = (folder / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"epoch", "stage", "loss", "test_accuracy", "label_accuracy", "label_mse"} <= set(header)
    pictures = {path.name for path in (folder / "figures").iterdir()}
    assert pictures == {
        "training.png",
        "label_error.png",
        "scores.png",
        "embedding_pca.png",
        "embedding_tsne.png",
    }
    assert any((folder / "checkpoints").iterdir())


def test_a_finished_run_is_reported_again_and_not_trained_again(straight, monkeypatch):
    folder, summary = straight
    monkeypatch.setattr(loop, "train", lambda *_: pytest.fail("trained again"))
    again = training.run(small(figures=True, compare="naive,supervised"), str(folder))
    assert again == summary


@pytest.mark.parametrize("first_stop", [1, 2, 3])
def test_stop_and_go_on_equals_a_straight_run_bit_for_bit(straight, tmp_path, first_stop):
    folder, summary = straight
    assert training.run(small(stop_after_epoch=first_stop), str(tmp_path)) is None
    assert len(rows(tmp_path)) == first_stop
    assert not (tmp_path / "summary.json").exists()
    resumed = training.run(small(), str(tmp_path))
    assert rows(tmp_path) == rows(folder)
    assert resumed["test"] == summary["test"]
    for a, b in zip(last_state(folder), last_state(tmp_path), strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_of_epochs_after_the_checkpoint_are_written_again_not_twice(straight, tmp_path):
    folder, _ = straight
    training.run(small(stop_after_epoch=2, checkpoint_every=5), str(tmp_path))
    # A crash after an epoch's row and before its checkpoint leaves such a row behind.
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 2, "stage": "main", "loss": 0.5}\n{"epoch": 3, "sta')
    training.run(small(), str(tmp_path))
    assert rows(tmp_path) == rows(folder)


def test_an_unreadable_newest_checkpoint_falls_back_to_the_one_before(straight, tmp_path):
    folder, _ = straight
    training.run(small(stop_after_epoch=3), str(tmp_path))
    steps = sorted(int(p.name) for p in (tmp_path / "checkpoints").iterdir())
    newest = tmp_path / "checkpoints" / str(steps[-1]) / "tree"
    for path in newest.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    training.run(small(), str(tmp_path))
    assert rows(tmp_path) == rows(folder)


def test_a_signal_in_the_middle_of_an_epoch_loses_nothing(straight, tmp_path, monkeypatch):
    folder, _ = straight
    original, seen = loop._fetch, []

    def fetch(run, now):
        seen.append(now.position)
        if now.position.epoch == 2 and now.position.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(run, now)

    monkeypatch.setattr(loop, "_fetch", fetch)
    with pytest.raises(SystemExit) as stop:
        training.run(small(progress_every=1), str(tmp_path))
    assert stop.value.code == 128 + signal.SIGTERM
    assert Position(2, 5, 25) in seen or Position(2, 4, 24) in seen
    assert len(rows(tmp_path)) == 2
    monkeypatch.setattr(loop, "_fetch", original)
    training.run(small(), str(tmp_path))
    assert rows(tmp_path) == rows(folder)


def test_another_configuration_in_the_same_folder_is_refused(straight):
    folder, _ = straight
    other = small()
    other.method.rho_end = 0.5
    before = sorted(p.stat().st_mtime_ns for p in folder.rglob("*"))
    with pytest.raises(ValueError, match=r"workdir.*method.rho_end: 0.8 there, 0.5 here"):
        training.run(other, str(folder))
    assert sorted(p.stat().st_mtime_ns for p in folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        ("data", "num_labeled", 5000),
        ("data", "num_support", 2000),
        ("data", "positive_classes", (11,)),
        ("data", "prior", 2.0),
        ("method", "batch_size", 5000),
        ("method", "support_batch_size", 61),
        ("method", "rho_start", 1.5),
        ("method", "temperature", 0.0),
        ("method", "label_update", "guess"),
        ("method", "num_clusters", 100000),
        ("method", "warmup_epochs", 9),
    ],
)
def test_bad_input_names_the_field_and_writes_nothing(tmp_path, section, field, value):
    config = small()
    with config.ignore_type():
        config[section][field] = value
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match=f"{section}.{field} .*accepted"):
        training.run(config, str(folder))
    assert not folder.exists()


def test_a_bad_compared_method_is_found_before_training(tmp_path):
    config = small(compare="naive")
    config.data.num_labeled = 200
    config.method.batch_size = 1300
    config.method.learning_rate = -1.0
    with pytest.raises(ValueError, match="method.learning_rate"):
        training.run(config, str(tmp_path / "run"))


def test_a_step_that_is_not_finite_is_undone_reported_and_stops_the_run(tmp_path):
    config = small("naive")
    config.method.learning_rate = 1e30
    with pytest.raises(loop.NonFiniteError, match="method.learning_rate"):
        training.run(config, str(tmp_path))
    for leaf in last_state(tmp_path):
        assert np.isfinite(leaf).all()


def test_the_policy_skip_undoes_such_steps_and_counts_them(tmp_path, monkeypatch):
    monkeypatch.setattr(
        _optimizer, "learning_rate", lambda c, epoch: jnp.where(epoch == 1, jnp.nan, 0.05)
    )
    summary = training.run(small("naive", nonfinite="skip"), str(tmp_path))
    assert [row["nonfinite"] for row in rows(tmp_path)] == [0, 10, 0, 0]
    assert summary["undone_steps"] == 10
    before, during = rows(tmp_path)[:2]
    assert during["test_auc"] == before["test_auc"] and during["loss"] is None


def test_a_checkpoint_of_another_shape_is_named(tmp_path):
    config = config_lib.resolve(small("naive"))
    data = experiment.load_data(config)
    arguments = {"folder": str(tmp_path), "mesh": tiny.mesh(1), "fingerprint": {}}
    first = loop.prepare(config, data, **arguments)
    carry = loop._first_carry(first, 0, None)
    first.checkpoints.save(Position(1, 0, 10), carry)
    wider = small("naive")
    wider.model.options = {"channels": (4, 8, 8), "hidden": (17,)}
    second = loop.prepare(config_lib.resolve(wider), data, **arguments)
    with pytest.raises(ValueError, match=r"params/.* is float32\[16\]; accepted: float32\[17\]"):
        second.checkpoints.restore(Position(1, 0, 10), loop._like(second, Position(1, 0, 10)))


def test_the_command_line_reports_errors_in_one_line_and_stops_on_a_signal(tmp_path):
    command = [sys.executable, "train.py", "--config=configs/lagam_digits.py"]
    wrong = subprocess.run(
        [*command, "--config.data.prior=nan"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert wrong.returncode == 2
    assert wrong.stderr.strip() == "data.prior is 'nan'; accepted: a finite number"

    process = subprocess.Popen(
        [*command, f"--workdir={tmp_path}", "--config.method.num_epochs=1000"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    metrics, deadline = tmp_path / "metrics.jsonl", time.monotonic() + 240
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, text
    assert "goes on" in text and str(tmp_path) in text
    assert any((tmp_path / "checkpoints").iterdir())
