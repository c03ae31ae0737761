"""What the compiled step of every stage takes, as shapes on the devices: nothing is computed."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pujax.data import batching, pu_dataset
from pujax.data.pu_dataset import TrainingData
from pujax.methods.base import Stage
from pujax.training import sharding
from pujax.training.train_step import Carry


@dataclasses.dataclass(frozen=True)
class StageShapes:
    """What a stage's step takes.

    Attributes:
      state: its state.
      data: the training arrays as the stage sees them, see `Stage.encode`.
      plan: order of an epoch.
      key: of the run.
    """

    state: Any
    data: TrainingData
    plan: batching.EpochPlan
    key: Any


def on_mesh(tree: Any, mesh: Mesh) -> Any:
    """Shapes and types of arrays, or of what stands for them, with a copy on every device."""
    where = sharding.replicated(mesh)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)


def batch_of(array: Any, size: int, mesh: Mesh) -> jax.ShapeDtypeStruct:
    """Shape of a batch of an array's rows, as `batching.map_batches` puts it on the devices."""
    is_split = size % mesh.size == 0
    where = NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]) if is_split else PartitionSpec())
    return jax.ShapeDtypeStruct((size, *array.shape[1:]), array.dtype, sharding=where)


def of_stages(
    stages: Sequence[Stage], data: Any, mesh: Mesh, *, num_labeled: int, streamed: bool = False
) -> list[StageShapes]:
    """Shapes of every stage, in order.

    Args:
      stages: of one seed.
      data: training arrays as shapes on the mesh.
      mesh: devices.
      num_labeled: how many labelled positives there are, 0 where examples have several labels.
      streamed: whether the inputs of a step are those of one batch.
    """
    key = on_mesh(jax.eval_shape(lambda: jax.random.key(0)), mesh)
    state, found = None, []
    for stage in stages:
        state = on_mesh(jax.eval_shape(stage.init, key, state, data), mesh)
        plan = jax.eval_shape(
            lambda key, labeled, own=stage.batching: batching.epoch_plan(
                key,
                labeled,
                num_labeled=num_labeled,
                num_support=data.support_labels.shape[-1],
                batching=own,
            ),
            key,
            data.labeled,
        )
        own_data = _stage_data(stage, state, data, mesh, streamed=streamed)
        found.append(StageShapes(state, own_data, on_mesh(plan, mesh), key))
    return found


def trace_train(
    train: Any, shapes: StageShapes, metric_names: list[str], mesh: Mesh, *, count: int
) -> jax.stages.Traced:
    """Traces what `train_step.make_train` returned, for calls of `count` steps."""
    scalar = on_mesh(jax.ShapeDtypeStruct([], np.int32), mesh)
    zero = on_mesh(jax.ShapeDtypeStruct([], np.float32), mesh)
    names = [*metric_names, "steps", "nonfinite"]
    at = (scalar,) * (3 if count == 1 else 4)
    carry = Carry(shapes.state, dict.fromkeys(names, zero))
    return train.trace(carry, shapes.data, shapes.plan, shapes.key, *at, count=count)


def _stage_data(stage: Stage, state: Any, data: Any, mesh: Mesh, *, streamed: bool) -> TrainingData:
    """As `train_step.stage_data`, and of streamed images those of one batch."""
    if streamed:
        return data._replace(inputs=batch_of(data.inputs, stage.batching.batch_size, mesh))
    if stage.encode is None:
        return data
    inputs = jax.eval_shape(stage.encode, state, pu_dataset.like(data.inputs))
    support = jax.ShapeDtypeStruct((data.support_labels.shape[0], *inputs.shape[1:]), inputs.dtype)
    return on_mesh(data._replace(inputs=inputs, support_inputs=support), mesh)
