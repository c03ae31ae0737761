"""Which label an unlabeled example trains on: class prototypes, and the gate that delays them.

Zhao et al., "Noisy-pair robust representation alignment for positive-unlabeled learning", ICLR
2026. Classes are numbered 0 for negative and 1 for positive; with two of them a distribution is its
positive probability. Nothing here carries a gradient.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pujax import meta
from pujax.methods._common import losses
from pujax.models import heads

MOST_CONFIDENT = 0.8
"""The largest confidence that a threshold asks for."""
_NO_EXAMPLES = 1e-8
"""Added to the number of examples of a group, as in the authors' code."""


class Threshold(NamedTuple):
    """Moving averages of how an unlabeled example is predicted.

    Attributes:
      confidence: scalar, of the larger of the two probabilities, between 0 and `MOST_CONFIDENT`.
      shares: `[2]`, of the probabilities of negative and positive.
    """

    confidence: jax.Array
    shares: jax.Array


def first_threshold(dtype: jax.typing.DTypeLike = jnp.float32) -> Threshold:
    """The averages before the first batch: one half each."""
    return Threshold(jnp.asarray(0.5, dtype), jnp.full(2, 0.5, dtype))


def pseudo_classes(scores: jax.Array, labeled: jax.Array) -> jax.Array:
    """The likelier class of every example among those that it can be of; P can only be positive.

    Args:
      scores: `[batch]`; 0 counts as positive.
      labeled: `[batch]`, 1 or True for labelled positives.

    Returns:
      int32 `[batch]`, 0 or 1.
    """
    return ((scores >= 0) | (labeled > 0)).astype(jnp.int32)


def prototype_probabilities(prototypes: jax.Array, vectors: jax.Array) -> jax.Array:
    """Positive probability by the two prototypes: a softmax of inner products, no temperature.

    Args:
      prototypes: `[2, dim]`, of negative and positive.
      vectors: `[batch, dim]`, unit vectors.

    Returns:
      `[batch]`, between 0.12 and 0.88 for unit prototypes; 0.5 for the zeros they start from.
    """
    products = jnp.matmul(vectors, prototypes.T, precision="highest")
    return jax.nn.sigmoid(products[:, 1] - products[:, 0])


def update_prototypes(
    prototypes: jax.Array, vectors: jax.Array, classes: jax.Array, *, momentum: float
) -> jax.Array:
    """Prototypes after a batch: moving averages of the vectors of their class, then unit vectors.

    It is `mu <- momentum mu + (1 - momentum) q` for one example after the other, in the order of
    the batch, as one weighted sum: with m vectors of a class in the order k = 0 .. m - 1,

        momentum^m mu + sum_k (1 - momentum) momentum^(m - 1 - k) q_k.

    Args:
      prototypes: `[2, dim]`; zeros at first.
      vectors: `[batch, dim]`, unit vectors.
      classes: int `[batch]`, 0 or 1.
      momentum: share that stays, in [0, 1].

    Returns:
      `[2, dim]`, of length 1 but for zeros.
    """
    of_class = classes[None, :] == jnp.arange(2)[:, None]
    counts = jnp.cumsum(of_class, axis=1)
    total = counts[:, -1:]
    decay = jnp.asarray(momentum, vectors.dtype)
    weights = jnp.where(of_class, (1 - decay) * decay ** (total - counts), 0)
    moved = decay**total * prototypes + jnp.matmul(weights, vectors, precision="highest")
    return heads.unit_vectors(moved)


def update_threshold(
    threshold: Threshold, probabilities: jax.Array, labeled: jax.Array, *, momentum: float
) -> Threshold:
    """The averages after a batch; one without unlabeled examples leaves them as they are.

    Args:
      threshold: before the batch.
      probabilities: `[batch]`, of the positive class.
      labeled: `[batch]`, 1 or True for labelled positives, which do not count.
      momentum: share that stays, in [0, 1].
    """
    weights = (labeled <= 0).astype(probabilities.dtype)
    count = jnp.sum(weights)
    both = jnp.stack([1 - probabilities, probabilities])
    share = jnp.where(count > 0, 1 - momentum, 0).astype(probabilities.dtype)

    def moved(average: jax.Array, values: jax.Array) -> jax.Array:
        mean = jnp.sum(values * weights, axis=-1) / jnp.maximum(count, 1)
        return (1 - share) * average + share * mean

    confidence = moved(threshold.confidence, jnp.max(both, axis=0))
    shares = moved(threshold.shares, both)
    return Threshold(jnp.clip(confidence, 0, MOST_CONFIDENT), shares)


def class_thresholds(threshold: Threshold) -> jax.Array:
    """`[2]`: the confidence, scaled by each class's share over the larger one."""
    return threshold.shares / jnp.max(threshold.shares) * threshold.confidence


def update_labels(
    labels: jax.Array, prototype_probability: jax.Array, labeled: jax.Array, *, momentum: float
) -> jax.Array:
    """Stored labels a little nearer to the class of the nearest prototype; P stays at 1.

    Args:
      labels: `[batch]`, stored positive mass.
      prototype_probability: `[batch]`, from `prototype_probabilities`; 0.5 counts as positive.
      labeled: `[batch]`, 1 or True for labelled positives.
      momentum: share that stays, in [0, 1].
    """
    nearest = (prototype_probability >= 0.5).astype(labels.dtype)
    return meta.ema_labels(labels, nearest, rho=momentum, pinned=labeled)


def gated_targets(
    labels: jax.Array, probabilities: jax.Array, labeled: jax.Array, least: jax.Array
) -> jax.Array:
    """Targets of this step: unlabeled examples that surely look negative train as negatives.

    Only this step's target is changed: the stored label keeps its value, and may come back.

    Args:
      labels: `[batch]`, stored positive mass.
      probabilities: `[batch]`, of the positive class.
      labeled: `[batch]`, 1 or True for labelled positives.
      least: scalar, the negative probability from which it is sure.

    Returns:
      `[batch]`, positive mass.
    """
    is_sure = (labeled <= 0) & (1 - probabilities >= least)
    return jnp.where(is_sure, 0, labels)


def class_balanced_cross_entropy(
    scores: jax.Array, targets: jax.Array, labeled: jax.Array
) -> jax.Array:
    """Mean over P plus mean over U of the cross-entropy to soft labels.

    Args:
      scores: `[batch]`.
      targets: `[batch]`, positive mass.
      labeled: `[batch]`, 1 or True for labelled positives.

    Returns:
      A scalar; a group that the batch lacks adds nothing.
    """
    each = losses.soft_cross_entropy(scores, targets)
    is_labeled = labeled > 0

    def mean(group: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(group, each, 0)) / (jnp.sum(group) + _NO_EXAMPLES)

    return mean(is_labeled) + mean(~is_labeled)
