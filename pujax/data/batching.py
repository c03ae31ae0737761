"""Batches: which examples a step sees, as a pure function of (key, epoch, step).

Nothing here has state, so a resumed run needs no iterator and every host computes the same order.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from pujax import accelerator, checks
from pujax.arrays import consecutive_shuffles
from pujax.data import streaming
from pujax.data.flat_images import FlatImages
from pujax.data.image_files import ImageFiles
from pujax.data.pu_dataset import TrainingData


class Batching(NamedTuple):
    """How a stage wants its batches.

    Attributes:
      batch_size: examples of P and U together. With `num_positives=0` they are shuffled jointly
        without replacement each epoch and a last partial batch is dropped.
      support_batch_size: support examples per step, 0 for none; at most the support set's size.
      num_positives: 0, or how many rows of every batch are labelled positives: these come first,
        the others from `pool`, both from consecutive shuffles of their own.
      pool: 'unlabeled' draws the other rows from U, 'all' from P and U, which in one-sample data is
        the sample of the population. Rows drawn from the pool count as unlabeled in this batch.
      steps: steps per epoch; 0 for as many as there are full batches in P and U.
      reshuffle: False repeats the batches of one shuffle every epoch.
      crop_sizes: of streamed images, the sides in pixels of random crops, see `streaming`; () for
        no crop.
    """

    batch_size: int
    support_batch_size: int = 0
    num_positives: int = 0
    pool: str = "unlabeled"
    steps: int = 0
    reshuffle: bool = True
    crop_sizes: tuple[int, ...] = ()

    def steps_per_epoch(self, num_examples: int) -> int:
        """Steps of an epoch over `num_examples` of P and U."""
        return self.steps or num_examples // self.batch_size


class Batch(NamedTuple):
    """One step's examples.

    Attributes:
      epoch: int32 scalar, epochs completed over all stages.
      step: int32 scalar, steps taken over all stages, undone and skipped ones included.
      progress: float32 scalar, `epoch` plus the share of this epoch's steps that are done.
      stage_epoch: int32 scalar, `epoch` counted from the start of the stage.
      stage_progress: float32 scalar, `progress` counted from the start of the stage.
      ids: int32 `[batch]`, rows of the training set; no id occurs twice where P and U are shuffled
        jointly and an epoch has no more steps than fit into one shuffle.
      inputs: uint8 images `[batch, height, width, channels]` or float32 rows `[batch, features]`.
      labeled: float32 `[batch]`, 1 for a labelled positive, 0 for unlabeled; in multi-label
        problems `[batch, classes]`, with -1 for a known negative.
      support_inputs: `[support_batch, ...]` or None.
      support_labels: float32 `[support_batch]` or None.
    """

    epoch: jax.Array
    step: jax.Array
    progress: jax.Array
    stage_epoch: jax.Array
    stage_progress: jax.Array
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
      labeled: float32 `[batch]`, 1 for the rows drawn as labelled positives and 0 for those drawn
        from the pool; None where P and U are shuffled jointly, and each example is what it is.
    """

    ids: jax.Array
    support: jax.Array
    labeled: jax.Array | None = None


