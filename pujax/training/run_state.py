"""The fixed part of a run: methods, data on the devices, open files."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_collections
from jax.sharding import Mesh

from pujax import accelerator
from pujax.data import pu_dataset
from pujax.data.image_files import ImageFiles
from pujax.data.pu_dataset import TrainingData
from pujax.files import write_json
from pujax.methods.base import Method, Stage
from pujax.training import checkpoint, seed_axis, sharding, train_step
from pujax.training.evaluation import tasks
from pujax.training.evaluation.evaluator import Evaluator
from pujax.training.metrics_writer import MetricsWriter
from pujax.training.seed_axis import Member
from pujax.training.train_step import Carry

DATA_FILE = "data.json"
"""Which examples and labels a folder's run is about."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One seed, or several along a seed axis (see `seed_axis`), with their open files.

    Lists have an entry per seed that still trains.

    Attributes:
      members: the seeds.
      indices: their places among the members that the run began with.
      methods: functions that compute the same are the same object.
      on_device: training arrays on the devices.
      evaluators: compare with the truth.
      writers: metrics files; empty on hosts that write nothing.
      checkpoints: of the run.
      mesh: devices.
      key: the key of the run, or of every seed.
      streamed: training images that come from files, batch by batch; None where they are on the
        devices.
    """

    members: list[Member]
    indices: list[int]
    methods: list[Method]
    on_device: TrainingData
    evaluators: list[Evaluator]
    writers: list[MetricsWriter]
    checkpoints: checkpoint.Checkpoints
    mesh: Mesh
    key: jax.Array
    streamed: ImageFiles | None = None

    @property
    def config(self) -> ml_collections.FrozenConfigDict:
        """Resolved configuration; that of several seeds differs in the seed only."""
        return self.members[0].setup.config

    @property
    def num_seeds(self) -> int:
        """How many seeds train."""
        return len(self.members)

    @property
    def metric_names(self) -> list[list[str]]:
        """Of each stage."""
        return self.members[0].setup.metric_names

    @functools.cached_property
    def stages(self) -> list[Stage]:
        """Stages of all seeds at once."""
        by_stage = zip(*(method.stages for method in self.methods), strict=True)
        return [seed_axis.join_stages(stages) for stages in by_stage]

    @functools.cached_property
    def train_steps(self) -> list[Callable[..., Carry]]:
        """The compiled step of each stage."""
        streamed = self.streamed is not None
        packed = accelerator.few_kernels(self.config.run.few_kernels)
        # Where rows of devices hold seeds apart, all seeds have the same functions.
        of_row = self.methods[: self.num_seeds // sharding.num_rows(self.mesh)]
        by_stage = zip(*(method.stages for method in of_row), strict=True)
        return [
            train_step.make_train(
                seed_axis.join_stages(stages),
                self.mesh,
                first_epoch=first_epoch,
                streamed=streamed,
                packed=packed,
            )
            for stages, first_epoch in zip(by_stage, self.first_epochs, strict=False)
        ]

    @functools.cached_property
    def first_epochs(self) -> list[int]:
        """Epochs completed before each stage, and in all after the last."""
        lengths = (stage.num_epochs for stage in self.methods[0].stages)
        return list(itertools.accumulate(lengths, initial=0))

    @property
    def num_epochs(self) -> int:
        """Epochs of all stages."""
        return self.first_epochs[-1]

    def stage_index(self, epoch: int) -> int:
        """Stage that an epoch belongs to; the last one once all are done."""
        ends = self.first_epochs[1:]
        return next((i for i, end in enumerate(ends) if epoch < end), len(ends) - 1)

    def steps_per_epoch(self, stage_index: int) -> int:
        """Steps of an epoch of a stage."""
        batching = self.methods[0].stages[stage_index].batching
        return batching.steps_per_epoch(len(self.members[0].setup.data.labeled))

    def eval_every(self, stage_index: int) -> int:
        """Epochs between evaluations of a stage; the last epoch of the run is always evaluated."""
        return self.members[0].setup.eval_intervals[stage_index].every

    def num_steps(self) -> int:
        """Steps of all epochs."""
        stages = enumerate(self.methods[0].stages)
        return sum(stage.num_epochs * self.steps_per_epoch(i) for i, stage in stages)

    def of_seed(self, tree: Any, seed: int) -> Any:
        """The part of a tree that belongs to one seed, counted from 0."""
        return _of_seed(tree, seed, self.num_seeds)

    def keep(self, seeds: Sequence[int]) -> "Run":
        """The run of some of its seeds, counted from 0; the files of the others are closed."""
        for seed in set(range(len(self.writers))) - set(seeds):
            self.writers[seed].close()
        parts: dict[str, Any] = {
            name: [getattr(self, name)[seed] for seed in seeds]
            for name in ("members", "indices", "methods", "evaluators", "writers")
            if getattr(self, name)
        }
        rows = sharding.num_rows(self.mesh)
        mesh = self.mesh if len(seeds) % rows == 0 else sharding.spread_seeds(self.mesh, 1)
        if mesh is not self.mesh:
            self.members[0].setup.warn_of_uneven_batches(mesh.shape["data"])
        on_device, key = seed_axis.keep((self.on_device, self.key), seeds, mesh)
        return dataclasses.replace(self, **parts, on_device=on_device, key=key, mesh=mesh)

    def describe(self) -> None:
        """Writes into every seed's folder what its run is about, once nothing speaks against it."""
        for member in self.members if self.writers else ():
            config = member.setup.config
            write_json(os.path.join(member.folder, "config.json"), config.to_dict())
            digest = member.truth.digest()
            # Runs from different encoders may have the same examples, and are then compared.
            examples = digest
            if member.truth.encoder is not None:
                examples = member.truth._replace(encoder=None).digest()
            data = {"digest": digest, "examples": examples}
            write_json(os.path.join(member.folder, DATA_FILE), data)

    def close(self) -> None:
        """Closes the files."""
        self.checkpoints.close()
        for writer in self.writers:
            writer.close()


