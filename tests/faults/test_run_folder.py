"""A run's folder: one run at a time, and what becomes of it when its files are lost."""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

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
# Looks at a file again and again while its standard input is open. One process may hold it, and
# whoever is refused is told its name; nobody is in the way of those that look beside it.
LOOK = """
import select, sys
from pujax import locks

print("looks", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        locks.refuse_held(sys.argv[1], what="it", accepted="another")
    except locks.HeldError as error:
        assert f"process {sys.argv[2]} on" in str(error), error
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


def named(pid, host=None):
    """What a lock file says of its holder."""
    return json.dumps({"pid": pid, "host": host or socket.gethostname(), "since": "then"})


def ended_process():
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


@contextlib.contextmanager
def locked(path, kind, seconds=None):
    """Another one's lock of a file, given back after so many seconds, or with the block."""
    with open(path, "a") as file, contextlib.ExitStack() as stack:
        fcntl.flock(file, kind)
        if seconds is not None:
            timer = threading.Timer(seconds, fcntl.flock, (file, fcntl.LOCK_UN))
            timer.start()
            stack.callback(timer.join)
        yield


def test_those_who_look_are_in_nobodys_way(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    command = [sys.executable, "-c", LOOK, str(path), str(os.getpid())]
    environment = os.environ | {"PYTHONPATH": str(runs.REPOSITORY)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    looking = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    for process in looking:
        assert process.stdout.readline() == b"looks\n"
    for _ in range(200):
        time.sleep(0.001)  # and then begins at any moment of the others, on one core, too
        with locks.hold(path, what="it", accepted="another"):
            pass
    for process in looking:
        _, text = process.communicate()
        assert process.returncode == 0, text


@pytest.mark.parametrize("content", ["", "ended", "elsewhere", "own"])
@pytest.mark.parametrize("kind", [fcntl.LOCK_SH, fcntl.LOCK_EX])  # older versions look alone
def test_a_file_that_is_looked_at_is_held_a_moment_later(tmp_path, content, kind):
    path = tmp_path / "lock"
    known = {"": "", "ended": named(ended_process()), "elsewhere": named(1, "another")}
    path.write_text(known.get(content, named(os.getpid())))
    with locked(path, kind, 0.1), locks.hold(path, what="it", accepted="another"):
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_a_file_that_is_looked_at_may_be_looked_at(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    monkeypatch.setattr(locks.time, "sleep", lambda _: pytest.fail("waits"))
    with locked(path, fcntl.LOCK_SH):
        locks.refuse_held(path, what="it", accepted="another")


@pytest.mark.parametrize("action", ["hold", "refuse_held"])
def test_a_holder_that_runs_here_is_named_at_once_and_another_once_its_name_is_there(
    tmp_path, monkeypatch, action
):
    path = tmp_path / "lock"
    sleeps = []

    def write_name(_):
        sleeps.append(path.read_text())
        path.write_text(named(os.getppid()))

    def refused(match):
        with pytest.raises(locks.HeldError, match=match), contextlib.ExitStack() as stack:
            result = getattr(locks, action)(path, what="it", accepted="another")
            if result is not None:
                stack.enter_context(result)

    monkeypatch.setattr(locks.time, "sleep", write_name)
    with locked(path, fcntl.LOCK_EX):
        for first in ("", named(ended_process())):
            path.write_text(first)
            refused(f"process {os.getppid()} on")
            assert sleeps.pop() == first and not sleeps
        refused(f"process {os.getppid()} on")
        assert not sleeps
        monkeypatch.undo()
        monkeypatch.setattr(locks, "_SECONDS_FOR_A_NAME", 0.05)
        path.write_text("")
        refused("a process that has not told its name yet")
        path.write_text(named(1, "another"))
        refused("process 1 on another")


@pytest.mark.parametrize("module", [fcntl, None])
def test_the_holder_may_hold_it_again_but_no_other_thread(tmp_path, monkeypatch, module):
    errors = []
    monkeypatch.setattr(locks, "fcntl", module)
    monkeypatch.setattr(locks.time, "sleep", lambda _: pytest.fail("waits"))

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


@pytest.mark.parametrize("holder", ["running", "ended", "an earlier one of this number"])
def test_without_locks_the_process_that_the_file_names_is_asked(
    tmp_path, monkeypatch, caplog, holder
):
    def refuse(*_):
        raise OSError("not supported")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    pid = {"running": os.getppid(), "ended": ended_process()}.get(holder, os.getpid())
    (tmp_path / "lock").write_text(named(pid))
    if holder == "running":
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


@pytest.mark.parametrize(
    "content",
    [
        {"model": "resnet18", "data": "/data/x", "lr": 0.1},
        *({"run": run} for run in (5, {"eval_every": None}, {"eval_every": "x"})),
        {"method": "adam"},
        {"data": [1]},
        {"a.b": 1},
    ],
)
def test_a_configuration_file_of_another_program_is_named(tmp_path, content):
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"^--workdir=.* config\.json that no run wrote; accepted"):
        training.run(runs.small(), str(tmp_path))
    assert json.loads((tmp_path / "config.json").read_text()) == content


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
