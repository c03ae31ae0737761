"""Joining the hosts of a run, and ending together: none waits for one that is gone."""

import contextlib
import inspect
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import ml_collections

from pujax import console
from pujax.training import native_messages

LOST_HOST = 134
"""Exit status where another host is gone: that of SIGABRT, with which JAX itself ends a process."""

_SECONDS_TO_NOTICE = 40
"""Without a sign of life after which a host counts as gone; JAX would wait for 100."""

_SECONDS_FOR_JAX = 2.0
"""In which JAX may end the process itself, with the same message."""

_CONNECTION = re.compile(r"\b(Gloo|NCCL|CoordinationService|heartbeat)", re.IGNORECASE)

_SECONDS_TO_LEAVE = 10.0
"""For an orderly end after an error, which waits for the other hosts: they may not have one."""

_CALLED_OFF: list[threading.Event] = []
"""One for every end of this process that is being waited for: set, the process goes on."""


def join(run: ml_collections.ConfigDict) -> None:
    """Joins the processes of a cluster if `run.distributed` says so; call before any array."""
    if not run.distributed or jax.distributed.is_initialized():
        return
    given: dict[str, Any] = {}
    if run.coordinator:
        given["coordinator_address"] = run.coordinator
    if run.num_processes:
        given["num_processes"] = run.num_processes
    if run.process_id >= 0:
        given["process_id"] = run.process_id
    if "heartbeat_timeout_seconds" in inspect.signature(jax.distributed.initialize).parameters:
        given["heartbeat_timeout_seconds"] = _SECONDS_TO_NOTICE  # not in the oldest versions
    if run.process_id == 0:
        _check_port(run.coordinator)
    console.divert_native_messages(_reader)
    before = signal.getsignal(signal.SIGTERM)
    try:
        jax.distributed.initialize(**given)
    except (ValueError, RuntimeError) as error:
        raise _refusal(run.coordinator, error) from error
    if threading.current_thread() is threading.main_thread():
        # JAX's preemption service, which nobody asks here, has taken the signal: until training
        # looks for it a host would not end.
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _check_port(coordinator: str) -> None:
    """Raises where the first process cannot listen at its port: JAX would crash."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    place = ("", int(coordinator.rpartition(":")[2]))
    try:
        socket.create_server(place, family=family, dualstack_ipv6=both).close()
    except OSError as error:
        raise _refusal(coordinator, error) from error


def _refusal(coordinator: str, error: Exception) -> ValueError:
    return ValueError(
        f"run.coordinator is {coordinator!r}, and no run can be joined so "
        f"({console.first_line(error)}); accepted: 'HOST:PORT' of the first process, whose port is "
        "free there, with run.num_processes and run.process_id; or '' in a cluster that JAX knows"
    )


def _text() -> str:
    return (
        f"this host ends with status {LOST_HOST}, since another host of the run is gone: the same "
        "command on all hosts goes on from the last checkpoint"
    )


def _reader(pipe: int, stream: int) -> None:
    """Starts the process that reads what JAX's C++ code writes, see `native_messages`."""
    file = str(pathlib.Path(native_messages.__file__))
    command = [sys.executable, "-S", "-E", file, _text()]
    subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=stream)


@contextlib.contextmanager
def leaving_together(*, is_outermost: bool = False) -> Iterator[None]:
    """Ends this process if an error leaves the block where several hosts take part.

    An error of the devices there most often means that another host is gone. Any other may be this
    host's alone; then the others wait for it in the middle of a step, and an orderly end would wait
    for them.

    Args:
      is_outermost: whether the caller of a run may catch the error and go on, with another run,
        say: then the end of the process alone does not wait for the others, whenever it comes.
    """
    if is_outermost:
        _stay()
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:  # a second Ctrl-C, at this host alone
        if not jax.distributed.is_initialized() or jax.process_count() == 1:
            raise
        if _is_of_hosts(error):
            time.sleep(_SECONDS_FOR_JAX)
            _leave(f"{_text()} ({console.first_line(error)})", LOST_HOST)
        _stay()
        status = 130 if isinstance(error, KeyboardInterrupt) else 2
        text = (
            f"this host ends with status {status} without the others, which did not end with it in "
            f"{_SECONDS_TO_LEAVE:g} seconds ({console.first_line(error)})"
        )
        _CALLED_OFF.append(threading.Event())
        late = (_CALLED_OFF[-1], text, status, is_outermost)
        threading.Thread(target=_leave_late, args=late, daemon=True).start()
        raise


def _is_of_hosts(error: BaseException) -> bool:
    """Whether an error, or one that it came from, is of the connection of hosts."""
    found: BaseException | None = error
    while found is not None:
        text = str(found)
        of_devices = isinstance(found, jax.errors.JaxRuntimeError)
        if is_out_of_memory(found):  # of this host's devices
            return False
        if of_devices or _CONNECTION.search(text):
            return True
        found = found.__cause__ or found.__context__
    return False


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device of this host has too little memory."""
    of_devices = isinstance(error, jax.errors.JaxRuntimeError)
    return of_devices and str(error).startswith("RESOURCE_EXHAUSTED")


def _stay() -> None:
    """Calls off all ends that are awaited."""
    while _CALLED_OFF:
        _CALLED_OFF.pop().set()


def _leave_late(called_off: threading.Event, text: str, status: int, at_end: bool) -> None:
    """Ends the process in a while, counted from now or `at_end` from where Python begins to end."""
    if at_end:
        threading.main_thread().join()
    if not called_off.wait(_SECONDS_TO_LEAVE):
        _leave(text, status)


def _leave(text: str, status: int) -> None:
    """Ends the process now: what would be done at its end waits for other hosts."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    os._exit(status)
