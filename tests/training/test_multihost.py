"""Two real processes with two devices each train the same thing as one process with four."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from pujax.models import encoder
from pujax.training import init_from
from tests.training import multilabel_runs as runs

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LAGAM = [
    "--config=configs/lagam_digits.py",
    "--config.method.num_epochs=2",
    "--config.method.warmup_epochs=0",
    "--config.method.batch_size=256",
    "--config.method.num_clusters=3",
    # Convolutions and random operations look at one image each, and compile long in five processes.
    "--config.model.name=mlp",
    "--config.method.augment=false",
    "--config.run.compare=",
    "--config.run.figures=false",
    "--config.run.checkpoint_every=1",
]
# The head of ImPULSeS trains on features that all hosts computed together, in four calls of which
# the last overlaps. Views of a table compile fastest.
IMPULSES = """
from pujax.training import config as config_lib

def get_config(argument=""):
    config = config_lib.default_config("impulses")
    config.data.update({{"source": "table", "dir": {folder!r}}})
    config.data.update({{"positive_classes": (1,), "num_labeled": 30, "num_support": 0}})
    config.model.name, config.model.options = "mlp", {{"hidden": (16,), "batch_norm": True}}
    config.method.update({{"num_epochs": 3, "pretrain_epochs": 1, "embedding_dim": 8}})
    config.method.update({{"augment": False, "batch_size": 64, "head_batch_size": 32}})
    config.method.head_learning_rate = 0.01
    config.run.update({{"figures": False, "eval_batch_size": 40}})
    return config
"""
# The network behind the estimate trains on all devices, and what is estimated decides every loss.
PRIOR = """
from pujax.training import config as config_lib

def get_config(argument=""):
    config = config_lib.default_config("nnpu")
    config.data.update({{"source": "table", "dir": {folder!r}, "prior": "auto"}})
    config.data.update({{"positive_classes": (1,), "num_labeled": 30, "num_support": 0}})
    config.model.name, config.model.options = "mlp", {{"hidden": (16,)}}
    config.method.update({{"num_epochs": 2, "augment": False, "batch_size": 64}})
    config.run.update({{"figures": False}})
    return config
"""
# What is tested is how images come to the hosts, each of which decodes those of its own devices,
# and that batch norm and the mixed halves of a batch look across them; so the network is what
# compiles fastest.
PU_MLC = """
from tests.training import multilabel_runs as runs

def get_config(argument=""):
    config = runs.folder_config({folder!r})
    config.model.name, config.model.options = "mlp", {{"hidden": (8,), "batch_norm": True}}
    config.method.num_epochs = 2
    config.run.eval_batch_size = 8
    return config
"""


def start(command, folder, num_devices, *flags):
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(num_devices)}
    return subprocess.Popen(
        [sys.executable, "train.py", *command, f"--workdir={folder}", *flags],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_two(command, folder, *flags):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    return [
        start(
            command,
            folder,
            2,
            "--config.run.distributed=true",
            f"--config.run.coordinator=localhost:{port}",
            "--config.run.num_processes=2",
            f"--config.run.process_id={i}",
            *flags,
        )
        for i in range(2)
    ]


def finish(processes):
    texts = [process.communicate(timeout=300)[0] for process in processes]
    for process, text in zip(processes, texts, strict=True):
        assert process.returncode == 0, text
    return texts


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.thorough
def test_two_hosts_train_the_labels_that_one_does(tmp_path):
    """That two hosts go on after a stop or a kill is tested in `tests/faults/test_hosts.py`."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    _, first, second = finish([start(LAGAM, alone, 4), *start_two(LAGAM, together)])
    assert "Run directory" in first and "Run directory" not in second

    rows = list(zip(metrics(alone), metrics(together), strict=True))
    assert len(rows) == 2
    # By the second epoch a last digit may have moved an example into another cluster.
    for (one, two), tolerance in zip(rows, (1e-3, 1e-2), strict=True):
        for name in ("loss", "loss_mixup", "loss_instance", "loss_group", "test_auc"):
            assert one[name] == pytest.approx(two[name], rel=tolerance, abs=1e-5), name
    summary = json.loads((together / "summary.json").read_text())
    assert summary["device"].startswith("4 x")
    assert summary["test"]["accuracy"] == pytest.approx(
        metrics(alone)[-1]["test_accuracy"], abs=0.01
    )


