"""A tree of arrays as one vector per number type: what is done to every leaf is one operation.

The update of the parameters, the check that all numbers are finite and the undo of a step are
several kernels for each of a hundred leaves; over one vector they are a few.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Packed(NamedTuple):
    """A tree without its structure.

    Attributes:
      vectors: name of a floating-point type to `[..., numbers]`, all leaves of that type one after
        another.
      others: the leaves of other types, in order.
    """

    vectors: dict[str, jax.Array]
    others: list[jax.Array]


def pack(tree: Any, *, num_axes: int = 0) -> Packed:
    """All floating-point leaves of a tree in vectors.

    Args:
      tree: arrays, all with the same first `num_axes` axes.
      num_axes: how many first axes stay, a seed axis say.
    """
    parts: dict[str, list[jax.Array]] = {}
    others = []
    for leaf in jax.tree.leaves(tree):
        if _is_floating(leaf):
            row = leaf.reshape(*leaf.shape[:num_axes], -1)
            parts.setdefault(leaf.dtype.name, []).append(row)
        else:
            others.append(leaf)
    vectors = {name: jnp.concatenate(rows, axis=-1) for name, rows in parts.items()}
    return Packed(vectors, others)


def unpack(packed: Packed, like: Any, *, num_axes: int = 0) -> Any:
    """The tree that `pack` was given.

    Args:
      packed: its vectors.
      like: a tree of the same structure, shapes and types, or `jax.ShapeDtypeStruct`s of them.
      num_axes: as in `pack`.
    """
    leaves, structure = jax.tree.flatten(like)
    others, start = iter(packed.others), dict.fromkeys(packed.vectors, 0)
    found = []
    for leaf in leaves:
        if not _is_floating(leaf):
            found.append(next(others))
            continue
        name, size = leaf.dtype.name, math.prod(leaf.shape[num_axes:])
        end = start[name] + size
        part = jax.lax.slice_in_dim(packed.vectors[name], start[name], end, axis=num_axes)
        found.append(part.reshape(leaf.shape))
        start[name] = end
    return jax.tree.unflatten(structure, found)


def choose(condition: jax.Array, first: Any, second: Any, *, packed: bool) -> Any:
    """`first` where a scalar condition holds, else `second`.

    Args:
      condition: bool scalar.
      first: a tree.
      second: a tree of the same structure, shapes and types.
      packed: whether the choice is made on vectors of all leaves.
    """

    def of_leaf(a, b):
        return jnp.where(condition, a, b)

    if not packed:
        return jax.tree.map(of_leaf, first, second)
    return unpack(jax.tree.map(of_leaf, pack(first), pack(second)), first)


def _is_floating(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)
