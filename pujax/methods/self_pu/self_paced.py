"""The mathematics of Self-PU: self-paced pools, the risk of what is left, calibrated weights.

A pool assigns every training example to the noisy set, which nnPU trains on, or to the clean set,
which has (pseudo) labels. Membership is a code per example and not a list of ids, so that shapes
never change.
"""

import math
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from pujax import risks
from pujax.arrays import ranks
from pujax.data.pu_dataset import DataInfo
from pujax.meta import leaves
from pujax.methods._common import losses

# Codes of a pool.
NOISY, NEGATIVE, POSITIVE = range(3)


def pick_count(
    num_unlabeled: int, epoch: int, *, share: float, ramp_epochs: int, top: float
) -> int:
    """How many unlabeled examples become pseudo-negative, and as many pseudo-positive.

    `floor(|U| share min(epoch / ramp_epochs, 1) top)`, the authors' schedule.
    """
    return floor_of(num_unlabeled * share * min(epoch / ramp_epochs, 1) * top)


def floor_of(count: float) -> int:
    """The whole part of a product such as 60000 * 0.5 * 0.3 * 0.4, which loses none to rounding."""
    return math.floor(round(count, 6))


def pick(
    key: jax.Array,
    scores: jax.Array,
    labeled: jax.Array,
    *,
    count: int | jax.Array,
    count_labeled: int,
) -> jax.Array:
    """A new pool: the lowest and the highest scores of U, and some labelled positives.

    Args:
      key: decides which labelled positives; the authors take the first of their list.
      scores: `[n]`, in the order of the probabilities.
      labeled: bool `[n]`.
      count: how many of U at either end, at most half of U.
      count_labeled: how many labelled positives.

    Returns:
      int8 `[n]` of `NOISY`, `NEGATIVE` and `POSITIVE`.
    """
    rank = ranks(jnp.where(labeled, jnp.inf, scores))
    lowest = ~labeled & (rank < count)
    highest = ~labeled & (rank >= jnp.sum(~labeled) - count)
    draw = jnp.where(labeled, jax.random.uniform(key, labeled.shape), jnp.inf)
    drawn = labeled & (ranks(draw) < count_labeled)
    pool = jnp.where(lowest, NEGATIVE, jnp.where(highest | drawn, POSITIVE, NOISY))
    return pool.astype(jnp.int8)


def noisy_info(
    info: DataInfo, *, picked: int | jax.Array, picked_labeled: int | jax.Array
) -> DataInfo:
    """The numbers of the noisy set: counts and priors without the examples picked.

    Of the `k` picked from U half are counted as positive: `(pi n_u - k / 2) / (n_u - k)` of what is
    left of U are positive. The population of one-sample data is P and U together, so the labelled
    positives that were picked leave it too.

    Args:
      info: of the whole data set.
      picked: `k`, how many of U are in the clean set; may be traced.
      picked_labeled: how many labelled positives are in it.

    Returns:
      A `DataInfo` with other counts and priors.
    """

    def left(prior, size, positives, items):
        return (prior * size - positives) / (size - items)

    from_population = picked_labeled if info.setting == "one_sample" else 0
    size = info.sample_size if info.setting == "one_sample" else info.n_u
    numbers: dict[str, Any] = {  # may be traced
        "n_p": info.n_p - picked_labeled,
        "n_u": info.n_u - picked,
        "prior": left(info.prior, size, picked / 2 + from_population, picked + from_population),
        "prior_unlabeled": left(info.prior_unlabeled, info.n_u, picked / 2, picked),
    }
    return info._replace(**numbers)


def weighted_nnpu(
    scores: jax.Array,
    labeled: jax.Array,
    weights: jax.Array,
    *,
    rows: jax.Array,
    loss: risks.Loss = risks.sigmoid_loss,
    **rule: Any,
) -> jax.Array:
    """nnPU of some rows of a batch, with a weight on the loss of each.

    Sums run over the rows of a group and are divided by their number, not by their weight, as in
    the authors' code; so all weights zero give zero, and the derivative with respect to them there
    is each example's loss. Value, gradient and sign rule are those of `risks.nnpu`.

    Args:
      scores: `[batch]`.
      labeled: `[batch]`, 1 for labelled positives.
      weights: `[batch]`.
      rows: bool `[batch]`, which rows count.
      loss: surrogate loss of the margin.
      **rule: other arguments of `risks.nnpu`.

    Returns:
      The scalar risk.
    """
    # `risks.nnpu` divides by the number of all rows of a group.
    is_positive = labeled > 0
    scale = jnp.where(is_positive, _inverse_share(rows, is_positive), 0)
    scale += jnp.where(~is_positive, _inverse_share(rows, ~is_positive), 0)
    scale = jnp.where(rows, scale * weights, 0)
    return risks.nnpu(scores, labeled, loss=lambda margin: scale * loss(margin), **rule)


