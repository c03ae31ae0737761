"""Settings shared by all tests: how JAX is set up, and where real data may be found."""

import os
import pathlib

import pytest

from tests import jax_settings

# None in the workers of pytest-xdist: they find the variable that the first process set.
_CACHE = jax_settings.apply(os.environ)


def pytest_sessionfinish():
    """Keeps the folder of compiled programs small, once all workers are done."""
    if _CACHE is not None:
        jax_settings.prune(_CACHE, jax_settings.CACHE_LIMIT)


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
