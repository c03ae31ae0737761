"""Compiled programs are kept, where they should be, and a folder somebody chose stays in use."""

import os
import pathlib
import subprocess
import sys

import jax
import pytest

from pujax import training
from pujax.training import compilation_cache
from tests import tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = (
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_persistent_cache_min_compile_time_secs",
)


@pytest.fixture
def unset():
    """JAX as it is where nobody chose a folder; what the tests use comes back at the end."""
    before = {name: getattr(jax.config, name) for name in OPTIONS}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_programs_are_kept_in_the_users_cache(unset, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PUJAX_CACHE", raising=False)
    compilation_cache.enable("on")
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "pujax" / "compiled")
    assert (tmp_path / "pujax" / "compiled").is_dir()
    assert 0 < jax.config.jax_compilation_cache_max_size < 2**32


def test_a_chosen_folder_is_used(unset, tmp_path, monkeypatch):
    monkeypatch.setenv("PUJAX_CACHE", str(tmp_path / "mine"))
    compilation_cache.enable("off")
    assert jax.config.jax_compilation_cache_dir is None and not (tmp_path / "mine").exists()
    compilation_cache.enable("on")
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    monkeypatch.setenv("PUJAX_CACHE", str(tmp_path / "other"))
    compilation_cache.enable("on")  # JAX's own setting is somebody's choice
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    assert not (tmp_path / "other").exists()


def test_a_folder_that_cannot_be_written_stops_nothing(unset, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PUJAX_CACHE", str(tmp_path / "file" / "below"))
    compilation_cache.enable("on")
    assert jax.config.jax_compilation_cache_dir is None


def test_several_hosts_keep_nothing_of_their_own(unset, tmp_path, monkeypatch):
    """JAX writes on the first host alone, so that others would compile what that one reads."""
    monkeypatch.setenv("PUJAX_CACHE", str(tmp_path / "mine"))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    compilation_cache.enable("on")
    assert jax.config.jax_compilation_cache_dir is None and not (tmp_path / "mine").exists()


def test_the_devices_are_not_started_for_a_help_text(unset, tmp_path, monkeypatch):
    monkeypatch.setenv("PUJAX_CACHE", str(tmp_path))
    monkeypatch.setattr(jax, "process_count", None)  # which cannot be called
    compilation_cache.enable("on")
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)


def test_the_setting_is_checked():
    with pytest.raises(ValueError, match="run.compilation_cache is 'yes'; accepted: 'on', 'off'"):
        tiny.config("nnpu", run={"compilation_cache": "yes"})


def test_a_run_asks_for_what_its_configuration_says(monkeypatch, tmp_path):
    class Asked(Exception):
        pass

    def enable(setting):
        raise Asked(setting)

    monkeypatch.setattr(compilation_cache, "enable", enable)
    for setting in ("off", "on"):
        with pytest.raises(Asked, match=setting):
            training.run(tiny.config("nnpu", run={"compilation_cache": setting}), str(tmp_path))


def test_programs_are_released_once_they_hold_their_share_of_the_maps(monkeypatch, tmp_path):
    traced = []

    @jax.jit
    def double(x):
        traced.append(x)
        return 2 * x

    maps, limit = tmp_path / "maps", tmp_path / "limit"
    monkeypatch.setattr(compilation_cache, "_MAPS", maps)
    monkeypatch.setattr(compilation_cache, "_MAX_MAPS", limit)
    double(1.0)
    assert not compilation_cache.release(0.0)  # no such files: another system
    limit.write_text("100\n")
    maps.write_text("a map\n" * 24)
    assert not compilation_cache.release(0.25)
    double(1.0)
    assert len(traced) == 1
    maps.write_text("a map\n" * 25)
    assert compilation_cache.release(0.25)
    assert double(1.0) == 2.0 and len(traced) == 2


