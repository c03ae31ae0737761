"""Resuming: unfinished seeds continue in the mode in which their checkpoints were made."""

import hashlib
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from pujax.files import read_json, write_json
from pujax.training import checkpoint

_GROUP = re.compile(r"together_(\d+(?:-\d+)*)$")
_LONG_GROUP = re.compile(r"together_\d+_seeds_[0-9a-f]{16}$")
_SEEDS = "seeds.json"
_LONGEST_NAME = 200
"""Bytes of a folder's name; file systems take 255."""


class Unfinished(NamedTuple):
    """How the unfinished seeds of a cell continue.

    Attributes:
      groups: folder and all seeds of every group that holds an unfinished one. A group has
        one checkpoint for all seeds, so its finished seeds, and seeds of an earlier call that this
        call does not ask for, still belong to it.
      alone: unfinished seeds with checkpoints of their own, of a group that they left too.
      new: unfinished seeds without any checkpoint.
    """

    groups: tuple[tuple[str, tuple[int, ...]], ...]
    alone: tuple[int, ...]
    new: tuple[int, ...]


def find(folder: str, unfinished: Sequence[int]) -> Unfinished:
    """Looks for checkpoints in the folder of a cell.

    Args:
      folder: of the cell.
      unfinished: its seeds without a summary.

    Raises:
      ValueError: if the file that lists the seeds of a group is not what was written.
    """
    alone = [seed for seed in unfinished if _has_checkpoint(seed_folder(folder, seed))]
    wanted = set(unfinished) - set(alone)
    groups: list[tuple[str, tuple[int, ...]]] = []
    taken: set[int] = set()
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    candidates = [(name, seeds) for name in names if (seeds := _group_seeds(folder, name))]
    # A seed that belongs to two groups continues in the larger one.
    for name, seeds in sorted(candidates, key=lambda candidate: -len(candidate[1])):
        path = os.path.join(folder, name)
        is_wanted = bool(set(seeds) & wanted) and not set(seeds) & taken
        if is_wanted and _has_checkpoint(path):
            groups.append((path, seeds))
            taken |= set(seeds)
    new = [seed for seed in unfinished if seed in wanted - taken]
    return Unfinished(tuple(groups), tuple(alone), tuple(new))


def seed_folder(folder: str, seed: int) -> str:
    """Folder of a seed's results inside that of its cell."""
    return os.path.join(folder, f"seed_{seed}")


def group_folder(folder: str, seeds: Sequence[int]) -> str:
    """Folder of a group's checkpoints inside that of its cell.

    Its name lists the seeds; of so many that it would be too long, a file in the folder does.
    """
    listed = "-".join(map(str, seeds))
    name = f"together_{listed}"
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(listed.encode()).hexdigest()[:16]
        name = f"together_{len(seeds)}_seeds_{digest}"
    return os.path.join(folder, name)


def make_group_folder(folder: str, seeds: Sequence[int]) -> str:
    """`group_folder`, with the file that lists the seeds if its name does not."""
    path = group_folder(folder, seeds)
    if _LONG_GROUP.match(os.path.basename(path)):
        os.makedirs(path, exist_ok=True)
        write_json(os.path.join(path, _SEEDS), {"seeds": list(seeds)})
    return path


def _group_seeds(folder: str, name: str) -> tuple[int, ...]:
    """The seeds of the group whose folder has this name; none for other folders."""
    match = _GROUP.match(name)
    if match:
        return tuple(map(int, match[1].split("-")))
    path = os.path.join(folder, name, _SEEDS)
    is_group = _LONG_GROUP.match(name) and os.path.exists(path)
    if not is_group:
        return ()
    seeds = read_json(path).get("seeds")
    if not isinstance(seeds, list) or not seeds or {type(seed) for seed in seeds} != {int}:
        raise ValueError(
            f"{path} is damaged (its seeds are {seeds!r}, no list of integers); accepted: the file "
            "as written"
        )
    return tuple(seeds)


def _has_checkpoint(folder: str) -> bool:
    """Whether a folder of a run or a group has a checkpoint."""
    return checkpoint.exists(os.path.join(folder, "checkpoints"))
