"""The tests' own settings: flags that this jaxlib knows, and a cache that harms no user's files."""

import os
import pathlib
import subprocess
import sys

import pytest
import threadpoolctl

from tests import jax_settings

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
SPEED = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
FUSION = "--xla_cpu_use_fusion_emitters=false"


@pytest.mark.parametrize("version", ["0.5.3", "0.10.2", "0.11.0"])
def test_the_fusion_flag_is_set_where_jaxlib_knows_it(version):
    assert jax_settings.xla_flags("", version) == f"{SPEED} {FUSION}"


@pytest.mark.parametrize("version", ["0.11.1", "0.12.0.1", "1.0.0"])
def test_it_is_left_out_where_it_would_end_the_process(version):
    assert jax_settings.xla_flags("", version) == SPEED


def test_flags_that_the_user_set_stay_and_win():
    present = "--xla_dump_to=/x --xla_backend_optimization_level=2"
    flags = jax_settings.xla_flags(present, "0.10.2")
    assert flags == f"{present} {SPEED.split()[1]} {FUSION}"


def test_numpy_gets_one_thread_unless_the_user_says_otherwise(tmp_path):
    environment = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    jax_settings.apply(environment)
    assert environment["OMP_NUM_THREADS"] == "1"
    environment["OMP_NUM_THREADS"] = "3"
    jax_settings.apply(environment)
    assert environment["OMP_NUM_THREADS"] == "3"
    if os.environ["OMP_NUM_THREADS"] == "1":  # set before NumPy was imported
        assert {pool["num_threads"] for pool in threadpoolctl.threadpool_info()} <= {1}


def test_a_cache_folder_that_the_user_named_is_used_and_never_cleaned(tmp_path):
    environment = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    assert jax_settings.apply(environment) is None
    assert environment["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path)


def test_the_own_cache_lies_in_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = {}
    assert jax_settings.apply(environment) == tmp_path / "pujax" / "tests"
    assert environment["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "pujax" / "tests")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert jax_settings.default_cache_folder() == pathlib.Path.home() / ".cache/pujax/tests"


def test_the_programs_unused_for_longest_go_first_and_other_files_stay(tmp_path):
    for age, name in enumerate(["new-cache", "middle-cache", "old-cache", "notes.txt"]):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "below-cache").mkdir()
    (tmp_path / "below-cache" / "theirs-cache").write_bytes(b"x" * 100)
    jax_settings.prune(tmp_path, 200)
    assert sorted(p.name for p in tmp_path.rglob("*")) == [
        *("below-cache", "middle-cache", "new-cache", "notes.txt", "theirs-cache")
    ]
    jax_settings.prune(tmp_path / "missing", 0)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_session_leaves_the_users_cache_folder_as_it_was(tmp_path, workers):
    for name in ("precious-cache", "notes.txt"):
        (tmp_path / name).write_text("the user's")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"-n{workers}"]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    code = "import tests.jax_settings as s; s.CACHE_LIMIT = 0; import pytest; "
    code += f"raise SystemExit(pytest.main({[*command[3:], __file__ + '::' + CHEAP]!r}))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "precious-cache"]


CHEAP = test_flags_that_the_user_set_stay_and_win.__name__