def test_programs_are_released_where_the_process_takes_much_memory(monkeypatch, tmp_path):
    pages = tmp_path / "pages"
    pages.write_text("9000 1000 300 5 0 700 0\n")  # the second is the resident memory
    monkeypatch.setattr(compilation_cache, "_PAGES", pages)
    cleared = []
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(1))
    taken = 1000 * os.sysconf("SC_PAGE_SIZE")
    assert not compilation_cache.release(1.0, max_bytes=taken + 1) and not cleared
    assert compilation_cache.release(1.0, max_bytes=taken) and len(cleared) == 1


_MEMORY = """
import jax
from pujax.training import compilation_cache

def taken():
    return int(compilation_cache._PAGES.read_text().split()[1])

def program(k):
    def deep(x):
        for i in range(60):
            x = jax.numpy.sin(k * x) @ x
        return x
    return jax.jit(deep)

program(0)(jax.numpy.ones([2, 2]))
before = taken()
functions = [program(k) for k in range(1, 31)]
for function in functions:
    function(jax.numpy.ones([2, 2]))
compiled = taken()
assert compilation_cache.release(0.0)
print((taken() - before) / (compiled - before))
"""


@pytest.mark.thorough
@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="a file of Linux")
def test_released_programs_give_their_memory_back():
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run(
        [sys.executable, "-c", _MEMORY],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert float(run.stdout) < 0.5


@pytest.mark.skipif(not pathlib.Path("/proc/self/maps").exists(), reason="a limit of Linux")
def test_released_programs_give_their_maps_back():
    def held():
        return compilation_cache._MAPS.read_bytes().count(b"\n")

    functions = [jax.jit(lambda x, k=k: x * k) for k in range(8)]
    compilation_cache.release(0.0)
    before = held()
    for function in functions:
        function(1.0)
    compiled = held()
    assert compilation_cache.release(0.0)
    assert compiled - before >= len(functions) and held() - before < (compiled - before) / 2


# All but a few hundred maps are taken, by pages whose protection alternates. Then a hundred
# programs are compiled, each of which takes some ten.
_FULL = """
import ctypes, mmap
import jax
from pujax.training import compilation_cache

jax.jit(lambda x: x + 1)(1.0)
limit = int(compilation_cache._MAX_MAPS.read_text())
count = limit - compilation_cache._MAPS.read_bytes().count(b"\\n") - 500
region = mmap.mmap(-1, count * mmap.PAGESIZE)
start = ctypes.addressof(ctypes.c_char.from_buffer(region))
libc = ctypes.CDLL(None, use_errno=True)
for page in range(0, count, 2):
    libc.mprotect(ctypes.c_void_p(start + page * mmap.PAGESIZE), mmap.PAGESIZE, mmap.PROT_READ)
functions = []
for k in range(100):
    functions.append(jax.jit(lambda x, k=k: jax.numpy.argsort(jax.numpy.sin(k * x))))
    functions[-1](jax.numpy.ones(8))
    if k % 10 == 9:
        compilation_cache.release((limit - 250) / limit)
"""


@pytest.mark.thorough
@pytest.mark.skipif(not pathlib.Path("/proc/self/maps").exists(), reason="a limit of Linux")
def test_a_process_without_maps_goes_on_where_programs_are_released():
    if int(compilation_cache._MAX_MAPS.read_text()) > 100_000:
        pytest.skip("vm.max_map_count is too high to be used up here")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run(
        [sys.executable, "-c", _FULL], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]


@pytest.mark.thorough
def test_a_second_run_compiles_nothing(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"PUJAX_CACHE": str(tmp_path / "kept"), "JAX_PLATFORMS": "cpu"}
    # Every program is kept: which of them take long depends on what else the machine does.
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    command = [sys.executable, "train.py", "--config=configs/baseline.py:method=nnpu,backbone=mlp"]
    command += ["--config.method.num_epochs=1", "--config.run.figures=False"]

    def run(name, *more):
        workdir = [f"--workdir={tmp_path / name}", *more]
        subprocess.run([*command, *workdir], cwd=REPOSITORY, env=environment, check=True)
        return {path.name for path in (tmp_path / "kept").glob("*-cache")}

    first = run("first")
    assert first and run("second", "--config.seed=1") == first
