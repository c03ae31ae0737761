"""Which tests are of the fast tier, and which of them run on the same worker."""

import collections
import pathlib
import re
import zlib

LIST = pathlib.Path(__file__).with_name("not_fast.txt")
REPOSITORY = LIST.parents[1]

# Seconds. Four fifths of the tests of CI are faster, and all of those together fit the daily loop.
LIMIT = 0.22


def function_of(nodeid: str) -> str:
    """A test without its parameters: 'test_x.py::test_y' of 'test_x.py::test_y[1]'."""
    return nodeid.partition("[")[0]


def listed() -> set[str]:
    """What took longer than `LIMIT` when it was last timed: single cases, or functions whole."""
    return set(LIST.read_text().splitlines())


def is_fast(nodeid: str, markers: set[str], slower: set[str]) -> bool:
    """Whether a test belongs to the fast tier: neither marked for a later one nor timed as long."""
    return not markers & {"thorough", "slow", "aot"} and not {nodeid, function_of(nodeid)} & slower


def record(seconds: dict[str, float]) -> None:
    """Writes the list anew for the functions that ran; others stay as they were, if they exist.

    Args:
      seconds: by nodeid, setup included.
    """
    cases: dict[str, list[str]] = {}
    for nodeid in seconds:
        cases.setdefault(function_of(nodeid), []).append(nodeid)
    slower = {line for line in listed() if function_of(line) not in cases}
    for function, nodeids in cases.items():
        long = [nodeid for nodeid in nodeids if seconds[nodeid] > LIMIT]
        slower.update([function] if len(long) == len(nodeids) else long)
    kept = sorted(line for line in slower if exists(line))
    LIST.write_text("".join(f"{line}\n" for line in kept))


def divided(
    own: dict[str, float], shared: dict[str, float], uses: dict[str, list[str]]
) -> dict[str, float]:
    """Seconds of every test, with its part of those of the fixtures that it shares with others.

    A fixture is set up within the first of its tests: without that one, the next would pay for it.
    It is divided among those that take no longer than `LIMIT` with their part: the others do not
    run in the fast tier.

    Args:
      own: by nodeid, without fixtures that are shared.
      shared: by fixture.
      uses: names of fixtures by nodeid.
    """
    found: dict[str, float] = {}
    left = dict(own)
    while left:
        users = collections.Counter(name for nodeid in left for name in uses.get(nodeid, ()))
        whole = {
            nodeid: seconds
            + sum(shared.get(name, 0.0) / users[name] for name in uses.get(nodeid, ()))
            for nodeid, seconds in left.items()
        }
        found |= whole
        stays = {nodeid: own[nodeid] for nodeid, seconds in whole.items() if seconds <= LIMIT}
        if len(stays) == len(left):
            break
        left = stays
    return found


def exists(nodeid: str) -> bool:
    """Whether a test's function is still in its file."""
    file, _, name = function_of(nodeid).partition("::")
    path = REPOSITORY / file
    return path.is_file() and re.search(rf"^def {name}\(", path.read_text(), re.M) is not None


def group_of(nodeid: str) -> str:
    """Tests that share what they compute run on one worker: a file's, or in contract a method's."""
    file, _, test = nodeid.partition("::")
    case = re.search(r"\[(\w+)", test) if file.startswith("tests/contract/") else None
    return f"{file}[{case[1]}]" if case else file


def is_in_part(nodeid: str, part: str) -> bool:
    """Whether a test belongs to one of several parts of about the same size.

    Groups stay whole (`group_of`), and a new one moves none of the others.

    Args:
      nodeid: the test.
      part: 'K/N', of N parts the one with number K, counted from 1; '' is all.

    Raises:
      ValueError: for any other text.
    """
    if not part:
        return True
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", part)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(f"part is {part!r}; accepted: K/N with whole numbers, 1 <= K <= N")
    return zlib.crc32(group_of(nodeid).encode()) % int(found[2]) == int(found[1]) - 1
