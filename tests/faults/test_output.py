"""Streams that nobody reads, terminals that close and disks that fill: results stay."""

import asyncio
import json
import logging
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import time
import types

import pytest

from pujax import console
from pujax.training import train_loop
from tests import tiny
from tests.faults import in_process, runs

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


def test_a_message_to_a_stream_that_is_none_raises_no_error(monkeypatch):
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


@pytest.mark.parametrize(
    ("file", "is_of_orbax"), [("/x/orbax/handler.py", True), ("/x/grain/orbax_reader.py", False)]
)
def test_errors_of_tasks_that_nobody_asks_for_are_hidden_where_they_are_of_orbax(
    file, is_of_orbax, caplog
):
    names = {}
    exec(compile("async def write():\n    raise OSError('the disk is full')", file, "exec"), names)

    async def leave():
        task = asyncio.ensure_future(names["write"]())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task

    asyncio.run(leave())
    (record,) = caplog.records
    assert record.getMessage().startswith("Task exception was never retrieved")
    assert console._is_of_orbax(record) is is_of_orbax


def test_errors_of_futures_of_native_code_that_nobody_asks_for_are_hidden(caplog):
    async def leave():
        future = asyncio.get_running_loop().create_future()
        future.set_exception(OSError("the disk is full"))  # set, never raised
        del future

    asyncio.run(leave())
    (record,) = caplog.records
    assert record.getMessage().startswith("Future exception was never retrieved")
    assert console._is_of_orbax(record)


def test_another_error_that_nobody_raised_is_shown():
    problem = RuntimeError("of somebody else")
    error = (RuntimeError, problem, None)
    record = logging.LogRecord("asyncio", logging.ERROR, __file__, 1, "Task failed", (), error)
    assert not console._is_of_orbax(record)


@pytest.mark.thorough
def test_a_run_whose_reader_leaves_ends_well(straight, tmp_path):
    process = runs.start(tmp_path, tmp_path / "run")
    assert process.stdout.readline()
    process.stdout.close()
    process.stderr.close()
    assert process.wait(120) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["num_epochs"] == 3
    assert runs.rows(tmp_path / "run") == runs.rows(straight)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The folder of a run that nothing befalls."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    in_process.train(folder)
    return folder


def assert_it_says_that_nothing_could_be_written(process, folder, reason):
    """Status 2, and one line that names the folder and the reason."""
    _, text = process.communicate(timeout=120)
    assert process.returncode == 2, text
    assert "Traceback" not in text
    *_, last = text.splitlines()
    assert str(folder) in last and reason in last, text
    assert all("orbax" not in line or line == last for line in text.splitlines())
    return last


@pytest.mark.thorough
def test_a_limit_on_files_is_one_line_and_the_run_goes_on_without_it(straight, tmp_path):
    def limited():  # files of a few kilobytes, as on a full disk: an error of every larger write
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    folder = tmp_path / "run"
    process = runs.start(tmp_path, folder, cache=False, preexec_fn=limited)
    line = assert_it_says_that_nothing_could_be_written(process, folder, "File too large")
    assert line.startswith("no checkpoint could be written in ")
    in_process.train(folder)
    assert runs.rows(folder) == runs.rows(straight)


class SmallDisk:
    """A file system in memory that the commands of `within` see and nobody else.

    It is mounted in a namespace of mounts, which ends with the process that holds it: nothing stays
    mounted, however the test ends.
    """

    def __init__(self, folder, size):
        folder.mkdir()
        mounted = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && exec cat'
        command = ["unshare", "--mount", "sh", "-c", mounted, "sh", str(size), str(folder)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self._folder = folder
        self._holder = subprocess.Popen(command, text=True, **pipes)
        self.within = (
            "nsenter",
            f"--target={self._holder.pid}",
            "--mount",
            f"--wd={runs.REPOSITORY}",
        )
        self.is_mounted = self._holder.stdout.readline() == "mounted\n"

    def run(self, *command):
        """Output of a command that sees the file system."""
        return subprocess.check_output([*self.within, *map(str, command)], text=True)

    def resize(self, size):
        self.run("mount", "-o", f"remount,size={size}", self._folder)

    def end(self):
        """What the shell said, once nothing is mounted any more."""
        return self._holder.communicate()[1]


@pytest.fixture
def disk(tmp_path):
    """A file system of 64 MiB; the test is skipped where none can be mounted."""
    if not (shutil.which("unshare") and shutil.which("nsenter")):
        pytest.skip("a small file system needs unshare and nsenter (util-linux, Linux)")
    disk = SmallDisk(tmp_path / "disk", 2**26)
    if not disk.is_mounted:
        pytest.skip(f"no small file system can be mounted here: {disk.end().strip()}")
    yield disk
    disk.end()
    assert os.listdir(tmp_path / "disk") == []


def used(*paths):
    """Bytes of the pages that files take, and those below folders."""
    files = {file for path in paths for file in (path, *path.rglob("*")) if file.is_file()}
    return sum(-(-file.stat().st_size // 4096) * 4096 for file in files)


@pytest.mark.thorough
def test_a_full_file_system_is_one_line_and_the_run_goes_on_once_there_is_room(
    disk, straight, tmp_path
):
    folder, copy = tmp_path / "disk" / "run", tmp_path / "copy"
    steps = (straight / "checkpoints").iterdir()
    _, last = sorted(steps, key=lambda path: int(path.name))
    first = str(int(last.name) // 3)  # of three epochs
    # Room for the first, and half of the second: what is written at the end is not there yet.
    at_end = [straight / name for name in ("encoder.npz", "scores.npz", "summary.json")]
    assert all(path.is_file() for path in at_end)
    disk.resize(used(straight) - used(*at_end) - used(last) // 2)
    process = runs.start(tmp_path, folder, within=disk.within)
    assert_it_says_that_nothing_could_be_written(process, folder, "No space left on device")
    disk.run("cp", "-r", folder, copy)
    names = [path.name for path in (copy / "checkpoints").iterdir()]
    assert [name for name in names if name.isdigit()] == [first]
    filler = folder.with_name("filler")
    disk.run("sh", "-c", 'head -c 64M /dev/zero > "$1" 2>/dev/null || true', "sh", filler)
    process = runs.start(tmp_path, folder, within=disk.within)  # not a byte can be written
    assert_it_says_that_nothing_could_be_written(process, folder, "No space left on device")
    disk.run("rm", filler)
    disk.resize(2**26)
    runs.finished(tmp_path, folder, within=disk.within)
    shutil.rmtree(copy)
    disk.run("cp", "-r", folder, copy)
    assert runs.rows(copy) == runs.rows(straight)


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
    assert f"1 of its 16 examples have inputs that are not finite: training examples {bad}" in text
    assert "the state without them is saved. Go on" in text


def test_a_state_that_was_not_saved_is_not_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr("pujax.training.checkpoint._copied", lambda tree: (False, tree))
    config = tiny.config(
        "naive", model="mlp", options={"hidden": (4,)}, num_epochs=1, learning_rate=1e30
    )
    with pytest.raises(train_loop.NonFiniteError, match="not finite either, and is not saved"):
        tiny.train_in(tmp_path, config, tiny.table_problem())


@pytest.mark.thorough
def test_a_run_killed_while_it_saves_goes_on_to_the_same_rows(straight, tmp_path):
    process = runs.start(tmp_path, tmp_path / "run")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("run/checkpoints/20*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    in_process.train(tmp_path / "run")
    assert runs.rows(tmp_path / "run") == runs.rows(straight)
