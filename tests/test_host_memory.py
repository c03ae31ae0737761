"""Freed memory that a process keeps: pages that the kernel clears again, counted by the kernel."""

import ctypes
import json
import os
import subprocess
import sys

import pytest

from pujax import host_memory, predict, train
from pujax.sweep import __main__ as sweep_main
from pujax.sweep import launch

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

# A thread takes, fills and frees a block six times, as XLA's do; how many pages were new to the
# process in the last four.
_PROGRAM = """
import ctypes, json, resource, sys, threading
from pujax import host_memory
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
size, is_done, faults = int(sys.argv[1]), sys.argv[2] == "keep" and host_memory.keep(), []
def work():
    for _ in range(6):
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        block = library.malloc(size)
        library.memset(block, 1, size)
        library.free(block)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(json.dumps([is_done, faults[-1] - faults[2]]))
"""

_needs_glibc = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"),
    reason="needs Linux with glibc",
)


def _new_pages(megabytes, *, keep, **variables):
    """Whether memory is kept, and the pages that three rounds of a program took anew."""
    given = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    command = [sys.executable, "-c", _PROGRAM, str(megabytes * 2**20), "keep" if keep else ""]
    environment = {**given, "GLIBC_TUNABLES": "", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@_needs_glibc
@pytest.mark.parametrize("megabytes", [100, 400])
def test_a_block_that_was_freed_is_not_cleared_again(megabytes):
    pages = megabytes * 2**20 // _PAGE
    _, by_default = _new_pages(megabytes, keep=False)
    is_done, kept = _new_pages(megabytes, keep=True)
    assert is_done
    assert by_default >= 3 * pages or by_default >= 3 * megabytes // 2  # pages of 2 MB
    assert kept < by_default / 20


@_needs_glibc
def test_a_larger_block_is_handed_back_as_by_default():
    _, by_default = _new_pages(600, keep=False)
    _, kept = _new_pages(600, keep=True)
    assert kept > by_default / 2


@_needs_glibc
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_ARENA_MAX", "4"),
        ("MALLOC_MMAP_THRESHOLD_", "131072"),
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("GLIBC_TUNABLES", "glibc.malloc.arena_max=4"),
    ],
)
def test_what_somebody_has_set_stays(name, value):
    is_done, pages = _new_pages(100, keep=True, **{name: value})
    assert not is_done
    assert pages > 100


def test_a_library_without_the_call_is_left_alone(monkeypatch):
    monkeypatch.setattr(host_memory.ctypes, "CDLL", lambda name: object())
    assert not host_memory.keep()


def test_a_system_without_a_common_library_is_left_alone(monkeypatch):
    def fail(name):
        raise TypeError("argument of type 'NoneType' is not iterable")  # Windows

    monkeypatch.setattr(host_memory.ctypes, "CDLL", fail)
    assert not host_memory.keep()


class _BegunError(ValueError):
    pass


@pytest.fixture
def order(monkeypatch):
    """What happens: 'keep', then what the command does first."""
    happened = []
    monkeypatch.setattr(host_memory, "keep", lambda: happened.append("keep"))

    def begin(*args, **kwargs):
        happened.append("work")
        raise _BegunError("begun")

    return happened, begin


def test_training_keeps_memory_before_anything_else(order, monkeypatch):
    happened, begin = order
    monkeypatch.setattr(train.flags, "parse", begin)
    assert train.main(["pujax train", "--config=lagam_digits"]) == 2
    assert happened == ["keep", "work"]


def test_a_sweep_keeps_memory_before_it_trains(order, monkeypatch, tmp_path):
    happened, begin = order
    monkeypatch.setattr(sweep_main.runner, "run", begin)
    words = ["pujax sweep", "--config=baseline", "--methods=naive", "--tasks=digits"]
    assert sweep_main.main([*words, "--seeds=0", f"--workdir={tmp_path}"]) == 2
    assert happened == ["keep", "work"]


def test_a_worker_of_a_sweep_keeps_memory_before_it_trains(order, monkeypatch):
    happened, begin = order
    monkeypatch.setattr(launch.runner, "prepare", begin)
    plan = sweep_main.parse(
        ["pujax sweep", "--config=baseline", "--methods=naive", "--tasks=digits", "--dry_run"]
    )[0]
    assert "begun" in launch.train_task(launch.Task(plan, "", False, True))
    assert happened == ["keep", "work"]


def test_predictions_keep_memory_before_the_model_is_loaded(order, monkeypatch, tmp_path):
    happened, begin = order
    monkeypatch.setattr(predict, "load", begin)
    words = ["pujax predict", "run", "rows.csv", f"--output={tmp_path / 'scores.csv'}"]
    assert predict.main(words) == 2
    assert happened == ["keep", "work"]
