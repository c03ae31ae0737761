"""One process at a time, on whatever machine: to train a cell, and to write a sweep's results."""

import contextlib
import logging
import os
from collections.abc import Iterator

from pujax import locks

_LOG = logging.getLogger(__name__)

_FILE = "training.lock"
_RESULTS = "results.lock"
_SECONDS_FOR_RESULTS = 60.0


@contextlib.contextmanager
def claim(folder: str, *, wait: float = 0.0) -> Iterator[bool]:
    """Holds a cell's folder for this process alone while the block runs.

    The operating system gives it back when the process ends, however that happens. On a file system
    without locks, such as object stores that look like folders, nothing is held.

    Args:
      folder: of the cell; made if missing.
      wait: seconds to wait for a process that holds it.

    Yields:
      Whether no other process holds it.
    """
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, _FILE), "a", encoding="utf-8") as file:
        is_ours = locks.lock(file, wait=wait)
        if is_ours is None:
            _LOG.warning("%s cannot be locked", file.name)
        yield is_ours is not False


@contextlib.contextmanager
def results(workdir: str) -> Iterator[None]:
    """Holds a sweep's results while they are collected and written.

    Of two processes that collect at once, the one that began first would otherwise write last, and
    leave out what the other has. One that holds them for more than a minute stands still, and is
    not waited for.

    Args:
      workdir: of the sweep; made if missing.
    """
    os.makedirs(workdir, exist_ok=True)
    with open(os.path.join(workdir, _RESULTS), "a", encoding="utf-8") as file:
        if locks.lock(file, wait=_SECONDS_FOR_RESULTS) is False:
            _LOG.warning(
                "%s is held by another process; the results are written all the same", file.name
            )
        yield
