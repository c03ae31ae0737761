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


def slopes_along_units(
    slope: Callable[[chex.ArrayTree], jax.Array], tree: chex.ArrayTree, chunk_size: int | None
) -> chex.ArrayTree:
    """A tree of the slopes along all unit vectors of `tree`, `chunk_size` of them at a time.

    Args:
      slope: of a direction, a tree like `tree`, to a scalar.
      tree: of arrays, n numbers in all.
      chunk_size: how many there are at once, each as large as the tree; None for all.
    """
    total = sum(leaf.size for leaf in jax.tree_util.tree_leaves(tree))
    slopes = map_rows(lambda index: slope(_unit(tree, index)), jnp.arange(total), chunk_size)
    return from_directions(slopes, tree)


def _unit(tree: chex.ArrayTree, index: jax.Array) -> chex.ArrayTree:
    """The unit vector of the number at `index`, counted through all leaves in their order."""
    entries, treedef = jax.tree_util.tree_flatten(tree)
    before, units = 0, []
    for leaf in entries:
        unit = jnp.arange(before, before + leaf.size) == index
        # Of the leaf, so that inside of `jax.shard_map` it varies over the axes that the leaf does.
        ones, zeros = jnp.ones_like(leaf), jnp.zeros_like(leaf)
        units.append(jnp.where(unit.reshape(leaf.shape), ones, zeros))
        before += leaf.size
    return jax.tree_util.tree_unflatten(treedef, units)


def from_directions(slopes: jax.Array, tree: chex.ArrayTree) -> chex.ArrayTree:
    """A tree of the slopes `[n]` along the unit vectors of its numbers, in their order."""
    entries, treedef = jax.tree_util.tree_flatten(tree)
    before, parts = 0, []
    for leaf in entries:
        part = slopes[before : before + leaf.size]
        parts.append(part.reshape(leaf.shape).astype(leaf.dtype))
        before += leaf.size
    return jax.tree_util.tree_unflatten(treedef, parts)
