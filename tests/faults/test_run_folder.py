"""A run's folder: one run at a time, and what becomes of it when its files are lost."""

import errno
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

import pujax
from pujax import locks, training
from pujax.training.metrics_writer import MetricsWriter
from tests.faults import runs

HOLD = """
import sys
from pujax import locks

with locks.hold(sys.argv[1], what="the folder", accepted="another"):
    print("held", flush=True)
    sys.stdin.read()
"""


pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def straight(tmp_path_factory, one_device):
    """A run that nothing befalls."""
    folder = tmp_path_factory.mktemp("straight")
    training.run(runs.small(), str(folder))
    return folder


@pytest.fixture
def holder(tmp_path):
    """A process that holds `run.lock` of `run` in the test's folder."""
    path = tmp_path / "run" / "run.lock"
    path.parent.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        env=os.environ | {"PYTHONPATH": str(runs.REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield path, process
    process.kill()
    process.communicate()


def test_a_folder_in_use_is_refused_by_the_name_of_its_holder(holder):
    path, process = holder
    wanted = (
        rf"--workdir=.*run is in use by process {process.pid} on {socket.gethostname()} since 2"
    )
    with pytest.raises(ValueError, match=wanted + ".*; accepted: another folder"):
        training.run(runs.small(), str(path.parent))
    assert os.listdir(path.parent) == ["run.lock"]


def test_a_lock_whose_holder_was_killed_is_taken_over(holder, caplog):
    path, process = holder
    with pytest.raises(locks.HeldError, match=f"process {process.pid}"):
        locks.refuse_held(path, what="it", accepted="another")
    process.send_signal(signal.SIGKILL)
    process.wait()
    locks.refuse_held(path, what="it", accepted="another")
    with caplog.at_level("INFO"), locks.hold(path, what="it", accepted="another"):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert f"was left by process {process.pid}" in caplog.text
    assert path.read_text() == ""


def test_the_holder_may_hold_it_again_but_no_other_thread(tmp_path):
    errors = []

    def other():
        try:
            with locks.hold(tmp_path / "lock", what="it", accepted="another"):
                pass
        except locks.HeldError as error:
            errors.append(str(error))

    with locks.hold(tmp_path / "lock", what="it", accepted="another"):
        with locks.hold(tmp_path / "lock", what="it", accepted="another"):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(errors) == 1 and f"process {os.getpid()}" in errors[0]


@pytest.mark.parametrize("is_running", [True, False])
def test_without_locks_the_process_that_the_file_names_is_asked(
    tmp_path, monkeypatch, caplog, is_running
):
    def refuse(*_):
        raise OSError("not supported")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    pid = os.getpid() if is_running else ended.pid
    known = {"pid": pid, "host": socket.gethostname(), "since": "then"}
    (tmp_path / "lock").write_text(json.dumps(known))
    if is_running:
        with (
            pytest.raises(locks.HeldError, match=f"process {pid} .* since then"),
            locks.hold(tmp_path / "lock", what="it", accepted="another"),
        ):
            pass
    else:
        with locks.hold(tmp_path / "lock", what="it", accepted="another"):
            assert "is on a file system without locks" in caplog.text


@pytest.mark.thorough
def test_of_two_runs_in_one_folder_one_trains_and_the_other_refuses(tmp_path):
    both = [runs.start(tmp_path, tmp_path / "run") for _ in range(2)]
    texts = [process.communicate(timeout=300) for process in both]
    (loser,) = [i for i, process in enumerate(both) if process.returncode == 2]
    assert both[1 - loser].returncode == 0, texts[1 - loser]
    assert f"is in use by process {both[1 - loser].pid}" in texts[loser][1].splitlines()[-1]
    assert [row["epoch"] for row in runs.rows(tmp_path / "run")] == [0, 1, 2]


def test_lost_checkpoints_are_not_a_new_run(straight, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(straight, folder)
    (folder / "summary.json").unlink()
    for step in (folder / "checkpoints").iterdir():
        shutil.rmtree(step)
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"holds no checkpoint, though .*checkpoints\.json says"):
        training.run(runs.small(), str(folder))
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(ValueError, match=r"holds no checkpoint, though"):
        training.run(runs.small(), str(folder))
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_a_run_killed_before_its_first_checkpoint_starts_again(straight, tmp_path, caplog):
    (tmp_path / "metrics.jsonl").write_bytes((straight / "metrics.jsonl").read_bytes())
    training.run(runs.small(), str(tmp_path))
    assert runs.rows(tmp_path) == runs.rows(straight)
    assert "ended before its first checkpoint, after 3 epochs" in caplog.text


DRAWN = """
import os, signal, sys
from pujax import training
from pujax.plots import figures
from tests.faults import runs

figures.map_figure = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
training.run(runs.own_table(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.thorough
def test_a_run_killed_while_it_draws_has_its_results_and_goes_on_to_the_same(tmp_path):
    file, folder = tmp_path / "rows.csv", tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", DRAWN, str(file), str(folder)],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1", "PYTHONPATH": str(runs.REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = {
        path: path.read_bytes() for path in (folder / "predictions.csv", *folder.glob("model/*"))
    }
    assert len(pujax.load(folder).predict(str(file)).scores) == 120
    assert not (folder / "summary.json").exists()
    training.run(runs.own_table(file), str(folder))
    assert {path: path.read_bytes() for path in left} == left
    assert (folder / "figures" / "embedding_tsne.png").exists()


def test_a_refused_resume_leaves_the_configuration_as_it_was(straight, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(straight, folder)
    for name in ("summary.json", "config.json", "data.json"):
        (folder / name).unlink()
    other = runs.small()
    other.method.learning_rate = 0.5
    with pytest.raises(ValueError, match="belongs to another run .method.learning_rate"):
        training.run(other, str(folder))
    assert not (folder / "config.json").exists() and not (folder / "data.json").exists()
    training.run(runs.small(), str(folder))
    assert runs.rows(folder) == runs.rows(straight)
    assert (folder / "config.json").read_bytes() == (straight / "config.json").read_bytes()


@pytest.mark.parametrize("content", ["[1, 2]", "3", "null", "{", "\xff"])
def test_a_configuration_file_that_is_none_is_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=r"config\.json is damaged .*; accepted"):
        training.run(runs.small(), str(tmp_path))


def filled(folder, num_epochs=3):
    writer = MetricsWriter(folder)
    for epoch in range(num_epochs):
        row = {"epoch": epoch, "stage": "train", "loss": 1 / (epoch + 3), "step": 10 * epoch}
        writer.append(row | ({"test_auc": 0.5} if epoch else {}))
    return writer


@pytest.mark.parametrize("damage", [pathlib.Path.unlink, lambda path: path.write_text("")])
def test_rows_deleted_while_the_run_lasts_are_written_again(tmp_path, damage):
    writer = filled(tmp_path)
    rows = list(writer.rows)
    damage(tmp_path / "metrics.jsonl")
    writer.append({"epoch": 3})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [*rows, {"epoch": 3}]


@pytest.mark.parametrize("kept", [[], [2], [0, 2], [0, 1]])
def test_rows_that_only_the_table_has_are_taken_from_there(tmp_path, kept, caplog):
    rows = filled(tmp_path).rows
    path = tmp_path / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[i] for i in kept))
    assert MetricsWriter(tmp_path).rows == rows
    assert path.read_text() == "".join(lines)
    assert f"lacks {3 - len(kept)} epochs" in caplog.text


def test_a_row_that_is_nested_too_deeply_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("[" * 100_000 + '\n{"epoch": 0}\n')
    with pytest.raises(ValueError, match=r"line 1 of .*metrics.jsonl is .*; accepted"):
        MetricsWriter(tmp_path)


def test_a_lock_that_no_disk_has_room_for_is_named_and_given_back(tmp_path, monkeypatch):
    path = tmp_path / "lock"

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(locks.os, "write", full)
        with (
            pytest.raises(OSError, match="No space left on device: '.*lock'"),
            locks.hold(path, what="it", accepted="another"),
        ):
            pass
    with locks.hold(path, what="it", accepted="another"):
        assert json.loads(path.read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("content", ["[" * 100_000, "3", '{"pid": 1}', '{"pid": "a\\nb"}', "\xff"])
def test_a_lock_file_that_names_nobody_is_taken(tmp_path, content):
    path = tmp_path / "lock"
    path.write_text(content, encoding="latin-1")
    with locks.hold(path, what="it", accepted="another"):
        with open(path) as file:  # as another process would
            assert locks.lock(file) is False
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_a_run_whose_rows_were_deleted_goes_on_with_all(straight, tmp_path):
    training.run(runs.small(stop_after_epoch=2), str(tmp_path))
    (tmp_path / "metrics.jsonl").unlink()
    training.run(runs.small(), str(tmp_path))
    assert runs.rows(tmp_path) == runs.rows(straight)
