"""Before a run: a method built from its configuration, traced, and checked against its data."""

import json
import logging
from typing import Any, NamedTuple

import ml_collections
from jax.sharding import Mesh

from pujax import checks, methods
from pujax.data import pu_dataset
from pujax.data.dataset import AUTO
from pujax.methods.base import Method, Stage
from pujax.training import config as config_lib
from pujax.training import train_step
from pujax.training.evaluation import eval_interval, model_selection, tasks
from pujax.training.evaluation.eval_interval import EvalInterval
from pujax.training.evaluation.tasks import Problem

_LOG = logging.getLogger(__name__)


class MethodSetup(NamedTuple):
    """A built method with its training data.

    Attributes:
      config: resolved configuration.
      method: the method.
      data: the PU problem as the method is to see it.
      metric_names: of each stage.
      eval_intervals: epochs between evaluations, of each stage.
    """

    config: ml_collections.FrozenConfigDict
    method: Method
    data: Problem
    metric_names: list[list[str]]
    eval_intervals: tuple[EvalInterval, ...]

    def warn_of_uneven_batches(self, num_devices: int) -> None:
        """Logs which batches this number of devices cannot share."""
        for size in dict.fromkeys(stage.batching.batch_size for stage in self.method.stages):
            if size % num_devices:
                _LOG.warning(
                    "%s is %d, which %d devices cannot share evenly: each computes all of "
                    "every batch. The numbers are the same; a multiple of %d is faster.",
                    *(_batch_field(self.config, size), size, num_devices, num_devices),
                )

    def fingerprint(self) -> dict[str, Any]:
        """The fields that must be equal to resume a checkpoint."""
        result = config_lib.fingerprint(self.config) | {"data_digest": self.data.digest()}
        if self.config.data.prior == AUTO:
            result["estimated_prior"] = self.data.info.prior
        return json.loads(json.dumps(result))  # as JSON gives it back


def build(config: ml_collections.FrozenConfigDict, data: Problem, mesh: Mesh) -> MethodSetup:
    """Builds the method a config names and traces all of it, without computing or writing.

    Raises:
      ValueError: if configuration and data do not go together.
    """
    tasks.check(config, data)
    model_selection.check(config.run.selection, data.info.prior)
    methods.from_labels(config, data.labeled)  # refuses what does not go with them
    method = methods.build(config, data.info)
    if method.reveals:
        data = data.reveal(method.reveals)
        method = methods.build(config, data.info)
    _check_stages(method)
    for stage in method.stages:
        field = f"selection of stage {stage.name!r}"
        checks.one_of(field, stage.selection, model_selection.WITHOUT_TRUTH)
        model_selection.check(stage.selection, data.info.prior, field=field)
        _check_batches(stage, config, data)
    _check_length(config, method, data)
    if data.streamed:
        _check_streamed(method, config, data)
    method = method._replace(stages=tuple(map(train_step.traced_once, method.stages)))
    arrays = pu_dataset.flat(data.training_data())
    names = train_step.metric_names(method.stages, arrays, mesh)
    intervals = eval_interval.of_stages(config, method, data, mesh)
    return MethodSetup(config, method, data, names, intervals)


def _check_stages(method: Method) -> None:
    """Requires stages of at least an epoch each, by whose names rows tell them apart."""
    names = [stage.name for stage in method.stages]
    for stage in method.stages:
        accepted = f"a name of its own for each of the stages {', '.join(map(repr, names))}"
        checks.require(names.count(stage.name) == 1, "name of a stage", stage.name, accepted)
        checks.whole_number(f"num_epochs of stage {stage.name!r}", stage.num_epochs, low=1)


def _check_batches(stage: Stage, config: ml_collections.FrozenConfigDict, data: Problem) -> None:
    n, size = len(data.labeled), stage.batching.batch_size
    if size > n:
        raise ValueError(
            f"{_batch_field(config, size)} is {size}; accepted: at most {n}, the number of "
            "training examples"
        )


def _check_length(config: ml_collections.FrozenConfigDict, method: Method, data: Problem) -> None:
    """Requires an epoch to profile that there is, and steps that 32 bits can count."""
    steps = [stage.batching.steps_per_epoch(len(data.labeled)) for stage in method.stages]
    epochs = [stage.num_epochs for stage in method.stages]
    accepted = f"0, or one of the run's epochs, 1 to {sum(epochs)}"
    profiled = config.run.get("profile_epoch", 0)
    checks.require(profiled <= sum(epochs), "run.profile_epoch", profiled, accepted)
    total = sum(count * length for count, length in zip(steps, epochs, strict=True))
    if total >= 2**31:
        raise ValueError(
            f"method.num_epochs is {config.method.num_epochs}, which makes {total} steps; "
            "accepted: fewer than 2**31"
        )


def _check_streamed(method: Method, config: ml_collections.FrozenConfigDict, data: Problem) -> None:
    """Streamed images are seen batch by batch only."""
    needs_all = [stage.name for stage in method.stages if stage.refresh or stage.encode]
    if needs_all or method.calibrate:
        where = f"stage {needs_all[0]!r}" if needs_all else "calibration"
        accepted = "other methods"
        if not needs_all and config.method.get("threshold") == "prior":
            accepted = "method.threshold='zero', or other methods"
        raise ValueError(
            f"method.name is {config.method.name!r}, whose {where} looks at all examples at once; "
            f"accepted: {accepted}, since the images of {data.info.name} are streamed"
        )


def _batch_field(config: ml_collections.FrozenConfigDict, size: int) -> str:
    """The field that set a batch size: stages may have fields of their own."""
    fields = (name for name, value in config.method.items() if value == size)
    own = [name for name in fields if name.endswith("batch_size")]
    return f"method.{own[0] if len(own) == 1 else 'batch_size'}"