def prepare(members: Sequence[Member], mesh: Mesh, *, folder: str = "") -> Run:
    """Puts the data on the devices and opens the files of every seed's folder.

    Args:
      members: the seeds; of several, `seed_axis.why_sequential` must be ''.
      mesh: devices.
      folder: of the checkpoints; '' is `checkpoints` in the folder of the only seed.

    Returns:
      A `Run`.
    """
    first = members[0].setup
    run = first.config.run
    methods = seed_axis.shared_methods(members)
    if len(members) > 1:
        mesh = sharding.spread_seeds(mesh, seed_axis.rows_for(members, mesh))
    first.warn_of_uneven_batches(mesh.shape["data"])  # those that hold a seed together
    datas = [pu_dataset.flat(member.setup.data.training_data()) for member in members]
    on_device = seed_axis.put(datas, mesh)
    fingerprints = [member.setup.fingerprint() for member in members]
    evaluators = [
        Evaluator(
            method,
            member.truth,
            _of_seed(on_device, index, len(members)) if method.calibrate else None,
            mesh,
            task=tasks.of(member.truth),
            batch_size=run.eval_batch_size,
            threshold=run.threshold,
        )
        for index, (method, member) in enumerate(zip(methods, members, strict=True))
    ]
    checkpoints = checkpoint.Checkpoints(
        folder or own_checkpoints(members[0]),
        keep=run.keep_checkpoints,
        fingerprint=(
            fingerprints[0]
            if len(members) == 1
            else {str(i): fingerprint for i, fingerprint in enumerate(fingerprints)}
        ),
    )
    writers = []
    for member in members if sharding.is_writer() else ():
        os.makedirs(member.folder, exist_ok=True)
        writers.append(MetricsWriter(member.folder, tensorboard=run.tensorboard == "auto"))
    inputs = first.data.inputs
    return Run(
        members=list(members),
        indices=list(range(len(members))),
        methods=methods,
        on_device=on_device,
        evaluators=evaluators,
        writers=writers,
        checkpoints=checkpoints,
        mesh=mesh,
        key=train_step.run_key(
            members[0].seed if len(members) == 1 else [x.seed for x in members], mesh
        ),
        streamed=inputs if isinstance(inputs, ImageFiles) else None,
    )


def _of_seed(tree: Any, seed: int, num_seeds: int) -> Any:
    return tree if num_seeds == 1 else seed_axis.pick(tree, seed)


def own_checkpoints(member: Member) -> str:
    """Folder of the checkpoints of a seed that trains alone."""
    return os.path.join(member.folder, "checkpoints")
