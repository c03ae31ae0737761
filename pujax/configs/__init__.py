"""The configurations that pujax has: they can be imported, and are found by their names.

They are written in the repository's folder `configs/`, one Python file per experiment, and plans of
sweeps in `configs/sweeps/`. A wheel holds the same files beside this one (see `setup.py`). Wherever
they are, they are the modules `pujax.configs.NAME` and import each other by that name, so that what
`configs` means to another program does not matter.
"""

import os
import pathlib
import re
import traceback

_HERE = pathlib.Path(__file__).resolve().parent
_SHARED = "common"  # what all files share, and no configuration
FOLDER = _HERE if (_HERE / f"{_SHARED}.py").is_file() else _HERE.parents[1] / "configs"
"""Where the configurations are: beside this file in a wheel, else in the checkout."""
__path__ = [str(FOLDER)]


def files() -> dict[str, pathlib.Path]:
    """Files of the configurations by name, in alphabetical order."""
    return _files_in(FOLDER)


def plans() -> dict[str, pathlib.Path]:
    """Files of the plans of sweeps by name, in alphabetical order."""
    return _files_in(FOLDER / "sweeps")


def _files_in(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    paths = sorted(folder.glob("*.py"))
    return {path.stem: path for path in paths if path.stem not in (_SHARED, "__init__")}


def find(text: str, flag: str = "--config") -> str:
    """The file that a flag names, which may be one of pujax by its name alone.

    Args:
      text: `NAME`, `NAME:ARGUMENT`, or the path of a file with or without an argument.
      flag: '--plan' looks among the plans of sweeps, any other among the configurations.

    Returns:
      `FILE` or `FILE:ARGUMENT`. A path, and the name of a file in the current folder, stay as they
      are.

    Raises:
      ValueError: for a name that is neither a file nor one of pujax.
    """
    name, colon, argument = text.partition(":")
    if not re.fullmatch(r"[\w-]+", name) or os.path.isfile(name):
        return text
    own = plans() if flag == "--plan" else files()
    if name not in own:
        raise ValueError(f"{flag} is {name!r}; accepted: {accepted(flag)}")
    return f"{own[name]}{colon}{argument}"


RETURNS_ONE = "whose get_config takes a string and returns a configuration, as those of configs/"
"""What is accepted of a user's file, to follow 'a file'."""


def failure(flag: str, text: str, error: Exception, what: str) -> ValueError:
    """The error to raise of a user's file in which Python raised another one.

    Args:
      flag: that named the file.
      text: what it was given.
      error: what was raised, with its traceback.
      what: what is accepted, to follow 'a file'.
    """
    frames = traceback.extract_tb(error.__traceback__)
    path = os.path.abspath(text.partition(":")[0])
    own = [frame for frame in frames if os.path.abspath(frame.filename) == path]
    where = (own or frames)[-1]
    reason = " ".join(str(error).split())
    said = f"{type(error).__name__}: {reason} ({where.filename}, line {where.lineno})"
    return ValueError(f"{flag}={text} raised {said}; accepted: a file {what}")


def accepted(flag: str = "--config") -> str:
    """What `find` accepts, for messages."""
    names = ", ".join(plans() if flag == "--plan" else files())
    return f"the path of a Python file as in configs/, or one of pujax by its name: {names}"
