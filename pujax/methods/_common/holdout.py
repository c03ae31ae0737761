"""Labelled positives and unlabeled examples that a method holds out of its own training.

Two-sample data can repeat P in U. An example whose other copy trains is not held out: the network
would know it, and with the other label. So both copies stay out, but only what was drawn is a
sample of P and of U: the copies of drawn positives are too many positives for U.
"""

from typing import Any

import jax
import jax.numpy as jnp


def choose(
    key: jax.Array, labeled: jax.Array, *, num_positives: int, num_unlabeled: int
) -> jax.Array:
    """Draws a sample of P and of U to hold out.

    Args:
      key: random key.
      labeled: bool `[n]`, which examples are labelled positives.
      num_positives: how many of them to hold out.
      num_unlabeled: how many of the others.

    Returns:
      bool `[n]`, True where an example is drawn.
    """
    order = jax.random.uniform(key, labeled.shape)
    held = jnp.zeros(labeled.shape, bool)
    for group, count in ((labeled, num_positives), (~labeled, num_unlabeled)):
        first = jnp.argsort(jnp.where(group, order, jnp.inf))[:count]
        held = held.at[first].set(True)
    return held


def with_copies(drawn: jax.Array, copies: jax.Array | None) -> jax.Array:
    """The examples that stay out of training, bool `[n]`: those drawn and their copies.

    Args:
      drawn: bool `[n]`, see `choose`.
      copies: see `TrainingData`.
    """
    # A copy: a step gives the buffers of a state back, and may not do so twice.
    return jnp.copy(drawn) if copies is None else drawn | drawn[copies]


def share_of_all(share: Any, *, num_rest: int, num_copies: int) -> Any:
    """The share of positives in U, given that in what is left of it for training.

    What was drawn of U has the share of U. The copies of drawn positives are gone as well.

    Args:
      share: share of positives in the rest of U.
      num_rest: its size.
      num_copies: how many unlabeled examples are out because their copy was drawn, and for no
        other reason.
    """
    return (share * num_rest + num_copies) / (num_rest + num_copies)


def share_of_rest(share: Any, *, num_rest: int, num_copies: int) -> Any:
    """The inverse of `share_of_all`, at least 0."""
    return max((share * (num_rest + num_copies) - num_copies) / max(num_rest, 1), 0.0)


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
