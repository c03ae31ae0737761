"""Imports the module of a method, and refuses in one line what cannot be one.

A file that is being written often cannot be imported yet. It is looked at when its method is asked
for, so that it stands in the way of no other one.
"""

import ast
import difflib
import functools
import importlib
import importlib.util
import os
import re
import traceback
from collections.abc import Iterable
from types import ModuleType
from typing import NoReturn

import ml_collections

from pujax import catalogue

_FUNCTIONS = ("default_config", "build")
_NEAR = 0.8
"""Similarity, as `difflib` has it, from which a constant is taken for a misspelt marker: a letter
left out or two in the wrong order are above 0.9, STAGES and STAGE_LENGTHS at 0.63."""


class UnusableMethod(ValueError):
    """There is no module of a method, or it cannot be imported, or it lacks what a method has."""


def load(name: str, path: str, markers: Iterable[str]) -> ModuleType:
    """Imports the module of a method.

    Args:
      name: of the method, as in `config.method.name`.
      path: dotted name of its module.
      markers: names in upper case that are read of it.

    Raises:
      UnusableMethod: in one line that names the module's file.
    """
    if name == path:  # outside of pujax
        _look(name, path)
    try:
        module = importlib.import_module(path)
    except (Exception, SystemExit) as error:  # whatever the code of a module raises
        _refuse_import(name, path, error)
    _check(module, name, tuple(markers))
    return module


def _look(name: str, path: str) -> None:
    """Refuses a file that has not what a method has before any line of it runs.

    A saved model of somebody else may name any module, and many do something when they run.
    """
    file = _source(path)
    if file is None:
        return
    try:
        with open(file, "rb") as source:
            nodes = list(ast.walk(ast.parse(source.read())))
    except (OSError, SyntaxError, ValueError):  # said where it is imported
        return
    bound = {x.name for x in nodes if isinstance(x, ast.FunctionDef | ast.ClassDef)}
    bound |= {x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    bound |= {x.asname or x.name for x in nodes if isinstance(x, ast.alias)}
    if "*" not in bound:
        _refuse_lacking(f"method.name is {name!r}, whose file {file}", set(_FUNCTIONS) - bound)


def _source(path: str) -> str | None:
    """The file of a module, found without importing its package; None where that is not seen."""
    for place in catalogue.module_places(path):
        for file in (f"{place}.py", os.path.join(place, "__init__.py")):
            if os.path.isfile(file):
                return file
    return None


def _refuse_lacking(subject: str, missing: Iterable[str]) -> None:
    missing = [x for x in _FUNCTIONS if x in missing]
    if missing:
        raise UnusableMethod(
            f"{subject} has no {' and no '.join(f'{x}()' for x in missing)}; accepted: one that "
            "defines default_config() and build(config, info)"
        )


def _refuse_import(name: str, path: str, error: BaseException) -> NoReturn:
    places = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in (__file__, importlib.__file__)
        and not frame.filename.startswith("<frozen importlib")
    ]
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if not places and isinstance(error, SyntaxError):
        places, text = [(error.filename or _file(path), error.lineno)], error.msg
    if not places and isinstance(error, ModuleNotFoundError):  # no line of any file has run
        raise UnusableMethod(
            f"method.name is {name!r}, which is no module ({text}); accepted: the name of a method "
            "of pujax, or of a module that Python can import, PACKAGE.MODULE"
        ) from error
    file, line = places[0] if places else (_file(path), None)
    where = f"line {line}: " if line else ""  # there is none of bytes that are no text
    raise UnusableMethod(
        f"method.name is {name!r}, whose file {file} cannot be imported ({where}{text}); "
        "accepted: a file that imports"
    ) from error


def _file(path: str) -> str:
    """The file of a module that is there; its name where the package that it is in fails."""
    try:
        spec = importlib.util.find_spec(path)
    except Exception:  # whatever the code of a package raises
        spec = None
    return spec.origin if spec and spec.origin else path


@functools.cache
def _check(module: ModuleType, name: str, markers: tuple[str, ...]) -> None:
    """Raises an `UnusableMethod` for a module that is not that of a method."""
    file = getattr(module, "__file__", None) or module.__name__
    subject = f"method.name is {name!r}, whose file {file}"
    _refuse_lacking(subject, [x for x in _FUNCTIONS if not callable(getattr(module, x, None))])
    for constant in _constants(file):
        near = difflib.get_close_matches(constant, markers, n=1, cutoff=_NEAR)
        if near and constant not in markers:
            raise UnusableMethod(
                f"{subject} has the constant {constant} (did you mean {near[0]}?); accepted: "
                f"{', '.join(markers)}, or a name that begins with an underscore"
            )
    try:
        section = module.default_config()
    except Exception as error:  # whatever the code of a module raises
        line = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise UnusableMethod(
            f"{subject} has a default_config() that raises {text} ({line.filename}, line "
            f"{line.lineno}); accepted: one that returns a ConfigDict"
        ) from error
    is_section = isinstance(section, ml_collections.ConfigDict)
    named = section.get("name") if is_section else section
    if named != name:
        what = "has the name" if is_section else "is"
        accepted = f"{name!r}" if is_section else f"a ConfigDict with the name {name!r}"
        raise UnusableMethod(
            f"{subject} has a default_config() that {what} {named!r}; accepted: {accepted}"
        )


def _constants(file: str) -> list[str]:
    """Names in upper case that a file gives a value, in their order; of no source none."""
    try:
        with open(file, "rb") as source:
            body = ast.parse(source.read()).body
    except (OSError, SyntaxError, ValueError):  # a compiled module, or one in an archive
        return []
    nodes = [x for x in body if isinstance(x, ast.Assign | ast.AnnAssign)]
    targets = [t for x in nodes for t in (x.targets if isinstance(x, ast.Assign) else [x.target])]
    names = [x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)]
    return [name for name in names if re.fullmatch("[A-Z][A-Z0-9_]*", name)]
