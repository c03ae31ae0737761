"""P3MIX's pieces as functions of arrays: candidates, partners, the terms of the loss, the teacher.

Li et al., "Who Is Your Right Mixup Partner in Positive and Unlabeled Learning", ICLR 2022.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pujax import arrays

# Probabilities inside the losses stay this far from 0 and 1.
CLIP = 1e-4


class Losses(NamedTuple):
    """Terms of the loss on mixed examples, scalars.

    Attributes:
      positive: cross-entropy of the pairs whose first example is from P.
      unlabeled: cross-entropy of those whose first example is from U.
      entropy: mean entropy of all predictions.
    """

    positive: jax.Array
    unlabeled: jax.Array
    entropy: jax.Array


def least_certain(scores: jax.Array, *, size: int) -> jax.Array:
    """Places of the scores with the highest predictive entropy, the highest first.

    The entropy of `sigmoid(score)` falls with the magnitude of the score, which says the order even
    where the entropy has become 0 in floating point.

    Args:
      scores: `[n]`.
      size: how many.

    Returns:
      int32 `[size]`.
    """
    return jax.lax.top_k(-jnp.abs(scores), size)[1]


def choose_partners(
    key: jax.Array, probabilities: jax.Array, *, gamma: float, batch_size: int, active: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Which partner every row of a batch is mixed with.

    Args:
      key: random key.
      probabilities: `[unlabeled]`, of being positive, of the last rows of the batch.
      gamma: examples strictly between `1 - gamma` and `gamma` are ambiguous.
      batch_size: rows of the batch.
      active: bool scalar, whether ambiguous examples get partners from the pool yet.

    Returns:
      `(rows, ambiguous)`: int32 `[batch]`, rows of the batch followed by one candidate positive per
      unlabeled row; bool `[unlabeled]`, who got such a candidate.
    """
    num_unlabeled = probabilities.shape[0]
    rows = jax.random.permutation(key, batch_size)
    ambiguous = active & (probabilities > 1 - gamma) & (probabilities < gamma)
    candidates = batch_size + jnp.arange(num_unlabeled)
    first = batch_size - num_unlabeled
    rows = jnp.concatenate([rows[:first], jnp.where(ambiguous, candidates, rows[first:])])
    return rows, ambiguous


def losses(scores: jax.Array, targets: jax.Array, *, num_positives: int) -> Losses:
    """Cross-entropy with soft targets over the two parts of a batch, and the mean entropy.

    Args:
      scores: `[batch]`, of mixed examples.
      targets: `[batch]`, mixed positive mass.
      num_positives: rows whose first example is from P; they come first.

    Returns:
      `Losses`.
    """
    q = _clipped(scores)
    cross_entropy = -targets * jnp.log(q) - (1 - targets) * jnp.log1p(-q)
    return Losses(
        jnp.mean(cross_entropy[:num_positives]),
        jnp.mean(cross_entropy[num_positives:]),
        jnp.mean(-q * jnp.log(q) - (1 - q) * jnp.log1p(-q)),
    )


def early_learning(scores: jax.Array, targets: jax.Array) -> jax.Array:
    """`mean log(1 - <t, q>)` over both classes: pulls q to t, the more so the closer they are.

    Liu et al., "Early-Learning Regularization Prevents Memorization of Noisy Labels", NeurIPS 2020.

    Args:
      scores: `[batch]`, of mixed examples.
      targets: `[batch]`, mixed probabilities of the teacher.

    Returns:
      A scalar, negative.
    """
    q = _clipped(scores)
    return jnp.mean(jnp.log(targets * (1 - q) + (1 - targets) * q))


def teacher_decay(epochs: int | jax.Array, *, start: int, limit: float) -> jax.Array:
    """Share of the old teacher that stays after an epoch: `min(1 - 1 / (e - start + 1), limit)`.

    With `e` the epoch just done, counted from 0, so the first update copies the network and a
    plain average over epochs follows until the limit. Before the start the teacher stays.

    Args:
      epochs: how many epochs are done, `e + 1`.
      start: `e` of the first update.
      limit: largest share.

    Returns:
      float32 scalar.
    """
    updates = jnp.asarray(epochs - start, jnp.float32)
    decay = jnp.minimum(1 - 1 / jnp.maximum(updates, 1), limit)
    return jnp.where(updates >= 1, decay, 1.0)


def _clipped(scores: jax.Array) -> jax.Array:
    """Probabilities kept away from 0 and 1."""
    return arrays.clipped(jax.nn.sigmoid(scores), CLIP, 1 - CLIP)
