"""Hosts of one run: when one is gone the others end, in a line and with a status."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import jax
import pytest

from pujax.training import config as config_lib
from pujax.training import hosts, native_messages
from tests.faults import in_process, runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
END = b"""\
[Gloo] Rank 0 is connected
E1122 21:28:23.890790   23838 coordination_service_agent.cc:289] Polled an error
more of it
F1122 21:28:23.890907   23838 client.h:80] Terminating process because the JAX distributed service
*** Check failure stack trace: ***
    @     0x7f821f840634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
"""


def read(text):
    return subprocess.run(
        [sys.executable, "-S", "-E", native_messages.__file__, "it is over"],
        input=text,
        capture_output=True,
        check=True,
    ).stderr


def test_the_report_of_a_lost_host_is_one_line_and_the_rest_is_passed_on():
    assert read(END) == b"[Gloo] Rank 0 is connected\nit is over\n"
    assert read(b"W1122 a warning\nno newline \xff") == b"W1122 a warning\nno newline \xff"
    harmless = b"".join(END.splitlines(keepends=True)[:3])
    assert read(harmless) == harmless


JOIN = """
import os, signal, sys, time
import ml_collections
from pujax.training import hosts
hosts.join(ml_collections.ConfigDict(dict(
    distributed=True, coordinator=f"localhost:{sys.argv[1]}", num_processes=1, process_id=0)))
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)
"""


@pytest.mark.thorough
def test_a_host_that_has_joined_ends_at_sigterm_as_long_as_it_does_not_train(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    (tmp_path / "join.py").write_text(JOIN)
    command = [sys.executable, str(tmp_path / "join.py"), str(port)]
    status = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=100)
    assert status.returncode == -signal.SIGTERM


def test_one_host_alone_raises_as_ever():
    with pytest.raises(ValueError, match="as it was"), hosts.leaving_together():
        raise ValueError("as it was")


@pytest.mark.parametrize(
    ("error", "is_of_hosts"),
    [
        (jax.errors.JaxRuntimeError("UNKNOWN: Gloo all-reduce failed: connection closed"), True),
        (jax.errors.JaxRuntimeError("INTERNAL: anything of the devices"), True),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"), False),
        (ValueError("UNKNOWN: Gloo all-reduce failed: connection closed"), True),
        (RuntimeError("a heartbeat was missed"), True),
        (ValueError("data.path is '/igloo/rows.csv', no file"), False),
        (OSError("no space left"), False),
    ],
)
@pytest.mark.parametrize("is_chained", [False, True])
def test_errors_of_other_hosts_are_told_from_those_of_this_one(error, is_of_hosts, is_chained):
    if is_chained:
        for outer in (ValueError("no checkpoint could be written"), OSError("it failed")):
            outer.__cause__, error = error, outer
    assert hosts._is_of_hosts(error) is is_of_hosts


def test_an_error_that_came_while_another_was_handled_is_of_hosts_if_that_one_is():
    try:
        try:
            raise jax.errors.JaxRuntimeError("UNKNOWN: socket closed")
        except jax.errors.JaxRuntimeError:
            raise KeyError("cleaning up")  # noqa: B904
    except KeyError as error:
        assert error.__cause__ is None and hosts._is_of_hosts(error)


def test_a_lost_host_says_what_the_error_was(monkeypatch, capsys):
    class Left(BaseException):
        pass

    def leave(status):
        raise Left(status)

    monkeypatch.setattr(hosts, "_SECONDS_FOR_JAX", 0)
    monkeypatch.setattr(hosts.os, "_exit", leave)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(Left) as left, hosts.leaving_together():
        raise jax.errors.JaxRuntimeError("UNKNOWN: socket closed\nand more")
    assert left.value.args == (134,)
    (line,) = capsys.readouterr().err.splitlines()
    assert "another host of the run is gone" in line and line.endswith("(UNKNOWN: socket closed)")


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (ValueError("x"), 2)])
def test_a_host_that_alone_is_interrupted_or_fails_does_not_wait_for_the_others(
    monkeypatch, error, status
):
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(hosts, "_SECONDS_TO_LEAVE", 0.01)
    left, done = [], threading.Event()
    monkeypatch.setattr(hosts, "_leave", lambda *told: (left.append(told), done.set()))
    with pytest.raises(type(error)), hosts.leaving_together():
        raise error
    assert done.wait(10)
    ((text, code),) = left
    assert code == status and text.startswith(f"this host ends with status {status} without the")


@pytest.mark.parametrize("runs_again", [True, False])
def test_an_error_that_the_caller_of_a_run_catches_ends_the_process_at_its_own_end_alone(
    monkeypatch, runs_again
):
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(hosts, "_SECONDS_TO_LEAVE", 0.1)
    end, done = threading.Event(), threading.Event()
    main = threading.Thread(target=end.wait, daemon=True)
    main.start()
    monkeypatch.setattr(hosts.threading, "main_thread", lambda: main)
    monkeypatch.setattr(hosts, "_leave", lambda *told: done.set())
    # The inner block's own end is called off where the error has left the run.
    with (
        pytest.raises(ValueError, match="caught"),
        hosts.leaving_together(is_outermost=True),
        hosts.leaving_together(),
    ):
        raise ValueError("caught")
    assert not done.wait(0.5)
    if runs_again:
        with hosts.leaving_together(is_outermost=True):
            pass
    end.set()
    assert done.wait(0.5 if runs_again else 10) is not runs_again


def test_a_port_that_is_taken_is_refused_before_jax_would_crash():
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        run = config_lib.default_config("nnpu").run
        place = f"localhost:{taken.getsockname()[1]}"
        run.update({"distributed": True, "coordinator": place, "num_processes": 2, "process_id": 0})
        message = rf"run.coordinator is '{place}', .*\(.*[Aa]ddress.*\); accepted: 'HOST:PORT'"
        with pytest.raises(ValueError, match=message):
            hosts.join(run)


def test_a_second_run_of_a_process_stays_with_the_hosts_that_it_has_joined(monkeypatch):
    """Its port is taken, by itself."""
    run = config_lib.default_config("nnpu").run
    given = {"coordinator": "localhost:1", "num_processes": 1, "process_id": 0}
    run.update({"distributed": True, **given})
    calls = []
    monkeypatch.setattr(hosts, "_check_port", calls.append)
    monkeypatch.setattr(hosts.console, "divert_native_messages", lambda _: None)
    monkeypatch.setattr(jax.distributed, "initialize", lambda **_: calls.append("joined"))
    for is_joined in (False, True):
        monkeypatch.setattr(
            jax.distributed, "is_initialized", lambda is_joined=is_joined: is_joined
        )
        hosts.join(run)
    assert calls == ["localhost:1", "joined"]


@pytest.mark.parametrize("error", [ValueError, RuntimeError, jax.errors.JaxRuntimeError])
def test_what_jax_says_of_a_cluster_that_it_does_not_know_names_the_field(monkeypatch, error):
    def initialize(heartbeat_timeout_seconds=0):
        raise error("coordinator_address should be defined.\nand more")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    run = config_lib.default_config("nnpu").run
    run.distributed = True
    with pytest.raises(ValueError, match=r"^run.coordinator is ''.*defined.\); accepted: [^\n]*$"):
        hosts.join(run)


def start_two(tmp_path, workdir, *flags, second=()):
    """Two hosts of one run; the second with further flags."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    distributed = ["--config.run.distributed=true", f"--config.run.coordinator=localhost:{port}"]
    distributed.append("--config.run.num_processes=2")
    return [
        runs.start(tmp_path, workdir, *distributed, f"--config.run.process_id={i}", *flags, *more)
        for i, more in enumerate(((), second))
    ]