@functools.partial(jax.jit, static_argnames=("num_labeled", "num_support", "batching"))
def epoch_plan(
    key: jax.Array,
    labeled: jax.Array,
    *,
    num_labeled: int,
    num_support: int,
    batching: Batching,
) -> EpochPlan:
    """Draws the order of one epoch.

    Whatever is drawn apart (support examples, labelled positives, their pool) comes from
    consecutive shuffles, restarted every epoch. Where a shuffle ends inside a batch, the batch goes
    on with the next one, so that all batches are full and every example of the pool is seen equally
    often (to within one).

    Args:
      key: key of this epoch.
      labeled: bool `[n]`, which training examples are labelled positives.
      num_labeled: how many they are.
      num_support: size of the support set.
      batching: the stage's `Batching`.

    Returns:
      An `EpochPlan`.
    """
    num_examples, size = labeled.shape[0], batching.batch_size
    steps = batching.steps_per_epoch(num_examples)
    order_key, support_key = jax.random.split(key)
    support = consecutive_shuffles(support_key, num_support, steps * batching.support_batch_size)
    roles = None
    if batching.num_positives:
        positives_first = jnp.argsort(~labeled, stable=True)
        if batching.pool == "all":
            pool = jnp.arange(num_examples)
        else:
            pool = positives_first[num_labeled:]
        positive_key, pool_key = jax.random.split(order_key)
        count, rest = batching.num_positives, size - batching.num_positives
        drawn = consecutive_shuffles(positive_key, num_labeled, steps * count)
        others = consecutive_shuffles(pool_key, pool.shape[0], steps * rest)
        ids = jnp.concatenate(
            [
                positives_first[drawn].reshape(steps, count),
                pool[others].reshape(steps, rest),
            ],
            axis=1,
        )
        roles = (jnp.arange(size) < count).astype(jnp.float32)
    elif steps * size > num_examples:
        ids = consecutive_shuffles(order_key, num_examples, steps * size)
    else:
        ids = jax.random.permutation(order_key, num_examples)[: steps * size]
    return EpochPlan(
        ids.astype(jnp.int32).reshape(steps, size),
        support.astype(jnp.int32).reshape(steps, batching.support_batch_size),
        roles,
    )


def gather(
    data: TrainingData,
    plan: EpochPlan,
    index: jax.Array,
    *,
    epoch: jax.Array,
    step: jax.Array,
    first_epoch: int = 0,
    streamed: bool = False,
) -> Batch:
    """Looks up one batch.

    Args:
      data: the training set on the device.
      plan: order of the epoch.
      index: which step of the epoch.
      epoch: epochs completed over all stages.
      step: steps taken over all stages.
      first_epoch: epochs completed before this stage.
      streamed: whether `data.inputs` holds the inputs of this batch and no others.

    Returns:
      A `Batch`.
    """
    ids, support_ids = plan.ids[index], plan.support[index]
    has_support = support_ids.shape[-1] > 0
    share = index / plan.ids.shape[0]
    progress = jnp.asarray(epoch, jnp.float32) + share
    return Batch(
        epoch=jnp.asarray(epoch, jnp.int32),
        step=jnp.asarray(step, jnp.int32),
        progress=progress,
        stage_epoch=jnp.asarray(epoch, jnp.int32) - first_epoch,
        # Subtracted before the rounding, of which the fractions of late epochs have the most.
        stage_progress=jnp.asarray(epoch - first_epoch, jnp.float32) + share,
        ids=ids,
        inputs=data.inputs if streamed else data.inputs[ids],
        labeled=data.labeled[ids].astype(jnp.float32) if plan.labeled is None else plan.labeled,
        support_inputs=data.support_inputs[support_ids] if has_support else None,
        support_labels=data.support_labels[support_ids] if has_support else None,
    )


