"""Locks on files, which the operating system gives back when a process ends, however it ends.

On a file system without locks, such as object stores that look like folders, nothing is held.
"""

import contextlib
import datetime
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

from pujax import reading

_LOG = logging.getLogger(__name__)

_SECONDS_BETWEEN_TRIES = 1.0
_SECONDS_FOR_A_NAME = 1.0
"""In which whoever holds a file has written its name into it, or has only looked at it."""
_SECONDS_BETWEEN_LOOKS = 0.01

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
_winapi: Any
try:
    import _winapi
except ImportError:  # everywhere else
    _winapi = None

# What this process holds, by the thread that does: a second lock of the same file, through another
# descriptor, would be refused.
_HELD: dict[str, int] = {}


class HeldError(ValueError):
    """Another process holds the lock; the message names it."""


def lock(file: IO[Any], *, wait: float = 0.0, is_shared: bool = False) -> bool | None:
    """Tries to lock an open file for this process alone.

    Args:
      file: open for writing; the lock ends when it is closed.
      wait: seconds to wait for a process that holds it; may be infinite.
      is_shared: whether others may have such a lock, too, while nobody has it alone.

    Returns:
      Whether this process holds it now; None if there are no locks here.
    """
    if fcntl is None:
        return None
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(min(_SECONDS_BETWEEN_TRIES, wait))
        except OSError as error:
            _LOG.debug("%s cannot be locked: %s", file.name, error)
            return None


@contextlib.contextmanager
def hold(path: str | os.PathLike, *, what: str, accepted: str) -> Iterator[None]:
    """Holds a file while the block runs; it names the process that does.

    The same thread may hold it more than once. The file stays, empty once nobody holds it. One
    that still names a process was left by one that was killed; that is logged, and it is taken
    over. A lock that nobody who runs here has put his name to is waited for, for a second: most
    likely somebody looks at it. Where there are no locks, a process of this machine that the file
    names and that still runs counts as holding it.

    Args:
      path: of the file, made if missing, in a folder that exists.
      what: what is held, which an error begins with.
      accepted: what an error asks for.

    Raises:
      HeldError: naming the process that holds it, its machine and when it began.
    """
    path = os.path.realpath(path)
    if _HELD.get(path) == threading.get_ident():
        yield
        return
    with open(path, "a+", encoding="utf-8") as file:
        is_ours, known = _lock_and_read(file, path)
        if is_ours is False or (is_ours is None and _is_running(known, path)):
            raise HeldError(_refusal(what, known, accepted))
        if is_ours is None:
            _LOG.warning("%s is on a file system without locks: nothing keeps others out", path)
        if known:
            _LOG.info("%s was left by %s, which ended without a stop", path, _named(known))
        try:
            _write(file, _own())
        except OSError as error:  # such as of a full disk, which does not say of which file
            raise OSError(error.errno, error.strerror, path) from error
        _HELD[path] = threading.get_ident()
        try:
            yield
        finally:
            del _HELD[path]
            # The folder may be gone by now, or its disk full: neither matters here.
            with contextlib.suppress(OSError):
                _write(file, None)


def refuse_held(path: str | os.PathLike, *, what: str, accepted: str) -> None:
    """Raises where `hold` would, without making or changing anything or keeping others out.

    Raises:
      HeldError: as `hold`.
    """
    path = os.path.realpath(path)
    if _HELD.get(path) == threading.get_ident() or not os.path.exists(path):
        return
    try:
        with open(path, "r+", encoding="utf-8") as file:
            is_ours, known = _lock_and_read(file, path, is_shared=True)
    except OSError:  # what is wrong with it is said when it is to be held
        return
    if is_ours is False or (is_ours is None and _is_running(known, path)):
        raise HeldError(_refusal(what, known, accepted))


def _lock_and_read(
    file: IO[str], path: str, *, is_shared: bool = False
) -> tuple[bool | None, dict[str, Any]]:
    """Tries to lock a file, and reads whom it names: `lock` and `_read`.

    A lock that another process has is that of its holder if the file names one that runs here.
    Otherwise it is tried again for a second: a process that only looks has the lock for a moment,
    and a holder has it for a moment before its name is there and after it is gone. A name that a
    killed process has left says nothing of who has the lock, nor does one of another machine.
    Those who look share the lock, so that they are in the way of holders alone.
    """
    deadline = time.monotonic() + _SECONDS_FOR_A_NAME
    while True:
        is_ours, known = lock(file, is_shared=is_shared), _read(file)
        if is_ours is not False or _is_running(known, path) or time.monotonic() >= deadline:
            return is_ours, known
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _refusal(what: str, known: dict[str, Any], accepted: str) -> str:
    return f"{what} is in use by {_named(known)}; accepted: {accepted}"


def _own() -> dict[str, Any]:
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": now}


def _named(known: dict[str, Any]) -> str:
    if not known:
        return "a process that has not told its name yet"
    text = f"process {known['pid']} on {known['host']} since {known['since']}"
    return reading.one_line(text)  # a file may say anything


def _read(file: IO[str]) -> dict[str, Any]:
    """What a file says about the process that holds it, or held it last; {} where it is empty."""
    file.seek(0)
    try:
        known = reading.parse_json(file.read() or "{}")
        return {name: known[name] for name in ("pid", "host", "since")} if known else {}
    except (ValueError, TypeError, KeyError):
        return {}


def _write(file: IO[str], known: dict[str, Any] | None) -> None:
    file.seek(0)
    file.truncate()
    if known:  # past the buffer, which would be written again at the end if the disk is full
        os.write(file.fileno(), f"{json.dumps(known)}\n".encode())


def _is_running(known: dict[str, Any], path: str) -> bool:
    """Whether the process that a file names is of this machine and still runs."""
    pid = known.get("pid")
    if known.get("host") != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
        return False
    if pid == os.getpid():  # an earlier one had it, too, as in a container that starts again
        return path in _HELD
    try:
        if _winapi is not None:
            return _is_running_on_windows(pid)
        os.kill(pid, 0)
    except PermissionError:  # that of another user
        return True
    except (OSError, OverflowError):
        return False
    return True


def _is_running_on_windows(pid: int) -> bool:
    """The same where `os.kill` with 0 does not ask a process, but sends it Ctrl+C."""
    handle = _winapi.OpenProcess(_winapi.SYNCHRONIZE, False, pid)
    try:
        # One that has ended is still there as long as anybody has a handle of it.
        return _winapi.WaitForSingleObject(handle, 0) == _winapi.WAIT_TIMEOUT
    finally:
        _winapi.CloseHandle(handle)
