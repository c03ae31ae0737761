"""What there is to choose from, read from the files without importing any of them.

A help text has to be there at once, and importing one method imports JAX.
"""

import ast
import functools
import importlib.util
import os
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

_METHODS = pathlib.Path(__file__).resolve().parent / "methods"
_SEVERAL = "several labels"


class Entry(NamedTuple):
    """A method in one line.

    Attributes:
      name: as in `config.method.name`.
      summary: first line of its module's docstring.
      labels: 'one label' or 'several labels', per example.
      needs_negatives: whether it needs examples that are known to be negative.
      is_oracle: whether it trains on labels that are hidden from the others.
    """

    name: str
    summary: str
    labels: str
    needs_negatives: bool
    is_oracle: bool

    @property
    def is_multilabel(self) -> bool:
        """Whether it is for several labels per example."""
        return self.labels == _SEVERAL

    @property
    def kind(self) -> str:
        """The last three in words; an oracle has negatives in any case."""
        needs = "oracle" if self.is_oracle else "needs negatives" if self.needs_negatives else ""
        return f"{self.labels}, {needs}" if needs else self.labels


def methods() -> tuple[Entry, ...]:
    """All methods whose file can be read, in alphabetical order."""
    return tuple(entry(name, path) for name, path in _files().items() if not _fault(path))


def module_places(name: str) -> list[str]:
    """Where Python would look for a module, without endings; nothing is imported.

    Args:
      name: of the module, with dots.
    """
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return []
    places = (spec and spec.submodule_search_locations) or ()
    return [os.path.join(place, *rest) for place in places]


def unreadable() -> str:
    """One line that names the files of methods that `methods` leaves out; '' where there is none.

    A file that is being written is no Python at times, and says so when its method is asked for.
    """
    faults = [f"{path} ({_fault(path)})" for path in _files().values() if _fault(path)]
    return f"Left out, which cannot be read: {', '.join(faults)}" if faults else ""


def _files() -> dict[str, pathlib.Path]:
    """Files of the methods by name, in alphabetical order, as `pujax.methods.names` has them."""
    found = {path.stem: path for path in _METHODS.glob("*.py")}
    found |= {path.parent.name: path for path in _METHODS.glob("*/__init__.py")}
    names = sorted(name for name in found if name != "base" and not name.startswith("_"))
    return {name: found[name] for name in names}


@functools.cache
def _fault(path: pathlib.Path) -> str:
    """Why a file cannot be read, in a few words; '' where it can."""
    try:
        _tree(path)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    except (OSError, ValueError) as error:
        return " ".join(str(error).split())
    return ""


@functools.cache
def _tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def entry(name: str, path: pathlib.Path) -> Entry:
    """What the file of a method says of it.

    Args:
      name: of the method.
      path: of its file, which can be read.
    """
    module = _tree(path)
    marks = {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return Entry(
        name,
        _first_line(module),
        _SEVERAL if marks.get("MULTILABEL") else "one label",
        bool(marks.get("NEEDS_NEGATIVES")),
        bool(marks.get("ORACLE")),
    )


def summary(path: pathlib.Path) -> str:
    """First line of the docstring of a Python file, '' where it has none."""
    return _first_line(ast.parse(path.read_text(encoding="utf-8")))


def _first_line(module: ast.Module) -> str:
    return (ast.get_docstring(module) or "").partition("\n")[0]


def lines(pairs: Iterable[tuple[str, str]], indent: int = 2) -> str:
    """Names and what they are, below one another in two columns, without a newline at the end."""
    pairs = list(pairs)
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"{' ' * indent}{name:<{width}}  {text}".rstrip() for name, text in pairs)
