"""Labelled positives and unlabeled examples that a method holds out of its own training."""

import jax
import jax.numpy as jnp


def choose(
    key: jax.Array, labeled: jax.Array, *, num_positives: int, num_unlabeled: int
) -> jax.Array:
    """Draws the examples to hold out.

    Args:
      key: random key.
      labeled: bool `[n]`, which examples are labelled positives.
      num_positives: how many of them to hold out.
      num_unlabeled: how many of the others.

    Returns:
      bool `[n]`, True where an example is held out.
    """
    order = jax.random.uniform(key, labeled.shape)
    held = jnp.zeros(labeled.shape, bool)
    for group, count in ((labeled, num_positives), (~labeled, num_unlabeled)):
        first = jnp.argsort(jnp.where(group, order, jnp.inf))[:count]
        held = held.at[first].set(True)
    return held


def replacements(held: jax.Array, labeled: jax.Array) -> jax.Array:
    """Rows of a batch that stand in for those that are held out.

    A row that is held out gives way to one of the same group that is not, each in its turn, so that
    a batch keeps its shape and its numbers of P and U. The order of a batch is random, so that this
    favours no example. Where all of a group is held out its rows stay.

    Args:
      held: bool `[batch]`.
      labeled: `[batch]`, above 0 for labelled positives.

    Returns:
      int32 `[batch]`: which row of the batch to take in place of each.
    """
    rows = jnp.arange(held.shape[0])
    result = rows
    for group in (labeled > 0, labeled <= 0):
        kept, gone = group & ~held, group & held
        num_kept, turn = jnp.sum(kept), jnp.cumsum(gone) - 1
        kept_first = jnp.argsort(~kept, stable=True)
        stand_in = kept_first[turn % jnp.maximum(num_kept, 1)]
        result = jnp.where(gone & (num_kept > 0), stand_in, result)
    return result
