"""Two real processes with two devices each train the same thing as one process with four."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

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
# What is tested is how images come to the hosts, each of which decodes those of its own devices, so
# network and method are what compiles fastest.
STREAMED = """
from tests.training import multilabel_runs as runs

def get_config(argument=""):
    config = runs.folder_config({folder!r}, "assume_negative")
    config.model.name, config.model.options = "mlp", {{"hidden": (8,)}}
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
def test_two_hosts_equal_one_and_go_on_after_a_stop(tmp_path):
    alone, together = tmp_path / "alone", tmp_path / "together"
    finish([start(LAGAM, alone, 4)])
    finish(start_two(LAGAM, together, "--config.run.stop_after_epoch=1"))
    assert len(metrics(together)) == 1
    first, second = finish(start_two(LAGAM, together))
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


@pytest.mark.thorough
def test_two_hosts_stream_what_one_does(tmp_path):
    pytest.importorskip("grain")
    folder = runs.write_folders(tmp_path / "images")
    path = tmp_path / "streamed.py"
    path.write_text(STREAMED.format(folder=folder))
    command = [f"--config={path}"]
    alone, together = tmp_path / "alone", tmp_path / "together"
    # All at once: most of the time goes into starting.
    finish([start(command, alone, 4), *start_two(command, together)])
    rows = list(zip(metrics(alone), metrics(together), strict=True))
    assert len(rows) == 2
    for one, two in rows:
        assert one.keys() == two.keys()
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-4)
        for name in ("test_mean_average_precision", "test_raw_mean_average_precision"):
            # Two of 21 close scores may change places.
            assert one[name] == pytest.approx(two[name], abs=0.02), name
    first, second = (json.loads((x / "summary.json").read_text()) for x in (alone, together))
    assert second["device"].startswith("4 x") and second["counts"] == first["counts"]
    for name in ("recovered_positives", "hidden_positives"):
        assert second["train"][name] == pytest.approx(first["train"][name], abs=1)
