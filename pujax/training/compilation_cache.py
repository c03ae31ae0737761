"""Compiled programs, kept from one run to the next by JAX's own cache."""

import logging
import os

import jax

from pujax.data.readers import download

_LOG = logging.getLogger(__name__)

_MAX_BYTES = 2 * 1024**3
_MIN_SECONDS = 0.3
"""Programs that compile faster are not worth a file."""


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

    Args:
      setting: `run.compilation_cache`, 'on' or 'off'.
    """
    chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if setting == "off" or chosen:
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