def noisy_terms(
    scores: jax.Array,
    labeled: jax.Array,
    weights: jax.Array,
    *,
    rows: jax.Array,
    **rule: Any,
) -> tuple[jax.Array, jax.Array]:
    """The two losses of the noisy rows: weighted nnPU, and weighted entropy over these rows.

    Args:
      scores: `[batch]`.
      labeled: `[batch]`.
      weights: `[batch, 2]`, of an example's part in nnPU and of its entropy.
      rows: bool `[batch]`, which rows are noisy.
      **rule: arguments of `weighted_nnpu`.

    Returns:
      `(risk, mean entropy)`, scalars.
    """
    risk = weighted_nnpu(scores, labeled, weights[:, 0], rows=rows, **rule)
    own = jnp.sum(jnp.where(rows, weights[:, 1] * losses.entropy(scores), 0))
    return risk, own / jnp.maximum(jnp.sum(rows), 1)


def calibrated_weights(
    noisy_loss: Callable[[chex.ArrayTree, jax.Array], jax.Array],
    support_loss: Callable[[chex.ArrayTree], jax.Array],
    params: chex.ArrayTree,
    *,
    adjustable: jax.Array,
    learning_rate: float,
    budget: float | jax.Array,
    trainable: Callable[[tuple[Any, ...]], bool] | None = None,
) -> jax.Array:
    """Weights of every example that would have helped on clean data (paper section 3.3).

    A clone of the network takes one virtual step with all weights zero; the weights are what of
    the negative gradient of the clean loss is above zero, see `allot`. It is the gradient that
    `meta.meta_gradient` gives through this step.

    Args:
      noisy_loss: `(params, weights [batch, 2]) -> scalar`, linear in the weights.
      support_loss: `params -> scalar`, the loss on clean examples.
      params: of the student; nothing flows back into them.
      adjustable: bool `[batch]`, examples whose weights are learned.
      learning_rate: of the virtual step.
      budget: see `allot`.
      trainable: which parameters move, see `meta.virtual_step`; None for all.

    Returns:
      `[batch, 2]`, constants.
    """
    params = jax.lax.stop_gradient(params)
    zeros = jnp.zeros([adjustable.shape[0], 2], jnp.result_type(*jax.tree.leaves(params)))
    # A loss that is linear in the weights moves nothing where all are zero. So the clean loss is
    # judged where the network stands, and the gradient through the step is that of the slope of
    # the noisy loss along the clean gradient: the pass back that `meta.meta_gradient` would make
    # for the step itself is not needed.
    moving, join = leaves.split(params, trainable)
    downhill = jax.grad(lambda moving: support_loss(join(moving)))(moving)

    def slope(weights: jax.Array) -> jax.Array:
        def noisy(moving: chex.ArrayTree) -> jax.Array:
            return noisy_loss(join(moving), weights)

        return jax.jvp(noisy, (moving,), (downhill,))[1]

    gradient = -learning_rate * jax.grad(slope)(zeros)
    return jax.lax.stop_gradient(allot(gradient, adjustable=adjustable, budget=budget))


def allot(gradient: jax.Array, *, adjustable: jax.Array, budget: float | jax.Array) -> jax.Array:
    """Weights from meta-gradients: negatives clipped, normalised per example, within a budget.

    Examples are served in the order of the batch, which is random: once the entropy weights given
    out reach the budget, those that follow keep nnPU alone. So does an example whose two gradients
    are clipped, and one that is not adjustable.

    Args:
      gradient: `[batch, 2]`, of the clean loss with respect to the weights (nnPU, entropy).
      adjustable: bool `[batch]`.
      budget: sum of entropy weights after which none is given.

    Returns:
      `[batch, 2]`, rows that sum to 1.
    """
    gain = jnp.maximum(-gradient, 0)
    total = jnp.sum(gain, axis=1)
    share = jnp.where(adjustable & (total > 0), gain[:, 1] / jnp.where(total > 0, total, 1), 0)
    # The sum of what is offered equals that of what is given until the budget is reached.
    before = jnp.concatenate([jnp.zeros_like(share[:1]), jnp.cumsum(share)[:-1]])
    own = jnp.where(before < budget, share, 0)
    return jnp.stack([1 - own, own], axis=1)


def ramp(epoch: int | jax.Array, *, weight: float, num_epochs: int) -> jax.Array:
    """Weight of the consistency with the teacher, `weight exp(-5 (1 - e / num_epochs)^2)`.

    `e` counts from the start of training and stops at `num_epochs`; the authors' code counts it
    from epoch 30.
    """
    progress = jnp.clip(epoch / num_epochs, 0, 1)
    return weight * jnp.exp(-5 * jnp.square(1 - progress))


def teacher_decay(updates: int | jax.Array, *, decay: float) -> jax.Array:
    """Share of the teacher that stays at its update number `updates`, counted from 0.

    `min(1 - 1 / (updates + 1), decay)`: a plain mean of the students so far until that is slower.
    """
    return jnp.minimum(1 - 1 / (updates + 1), decay)


def _inverse_share(rows: jax.Array, group: jax.Array) -> jax.Array:
    """Size of a group over how many of it are among the rows; 0 where none is."""
    inside = jnp.sum(rows & group)
    return jnp.where(inside > 0, jnp.sum(group) / jnp.maximum(inside, 1), 0)
