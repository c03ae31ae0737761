"""A cell is trained by one process at a time, on whatever machine, where its folder has locks."""

import contextlib
import logging
import os
from collections.abc import Iterator

from pujax import locks

_LOG = logging.getLogger(__name__)

_FILE = "training.lock"


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
