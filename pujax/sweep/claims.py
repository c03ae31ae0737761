"""A cell is trained by one process at a time, on whatever machine, where its folder has locks."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_LOG = logging.getLogger(__name__)

_FILE = "training.lock"
_SECONDS_BETWEEN_TRIES = 1.0


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
        yield _lock(file, time.monotonic() + wait)


def _lock(file: Any, deadline: float) -> bool:
    if fcntl is None:
        return True
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_SECONDS_BETWEEN_TRIES)
        except OSError as error:
            _LOG.warning("%s cannot be locked: %s", file.name, error)
            return True
