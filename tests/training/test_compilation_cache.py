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
