"""A static share of the cells of a plan, which any scheduler can hand out."""

import re
from collections.abc import Sequence
from typing import NamedTuple


class Shard(NamedTuple):
    """Every `total`-th cell, from number `number` on.

    Attributes:
      number: from 0 to `total - 1`.
      total: how many shards share the cells.
    """

    number: int
    total: int

    def of(self, cells: Sequence[int]) -> tuple[int, ...]:
        """Those of the cells that are in the shard; all shards together have each cell once."""
        return tuple(cells[self.number :: self.total])


def parse(text: str) -> Shard:
    """A shard from `I/N`.

    Args:
      text: number of the shard from 0, and how many there are.

    Raises:
      ValueError: for another form, or a number that no shard has.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text, re.ASCII)
    shard = Shard(*map(int, found.groups())) if found else Shard(0, 0)
    if shard.number >= shard.total:
        last = f"{shard.total - 1}/{shard.total}" if shard.total else "3/4"
        raise ValueError(
            f"--shard is {text!r}; accepted: I/N with I from 0 to N - 1, the last being {last}"
        )
    return shard
