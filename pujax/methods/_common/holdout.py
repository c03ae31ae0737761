"""Labelled positives and unlabeled examples that a method holds out of its own training.

Two-sample data can repeat P in U. An example whose other copy trains is not held out: the network
would know it, and with the other label. So both copies stay out, and of U as large a share as of P,
so that what is held out of U and what is left of it have the share of positives of U.
"""

import jax
import jax.numpy as jnp

from pujax.data.pu_dataset import DataInfo


def num_unlabeled(
    num_positives: int, usual: int, *, info: DataInfo, copies: jax.Array | None
) -> int:
    """How many of U are held out.

    Args:
      num_positives: how many of P.
      usual: how many of U where it does not repeat P.
      info: numbers of the data set.
      copies: see `TrainingData`.
    """
    if copies is None:
        return usual
    return num_positives + round(num_positives / info.n_p * (info.n_u - info.n_p))


def choose(
    key: jax.Array,
    labeled: jax.Array,
    *,
    num_positives: int,
    num_unlabeled: int,
    copies: jax.Array | None = None,
) -> jax.Array:
    """Draws the examples to hold out.

    Args:
      key: random key.
      labeled: bool `[n]`, which examples are labelled positives.
      num_positives: how many of them to hold out.
      num_unlabeled: how many of the others; where U repeats P, the copies of these positives are
        among them, see `num_unlabeled`.
      copies: see `TrainingData`.

    Returns:
      bool `[n]`, True where an example is held out.
    """
    order = jax.random.uniform(key, labeled.shape)
    held, unlabeled = jnp.zeros(labeled.shape, bool), ~labeled
    if copies is not None:
        unlabeled &= copies == jnp.arange(len(copies))
        num_unlabeled -= num_positives
    for group, count in ((labeled, num_positives), (unlabeled, num_unlabeled)):
        first = jnp.argsort(jnp.where(group, order, jnp.inf))[:count]
        held = held.at[first].set(True)
    return held if copies is None else held | held[copies]


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
