"""Trees of arrays: which leaves of the inner parameters move, and the names of leaves."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from pujax import checks
from pujax.arrays import full_precision

KeyPath = tuple[Any, ...]
_NO_NUMBERS = tuple("OSUMm")
"""Kinds of NumPy's arrays that JAX has not: objects, words, dates and times."""


def shapes(tree: chex.ArrayTree) -> tuple[Any, list[tuple[int, ...]]]:
    """How a tree is built, and the shapes of its leaves."""
    entries, treedef = jax.tree_util.tree_flatten(tree)
    return treedef, [jnp.shape(leaf) for leaf in entries]


def split(
    params: chex.ArrayTree, trainable: Callable[[KeyPath], bool] | None
) -> tuple[chex.ArrayTree, Callable[[chex.ArrayTree], chex.ArrayTree]]:
    """The leaves that move, and a function that puts moved leaves back among the others.

    Args:
      params: any pytree of arrays.
      trainable: takes the key path of a leaf and tells whether it moves; None moves all. Leaves
        of integers or booleans never move.

    Returns:
      `(moving, join)`. `moving` has the structure of `params` with None in place of leaves that
      stay, and leaves of at least float32; `join(moving)` is a tree like `params`, whose other
      leaves are the same objects.

    Raises:
      ValueError: if no leaf moves, a leaf is no array of numbers, or `trainable` is no function.
    """
    check_arrays("params", params)
    accepted = "a function of a leaf's path, or None for all leaves"
    checks.require(trainable is None or callable(trainable), "trainable", trainable, accepted)
    entries, treedef = jax.tree_util.tree_flatten_with_path(params)
    leaves = [leaf for _, leaf in entries]
    moves = [is_floating(leaf) and (trainable is None or trainable(path)) for path, leaf in entries]
    if not any(moves):
        paths = [jax.tree_util.keystr(path) for path, leaf in entries if is_floating(leaf)]
        raise ValueError(
            f"trainable selects no floating-point leaf of params; their paths are {paths}"
        )

    def join(moving: chex.ArrayTree) -> chex.ArrayTree:
        moved = iter(jax.tree_util.tree_leaves(moving))
        joined = [next(moved) if m else leaf for m, leaf in zip(moves, leaves, strict=True)]
        return jax.tree_util.tree_unflatten(treedef, joined)

    kept = [full_precision(leaf) if m else None for m, leaf in zip(moves, leaves, strict=True)]
    return jax.tree_util.tree_unflatten(treedef, kept), join


def descend(
    moving: chex.ArrayTree, slopes: chex.ArrayTree, rate: float | jax.Array
) -> chex.ArrayTree:
    """The leaves after one step against their slopes, of the types that they had.

    A step size of a wider type would change them, and a loop over steps has one type.
    """
    return jax.tree_util.tree_map(lambda w, s: (w - rate * s).astype(w.dtype), moving, slopes)


def check_arrays(name: str, tree: chex.ArrayTree) -> None:
    """Requires leaves that JAX takes: arrays of numbers or keys, traced or not, and numbers."""
    for path, leaf in named(tree):
        is_array = isinstance(
            leaf, jax.Array | np.ndarray | np.generic | bool | int | float | complex
        )
        is_array = is_array or hasattr(leaf, "__jax_array__")
        found = type(leaf).__name__
        if is_array and getattr(getattr(leaf, "dtype", None), "kind", "") in _NO_NUMBERS:
            is_array, found = False, f"{found} of {leaf.dtype}"
        checks.require(is_array, f"the type of {name}{path}", found, "an array of numbers")


def is_floating(leaf: Any) -> bool:
    """Whether a leaf holds floating-point numbers."""
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def named(tree: chex.ArrayTree) -> list[tuple[str, Any]]:
    """The leaves of a tree with their names, such as `['head']['kernel']`."""
    entries, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in entries]


def stop(tree: chex.ArrayTree) -> chex.ArrayTree:
    """The tree as a constant of every derivative; leaves that have none, such as keys, pass."""
    return jax.tree_util.tree_map(
        lambda leaf: jax.lax.stop_gradient(leaf) if is_floating(leaf) else leaf, tree
    )


def dot(first: chex.ArrayTree, second: chex.ArrayTree) -> jax.Array:
    """Inner product of two trees of one structure, in at least float32."""
    pairs = zip(jax.tree_util.tree_leaves(first), jax.tree_util.tree_leaves(second), strict=True)
    return sum((jnp.sum(a * b) for a, b in pairs), start=jnp.zeros([]))


def like(new: Any, old: Any) -> Any:
    """`new` in the type of `old`; keys have but one."""
    return new.astype(jnp.result_type(old)) if is_floating(old) else new
