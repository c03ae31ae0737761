"""Joining the hosts of a run, and ending together: none waits for one that is gone."""

import contextlib
import functools
import inspect
import os
import pathlib
import re
import signal
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

_IS_OUT = threading.Event()


def join(run: ml_collections.ConfigDict) -> None:
    """Joins the processes of a cluster if `run.distributed` says so; call before any array."""
    if not run.distributed:
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
    console.divert_native_messages(_reader)
    before = signal.getsignal(signal.SIGTERM)
    jax.distributed.initialize(**given)
    if threading.current_thread() is threading.main_thread():
        # JAX's preemption service, which nobody asks here, has taken the signal: until training
        # looks for it a host would not end.
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


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
      is_outermost: whether what catches the error outside of the block says what it is.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:  # a second Ctrl-C, at this host alone
        if not jax.distributed.is_initialized() or jax.process_count() == 1:
            raise
        if _is_of_hosts(error):
            time.sleep(_SECONDS_FOR_JAX)
            _leave(f"{_text()} ({console.first_line(error)})", LOST_HOST)
        if is_outermost:
            _IS_OUT.set()
        status = 130 if isinstance(error, KeyboardInterrupt) else 2
        late = functools.partial(_leave_late, console.first_line(error), status)
        timer = threading.Timer(_SECONDS_TO_LEAVE, late)
        timer.daemon = True
        timer.start()
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


def _leave_late(text: str, status: int) -> None:
    _leave("" if _IS_OUT.is_set() else text, status)


def _leave(text: str, status: int) -> None:
    """Ends the process now: what would be done at its end waits for other hosts."""
    sys.stderr.write(f"{text}\n" if text else "")
    sys.stderr.flush()
    os._exit(status)