def wait_for_rows(metrics: pathlib.Path, count):
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= count):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def assert_it_ends_in_a_line(process):
    """A host whose other is gone: within a minute, one line, its status."""
    begin = time.monotonic()
    _, text = process.communicate(timeout=60)
    print(f"ended after {time.monotonic() - begin:.1f} s with status {process.returncode}")
    assert process.returncode in (hosts.LOST_HOST, -signal.SIGABRT), text
    (line,) = [x for x in text.splitlines() if "another host of the run is gone" in x]
    assert f"status {hosts.LOST_HOST}" in line
    # Progress that was on its way when the other was missed may come after it, and nothing else.
    _, _, after = text.partition(line)
    assert all(x.startswith("naive train ") for x in after.splitlines() if x), after
    assert "stack trace" not in text and "Traceback" not in text


def assert_rows_equal(first, second):
    """All epochs once, and the numbers of both but for the order of sums over the devices."""
    assert [row["epoch"] for row in first] == list(range(len(first)))
    for one, two in zip(first, second, strict=True):
        assert one.pop("stage") == two.pop("stage")
        assert one == pytest.approx(two, rel=1e-5)
    assert any("test_auc" in row for row in first)


@pytest.fixture(scope="module")
def first_host(tmp_path_factory):
    """The first host of a run whose second has been killed, which takes 40 s to notice.

    Tests use it early that do not need it, so that the wait is over when one does.
    """
    folder = tmp_path_factory.mktemp("second_killed")
    first, second = start_two(folder, folder / "run", "--config.method.num_epochs=5000")
    try:
        wait_for_rows(folder / "run" / "metrics.jsonl", 3)
        second.kill()
        begin, seconds = time.monotonic(), []
        second.communicate()

        def note_end():
            first.wait()
            seconds.append(time.monotonic() - begin)

        watch = threading.Thread(target=note_end)
        watch.start()
        yield first, watch, seconds
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


