"""What every estimator returns, and what they share."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from pujax.meta.inner_loop import Carry


class Estimate(NamedTuple):
    """A meta-gradient and what was found on the way; None where an estimator has no such thing.

    Attributes:
        gradient: a tree like the meta-parameters.
        value: the outer loss; for `pes` its mean over the particles.
        carry: the inner problem after the steps at these meta-parameters.
        residual: of the linear system of the implicit estimators, relative to its right side.
        particles: the state of `pes` after this truncation.
    """

    gradient: chex.ArrayTree
    value: jax.Array | None = None
    carry: Carry | None = None
    residual: jax.Array | None = None
    particles: Any = None


def map_rows(
    function: Callable[[Any], Any], rows: chex.ArrayTree, chunk_size: int | None
) -> chex.ArrayTree:
    """`function` of every row of the arrays in `rows`, all at once or `chunk_size` at a time."""
    if chunk_size is None:
        return jax.vmap(function)(rows)
    return jax.lax.map(function, rows, batch_size=chunk_size)


def directions(tree: chex.ArrayTree) -> chex.ArrayTree:
    """All unit vectors of a tree: leaves `[n, ...]` for n numbers in all, in their order."""
    entries, treedef = jax.tree_util.tree_flatten(tree)
    sizes = [leaf.size for leaf in entries]
    total, before, rows = sum(sizes), 0, []
    for leaf, size in zip(entries, sizes, strict=True):
        unit = jnp.eye(total, size, k=-before, dtype=leaf.dtype)
        rows.append(unit.reshape(total, *leaf.shape))
        before += size
    return jax.tree_util.tree_unflatten(treedef, rows)


def from_directions(slopes: jax.Array, tree: chex.ArrayTree) -> chex.ArrayTree:
    """A tree of the slopes along `directions(tree)`, `[n]`."""
    entries, treedef = jax.tree_util.tree_flatten(tree)
    before, parts = 0, []
    for leaf in entries:
        part = slopes[before : before + leaf.size]
        parts.append(part.reshape(leaf.shape).astype(leaf.dtype))
        before += leaf.size
    return jax.tree_util.tree_unflatten(treedef, parts)
