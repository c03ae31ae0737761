"""A support set without clean examples: known positives, and low-scored unlabeled ones.

No true label is looked at. The price is that the lowest-scored examples are the easy negatives: few
of them say nothing about the boundary, many of them hold hidden positives.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pujax.data.pu_dataset import TrainingData


class PseudoSupport(NamedTuple):
    """The support set of an epoch, raw inputs.

    Attributes:
      positives: `[p, ...]`, labelled positives.
      negatives: `[m, ...]`, unlabeled examples out of the lowest-scored.
    """

    positives: jax.Array
    negatives: jax.Array


def empty(data: TrainingData, *, num_positives: int, num_negatives: int) -> PseudoSupport:
    """Zeros of the shapes that `choose` gives, for a state before the first choice."""
    shape, kind = data.inputs.shape[1:], data.inputs.dtype
    return PseudoSupport(
        jnp.zeros([num_positives, *shape], kind), jnp.zeros([num_negatives, *shape], kind)
    )


def choose(
    data: TrainingData,
    scores: jax.Array,
    key: jax.Array,
    *,
    num_low: int,
    num_positives: int,
    num_negatives: int,
) -> PseudoSupport:
    """The support set for the scores of all training examples.

    Args:
      data: what the method trains on.
      scores: `[n]`, of the training examples.
      key: draws both classes, without replacement.
      num_low: how many of the lowest-scored unlabeled examples negatives are drawn from.
      num_positives: p, at most the labelled positives.
      num_negatives: m, at most `num_low`.

    Returns:
      A `PseudoSupport`.
    """
    counts = {"num_low": num_low, "num_positives": num_positives, "num_negatives": num_negatives}
    positives, negatives = _rows(scores, data.labeled, key, **counts)
    return PseudoSupport(data.inputs[positives], data.inputs[negatives])


@functools.partial(jax.jit, static_argnames=("num_low", "num_positives", "num_negatives"))
def _rows(
    scores: jax.Array,
    labeled: jax.Array,
    key: jax.Array,
    *,
    num_low: int,
    num_positives: int,
    num_negatives: int,
) -> tuple[jax.Array, jax.Array]:
    """Rows of the positives and of the negatives."""
    positive_key, negative_key = jax.random.split(key)
    order = jnp.where(labeled, jax.random.uniform(positive_key, labeled.shape), -1.0)
    positives = jax.lax.top_k(order, num_positives)[1]
    low = jax.lax.top_k(jnp.where(labeled, -jnp.inf, -scores), num_low)[1]
    return positives, jax.random.permutation(negative_key, low)[:num_negatives]


def draw(support: PseudoSupport, key: jax.Array, *, size: int) -> tuple[jax.Array, jax.Array]:
    """A support batch, half positives and half negatives, each without replacement.

    Args:
      support: the support set.
      key: draws the rows.
      size: examples of the batch. A class that has fewer than its half gives all it has.

    Returns:
      `(inputs [support_batch, ...], labels [support_batch])`.
    """
    keys = jax.random.split(key)
    parts: list[Any] = []
    halves = (size // 2, size - size // 2)
    for rows, wanted, key in zip(support, halves, keys, strict=True):
        count = min(wanted, rows.shape[0])
        parts.append(rows[jax.random.permutation(key, rows.shape[0])[:count]])
    labels = [jnp.ones(parts[0].shape[0]), jnp.zeros(parts[1].shape[0])]
    return jnp.concatenate(parts), jnp.concatenate(labels)