@pytest.mark.thorough
@pytest.mark.usefixtures("first_host")
def test_a_host_whose_first_is_killed_ends_in_a_line_and_the_run_goes_on_until_one_fails(tmp_path):
    first, second = start_two(tmp_path, tmp_path / "run", "--config.method.num_epochs=5000")
    metrics: pathlib.Path = tmp_path / "run" / "metrics.jsonl"
    wait_for_rows(metrics, 3)
    first.kill()
    assert_it_ends_in_a_line(second)
    first.communicate()
    # The run lock of the killed host is no obstacle, nor that two hosts share a run.
    epochs = metrics.read_text().count("\n") + 2
    again = start_two(tmp_path, tmp_path / "run", "--config.method.num_epochs=5000")
    wait_for_rows(metrics, epochs)
    end_by_an_error_of_the_first(again, metrics.with_suffix(".csv"))
    straight = tmp_path / "straight"
    in_process.train(straight, devices=2, num_epochs=5000, stop_after_epoch=epochs)
    assert_rows_equal(runs.rows(tmp_path / "run")[:epochs], runs.rows(straight))


def end_by_an_error_of_the_first(both, table):
    """The first cannot write its table of rows, while the second waits for it in the next epoch."""
    try:
        while not table.is_dir():
            with contextlib.suppress(FileExistsError):  # where a row came in between
                table.unlink(missing_ok=True)
                table.mkdir()
        begin = time.monotonic()
        _, text = both[0].communicate(timeout=60)
        assert time.monotonic() - begin < 30  # ten seconds, and those of an epoch
        assert both[0].returncode == 2 and "metrics.csv" in text.splitlines()[-1], text
        assert_it_ends_in_a_line(both[1])
    finally:
        for process in both:
            process.kill()
            process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_host_whose_other_stands_still_ends_in_a_line(tmp_path, lost):
    """A stopped process keeps its connections: only its signs of life are missed."""
    both = start_two(tmp_path, tmp_path / "run", "--config.method.num_epochs=5000")
    try:
        wait_for_rows(tmp_path / "run" / "metrics.jsonl", 3)
        both[lost].send_signal(signal.SIGSTOP)
        assert_it_ends_in_a_line(both[1 - lost])
        assert both[lost].poll() is None
    finally:
        for process in both:
            process.kill()
            process.communicate()


@pytest.mark.thorough
@pytest.mark.usefixtures("first_host")
def test_an_error_of_both_hosts_ends_both(tmp_path):
    (tmp_path / "run").mkdir()
    with open(tmp_path / "run" / "run.lock", "w") as file:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
        both = start_two(tmp_path, tmp_path / "run")
        texts = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [2, 2], texts
    assert "is in use by" in texts[0] and "the message of the first host says why" in texts[1]


@pytest.mark.thorough
def test_hosts_with_other_settings_and_data_do_not_train(tmp_path):
    other = ("--config.method.learning_rate=0.125", "--config.data.split_seed=5")
    both = start_two(tmp_path, tmp_path / "run", second=other)
    texts = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [2, 2], texts
    assert "some hosts differ from process 0" in texts[0]
    for part in ("naive.method.learning_rate: ", "0.125 here", "data.digest: "):
        assert part in texts[1], texts
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_a_host_whose_second_is_killed_ends_in_a_line(first_host):
    first, watch, seconds = first_host
    watch.join(60)
    assert seconds and seconds[0] < 60
    assert_it_ends_in_a_line(first)
