"""Huge pages for what a CPU program allocates: a step need not clear thousands of small ones.

XLA allocates the working memory of a program at every call and frees it at the end. glibc unmaps
blocks above 32 MB, and of the next one the kernel clears every page of 4 kB when it is first
touched: three tenths of a step of a small convolutional network. With pages of 2 MB there are 512
times fewer. glibc reads the setting when a process starts, and so a command starts itself anew,
once.
"""

import contextlib
import os
import pathlib
import re
import sys
import threading

VARIABLE = "GLIBC_TUNABLES"
SETTING = "glibc.malloc.hugetlb=1"

_MODE = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
_FIRST_GLIBC = (2, 35)
"""The first version that knows the setting."""


def restart() -> None:
    """Starts this process's program anew with `SETTING`, where it is of use; returns elsewhere.

    For commands, before anything slow is imported: the process keeps its number, its arguments,
    its folder and its standard streams, and loses what it has computed. Nothing is done where
    `VARIABLE` is set, be it empty; where the C library is not glibc 2.35 or newer; where the kernel
    gives huge pages to all (then they are there) or to none; in a process that is debugged or has
    threads; and inside of another program or of a prompt, which would start anew in its place.
    """
    if VARIABLE in os.environ or not (_glibc() >= _FIRST_GLIBC and _can_be_asked_for()):
        return
    if sys.gettrace() is not None or threading.active_count() > 1 or not _is_own_process():
        return
    environment = {**os.environ, VARIABLE: SETTING}
    with contextlib.suppress(OSError):  # it would be faster, and goes without
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _is_own_process() -> bool:
    """Whether the command line that started the process names the program that runs now."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    names = {*sys.argv[:1], spec.name.removesuffix(".__main__") if spec else ""}
    return bool(sys.executable) and not names.isdisjoint(sys.orig_argv[1:])


def _glibc() -> tuple[int, ...]:
    """Version of glibc, (0,) of another C library."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):  # Windows; macOS, musl
        return (0,)
    return tuple(map(int, re.findall(r"\d+", text))) or (0,)


def _can_be_asked_for() -> bool:
    """Whether the kernel gives huge pages to those who ask."""
    try:
        return "[madvise]" in _MODE.read_text(encoding="ascii")
    except OSError:
        return False
