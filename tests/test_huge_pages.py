"""A command that starts itself anew with huge pages: when, once, and with what it was given."""

import importlib.machinery
import json
import os
import pathlib
import runpy
import subprocess
import sys
import threading
import types

import pytest

from pujax import commands, huge_pages

_ACTIVE_COUNT = threading.active_count
REPOSITORY = pathlib.Path(__file__).resolve().parents[1]

# Says that it begins, restarts, and then what it was given, and how many pages the kernel had to
# clear for the second and third of four blocks of 100 MB that a thread took, filled and freed.
_PROGRAM = """
import ctypes, json, os, resource, sys, threading
from pujax import huge_pages
print("begins", os.getpid(), flush=True)
huge_pages.restart()
library = ctypes.CDLL(None)
library.aligned_alloc.restype = ctypes.c_void_p
library.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
faults = []
def work():
    for _ in range(4):
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        block = library.aligned_alloc(64, 100 * 2**20)
        library.memset(block, 1, 100 * 2**20)
        library.free(block)
thread = threading.Thread(target=work)
thread.start()
thread.join()
given = [sys.argv[1:], sys.stdin.read(), os.getcwd(), os.environ.get(huge_pages.VARIABLE)]
print(json.dumps([given, faults[-1] - faults[1]]))
"""

_needs_system = pytest.mark.skipif(
    not (huge_pages._glibc() >= huge_pages._FIRST_GLIBC and huge_pages._can_be_asked_for()),
    reason="needs glibc 2.35 or newer, and a kernel that gives huge pages to those who ask",
)


def _run(folder, **variables):
    """Numbers of the processes that began, what the program was given, and its cleared pages."""
    environment = {name: v for name, v in os.environ.items() if name != huge_pages.VARIABLE}
    environment |= {"PYTHONPATH": str(REPOSITORY), **variables}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "--config=a b", ""],
        input="text",
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    *begun, last = done.stdout.splitlines()
    given, pages = json.loads(last)
    return [line.split()[1] for line in begun], given, pages


@_needs_system
def test_a_program_starts_once_more_as_the_same_process_with_what_it_was_given(tmp_path):
    begun, given, pages = _run(tmp_path)
    assert len(begun) == 2 and begun[0] == begun[1]
    assert given == [["--config=a b", ""], "text", str(tmp_path), huge_pages.SETTING]
    _, _, by_default = _run(tmp_path, **{huge_pages.VARIABLE: ""})
    if by_default:  # some sandboxes do not count
        assert pages < by_default / 10


@_needs_system
@pytest.mark.parametrize("value", ["", "glibc.malloc.hugetlb=0"])
def test_what_somebody_has_set_stays(tmp_path, value):
    begun, given, _ = _run(tmp_path, **{huge_pages.VARIABLE: value})
    assert len(begun) == 1
    assert given[-1] == value


class _RestartedError(Exception):
    pass


@pytest.fixture
def restarts(monkeypatch, tmp_path):
    """A process that would start anew: the calls that do so, and the kernel's file."""
    calls = []
    mode = tmp_path / "enabled"
    mode.write_text("always [madvise] never\n")
    monkeypatch.delenv(huge_pages.VARIABLE, raising=False)
    monkeypatch.setattr(huge_pages, "_MODE", mode)
    monkeypatch.setattr(huge_pages.os, "confstr", lambda name: "glibc 2.36", raising=False)
    monkeypatch.setattr(huge_pages.os, "execve", lambda *given: calls.append(given))
    monkeypatch.setattr(huge_pages.threading, "active_count", lambda: 1)
    monkeypatch.setattr(huge_pages.sys, "gettrace", lambda: None)
    monkeypatch.setattr(huge_pages.sys, "orig_argv", ["python", "train.py", "--config=lagam"])
    monkeypatch.setattr(huge_pages.sys, "argv", ["train.py", "--config=lagam"])
    return calls, mode