def encoder_arrays(folder):
    saved = encoder.load(str(folder / init_from.FILE))[0]
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves((saved.params, saved.batch_stats))])


def alone_and_together(tmp_path, text):
    """Folders of one configuration, trained by one process with four devices and by two with two.

    All three processes at once: most of the time goes into starting.
    """
    path = tmp_path / "config.py"
    path.write_text(text)
    command, folders = [f"--config={path}"], (tmp_path / "alone", tmp_path / "together")
    finish([start(command, folders[0], 4), *start_two(command, folders[1])])
    return folders


def assert_rows_equal(folders, **tolerances):
    """That both folders hold the same epochs, with the named columns up to a tolerance each."""
    first, second = map(metrics, folders)
    assert [row.keys() for row in first] == [row.keys() for row in second]
    for name, tolerance in tolerances.items():
        values = [[row[name] for row in rows if name in row] for rows in (first, second)]
        assert values[0] and values[0] == pytest.approx(values[1], **tolerance), name
    return first


def write_table(folder):
    """Two clouds of rows of numbers, half of them positive, as CSV files for training and test."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        labels = np.repeat((1, 0), 75)
        rows = rng.normal(labels[:, None], 1.0, [150, 8])
        table = np.column_stack([rows, labels])
        names = ",".join("abcdefghy")
        np.savetxt(folder / f"{split}.csv", table, "%.5f", ",", header=names, comments="")


@pytest.mark.thorough
def test_two_hosts_train_a_head_on_encoded_data_as_one_does(tmp_path):
    write_table(tmp_path)
    folders = alone_and_together(tmp_path, IMPULSES.format(folder=str(tmp_path)))
    close = {"rel": 1e-4}
    rows = assert_rows_equal(folders, loss=close, probe_loss=close, test_auc={"abs": 1e-3})
    assert [row["stage"] for row in rows] == ["pretrain", "head", "head"]
    np.testing.assert_allclose(*map(encoder_arrays, folders), rtol=1e-3, atol=1e-5)


@pytest.mark.thorough
def test_two_hosts_estimate_the_prior_that_one_does(tmp_path):
    write_table(tmp_path)
    folders = alone_and_together(tmp_path, PRIOR.format(folder=str(tmp_path)))
    first, second = (json.loads((x / "prior.json").read_text()) for x in folders)
    assert 0 < first["prior"] < 1 and first["estimates"].keys() == second["estimates"].keys()
    assert (first["method"], first["of"]) == (second["method"], second["of"])
    assert first["prior"] == pytest.approx(second["prior"], rel=1e-3)
    for name, estimate in first["estimates"].items():
        assert estimate["value"] == pytest.approx(second["estimates"][name]["value"], abs=1e-3)
    rows = assert_rows_equal(folders, loss={"rel": 1e-3}, test_auc={"abs": 1e-3})
    assert len(rows) == 2


@pytest.mark.thorough
def test_two_hosts_stream_what_one_does(tmp_path):
    pytest.importorskip("grain")
    images = runs.write_folders(tmp_path / "images")
    folders = alone_and_together(tmp_path, PU_MLC.format(folder=images))
    close, rank = {"rel": 1e-4}, {"abs": 0.02}  # two of 21 close scores may change places
    rows = assert_rows_equal(
        folders,
        loss=close,
        loss_variational=close,
        loss_mixup=close,
        test_mean_average_precision=rank,
        test_raw_mean_average_precision=rank,
    )
    assert len(rows) == 2
    first, second = (json.loads((x / "summary.json").read_text()) for x in folders)
    assert second["device"].startswith("4 x") and second["counts"] == first["counts"]
    for name in ("recovered_positives", "hidden_positives"):
        assert second["train"][name] == pytest.approx(first["train"][name], abs=1)
    np.testing.assert_allclose(*map(encoder_arrays, folders), rtol=1e-3, atol=1e-5)
