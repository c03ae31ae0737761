"""A configuration as a run has it, with shapes in place of data: the method and what it takes."""

import math
from typing import Any, NamedTuple

import ml_collections
import numpy as np
from jax.sharding import Mesh

from pujax import methods
from pujax.data import dataset, multilabel_dataset, pu_dataset, sources
from pujax.data.image_files import ImageFiles
from pujax.data.pu_dataset import PUDataset, TrainingData
from pujax.data.splits import labeling_mechanisms
from pujax.methods.base import Method, Stage
from pujax.training import config as config_lib
from pujax.training import init_from, method_setup, prior_estimation
from pujax.training import stage_shapes as shapes_lib
from pujax.training.config import data_section
from pujax.training.evaluation import tasks
from pujax.training.stage_shapes import StageShapes


class Problem(NamedTuple):
    """What the programs of a run are built from.

    Attributes:
      config: resolved, with the settings that an accelerator would have.
      method: built and checked.
      data: training arrays as shapes on the devices.
      labeled: how many labelled positives there are, 0 where examples have several labels.
      num_test: test examples, or training ones where there is no test set.
      metric_names: of each stage.
      streamed: whether images come from files, batch by batch.
      mesh: the devices.
      notes: what differs from a run, one sentence each.
    """

    config: ml_collections.FrozenConfigDict
    method: Method
    data: TrainingData
    labeled: int
    num_test: int
    metric_names: list[list[str]]
    streamed: bool
    mesh: Mesh
    notes: list[str]


def build(config: ml_collections.ConfigDict, mesh: Mesh) -> Problem:
    """Builds and checks a run's method on the shapes of its data; no file of data is opened.

    Args:
      config: as from a file in `configs/`.
      mesh: devices to compile for.

    Returns:
      A `Problem`.

    Raises:
      ValueError: for a configuration that cannot be, a source whose sizes are not known without its
        files, or a batch that the devices cannot share.
    """
    config = init_from.resolve_model(config_lib.resolve(_as_on_accelerators(config)))
    data, notes = _without_data(config)
    tasks.check(config, data)
    for stage in methods.build(config, data.info).stages:
        _check_batch(stage, mesh)
    setup = method_setup.build(config, data, mesh)
    data = setup.data
    is_multilabel = not isinstance(data, PUDataset)
    return Problem(
        config=config,
        method=setup.method,
        data=shapes_lib.on_mesh(pu_dataset.flat(data.training_data()), mesh),
        labeled=0 if is_multilabel else int(np.sum(data.labeled)),
        num_test=len(data.test_labels) or len(data.labeled),
        metric_names=setup.metric_names,
        streamed=isinstance(data.inputs, ImageFiles),
        mesh=mesh,
        notes=notes,
    )


def _check_batch(stage: Stage, mesh: Mesh) -> None:
    """A run only warns; here somebody is about to pay for devices that would do the same work."""
    size = stage.batching.batch_size
    if size % mesh.size:
        raise ValueError(
            f"the batch size of stage {stage.name!r} is {size}, which {mesh.size} devices cannot "
            f"share; accepted: a multiple of {mesh.size}, for example "
            f"{math.ceil(size / mesh.size) * mesh.size}"
        )


def _as_on_accelerators(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """The settings that a run decides on by its backend, which here is a CPU."""
    config = ml_collections.ConfigDict(config.to_dict())
    if config.run.get("few_kernels", "") == "auto":
        config.run.few_kernels = "on"
    return config


def _without_data(config: ml_collections.FrozenConfigDict) -> tuple[Any, list[str]]:
    """The run's problem, whose inputs have no numbers, and what differs from a run."""
    raw = sources.without_data(config.data.source, **data_section.source_options(config.data))
    settings, notes = data_section.settings(config.data), []
    if settings.get("labeling", labeling_mechanisms.SCAR) != labeling_mechanisms.SCAR:
        notes.append(
            f"data.labeling={settings['labeling']!r} needs the images: labels are drawn at random, "
            "as many"
        )
        settings |= {"labeling": labeling_mechanisms.SCAR, "labeling_power": 1.0}
    problem = multilabel_dataset if raw.is_multilabel else dataset
    data = init_from.attach(config, problem.build(raw, seed=config.seed, **settings))
    if isinstance(data, PUDataset) and prior_estimation.is_wanted(config):
        data = prior_estimation.provisional(config, data)
        notes.append("data.prior='auto': the prior is taken to be 0.5, its estimate not compiled")
    return data, notes


def stage_shapes(problem: Problem) -> list[StageShapes]:
    """Shapes on the devices of every stage, in order; nothing is computed."""
    return shapes_lib.of_stages(
        problem.method.stages,
        problem.data,
        problem.mesh,
        num_labeled=problem.labeled,
        streamed=problem.streamed,
    )