def map_batches(
    function: Callable[..., Any],
    inputs: np.ndarray | jax.Array | FlatImages | ImageFiles,
    *,
    batch_size: int,
    args: tuple[Any, ...] = (),
    sharding: Sharding | None = None,
    one_call: bool | None = None,
) -> Any:
    """Applies `function` to consecutive batches and joins the results along the first axis.

    On an accelerator one compiled call runs over all batches of an array. On a CPU, where a call
    costs next to nothing, each batch is a call of its own. Either way the last batch starts
    earlier, so that it is full, and its overlap is cut off: only one shape is ever compiled, and
    no more than a batch is computed at once. Where `inputs` is copied on several devices, each of
    them takes its share of every batch, or computes the whole of it where the devices do not divide
    its size.

    Args:
      function: maps `(*args, [batch, ...])` to an array or pytree with the same first axis, row by
        row. One call needs a function that `jax.jit` returned; the same one is compiled once.
      inputs: `[n, ...]`, or image files, which are decoded as they are needed.
      batch_size: rows per batch.
      args: what `function` takes before the batch, arrays and pytrees of them.
      sharding: how a batch of image files lies on the devices; None is the default device. An array
        lies where it is.
      one_call: whether one call runs over all batches; None is by the kind of device. Image files,
        and a function that is not compiled, are never run so.

    Returns:
      What `function` returns, with first axis `n`.

    Raises:
      ValueError: if `batch_size` is not a whole number from 1, or there are no rows.
    """
    checks.whole_number("batch_size", batch_size, 1)
    if isinstance(inputs, ImageFiles):
        where = sharding or SingleDeviceSharding(jax.devices()[0])
        of_batch = functools.partial(function, *args)
        return streaming.map_files(of_batch, inputs, batch_size=batch_size, sharding=where)
    rows: Any = inputs.rows if isinstance(inputs, FlatImages) else inputs
    n = rows.shape[0]
    if not n:
        raise ValueError(f"inputs has shape {inputs.shape}; accepted: at least one row")
    size = min(batch_size, n)
    one_call = accelerator.loops_beat_calls() if one_call is None else one_call
    is_traced = isinstance(rows, jax.core.Tracer)
    if one_call and n > size and is_traced:
        return _over_batches(function, size, None)(args, inputs)
    if one_call and n > size and isinstance(function, jax.stages.Wrapped):
        stable: Any = function
        return _compiled_over_batches(stable, size, _split_of(rows, size))(args, inputs)
    split = _splitter(rows, size)
    results = []
    for start in range(0, n, size):
        first = min(start, n - size)
        batch = jax.lax.dynamic_slice_in_dim(rows, first, size)
        if isinstance(inputs, FlatImages):
            batch = inputs.unflatten(batch)
        result = function(*args, split(batch))
        results.append(jax.tree.map(lambda x, cut=start - first: x[cut:], result))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *results)


def _over_batches(
    function: Callable[..., Any], size: int, split: NamedSharding | None
) -> Callable[..., Any]:
    """`(args, inputs)` to what `map_batches` returns, as one function that can be compiled."""

    def run(args, inputs):
        n = inputs.shape[0]
        starts = np.minimum(np.arange(0, n, size), n - size).astype(np.int32)
        rows = inputs.rows if isinstance(inputs, FlatImages) else inputs

        def of_batch(first):
            batch = jax.lax.dynamic_slice_in_dim(rows, first, size)
            if split is not None:
                batch = jax.lax.with_sharding_constraint(batch, split)
            if isinstance(inputs, FlatImages):
                batch = inputs.unflatten(batch)
            return function(*args, batch)

        def join(results):
            whole = results[:-1].reshape(-1, *results.shape[2:])
            return jnp.concatenate([whole, results[-1, len(whole) - (n - size) :]])

        return jax.tree.map(join, jax.lax.map(of_batch, starts))

    return run


@functools.lru_cache(maxsize=128)  # seeds that train together may have functions of their own
def _compiled_over_batches(
    function: Callable[..., Any], size: int, split: NamedSharding | None
) -> Callable[..., Any]:
    """`_over_batches`, compiled; equal arguments get the same function, which compiles once."""
    return jax.jit(_over_batches(function, size, split))


def _split_of(inputs: Any, size: int) -> NamedSharding | None:
    """How a batch of `size` is split over the devices that hold `inputs`; None if it is not."""
    traced = isinstance(inputs, jax.core.Tracer)
    sharding = None if traced else getattr(inputs, "sharding", None)
    if not isinstance(sharding, NamedSharding) or size % sharding.mesh.size:
        return None
    return NamedSharding(sharding.mesh, PartitionSpec(sharding.mesh.axis_names))


def _splitter(inputs: jax.Array, size: int) -> Callable[[jax.Array], jax.Array]:
    """A function that splits a batch of `size` over the devices that hold `inputs`."""
    split = _split_of(inputs, size)
    return (lambda batch: batch) if split is None else jax.jit(_same, out_shardings=split)


def _same(batch: jax.Array) -> jax.Array:
    # A function with a name is compiled once; a new lambda is compiled at every call.
    return batch
