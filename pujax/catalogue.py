"""What there is to choose from, read from the files without importing any of them.

A help text has to be there at once, and importing one method imports JAX.
"""

import ast
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

_METHODS = pathlib.Path(__file__).resolve().parent / "methods"


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
    def kind(self) -> str:
        """The last three in words; an oracle has negatives in any case."""
        needs = "oracle" if self.is_oracle else "needs negatives" if self.needs_negatives else ""
        return f"{self.labels}, {needs}" if needs else self.labels


def methods() -> tuple[Entry, ...]:
    """All methods, in alphabetical order, as `pujax.methods.names` has them."""
    found = {path.stem: path for path in _METHODS.glob("*.py")}
    found |= {path.parent.name: path for path in _METHODS.glob("*/__init__.py")}
    names = sorted(name for name in found if name != "base" and not name.startswith("_"))
    return tuple(_entry(name, found[name]) for name in names)


def _entry(name: str, path: pathlib.Path) -> Entry:
    module = ast.parse(path.read_text(encoding="utf-8"))
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
        "several labels" if marks.get("MULTILABEL") else "one label",
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
