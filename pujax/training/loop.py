"""The loop: one function per thing that happens in a run, from nothing to a summary.

Start, in this order: check the configuration, load and split the data, build the method, then go on
from the newest usable checkpoint of the run's folder if there is one, else from scratch.
"""

import dataclasses
import functools
import signal
import time
from typing import Any

import jax
import ml_collections
import numpy as np
from absl import logging
from jax.sharding import Mesh

from pujax import methods
from pujax.data.dataset import PUDataset, TrainingData
from pujax.methods import Method
from pujax.training import checkpoint, engine, sharding, signals
from pujax.training.checkpoint import Position
from pujax.training.engine import Carry
from pujax.training.evaluation import Evaluator
from pujax.training.progress import Progress
from pujax.training.writers import MetricsWriter


@dataclasses.dataclass(frozen=True)
class Run:
    """What stays the same during a run.

    Attributes:
      config: resolved configuration.
      method: the method.
      on_device: training arrays on the devices.
      evaluator: compares with the truth.
      checkpoints: saves and restores.
      mesh: devices.
      key: the run's key.
    """

    config: ml_collections.FrozenConfigDict
    method: Method
    on_device: TrainingData
    evaluator: Evaluator
    checkpoints: checkpoint.Checkpoints
    mesh: Mesh
    key: jax.Array

    def on_mesh(self, array: np.ndarray) -> jax.Array:
        """A host array on every device."""
        return sharding.replicate(array, self.mesh)

    @functools.cached_property
    def train_steps(self) -> list[Any]:
        """The compiled step of each stage."""
        return [engine.make_train(stage, self.mesh) for stage in self.method.stages]

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

    def steps_per_epoch(self, stage_index: int) -> int:
        """Steps of an epoch of a stage."""
        batching = self.method.stages[stage_index].batching
        return batching.steps_per_epoch(self.on_device.inputs.shape[0])


@dataclasses.dataclass
class Progressing:
    """What changes during a run.

    Attributes:
      position: where it stands.
      carry: state and metric sums.
      stopped_by: 0, or the number of the signal that ended it early.
      finished: whether all epochs are done.
    """

    position: Position
    carry: Carry
    stopped_by: int = 0
    finished: bool = False


class NonFiniteError(FloatingPointError):
    """Training met a number that is not finite and `run.nonfinite` is 'stop'."""


def prepare(
    config: ml_collections.FrozenConfigDict,
    data: PUDataset,
    *,
    folder: str,
    mesh: Mesh,
    fingerprint: dict[str, Any],
) -> Run:
    """Builds the method and puts the data on the devices.

    Raises:
      ValueError: if configuration and data do not go together, before anything is written.
    """
    method, seen = build(config, data, mesh)
    return Run(
        config=config,
        method=method,
        on_device=sharding.replicate(seen.training_data(), mesh),
        evaluator=Evaluator(method, data, mesh, batch_size=config.run.eval_batch_size),
        checkpoints=checkpoint.Checkpoints(
            folder, keep=config.run.keep_checkpoints, fingerprint=fingerprint
        ),
        mesh=mesh,
        key=engine.run_key(config.seed, mesh),
    )


def build(
    config: ml_collections.FrozenConfigDict, data: PUDataset, mesh: Mesh
) -> tuple[Method, PUDataset]:
    """The method a config names, and the data as that method is to see them.

    Raises:
      ValueError: if configuration and data do not go together.
    """
    module = methods.module(config.method.name)
    method = module.build(config, data.info)
    if method.needs_truth:
        data = data.reveal()
        method = module.build(config, data.info)
    for stage in method.stages:
        _check_batches(stage, data, mesh)
    return method, data


def _check_batches(stage: methods.Stage, data: PUDataset, mesh: Mesh) -> None:
    n, size = data.inputs.shape[0], stage.batching.batch_size
    if size > n:
        raise ValueError(
            f"method.batch_size is {size}; accepted: at most {n}, the number of training examples"
        )
    if size % mesh.size:
        raise ValueError(
            f"method.batch_size is {size}; accepted: a multiple of {mesh.size}, the number of "
            "devices that share a batch"
        )


def train(run: Run, writer: MetricsWriter | None, progress: Progress) -> Progressing:
    """Trains until the end, a stop asked for, or a signal, saving and evaluating on the way.

    Args:
      run: what `prepare` returned.
      writer: metrics files; None on hosts that write nothing.
      progress: the bar.

    Returns:
      Where the run stands; `carry.state` is the last state.

    Raises:
      NonFiniteError: see `run.nonfinite`; metrics and the last finite state are saved first.
    """
    now = _start(run, writer)
    progress.start_at(now.position.global_step)
    last = run.first_epochs[-1]
    stop_after = min(run.config.run.stop_after_epoch or last, last)
    with signals.StopRequest() as request:
        while now.position.epoch < stop_after and not now.stopped_by:
            _train_epoch(run, now, request, writer, progress)
    _save(run, now)
    now.finished = now.position.epoch == last
    return now


