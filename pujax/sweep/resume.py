"""Resuming: unfinished seeds continue in the mode in which their checkpoints were made."""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from pujax.training import checkpoint

_GROUP = re.compile(r"together_(\d+(?:-\d+)*)$")


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
    """
    alone = [seed for seed in unfinished if _has_checkpoint(seed_folder(folder, seed))]
    wanted = set(unfinished) - set(alone)
    groups: list[tuple[str, tuple[int, ...]]] = []
    taken: set[int] = set()
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    candidates = [(name, seeds) for name in names if (seeds := _group_seeds(name))]
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
    """Folder of a group's checkpoints inside that of its cell; its name lists the seeds."""
    return os.path.join(folder, f"together_{'-'.join(map(str, seeds))}")


def _group_seeds(name: str) -> tuple[int, ...]:
    """The seeds of the group whose folder has this name; none for other folders."""
    match = _GROUP.match(name)
    return tuple(map(int, match[1].split("-"))) if match else ()


def _has_checkpoint(folder: str) -> bool:
    """Whether a folder of a run or a group has a checkpoint."""
    return checkpoint.exists(os.path.join(folder, "checkpoints"))
