"""Which tests are of the fast tier, and which of them run on the same worker."""

import pathlib
import re

LIST = pathlib.Path(__file__).with_name("not_fast.txt")
REPOSITORY = LIST.parents[1]

# Seconds. Four fifths of all tests are faster, and all of those together fit the daily loop.
LIMIT = 0.8


def function_of(nodeid: str) -> str:
    """A test without its parameters: 'test_x.py::test_y' of 'test_x.py::test_y[1]'."""
    return nodeid.partition("[")[0]


def listed() -> set[str]:
    """Test functions of which some case took longer than `LIMIT` when they were last timed."""
    return set(LIST.read_text().split())


def is_fast(nodeid: str, markers: set[str], slower: set[str]) -> bool:
    """Whether a test belongs to the fast tier: neither marked for a later one nor timed as long."""
    return not markers & {"thorough", "slow"} and function_of(nodeid) not in slower


def record(seconds: dict[str, float]) -> None:
    """Writes the list anew for the tests that ran; others stay as they were, if they still exist.

    Args:
      seconds: by nodeid, setup included.
    """
    slower = {function_of(nodeid) for nodeid, duration in seconds.items() if duration > LIMIT}
    slower |= listed() - {function_of(nodeid) for nodeid in seconds}
    LIST.write_text("".join(f"{name}\n" for name in sorted(slower) if exists(name)))


def exists(function: str) -> bool:
    """Whether a test function is still in its file."""
    file, _, name = function.partition("::")
    path = REPOSITORY / file
    return path.is_file() and re.search(rf"^def {name}\(", path.read_text(), re.M) is not None


def group_of(nodeid: str) -> str:
    """Tests that share what they compute run on one worker: a file's, or in contract a method's."""
    file, _, test = nodeid.partition("::")
    case = re.search(r"\[(\w+)", test) if file.startswith("tests/contract/") else None
    return f"{file}[{case[1]}]" if case else file