def _start(run: Run, writer: MetricsWriter | None) -> Progressing:
    """Resumes from the newest usable checkpoint, else starts from scratch."""
    for position in run.checkpoints.positions():
        try:
            carry = run.checkpoints.restore(position, _like(run, position))
        except (OSError, ValueError) as error:
            logging.warning("checkpoint %d passed over: %s", position.global_step, error)
            continue
        logging.info("going on after epoch %d, step %d", position.epoch, position.step)
        if writer:
            writer.truncate(position.epoch)
        return Progressing(position, carry)
    if writer:
        writer.truncate(0)
    return Progressing(Position(), _first_carry(run, 0, None))


def _first_carry(run: Run, index: int, previous: Any) -> Carry:
    """Carry at the start of a stage."""
    stage = run.method.stages[index]
    key = engine.stage_key(run.key, engine.INIT, index)
    state = engine.init_state(stage, key, previous, run.on_device, run.mesh)
    return Carry(state, engine.zero_sums(stage, state, run.on_device, run.mesh))


def _like(run: Run, position: Position) -> Carry:
    """Shapes, types and shardings of the carry at a position, without computing anything."""
    state = None
    key = jax.eval_shape(lambda: jax.random.key(0))
    # A state saved at a stage's first epoch is still the previous stage's: the next one starts
    # from it when its first epoch begins.
    index = run.stage_index(position.epoch)
    at_border = position.step == 0 and position.epoch == run.first_epochs[index] and index > 0
    for stage in run.method.stages[: index + (0 if at_border else 1)]:
        state = jax.eval_shape(stage.init, key, state, run.on_device)
    stage = run.method.stages[index - at_border]
    sums = engine.zero_sums(stage, state, run.on_device, run.mesh)
    where = sharding.replicated(run.mesh)
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), Carry(state, sums)
    )


def _train_epoch(run: Run, now: Progressing, request, writer, progress) -> None:
    """One epoch, or what is left of it; leaves `now` at a step border if a signal came."""
    epoch = now.position.epoch
    index = run.stage_index(epoch)
    stage, num_steps = run.method.stages[index], run.steps_per_epoch(index)
    started, first_step = time.monotonic(), now.position.step
    if now.position.step == 0:
        if epoch == run.first_epochs[index] and index > 0:
            now.carry = _first_carry(run, index, now.carry.state)
        if stage.refresh is not None:
            key = engine.stage_key(run.key, engine.REFRESH, epoch)
            now.carry = now.carry._replace(state=stage.refresh(now.carry.state, run.on_device, key))
        sums = engine.zero_sums(stage, now.carry.state, run.on_device, run.mesh)
        now.carry = now.carry._replace(sums=sums)

    plan = engine.epoch_plan(stage, run.key, epoch, run.on_device)
    train_steps = run.train_steps[index]
    per_call = engine.steps_per_dispatch(run.config.run.steps_per_dispatch)
    step, every, shown = now.position.step, run.config.run.progress_every, now.position.step
    while step < num_steps:
        count = min(per_call, num_steps - step)
        now.carry = train_steps(
            now.carry,
            run.on_device,
            plan,
            run.key,
            epoch,
            step,
            now.position.global_step,
            count=count,
        )
        step += count
        now.position = Position(epoch, step, now.position.global_step + count)
        signalled = bool(request.signal) and jax.process_count() == 1
        if step - shown >= every or step == num_steps or signalled:
            values = _fetch(run, now)
            progress.update(
                step - shown,
                epoch=epoch,
                num_epochs=run.first_epochs[-1],
                stage=stage.name,
                metrics=values,
            )
            shown = step
            if sharding.any_host(bool(request.signal)):
                now.stopped_by = request.signal or signal.SIGTERM
                if step < num_steps:
                    return
    now.position = Position(epoch + 1, 0, now.position.global_step)
    seconds = time.monotonic() - started
    examples = (num_steps - first_step) * stage.batching.batch_size
    _end_epoch(run, now, stage, seconds, examples, writer, progress)


def _fetch(run: Run, now: Progressing) -> dict[str, float]:
    """Metric means so far; ends the run if a step was not finite and the policy says so."""
    values = engine.means(now.carry.sums)
    if values["nonfinite"] and run.config.run.nonfinite == "stop":
        _save(run, now)
        raise NonFiniteError(
            f"{int(values['nonfinite'])} step(s) before step {now.position.global_step} gave a "
            "number that is not finite and were undone. The state before them is saved. Lower "
            "method.learning_rate, or set run.nonfinite='skip' to undo such steps and go on"
        )
    return values


def _end_epoch(run, now, stage, seconds, examples, writer, progress) -> None:
    """Writes the epoch's row, evaluates and saves where it is time."""
    epochs, total = now.position.epoch, run.first_epochs[-1]
    row = {"epoch": epochs - 1, "stage": stage.name, "step": now.position.global_step}
    row |= engine.means(now.carry.sums)
    if epochs % run.config.run.eval_every == 0 or epochs == total:
        test = run.evaluator.test(now.carry.state)
        row |= {f"test_{name}": value for name, value in test.items()}
        row |= run.evaluator.label_metrics(now.carry.state)
    row |= {"seconds": seconds, "examples_per_second": examples / max(seconds, 1e-9)}
    progress.update(0, epoch=epochs - 1, num_epochs=total, stage=stage.name, metrics=row)
    if writer:
        writer.append(row)
    if epochs % run.config.run.checkpoint_every == 0 and epochs != total:
        _save(run, now)


def _save(run: Run, now: Progressing) -> None:
    run.checkpoints.save(now.position, now.carry)
