"""Keeps freed memory for the next step of a CPU program instead of handing it back to Linux.

XLA asks the C library for the working memory of a program at every call and frees it at its end.
glibc takes large blocks from the kernel each time, and the kernel clears every page when it is
first touched: with networks of convolutions a third of a step. Numbers are not changed by it.
"""

import ctypes
import os

_MALLOPT = {"trim_threshold": -1, "mmap_threshold": -3, "arena_max": -8}  # of malloc.h
_MAX_BYTES = 512 * 2**20
"""Larger blocks are handed back, as by default: a step that needs them computes for seconds."""

_VARIABLES = (
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
)


def keep() -> bool:
    """Lets this process keep freed blocks of up to 512 MiB, and as much at the end of its heap.

    For commands, before JAX has started any thread: a thread of JAX that already has a heap of its
    own goes on handing back what is larger than that heap's limit of 64 MB. A library must not
    decide this for its caller's process. Whoever sets one of glibc's variables (MALLOC_ARENA_MAX,
    MALLOC_MMAP_THRESHOLD_, GLIBC_TUNABLES=glibc.malloc...) has decided, and nothing is changed.

    Returns:
      Whether it was done; never where the C library is not glibc.
    """
    is_chosen = any(name in os.environ for name in _VARIABLES)
    if is_chosen or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    try:
        library = ctypes.CDLL(None)
        mallopt = library.mallopt
        _ = library.gnu_get_libc_version
    except (OSError, TypeError, AttributeError):  # Windows; macOS, musl
        return False
    # A limit that is set turns glibc's own moving of it off, so that both are needed. Heaps of
    # threads end at 64 MB, so that all threads share the first one, which can grow.
    for name, value in (
        ("mmap_threshold", _MAX_BYTES),
        ("trim_threshold", _MAX_BYTES),
        ("arena_max", 1),
    ):
        if mallopt(_MALLOPT[name], value) != 1:
            return False
    return True
