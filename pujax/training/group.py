"""A group of seeds that train in one program: who belongs to it, and what stays the same."""

import bisect
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from pujax.data.image_files import ImageFiles
from pujax.data.pu_dataset import PUDataset, TrainingData
from pujax.files import write_json
from pujax.methods.base import Stage
from pujax.training import checkpoint, seed_axis, sharding, stacked, train_loop, train_step
from pujax.training.evaluation import tasks
from pujax.training.evaluation.evaluator import Evaluator
from pujax.training.metrics_writer import MetricsWriter
from pujax.training.train_step import Carry

_MEMINFO = "/proc/meminfo"


class Member(NamedTuple):
    """One seed of a group.

    Attributes:
      built: configuration, method and the data it trains on.
      truth: the PU problem that evaluation compares with.
      folder: of the seed's results; a summary there is kept.
    """

    built: train_loop.Built
    truth: PUDataset
    folder: str

    @property
    def finished(self) -> str:
        """Path of the seed's summary, '' while there is none."""
        path = os.path.join(self.folder, "summary.json")
        return path if os.path.exists(path) else ""


@dataclasses.dataclass(frozen=True)
class Group:
    """What stays the same while a group trains.

    Attributes:
      members: the seeds.
      stages: by stage, that of every seed; functions that compute the same are the same object.
      on_device: training arrays, stacked.
      evaluators: of every seed.
      writers: of every seed.
      checkpoints: of the group.
      mesh: devices.
      keys: the runs' keys, stacked.
    """

    members: Sequence[Member]
    stages: Sequence[Sequence[Stage]]
    on_device: TrainingData
    evaluators: Sequence[Evaluator]
    writers: Sequence[MetricsWriter]
    checkpoints: checkpoint.Checkpoints
    mesh: Mesh
    keys: jax.Array

    def close(self) -> None:
        """Closes the files."""
        self.checkpoints.close()
        for writer in self.writers:
            writer.close()

    @property
    def run(self) -> Any:
        """The `run` section."""
        return self.members[0].built.config.run

    @property
    def metric_names(self) -> list[list[str]]:
        """Of each stage."""
        return self.members[0].built.metric_names

    @functools.cached_property
    def train_steps(self) -> list[Callable[..., Carry]]:
        """The compiled step of each stage."""
        starts = [0, *self.stage_ends]
        return [
            stacked.make_train(each, self.mesh, first_epoch=first_epoch)
            for each, first_epoch in zip(self.stages, starts, strict=False)
        ]

    @functools.cached_property
    def stage_ends(self) -> list[int]:
        """Epochs completed after each stage."""
        return list(itertools.accumulate(each[0].num_epochs for each in self.stages))

    def stage_index(self, epoch: int) -> int:
        """Stage that an epoch belongs to; the last one once all are done."""
        return min(bisect.bisect_right(self.stage_ends, epoch), len(self.stages) - 1)

    def steps_per_epoch(self, index: int) -> int:
        """Steps of an epoch of a stage."""
        batching = self.stages[index][0].batching
        return batching.steps_per_epoch(self.on_device.labeled.shape[1])


def obstacle(members: Sequence[Member], mesh: Mesh) -> str:
    """Why these seeds cannot or should not train in one program; '' if they can.

    Args:
      members: the seeds.
      mesh: devices.
    """
    if len(members) < 2:
        return "there is only one seed"
    if jax.process_count() > 1:
        return "several hosts take part"
    if isinstance(members[0].built.data.inputs, ImageFiles):
        return "their images are streamed"
    counts = [_counts(member) for member in members]
    other = next((each for each in counts if each != counts[0]), None)
    if other:
        return (
            "their numbers of labeled, unlabeled and support examples differ "
            f"({counts[0]} and {other})"
        )
    if jax.default_backend() == "cpu" and train_step.has_convolutions(_last_shapes(members[0])[0]):
        return "XLA runs the convolutions of several networks at once slowly on a CPU"
    needed = sum(map(_bytes, members))
    room = _memory() // 2  # the other half is for what a step computes
    if needed > room:
        return f"their data and states take {needed / 1e9:.1f} GB, more than {room / 1e9:.1f} GB"
    return ""


def _counts(member: Member) -> tuple[int, int, int]:
    data = member.built.data
    if data.labeled.ndim > 1:  # several labels per example are never drawn apart
        return 0, len(data.labeled), 0
    num_labeled = int(data.labeled.sum())
    return num_labeled, len(data.labeled) - num_labeled, len(data.support_labels)


def _last_shapes(member: Member) -> tuple[Any, Any]:
    """Shapes of one seed's last state, and of its training inputs where that encodes them."""
    state, key = None, jax.eval_shape(lambda: jax.random.key(0))
    data = member.built.data.training_data()
    for stage in member.built.method.stages:
        state = jax.eval_shape(stage.init, key, state, data)
    encoded = jax.eval_shape(stage.encode, state, data.inputs) if stage.encode else None
    return state, encoded


def _bytes(member: Member) -> int:
    """What one more seed needs.

    Training data and state count thrice (alone, in the stack, and in the copy that stacking or a
    step makes), what is evaluated once.
    """
    truth = member.truth
    trained = sum(x.nbytes for x in jax.tree.leaves(member.built.data.training_data()))
    state, encoded = _last_shapes(member)
    trained += sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((state, encoded)))
    return 3 * trained + truth.test_inputs.nbytes + truth.validation_inputs.nbytes


def _memory() -> int:
    """Free bytes on the first device, or in the machine where the device does not say."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    if os.path.exists(_MEMINFO):
        with open(_MEMINFO, encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return 1024 * int(line.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def prepare(members: Sequence[Member], folder: str, mesh: Mesh) -> Group:
    """Puts the data on the devices and opens the files.

    Args:
      members: the seeds.
      folder: of the group's checkpoints.
      mesh: devices.
    """
    first = members[0].built
    run = first.config.run
    # A method is built on numbers of its split; where they are equal the methods are the same, and
    # where they are not, such of their functions as do not use them.
    methods = [
        first.method if member.built.data.info == first.data.info else member.built.method
        for member in members
    ]
    methods = seed_axis.share_methods(methods, first.data.training_data())
    datas = [sharding.replicate(x.built.data.training_data(), mesh) for x in members]
    on_device = sharding.gather(stacked.stack(datas), mesh)
    evaluators = [
        tasks.evaluator(
            method._replace(embed=None),
            member.truth,
            data if method.calibrate else None,
            mesh,
            run,
        )
        for method, member, data in zip(methods, members, datas, strict=True)
    ]
    fingerprint = {str(i): member.built.fingerprint() for i, member in enumerate(members)}
    for member in members:
        os.makedirs(member.folder, exist_ok=True)
        write_json(os.path.join(member.folder, "config.json"), member.built.config.to_dict())
    return Group(
        members=members,
        stages=list(zip(*(method.stages for method in methods), strict=True)),
        on_device=on_device,
        evaluators=evaluators,
        writers=[MetricsWriter(member.folder) for member in members],
        checkpoints=checkpoint.Checkpoints(
            os.path.join(folder, "checkpoints"), keep=run.keep_checkpoints, fingerprint=fingerprint
        ),
        mesh=mesh,
        keys=stacked.run_keys([member.built.config.seed for member in members], mesh),
    )
