"""Batches: which examples a step sees, as a pure function of (key, epoch, step).

Nothing here has state, so a resumed run needs no iterator and every host computes the same order.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from pujax.data.dataset import TrainingData


class Batching(NamedTuple):
    """How a stage wants its batches.

    Attributes:
      batch_size: examples of P and U together, shuffled jointly without replacement each epoch;
        a last partial batch is dropped.
      support_batch_size: support examples per step, 0 for none; at most the support set's size.
    """

    batch_size: int
    support_batch_size: int = 0

    def steps_per_epoch(self, num_examples: int) -> int:
        """Full batches in one pass over `num_examples`."""
        return num_examples // self.batch_size


class Batch(NamedTuple):
    """One step's examples.

    Attributes:
      epoch: int32 scalar, epochs completed over all stages.
      step: int32 scalar, steps taken over all stages, undone and skipped ones included.
      ids: int32 `[batch]`, rows of the training set; no id occurs twice.
      inputs: uint8 `[batch, height, width, channels]`.
      labeled: float32 `[batch]`, 1 for a labelled positive, 0 for unlabeled.
      support_inputs: uint8 `[support_batch, height, width, channels]` or None.
      support_labels: float32 `[support_batch]` or None.
    """

    epoch: jax.Array
    step: jax.Array
    ids: jax.Array
    inputs: jax.Array
    labeled: jax.Array
    support_inputs: jax.Array | None
    support_labels: jax.Array | None


class EpochPlan(NamedTuple):
    """Example ids of every step of an epoch.

    Attributes:
      ids: int32 `[steps, batch]`.
      support: int32 `[steps, support_batch]`.
    """

    ids: jax.Array
    support: jax.Array


@functools.partial(jax.jit, static_argnames=("num_examples", "num_support", "batching"))
def epoch_plan(
    key: jax.Array, *, num_examples: int, num_support: int, batching: Batching
) -> EpochPlan:
    """Draws the order of one epoch.

    Support examples come from consecutive shuffles of the support set, restarted every epoch. Where
    a shuffle ends inside a batch, the batch goes on with the next one, so that all batches are full
    and every support example is seen equally often (to within one).

    Args:
      key: key of this epoch.
      num_examples: P and U together.
      num_support: size of the support set.
      batching: the stage's `Batching`.

    Returns:
      An `EpochPlan`.
    """
    steps = batching.steps_per_epoch(num_examples)
    order_key, support_key = jax.random.split(key)
    order = jax.random.permutation(order_key, num_examples)[: steps * batching.batch_size]
    wanted = steps * batching.support_batch_size
    if wanted:
        keys = jax.random.split(support_key, -(-wanted // num_support))
        shuffles = jax.vmap(lambda k: jax.random.permutation(k, num_support))(keys)
        support = shuffles.reshape(-1)[:wanted]
    else:
        support = jnp.zeros([0], jnp.int32)
    return EpochPlan(
        order.astype(jnp.int32).reshape(steps, batching.batch_size),
        support.astype(jnp.int32).reshape(steps, batching.support_batch_size),
    )


def gather(
    data: TrainingData, plan: EpochPlan, index: jax.Array, *, epoch: jax.Array, step: jax.Array
) -> Batch:
    """Looks up one batch.

    Args:
      data: the training set on the device.
      plan: order of the epoch.
      index: which step of the epoch.
      epoch: epochs completed over all stages.
      step: steps taken over all stages.

    Returns:
      A `Batch`.
    """
    ids, support_ids = plan.ids[index], plan.support[index]
    has_support = support_ids.shape[-1] > 0
    return Batch(
        epoch=jnp.asarray(epoch, jnp.int32),
        step=jnp.asarray(step, jnp.int32),
        ids=ids,
        inputs=data.inputs[ids],
        labeled=data.labeled[ids].astype(jnp.float32),
        support_inputs=data.support_inputs[support_ids] if has_support else None,
        support_labels=data.support_labels[support_ids] if has_support else None,
    )


def map_batches(function, inputs: jax.Array, *, batch_size: int):
    """Applies `function` to consecutive batches and joins the results along the first axis.

    A Python loop on purpose: XLA's CPU backend runs a convolution many times slower inside a rolled
    loop (jax-ml/jax#12868), and on accelerators the calls queue up asynchronously anyway. The last
    batch is moved back to full size and its overlap cut off, so only one shape is ever compiled.
    Where `inputs` is copied on several devices, each of them takes its share of every batch.

    Args:
      function: maps `[batch, ...]` to an array or pytree with the same first axis, row by row.
      inputs: `[n, ...]`.
      batch_size: rows per call.

    Returns:
      What `function` returns, with first axis `n`.
    """
    n = inputs.shape[0]
    size = min(batch_size, n)
    split = _splitter(inputs, size)
    results = []
    for start in range(0, n, size):
        first = min(start, n - size)
        result = function(split(jax.lax.dynamic_slice_in_dim(inputs, first, size)))
        results.append(jax.tree.map(lambda x, cut=start - first: x[cut:], result))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *results)


def _splitter(inputs: jax.Array, size: int):
    """A function that splits a batch of `size` over the devices that hold `inputs`."""
    traced = isinstance(inputs, jax.core.Tracer)
    sharding = None if traced else getattr(inputs, "sharding", None)
    if not isinstance(sharding, NamedSharding) or size % sharding.mesh.size:
        return lambda batch: batch
    spec = PartitionSpec(sharding.mesh.axis_names[0])
    return jax.jit(lambda batch: batch, out_shardings=NamedSharding(sharding.mesh, spec))
