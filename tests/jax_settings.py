"""How the tests set JAX up: fast compilation, compiled programs kept for the next run, threads."""

import importlib.metadata
import os
import pathlib
import re
import stat

# Tests spend their time compiling programs that run for milliseconds, so they compile without
# optimisation, each in one piece, since the workers of pytest-xdist fill the cores. An unknown flag
# ends the process: the first two are known to jaxlib 0.5.3 to 0.12, the last up to 0.11.0 only.
_FLAGS = {"--xla_backend_optimization_level": "0", "--xla_cpu_parallel_codegen_split_count": "1"}
_FLAGS_BEFORE_0_11_1 = {"--xla_cpu_use_fusion_emitters": "false"}

# Bytes of compiled programs kept on disk between runs; the whole suite makes less than half.
CACHE_LIMIT = 512 * 1024**2


def xla_flags(present: str, jaxlib_version: str) -> str:
    """XLA_FLAGS for the tests: those present, and ours after them where a flag is not among them.

    Args:
      present: Value of the variable as the user set it, or ''.
      jaxlib_version: Version of jaxlib, three or more numbers and dots.
    """
    flags = dict(_FLAGS)
    if tuple(int(number) for number in re.findall(r"\d+", jaxlib_version)) < (0, 11, 1):
        flags |= _FLAGS_BEFORE_0_11_1
    names = [flag.split("=")[0] for flag in present.split()]
    added = [f"{name}={value}" for name, value in flags.items() if name not in names]
    return " ".join([*present.split(), *added])


def default_cache_folder() -> pathlib.Path:
    """Folder of the tests' own compiled programs, below the user's cache folder."""
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(root) / "pujax" / "tests"


def prune(folder: pathlib.Path, limit: int) -> None:
    """Removes compiled programs, those unused for longest first, until `limit` bytes remain.

    Only files that JAX's cache wrote into this very folder are removed, nothing below it.
    """
    files = []
    for path in folder.glob("*-cache"):
        try:
            status = path.stat()
        except FileNotFoundError:  # another test session removed it
            continue
        if stat.S_ISREG(status.st_mode):
            files.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            break
        path.unlink(missing_ok=True)
        total -= size


def apply(environment) -> pathlib.Path | None:
    """Sets the variables of the tests; must run before jax or NumPy is imported.

    Args:
      environment: `os.environ`, or a dictionary in its place.

    Returns:
      The cache folder that the tests must keep small, or None where the user named one, which is
      then used as it is and never cleaned.
    """
    # Threads of NumPy and scikit-learn wait by spinning, and the workers of pytest-xdist fill the
    # cores: two workers of two threads each took several times the processor time of one thread.
    environment.setdefault("OMP_NUM_THREADS", "1")
    # Eight simulated CPU devices, so that every test can build a real mesh.
    environment.setdefault("JAX_NUM_CPU_DEVICES", "8")
    environment.setdefault("JAX_PLATFORMS", "cpu")
    version = importlib.metadata.version("jaxlib")
    environment["XLA_FLAGS"] = xla_flags(environment.get("XLA_FLAGS", ""), version)
    # Lines of Python for every operation of a program, which nobody reads, are a 25th of the time.
    environment.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
    # Small programs too: thousands of them are a quarter of the time of a second run.
    environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    if "JAX_COMPILATION_CACHE_DIR" in environment:
        return None
    folder = default_cache_folder()
    environment["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    return folder
