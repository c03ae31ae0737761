"""Streams that nobody reads, terminals that close and disks that fill: results stay."""

import asyncio
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
import types

import pytest

from pujax import console
from pujax.training import train_loop
from tests import tiny
from tests.faults import runs

# What every command does: it prints, works, prints more than a buffer holds, and leaves a file.
COMMAND = """
import contextlib, logging, os, sys, time
from pujax import console

console.show_own_messages()
console.message("first")
files = [open(f"file{i}", "w") for i in range(3)]
with contextlib.suppress(OSError):
    os.write(2, b"what a library writes to the second descriptor\\n")
while os.path.exists("wait"):
    time.sleep(0.01)
for _ in range(2000):
    console.message("a line that nobody reads")
    sys.stderr.write("another\\n")
logging.getLogger("pujax").error("a log line")
open("result", "w").write(str(sys.stdout.isatty()))
"""


def command(folder, **streams):
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(runs.REPOSITORY)},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # whatever it is here
        **streams,
    )


def test_a_reader_that_leaves_costs_nothing(tmp_path):
    (tmp_path / "wait").touch()
    process = command(tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"first\n"
    process.stdout.close()
    process.stderr.close()
    (tmp_path / "wait").unlink()
    assert process.wait(60) == 0
    assert (tmp_path / "result").read_text() == "False"


def test_closed_streams_cost_nothing_and_are_not_given_to_files(tmp_path):
    shell = f"exec {sys.executable} -c '{COMMAND}' <&- >&- 2>&-"
    process = subprocess.Popen(
        shell, shell=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(runs.REPOSITORY)}
    )
    assert process.wait(60) == 0
    assert (tmp_path / "result").read_text() == "False"
    assert all((tmp_path / f"file{i}").read_text() == "" for i in range(3))


def test_a_terminal_that_closes_costs_nothing(tmp_path):
    (tmp_path / "wait").touch()
    main, own = pty.openpty()
    process = command(tmp_path, stdin=own, stdout=own, stderr=own, start_new_session=True)
    os.close(own)
    assert os.read(main, 5) == b"first"
    os.close(main)
    process.send_signal(signal.SIGHUP)  # as the kernel does where it is the controlling terminal
    (tmp_path / "wait").unlink()
    assert process.wait(60) == 0
    assert (tmp_path / "result").read_text() == "False"


def test_a_message_is_not_lost_with_a_stream_that_is_none(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    console.message("nobody reads it")


def test_long_messages_of_libraries_keep_both_ends():
    error = OSError("begin " + 500 * "x" + " the disk is full\nsource_locations\n  more")
    assert console.first_line(error).startswith("begin xx")
    assert console.first_line(error).endswith("the disk is full")
    assert console.first_line(ValueError()) == "ValueError"


def test_native_threads_that_find_the_loop_closed_print_nothing_and_other_errors_do(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: shown.append(str(it.exc_value)))
    console._drop_late_callbacks()
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError) as error:
        loop.call_soon_threadsafe(print)
    for each in (error.value, RuntimeError("another")):
        sys.unraisablehook(types.SimpleNamespace(exc_value=each))
    assert shown == ["another"]


@pytest.mark.thorough
def test_a_run_whose_reader_leaves_ends_well(tmp_path):
    process = runs.start(tmp_path, tmp_path / "run")
    assert process.stdout.readline()
    process.stdout.close()
    process.stderr.close()
    assert process.wait(120) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["num_epochs"] == 3


@pytest.mark.thorough
def test_a_full_disk_is_one_line_and_the_run_goes_on_once_there_is_room(tmp_path):
    def limited():  # files of a few kilobytes, as on a full disk: an error of every larger write
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    process = runs.start(tmp_path, tmp_path / "run", preexec_fn=limited)
    _, text = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "Traceback" not in text
    *_, last = text.splitlines()
    assert last.startswith("no checkpoint could be written in ") and "File too large" in last
    assert all("orbax" not in line or line == last for line in text.splitlines())
    process = runs.start(tmp_path, tmp_path / "run")
    _, text = process.communicate(timeout=120)
    assert process.returncode == 0, text
    assert [row["epoch"] for row in runs.rows(tmp_path / "run")] == [0, 1, 2]


@pytest.mark.thorough
def test_steps_that_are_not_finite_name_numbers_and_examples(tmp_path):
    data = tiny.table_problem()
    inputs = data.inputs.copy()
    bad = int(data.labeled.argmin())
    inputs[bad, 2] = float("nan")
    with pytest.raises(train_loop.NonFiniteError) as error:
        config = tiny.config("naive", model="mlp", options={"hidden": (4,)}, num_epochs=1)
        tiny.train_in(tmp_path, config, data._replace(inputs=inputs))
    text = str(error.value)
    assert "computed again gives loss nan" in text and "\n" not in text
    assert f"1 of its 16 examples have inputs that is not finite: training examples {bad}" in text
    assert "the state without them is saved. Go on" in text


def test_a_state_that_was_not_saved_is_not_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr("pujax.training.checkpoint._all_finite", lambda _: False)
    config = tiny.config(
        "naive", model="mlp", options={"hidden": (4,)}, num_epochs=1, learning_rate=1e30
    )
    with pytest.raises(train_loop.NonFiniteError, match="not finite either, and is not saved"):
        tiny.train_in(tmp_path, config, tiny.table_problem())


@pytest.mark.thorough
def test_a_run_killed_while_it_saves_goes_on_to_the_same_rows(tmp_path):
    process = runs.start(tmp_path, tmp_path / "run")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("run/checkpoints/20*")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.communicate()
    for folder in ("run", "straight"):
        process = runs.start(tmp_path, tmp_path / folder)
        _, text = process.communicate(timeout=120)
        assert process.returncode == 0, text
    assert runs.rows(tmp_path / "run") == runs.rows(tmp_path / "straight")