def test_the_same_interpreter_gets_the_same_arguments_and_the_setting(restarts, monkeypatch):
    monkeypatch.setenv("SOMETHING", "else")
    huge_pages.restart()
    [(program, arguments, environment)] = restarts[0]
    assert program == sys.executable
    assert arguments == [sys.executable, "train.py", "--config=lagam"]
    assert environment["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    assert environment["SOMETHING"] == "else"


@pytest.mark.parametrize("version", ["glibc 2.35", "glibc 2.41", "glibc 3.0"])
def test_versions_that_know_the_setting(restarts, monkeypatch, version):
    monkeypatch.setattr(huge_pages.os, "confstr", lambda name: version)
    huge_pages.restart()
    assert restarts[0]


@pytest.mark.parametrize("version", ["glibc 2.34", "glibc 2.9", "", None])
def test_versions_that_do_not_know_it(restarts, monkeypatch, version):
    monkeypatch.setattr(huge_pages.os, "confstr", lambda name: version)
    huge_pages.restart()
    assert not restarts[0]


@pytest.mark.parametrize("error", [ValueError, OSError, AttributeError])
def test_systems_without_glibc(restarts, monkeypatch, error):
    def fail(name):
        raise error(name)

    monkeypatch.setattr(huge_pages.os, "confstr", fail)
    huge_pages.restart()
    assert not restarts[0]


@pytest.mark.parametrize("mode", ["[always] madvise never", "always madvise [never]", ""])
def test_a_kernel_that_gives_huge_pages_to_all_or_to_none(restarts, mode):
    restarts[1].write_text(mode)
    huge_pages.restart()
    assert not restarts[0]


def test_a_kernel_without_huge_pages(restarts):
    restarts[1].unlink()
    huge_pages.restart()
    assert not restarts[0]


def test_a_process_that_is_debugged_goes_on(restarts, monkeypatch):
    monkeypatch.setattr(huge_pages.sys, "gettrace", lambda: print)
    huge_pages.restart()
    assert not restarts[0]


def test_a_process_with_threads_goes_on(restarts, monkeypatch):
    monkeypatch.setattr(huge_pages.threading, "active_count", _ACTIVE_COUNT)
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    huge_pages.restart()
    is_over.set()
    thread.join()
    assert not restarts[0]


def test_an_embedded_interpreter_without_a_program_goes_on(restarts, monkeypatch):
    monkeypatch.setattr(huge_pages.sys, "executable", "")
    huge_pages.restart()
    assert not restarts[0]


def test_where_it_cannot_start_anew_it_goes_on(restarts, monkeypatch):
    def fail(*given):
        raise PermissionError("no")

    monkeypatch.setattr(huge_pages.os, "execve", fail)
    huge_pages.restart()


@pytest.mark.parametrize(
    ("command_line", "program", "module", "is_own"),
    [
        (["python", "-u", "train.py"], "train.py", None, True),
        (["python", "/bin/pujax", "train"], "/bin/pujax", None, True),
        (
            ["python", "-m", "pujax.sweep"],
            "/x/pujax/sweep/__main__.py",
            "pujax.sweep.__main__",
            True,
        ),
        (["python", "-m", "pujax.train"], "/x/pujax/train.py", "pujax.train", True),
        (["python", "-m", "cProfile", "train.py"], "train.py", None, True),
        (["python"], "train.py", None, False),  # `runpy.run_path` at a prompt
        (["python", "own.py"], "train.py", None, False),
        (["python", "-m", "pytest"], "/x/pujax/train.py", "pujax.train", False),
        (["python"], None, None, False),
    ],
)
def test_only_the_program_that_the_process_was_started_for_restarts(
    restarts, monkeypatch, command_line, program, module, is_own
):
    monkeypatch.setattr(sys, "orig_argv", command_line)
    monkeypatch.setattr(sys, "argv", [program] if program else [])
    spec = module and importlib.machinery.ModuleSpec(module, None)
    main = types.ModuleType("__main__")
    main.__spec__ = spec
    monkeypatch.setitem(sys.modules, "__main__", main)
    huge_pages.restart()
    assert bool(restarts[0]) == is_own


@pytest.fixture
def noted(monkeypatch):
    """Raises where a program would start anew."""

    def restart():
        raise _RestartedError

    monkeypatch.setattr(huge_pages, "restart", restart)


@pytest.mark.parametrize("command", ["train", "predict", "sweep"])
def test_commands_that_run_networks_restart_before_they_are_imported(noted, monkeypatch, command):
    monkeypatch.setattr(sys, "argv", ["pujax", command, "--config=none"])
    monkeypatch.setattr(commands.importlib, "import_module", lambda name: pytest.fail(name))
    with pytest.raises(_RestartedError):
        commands.main()


def test_a_call_inside_somebody_s_process_does_not_restart_it(noted, capsys):
    assert commands.main(["pujax", "train", "--config=none"]) == 2
    assert "none" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["methods"], ["train", "--help"], ["--version"]])
def test_what_runs_no_network_does_not_restart(noted, monkeypatch, words):
    monkeypatch.setattr(sys, "argv", ["pujax", *words])
    assert commands.main() == 0


def test_the_program_of_a_checkout_restarts(noted, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--help"])
    with pytest.raises(_RestartedError):
        runpy.run_path(str(REPOSITORY / "train.py"), run_name="__main__")


@pytest.mark.parametrize("module", ["pujax.sweep.__main__", "pujax.train", "pujax.predict"])
@pytest.mark.filterwarnings("ignore:.*found in sys.modules.*:RuntimeWarning")
def test_modules_that_are_run_restart(noted, monkeypatch, module):
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    with pytest.raises(_RestartedError):
        runpy.run_module(module, run_name="__main__")
