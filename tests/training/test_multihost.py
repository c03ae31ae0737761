"""Two real processes with two devices each train the same things as one device."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from pujax import training
from pujax.models import encoder
from pujax.training import init_from
from pujax.training.config import flags
from tests.training import multilabel_runs as runs

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Convolutions and random operations look at one image each, and compile long in three processes.
LAGAM = """
from pujax.configs import lagam_digits

def get_config(argument=""):
    config = lagam_digits.get_config()
    config.method.update({{"num_epochs": 2, "warmup_epochs": 0, "batch_size": 256}})
    config.method.update({{"num_clusters": 3, "augment": False}})
    config.model.name = "mlp"
    config.run.update({{"compare": "", "figures": False, "checkpoint_every": 1}})
    return config
"""
# The head of ImPULSeS trains on features that all hosts computed together, in four calls of which
# the last overlaps. The network behind the estimate of the prior trains on all devices, and what is
# estimated goes into the head's loss. Views of a table compile fastest.
IMPULSES = """
from pujax.training import config as config_lib

def get_config(argument=""):
    config = config_lib.default_config("impulses")
    config.data.update({{"source": "table", "dir": {folder!r}, "prior": "auto"}})
    config.data.prior_method = "best_bin"  # from scores of a network
    config.data.update({{"positive_classes": (1,), "num_labeled": 30, "num_support": 0}})
    config.model.name, config.model.options = "mlp", {{"hidden": (16,), "batch_norm": True}}
    config.method.update({{"num_epochs": 3, "pretrain_epochs": 1, "embedding_dim": 8}})
    config.method.update({{"augment": False, "batch_size": 64, "head_batch_size": 32}})
    config.method.head_learning_rate = 0.01
    config.run.update({{"figures": False, "eval_batch_size": 40}})
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory, one_device):
    """What the two hosts wrote, by configuration, while one device has trained the same."""
    folder = tmp_path_factory.mktemp("hosts")
    write_table(folder)
    images = runs.write_folders(folder / "images")
    texts = {
        "lagam": LAGAM.format(),
        "impulses": IMPULSES.format(folder=str(folder)),
        "pu_mlc": PU_MLC.format(folder=images),
    }
    files = {name: folder / f"{name}.py" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    together = [start(port, str(host), folder / "together", *files.values()) for host in (0, 1)]
    for name, file in files.items():  # meanwhile
        flag = f"--workdir={folder / 'alone' / name}"
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(REPOSITORY)
            config, workdir, _ = flags.parse(["", f"--config={file}", flag])
        training.run(config, workdir)
    outputs = [process.communicate(timeout=300)[0] for process in together]
    for process, text in zip(together, outputs, strict=True):
        assert process.returncode == 0, text
    return folder, outputs


def start(port, host, folder, *files):
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": "2",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
    }
    module = [sys.executable, "-m", "tests.training.two_hosts"]
    return subprocess.Popen(
        [*module, port, host, str(folder), *map(str, files)],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def folders(trained, name):
    """Of one process, and of two."""
    return trained[0] / "alone" / name, trained[0] / "together" / name


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.thorough
def test_two_hosts_train_the_labels_that_one_does(trained):
    """That two hosts go on after a stop or a kill is tested in `tests/faults/test_hosts.py`."""
    alone, together = folders(trained, "lagam")
    first, second = trained[1]
    assert first.count("Run directory") == 3 and "Run directory" not in second

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


def assert_rows_equal(both, **tolerances):
    """That both folders hold the same epochs, with the named columns up to a tolerance each."""
    first, second = map(metrics, both)
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
def test_two_hosts_train_a_head_on_encoded_data_as_one_does(trained):
    both = folders(trained, "impulses")
    close = {"rel": 1e-3}  # since the estimates of the prior may differ in the last digits
    rows = assert_rows_equal(both, loss=close, probe_loss=close, test_auc={"abs": 1e-3})
    assert [row["stage"] for row in rows] == ["pretrain", "head", "head"]
    np.testing.assert_allclose(*map(encoder_arrays, both), rtol=1e-3, atol=1e-5)


@pytest.mark.thorough
def test_two_hosts_estimate_the_prior_that_one_does(trained):
    both = folders(trained, "impulses")
    first, second = (json.loads((x / "prior.json").read_text()) for x in both)
    assert 0 < first["prior"] < 1 and first["estimates"].keys() == second["estimates"].keys()
    assert (first["method"], first["of"]) == (second["method"], second["of"])
    assert first["prior"] == pytest.approx(second["prior"], rel=1e-3)
    for name, estimate in first["estimates"].items():
        assert estimate["value"] == pytest.approx(second["estimates"][name]["value"], abs=1e-3)


@pytest.mark.thorough
def test_two_hosts_stream_what_one_does(trained):
    both = folders(trained, "pu_mlc")
    close, rank = {"rel": 1e-4}, {"abs": 0.02}  # two of 21 close scores may change places
    rows = assert_rows_equal(
        both,
        loss=close,
        loss_variational=close,
        loss_mixup=close,
        test_mean_average_precision=rank,
        test_raw_mean_average_precision=rank,
    )
    assert len(rows) == 2
    first, second = (json.loads((x / "summary.json").read_text()) for x in both)
    assert second["device"].startswith("4 x") and second["counts"] == first["counts"]
    for name in ("recovered_positives", "hidden_positives"):
        assert second["train"][name] == pytest.approx(first["train"][name], abs=1)
    np.testing.assert_allclose(*map(encoder_arrays, both), rtol=1e-3, atol=1e-5)
