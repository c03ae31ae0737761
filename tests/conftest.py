"""Settings shared by all tests: simulated devices, and where real data may be found."""

import os
import pathlib
import shutil
import tempfile

import pytest

# Eight simulated CPU devices, so that every test can build a real mesh. Set before jax is imported.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests spend their time compiling programs that run for milliseconds: compile them faster, and the
# same one once for all workers.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
_CACHE = pathlib.Path(tempfile.gettempdir()) / f"pujax-tests-{os.getpid()}"
_CACHE = os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def pytest_sessionfinish(session):
    """Removes the compiled programs, once all workers are done."""
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(_CACHE, ignore_errors=True)


def real_data_folder(name: str) -> pathlib.Path:
    """Folder of a real data set for tests; skips the test with a clear message where it is missing.

    The folder is looked up under PUJAX_TEST_DATA, else under ../shared/data beside the checkout.
    """
    default = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = pathlib.Path(os.environ.get("PUJAX_TEST_DATA", default)) / name
    if not folder.is_dir():
        pytest.skip(
            f"real data set {name!r} is not at {folder} (set PUJAX_TEST_DATA to its parent)"
        )
    return folder
