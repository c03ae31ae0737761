"""Benchmarks as they are run: from the folder of their files, without the others' package."""

import importlib
import pathlib

_FOLDER = pathlib.Path(__file__).resolve().parents[1] / "benchmarks"


def imported(monkeypatch, name: str):
    """The module of `benchmarks/NAME.py`, which imports the files beside it by their names."""
    monkeypatch.syspath_prepend(_FOLDER)
    return importlib.import_module(name)
