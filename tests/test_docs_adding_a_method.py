"""docs/adding_a_method.md lists all that a method can have, as the code has it."""

import ast
import collections.abc
import pathlib
import re
import typing

import pytest

from pujax import methods

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs" / "adding_a_method.md").read_text()


def table(page, heading):
    """Rows of cells of the table whose first column has that heading."""
    body = re.search(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)[1]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines()]


def arguments(kind):
    """How many arguments a function of that type takes; None for what is no such function."""
    for part in (kind, *typing.get_args(kind)):
        if typing.get_origin(part) is collections.abc.Callable:
            given = typing.get_args(part)[0]
            return None if given is Ellipsis else len(given)
    return None


def wrong_parts(page):
    """Fields of `Method` and `Stage` that the page lacks, or whose arguments are others there."""
    kinds = {f"Stage.{k}": v for k, v in methods.Stage.__annotations__.items()}
    kinds |= methods.Method.__annotations__
    found, wrong = set(), []
    for parts, text, _ in table(page, "part"):
        names = re.findall(r"`([\w.]+)`", parts)
        found |= set(names)
        signatures = [x.partition(" -> ")[0] for x in re.findall(r"`([^`]* -> [^`]*)`", text)]
        for name, given in zip(names, signatures, strict=False):
            inside = re.fullmatch(r"\((.*)\)", given)
            number = len(inside[1].split(",")) if inside else 1
            if name in kinds and arguments(kinds[name]) not in (None, number):
                wrong.append(name)
    return sorted({*wrong, *(found ^ set(kinds))})


def wrong_markers(page):
    """Names that are on the page or are read of a module, but not both, or with another default."""
    rows = {name.strip("`"): (text, default) for name, text, default in table(page, "name")}
    wrong = [name for name, (text, default) in rows.items() if not (text and default)]
    read = {name: f"`{default!r}`" for name, default in methods.MARKERS.items()}
    for name, default in read.items():
        wrong += [name] * (rows.get(name, ("", ""))[1] != default)
    # Functions are looked for by name.
    tree = ast.parse(pathlib.Path(methods.__file__).read_text())
    calls = [x for x in ast.walk(tree) if isinstance(x, ast.Call)]
    looked = [x.args[1] for x in calls if getattr(x.func, "id", "") == "getattr"]
    functions = {x.value for x in looked if isinstance(x, ast.Constant)}
    shown = {name.partition("(")[0] for name in rows}
    return sorted({*wrong, *(shown ^ {*read, *functions})})


def test_every_part_of_a_method_and_of_a_stage_is_explained():
    assert wrong_parts(PAGE) == []


def test_the_method_that_it_shows_is_the_file():
    (name,) = re.findall(r"A whole one, [^`]*`(pujax/methods/\w+\.py)`:\n\n```python\n", PAGE)
    shown = re.search(rf"`{name}`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
    assert shown == (REPOSITORY / name).read_text()


def test_all_that_is_read_of_a_module_is_explained():
    assert wrong_markers(PAGE) == []


@pytest.mark.parametrize(
    ("there", "instead", "part"),
    [
        ("| `Stage.num_epochs` |", "| `Stage.epochs` |", ["Stage.epochs", "Stage.num_epochs"]),
        ("`(scores, population) -> scores`", "`scores -> scores`", ["adjust"]),
        ("`(state, batch, key) -> (state, metrics)`", "`(state, batch) -> state`", ["Stage.step"]),
    ],
)
def test_a_wrong_part_is_found(there, instead, part):
    assert there in PAGE
    assert wrong_parts(PAGE.replace(there, instead)) == part


@pytest.mark.parametrize(
    ("there", "instead", "names"),
    [
        ("| `STAGE_LENGTHS` |", "| `STAGE_LENGHTS` |", ["STAGE_LENGHTS", "STAGE_LENGTHS"]),
        ("| `'proxy_auc'` |", "| `'last'` |", ["SELECTION_WITHOUT_PRIOR"]),
        ("| `from_labels(section, labeled)` |", "| `of_labels()` |", ["from_labels", "of_labels"]),
    ],
)
def test_a_wrong_marker_is_found(there, instead, names):
    assert there in PAGE
    assert wrong_markers(PAGE.replace(there, instead)) == names
