"""The compiled part of training for several seeds, which are a leading axis of everything.

State, sums, data, order and keys are stacked; every function does for all seeds what its namesake
in `engine` does for one.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pujax.data import batching
from pujax.data.batching import EpochPlan
from pujax.data.pu_dataset import TrainingData
from pujax.methods.base import Stage
from pujax.training import sharding, train_step
from pujax.training.train_step import Carry


def run_keys(seeds: Sequence[int], mesh: Mesh) -> jax.Array:
    """The keys of the runs with these seeds, stacked."""
    keys = jax.jit(jax.vmap(jax.random.key), out_shardings=sharding.replicated(mesh))
    return keys(np.asarray(seeds, np.int32))


@jax.jit
def stage_keys(keys: jax.Array, purpose: int, index: int) -> jax.Array:
    """`engine.stage_key` of every run."""
    return jax.vmap(lambda key: train_step.stage_key(key, purpose, index))(keys)


def init_state(
    stages: Sequence[Stage], keys: jax.Array, previous: Any, data: TrainingData, mesh: Mesh
) -> Any:
    """Stacked state at the start of a stage."""
    init = over_seeds([stage.init for stage in stages])
    return jax.jit(init, out_shardings=sharding.replicated(mesh))(keys, previous, data)


def make_train(
    stages: Sequence[Stage], mesh: Mesh, *, first_epoch: int = 0
) -> Callable[..., Carry]:
    """Compiles one stage of several seeds into one program.

    A number that is not finite undoes the step of its seed alone.

    Args:
      stages: the stage of each seed; see `over_seeds`.
      mesh: devices to run on.

    Returns:
      `train` as from `engine.make_train`, for a stacked carry, data, plan and key.
    """
    step = over_seeds([stage.step for stage in stages])

    def one_step(carry, data, plan, keys, epoch, index, global_step):
        def look_up(data, plan):
            at = {"epoch": epoch, "step": global_step, "first_epoch": first_epoch}
            batch = batching.gather(data, plan, index, **at)
            return sharding.split_batch(batch, mesh)

        batches = jax.vmap(look_up)(data, plan)
        results = step(carry.state, batches, stage_keys(keys, train_step.STEP, global_step))
        return jax.vmap(train_step.keep_finite)(carry, *results)

    return train_step.compile_steps(one_step, mesh)


def stage_data(
    stages: Sequence[Stage], state: Any, data: TrainingData, mesh: Mesh, *, batch_size: int
) -> TrainingData:
    """`engine.stage_data` of every seed, one after another."""
    if stages[0].encode is None:
        return data
    found = [
        train_step.stage_data(stage, *pick((state, data), seed), mesh, batch_size=batch_size)
        for seed, stage in enumerate(stages)
    ]
    return sharding.gather(stack(found), mesh)


def epoch_plan(stage: Stage, keys: jax.Array, epoch: int, data: TrainingData) -> EpochPlan:
    """Order of one epoch for every seed; all have equally many labelled positives."""
    sizes = train_step.plan_sizes(stage, data.labeled[0], data.support_inputs.shape[1])
    order = stage_keys(keys, train_step.ORDER, epoch if stage.batching.reshuffle else 0)
    return _plans(order, data.labeled, **sizes)


@functools.partial(jax.jit, static_argnames=("num_labeled", "num_support", "batching"))
def _plans(keys: jax.Array, labeled: jax.Array, **sizes: Any) -> EpochPlan:
    return jax.vmap(functools.partial(batching.epoch_plan, **sizes))(keys, labeled)


def means(sums: dict[str, jax.Array]) -> list[dict[str, float]]:
    """`engine.means` of every seed."""
    totals = {name: sharding.to_host(total) for name, total in sums.items()}
    seeds = range(len(totals["steps"]))
    return [train_step.means_of({name: x[seed] for name, x in totals.items()}) for seed in seeds]


def over_seeds(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Maps the function of every seed over the leading axis of its arguments.

    Where all seeds have the same function this is `jax.vmap`. Where they have not, because a number
    that a method is built on differs with the split (the prior in U, say), the calls stand one
    after another in the same program; it takes longer to compile and, on a CPU, no longer to run:
    dense layers fill the cores either way.

    Args:
      functions: one per seed; shapes and structures must be equal.
    """
    if all(function is functions[0] for function in functions):
        return jax.vmap(functions[0])

    def one_after_another(*stacked):
        results = [function(*pick(stacked, index)) for index, function in enumerate(functions)]
        return stack(results)

    return one_after_another


@jax.jit
def pick(tree: Any, index: int) -> Any:
    """The part of a stacked tree that belongs to one seed."""
    return jax.tree.map(lambda x: x[index], tree)


def stack(trees: Sequence[Any]) -> Any:
    """Trees of equal structure and shapes, seed by seed, as one with a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
