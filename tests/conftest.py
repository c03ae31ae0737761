"""Settings of all tests: how JAX is set up, the tiers, and where real data may be found."""

import collections
import gc
import os
import pathlib
import time

import pytest

from tests import jax_settings, tiers

# None in the workers of pytest-xdist: they find the variable that the first process set.
_CACHE = jax_settings.apply(os.environ)
_SECONDS: dict[str, float] = collections.defaultdict(float)
# With --record-tiers: seconds of shared fixtures by name, those set up within the test that begins,
# and the fixtures of every test.
_SHARED: dict[str, float] = collections.defaultdict(float)
_BEGUN: dict[str, float] = collections.defaultdict(float)
_USES: dict[str, list[str]] = {}


def pytest_addoption(parser):
    """What renews the list behind the marker `fast`, and what runs one part of several."""
    text = f"write the tests that take longer than {tiers.LIMIT} s to {tiers.LIST.name}"
    parser.addoption("--record-tiers", action="store_true", help=text)
    text = "of N parts of the tests run the one with number K, K/N, counted from 1"
    parser.addoption("--part", default="", help=text)


def pytest_configure(config):
    """Refuses a part that cannot be in one line."""
    try:
        tiers.is_in_part("", config.getoption("part"))
    except ValueError as error:
        raise pytest.UsageError(f"--{error}") from error


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(config, items):
    """Marks the fast tests, and leaves out what is not in the part that is asked for."""
    slower = tiers.listed()
    part = config.getoption("part")
    items[:] = [item for item in items if tiers.is_in_part(item.nodeid, part)]
    for item in items:
        if tiers.is_fast(item.nodeid, {mark.name for mark in item.iter_markers()}, slower):
            item.add_marker(pytest.mark.fast)


def pytest_collection_finish():
    """Lets the garbage collector look at everything less often.

    JAX keeps millions of objects of traced programs, and to look at all of them, again and again,
    was a tenth of the time of the tests. What is imported and collected by now stays to the end.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distributes files over the workers, and the contract tests by method."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return tiers.group_of(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """Times what tests share."""
    start = time.perf_counter()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            _BEGUN[fixturedef.argname] += time.perf_counter() - start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """Sends the times of shared fixtures to the first process, which writes the list."""
    _BEGUN.clear()
    try:
        return (yield)
    finally:
        if item.config.getoption("record_tiers"):
            file = item.nodeid.partition("::")[0]
            begun = {f"{file}::{name}": seconds for name, seconds in _BEGUN.items()}
            names = sorted({*begun, *(f"{file}::{name}" for name in item.fixturenames)})
            item.user_properties.append(("fixtures", (names, begun)))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Releases compiled programs between files and methods, before they take too much.

    A worker compiles thousands. They would take 6 GB by the end, and one that asks Linux for too
    many memory maps crashes.
    """
    from pujax.training import compilation_cache  # imports JAX, after it has been set up

    if nextitem and tiers.group_of(item.nodeid) != tiers.group_of(nextitem.nodeid):
        compilation_cache.release(0.5, max_bytes=2.5 * 1024**3)


def pytest_runtest_logreport(report):
    """Counts the time of every test, without that of fixtures which it shares."""
    _SECONDS[report.nodeid] += report.duration
    for name, value in report.user_properties if report.when == "setup" else ():
        if name == "fixtures":
            _USES[report.nodeid], begun = value
            _SECONDS[report.nodeid] -= sum(begun.values())
            for fixture, seconds in begun.items():
                _SHARED[fixture] += seconds


def pytest_sessionfinish(session):
    """Keeps the folder of compiled programs small, once all workers are done."""
    if _CACHE is not None:
        jax_settings.prune(_CACHE, jax_settings.CACHE_LIMIT)
    if session.config.getoption("record_tiers") and not hasattr(session.config, "workerinput"):
        tiers.record(tiers.divided(_SECONDS, _SHARED, _USES))


@pytest.fixture(scope="module")
def one_device():
    """Runs see one device: eight simulated ones are slower, and looked at by tests of their own."""
    from tests import tiny  # which imports JAX, after it has been set up

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))
        yield


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
