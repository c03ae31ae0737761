"""Compiled programs: kept between runs by JAX's cache, and released when there are many.

Linux gives a process 65,530 memory maps (`vm.max_map_count`). A program for the CPU takes ten of
them or a hundred, and where none is left the next one fails inside XLA: "Failed to materialize
symbols" with jax 0.10, a segmentation fault with jax 0.12. So what trains many models in one
process releases programs in good time.
"""

import ctypes
import logging
import math
import os
import pathlib

import jax

from pujax.data.readers import download

_LOG = logging.getLogger(__name__)

_MAX_BYTES = 2 * 1024**3
_MIN_SECONDS = 0.3
"""Programs that compile faster are not worth a file."""
_MAPS = pathlib.Path("/proc/self/maps")
_MAX_MAPS = pathlib.Path("/proc/sys/vm/max_map_count")
_PAGES = pathlib.Path("/proc/self/statm")


def folder() -> str:
    """Where programs are kept: $PUJAX_CACHE, else `pujax/compiled` in the user's cache."""
    chosen = os.environ.get("PUJAX_CACHE")
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    return str(download.user_cache() / "compiled")


def enable(setting: str) -> None:
    """Lets JAX keep what it compiles, at most two gigabytes of what was used last.

    What somebody has chosen for JAX stays in use: the folder (JAX_COMPILATION_CACHE_DIR), and from
    how many seconds of compilation on a program is kept
    (JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS). A folder that cannot be written costs time and
    nothing else, so that it is only logged.

    Nothing is kept by several hosts. JAX writes on the first one only, so that at the next start
    others would compile what that one reads: on GPUs, whose compilers share among the hosts what
    they time, they would wait for it.

    Args:
      setting: `run.compilation_cache`, 'on' or 'off'.
    """
    chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if setting == "off" or chosen:
        return
    # Asked in this order: the number of hosts starts the devices, which help texts do without.
    if jax.distributed.is_initialized() and jax.process_count() > 1:
        return
    place = folder()
    try:
        os.makedirs(place, exist_ok=True)
        writable = os.access(place, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        _LOG.warning("compiled programs are not kept: %s cannot be written", place)
        return
    jax.config.update("jax_compilation_cache_dir", place)
    jax.config.update("jax_compilation_cache_max_size", _MAX_BYTES)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_SECONDS)


def release(share: float = 0.25, *, max_bytes: float = math.inf) -> bool:
    """Forgets the compiled programs of this process where they hold many memory maps.

    A program that is called again is loaded or compiled once more. No array is touched.

    Args:
      share: of the maps that Linux gives a process, from 0 to 1.
      max_bytes: memory of the process from which on programs are forgotten with fewer maps, too.

    Returns:
      Whether programs were forgotten; never on a system other than Linux.
    """
    try:
        limit = int(_MAX_MAPS.read_text())
        with open(_MAPS, "rb") as file:
            held = sum(1 for _ in file)
        pages = int(_PAGES.read_text().split()[1])
    except (OSError, ValueError):
        return False
    if held < share * limit and pages * os.sysconf("SC_PAGE_SIZE") < max_bytes:
        return False
    jax.clear_caches()
    # The allocator keeps what has become free, three quarters of a process that compiled much.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)
    return True
