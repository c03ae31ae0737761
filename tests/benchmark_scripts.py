"""Benchmarks as they are run: from the folder of their files, without the others' package."""

import importlib
import pathlib
import sys
import types

from absl import flags

_FOLDER = pathlib.Path(__file__).resolve().parents[1] / "benchmarks"


def imported(monkeypatch, name: str):
    """The module of `benchmarks/NAME.py`, which imports the files beside it by their names."""
    monkeypatch.syspath_prepend(_FOLDER)
    return importlib.import_module(name)


def with_flags(monkeypatch, name: str, **values):
    """The same of a script with flags of absl: `values`, else their defaults.

    The module is made anew and forgotten, and the flags are none of this process, where those of
    two scripts could not be defined.
    """

    def define(flag, default, *_, **__):
        return types.SimpleNamespace(value=values.get(flag, default))

    for kind in ("integer", "string", "list", "multi_string"):
        monkeypatch.setattr(flags, f"DEFINE_{kind}", define)
    module = imported(monkeypatch, name)
    del sys.modules[name]
    return module
