"""What earlier calls have begun: seeds go on in the mode that their checkpoints were made in."""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

_GROUP = re.compile(r"together_(\d+(?:-\d+)*)$")


class Begun(NamedTuple):
    """How the unfinished seeds of a cell go on.

    Attributes:
      groups: folder and all seeds of every group that holds an unfinished one. A group saves as
        one, so its finished seeds, and those of an earlier call that nobody asks for now, belong to
        it still.
      alone: unfinished seeds with checkpoints of their own, of a group that they left too.
      free: unfinished seeds without any.
    """

    groups: tuple[tuple[str, tuple[int, ...]], ...]
    alone: tuple[int, ...]
    free: tuple[int, ...]


def find(folder: str, unfinished: Sequence[int]) -> Begun:
    """Looks for checkpoints in the folder of a cell.

    Args:
      folder: of the cell.
      unfinished: its seeds without a summary.
    """
    alone = [seed for seed in unfinished if _has_checkpoint(seed_folder(folder, seed))]
    wanted = set(unfinished) - set(alone)
    groups, taken = [], set()
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [(name, _seeds(name)) for name in names if _GROUP.match(name)]
    # Where two groups want the same seed, the larger has it.
    for name, seeds in sorted(found, key=lambda each: -len(each[1])):
        path = os.path.join(folder, name)
        is_wanted = bool(set(seeds) & wanted) and not set(seeds) & taken
        if is_wanted and _has_checkpoint(path):
            groups.append((path, seeds))
            taken |= set(seeds)
    free = [seed for seed in unfinished if seed in wanted - taken]
    return Begun(tuple(groups), tuple(alone), tuple(free))


def seed_folder(folder: str, seed: int) -> str:
    """Folder of a seed's results inside that of its cell."""
    return os.path.join(folder, f"seed_{seed}")


def group_folder(folder: str, seeds: Sequence[int]) -> str:
    """Folder of a group's checkpoints inside that of its cell; its name says who belongs to it."""
    return os.path.join(folder, f"together_{'-'.join(map(str, seeds))}")


def _seeds(name: str) -> tuple[int, ...]:
    return tuple(map(int, _GROUP.match(name)[1].split("-")))


def _has_checkpoint(folder: str) -> bool:
    """Whether a folder of a run or a group has a checkpoint; unfinished ones have other names."""
    inside = os.path.join(folder, "checkpoints")
    return os.path.isdir(inside) and any(name.isdigit() for name in os.listdir(inside))
