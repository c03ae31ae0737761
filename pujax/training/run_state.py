"""Before the loop: a method built and checked against its data, and all that a run holds open."""

import dataclasses
import functools
import json
from typing import Any, NamedTuple

import jax
import ml_collections
from absl import logging
from jax.sharding import Mesh

from pujax import methods
from pujax.data.dataset import AUTO
from pujax.data.image_files import ImageFiles
from pujax.data.pu_dataset import PUDataset, TrainingData
from pujax.methods.base import Method
from pujax.training import checkpoint, sharding, train_step
from pujax.training import config as config_lib
from pujax.training.evaluation import model_selection, tasks
from pujax.training.evaluation.evaluator import Evaluator
from pujax.training.keeper import Keeper


@dataclasses.dataclass(frozen=True)
class Run:
    """What stays the same during a run.

    Attributes:
      config: resolved configuration.
      method: the method.
      on_device: training arrays on the devices.
      evaluator: compares with the truth.
      checkpoints: saves and restores.
      keeper: keeps the state of the epoch that `run.selection` prefers.
      mesh: devices.
      key: the run's key.
      metric_names: of each stage.
      streamed: training images that come from files, batch by batch; None where they are on the
        devices.
    """

    config: ml_collections.FrozenConfigDict
    method: Method
    on_device: TrainingData
    evaluator: Evaluator
    checkpoints: checkpoint.Checkpoints
    keeper: Keeper
    mesh: Mesh
    key: jax.Array
    metric_names: list[list[str]]
    streamed: ImageFiles | None = None

    @functools.cached_property
    def train_steps(self) -> list[Any]:
        """The compiled step of each stage."""
        streamed = self.streamed is not None
        return [
            train_step.make_train(stage, self.mesh, first_epoch=first_epoch, streamed=streamed)
            for stage, first_epoch in zip(self.method.stages, self.first_epochs, strict=False)
        ]

    @functools.cached_property
    def first_epochs(self) -> list[int]:
        """Epochs completed before each stage, and in all after the last."""
        total = [0]
        for stage in self.method.stages:
            total.append(total[-1] + stage.num_epochs)
        return total

    def stage_index(self, epoch: int) -> int:
        """Stage that an epoch belongs to; the last one once all are done."""
        ends = self.first_epochs[1:]
        return next((i for i, end in enumerate(ends) if epoch < end), len(ends) - 1)

    def close(self) -> None:
        """Releases the folders of checkpoints."""
        self.checkpoints.close()
        self.keeper.close()

    def steps_per_epoch(self, stage_index: int) -> int:
        """Steps of an epoch of a stage."""
        batching = self.method.stages[stage_index].batching
        return batching.steps_per_epoch(self.on_device.labeled.shape[0])


class Built(NamedTuple):
    """A method and what it is to train on.

    Attributes:
      config: resolved configuration.
      method: the method.
      data: the PU problem as the method is to see it.
      metric_names: of each stage.
    """

    config: ml_collections.FrozenConfigDict
    method: Method
    data: PUDataset
    metric_names: list[list[str]]

    def fingerprint(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be gone on with."""
        result = config_lib.fingerprint(self.config) | {"data_digest": self.data.digest()}
        if self.config.data.prior == AUTO:
            result["estimated_prior"] = self.data.info.prior
        return json.loads(json.dumps(result))  # as JSON gives it back


def build(config: ml_collections.FrozenConfigDict, data: PUDataset, mesh: Mesh) -> Built:
    """Builds the method a config names and traces all of it, without computing or writing.

    Raises:
      ValueError: if configuration and data do not go together.
    """
    tasks.check(config, data)
    model_selection.check(config.run.selection, data.info.prior)
    method = methods.build(config, data.info)
    if method.reveals:
        data = data.reveal(method.reveals)
        method = methods.build(config, data.info)
    for stage in method.stages:
        _check_batches(stage, config, data, mesh)
        _check_stream(stage, config, data)
    return Built(config, method, data, train_step.metric_names(method.stages, data.training_data()))


def prepare(built: Built, *, folder: str, mesh: Mesh, truth: PUDataset) -> Run:
    """Puts the data on the devices and opens the checkpoints.

    Args:
      built: what `build` returned.
      folder: of the checkpoints; those of selected epochs go beside it.
      mesh: devices.
      truth: the PU problem that evaluation compares with.

    Returns:
      A `Run`.
    """
    config, run = built.config, built.config.run
    fingerprint = built.fingerprint()
    on_device = sharding.replicate(built.data.training_data(), mesh)
    checkpoints = checkpoint.Checkpoints(folder, keep=run.keep_checkpoints, fingerprint=fingerprint)
    return Run(
        config=config,
        method=built.method,
        on_device=on_device,
        evaluator=tasks.evaluator(built.method, truth, on_device, mesh, run),
        checkpoints=checkpoints,
        keeper=Keeper(
            run.selection,
            f"{folder}_selected",
            checkpoints=checkpoints,
            fingerprint=fingerprint,
        ),
        mesh=mesh,
        key=train_step.run_key(config.seed, mesh),
        metric_names=built.metric_names,
        streamed=built.data.inputs if isinstance(built.data.inputs, ImageFiles) else None,
    )


def _check_batches(
    stage: methods.Stage, config: ml_collections.FrozenConfigDict, data: PUDataset, mesh: Mesh
) -> None:
    n, size = len(data.labeled), stage.batching.batch_size
    if size > n:
        raise ValueError(
            f"{_batch_field(config, size)} is {size}; accepted: at most {n}, the number of "
            "training examples"
        )
    if size % mesh.size:
        logging.warning(
            "%s is %d, which %d devices cannot share evenly: each computes all of "
            "every batch. The numbers are the same; a multiple of %d is faster.",
            *(_batch_field(config, size), size, mesh.size, mesh.size),
        )


def _check_stream(stage: methods.Stage, config: ml_collections.FrozenConfigDict, data) -> None:
    """Streamed images are seen batch by batch only."""
    if isinstance(data.inputs, ImageFiles) and (stage.refresh or stage.encode):
        raise ValueError(
            f"method.name is {config.method.name!r}, whose stage {stage.name!r} looks at all "
            f"examples at once; accepted: other methods, since the images of {data.info.name} are "
            "streamed"
        )


def _batch_field(config: ml_collections.FrozenConfigDict, size: int) -> str:
    """The field that set a batch size: stages may have fields of their own."""
    fields = (name for name, value in config.method.items() if value == size)
    own = [name for name in fields if name.endswith("batch_size")]
    return f"method.{own[0] if len(own) == 1 else 'batch_size'}"
