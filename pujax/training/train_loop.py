"""The loop: one function per thing that happens in a run, from nothing to a summary.

Start, in this order: check the configuration, load and split the data, build the method, then go on
from the newest usable checkpoint of the run's folder if there is one, else from scratch.
"""

import contextlib
import dataclasses
import signal
import time
from collections.abc import Iterator
from typing import Any

import jax
from absl import logging

from pujax.data import streaming
from pujax.data.pu_dataset import TrainingData
from pujax.training import preemption, sharding, train_step
from pujax.training.checkpoint import Position
from pujax.training.metrics_writer import MetricsWriter
from pujax.training.progress import Progress
from pujax.training.run_state import Built, Run, build, prepare
from pujax.training.train_step import Carry

__all__ = [
    "Built",
    "NonFiniteError",
    "Progressing",
    "Run",
    "build",
    "prepare",
    "reported_state",
    "train",
]


@dataclasses.dataclass
class Progressing:
    """What changes during a run.

    Attributes:
      position: where it stands.
      carry: state and metric sums.
      data: of the current stage, see `Stage.encode`; None until its first epoch here.
      stopped_by: 0, or the number of the signal that ended it early.
      finished: whether all epochs are done.
    """

    position: Position
    carry: Carry
    data: TrainingData | None = None
    stopped_by: int = 0
    finished: bool = False


class NonFiniteError(FloatingPointError):
    """Training met a number that is not finite and `run.nonfinite` is 'stop'."""


def train(
    run: Run, writer: MetricsWriter | None, progress: Progress, request: preemption.StopRequest
) -> Progressing:
    """Trains until the end, a stop asked for, or a signal, saving and evaluating on the way.

    Args:
      run: what `prepare` returned.
      writer: metrics files; None on hosts that write nothing.
      progress: the bar.
      request: tells whether a signal came.

    Returns:
      Where the run stands; `carry.state` is the last state.

    Raises:
      NonFiniteError: see `run.nonfinite`; metrics and the last finite state are saved first.
    """
    now = _start(run, writer)
    progress.start_at(now.position.global_step)
    last = run.first_epochs[-1]
    stop_after = min(run.config.run.stop_after_epoch or last, last)
    while now.position.epoch < stop_after and not now.stopped_by:
        _train_epoch(run, now, request, writer, progress)
    _save(run, now)
    _heed(now, request)
    now.finished = now.position.epoch == last
    return now


def _heed(now: Progressing, request: preemption.StopRequest) -> None:
    """Notes a signal that any host received."""
    if sharding.any_host(bool(request.signal)):
        now.stopped_by = request.signal or signal.SIGTERM


def _start(run: Run, writer: MetricsWriter | None) -> Progressing:
    """Resumes from the newest usable checkpoint, else starts from scratch.

    Raises:
      ValueError: if the metrics lack an epoch that the checkpoint has behind it.
    """
    found = run.checkpoints.restore_newest(lambda position: _like(run, position))
    if found is None:
        now = Progressing(Position(), _first_carry(run, 0, None))
    else:
        now = Progressing(*found)
        logging.info("going on after epoch %d, step %d", now.position.epoch, now.position.step)
    hole = writer.hole(now.position.epoch) if writer else ""
    if sharding.any_host(bool(hole)):
        raise ValueError(hole or "the first host's metrics lack an epoch; its message says more")
    if writer:
        writer.truncate(now.position.epoch)
    run.keeper.start_at(now.position)
    return now


def reported_state(run: Run, now: Progressing) -> Any:
    """The state that `run.selection` reports: the last one, or that of the best epoch.

    Args:
      run: what `prepare` returned.
      now: what `train` returned at the end of all epochs.

    Returns:
      A state of the last stage.

    Raises:
      ValueError: if the selected state is missing or damaged.
    """
    like = _like(run, Position(run.first_epochs[-1])).state
    return run.keeper.reported(now.position, now.carry.state, like)


def _first_carry(run: Run, index: int, previous: Any) -> Carry:
    """Carry at the start of a stage."""
    stage = run.method.stages[index]
    key = train_step.stage_key(run.key, train_step.INIT, index)
    state = train_step.init_state(stage, key, previous, run.on_device, run.mesh)
    return Carry(state, train_step.zero_sums(run.metric_names[index], run.mesh))


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
    sums = train_step.zero_sums(run.metric_names[index - at_border], run.mesh)
    where = sharding.replicated(run.mesh)
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), Carry(state, sums)
    )


def _train_epoch(run: Run, now: Progressing, request, writer, progress) -> None:
    """One epoch, or what is left of it; leaves `now` at a step border if a signal came."""
    epoch = now.position.epoch
    index = run.stage_index(epoch)
    stage, num_steps = run.method.stages[index], run.steps_per_epoch(index)
    started = time.monotonic() - now.position.seconds
    if now.position.step == 0:
        if epoch == run.first_epochs[index] and index > 0:
            now.carry, now.data = _first_carry(run, index, now.carry.state), None
        stage_epoch = epoch - run.first_epochs[index]
        if stage.is_refreshed(stage_epoch):
            key = train_step.stage_key(run.key, train_step.REFRESH, epoch)
            state = stage.refresh(now.carry.state, run.on_device, key, stage_epoch)
            now.carry = now.carry._replace(state=sharding.gather(state, run.mesh))
        sums = train_step.zero_sums(run.metric_names[index], run.mesh)
        now.carry = now.carry._replace(sums=sums)

    if now.data is None:
        size = run.config.run.eval_batch_size
        now.data = train_step.stage_data(
            stage, now.carry.state, run.on_device, run.mesh, batch_size=size
        )
    plan = train_step.epoch_plan(stage, run.key, epoch, run.on_device)
    with contextlib.closing(_inputs(run, now, stage, plan)) as inputs:
        _train_steps(run, now, inputs, plan, num_steps, started, request, progress)
    if now.position.step < num_steps:
        return
    now.position = now.position._replace(epoch=epoch + 1, step=0, seconds=0.0)
    seconds = time.monotonic() - started
    examples = num_steps * stage.batching.batch_size
    _end_epoch(run, now, stage, seconds, examples, writer, progress)


def _inputs(run: Run, now: Progressing, stage, plan) -> Iterator[TrainingData]:
    """What the calls of an epoch, or of what is left of it, look their batches up in.

    All the data every time; where images are streamed, those of one batch.
    """
    if run.streamed is None:
        while True:
            yield now.data
    batches = streaming.train_batches(
        run.streamed,
        sharding.to_host(plan.ids),
        seed=run.config.seed,
        epoch=now.position.epoch,
        first_step=now.position.step,
        crop_sizes=stage.batching.crop_sizes,
        sharding=sharding.of_batch(stage.batching.batch_size, run.mesh),
    )
    with contextlib.closing(batches):
        for images in batches:
            yield now.data._replace(inputs=images)


def _train_steps(run: Run, now: Progressing, inputs, plan, num_steps, started, request, progress):
    """The steps of an epoch; leaves `now` at a step border if a signal came."""
    epoch = now.position.epoch
    index = run.stage_index(epoch)
    stage, train_steps = run.method.stages[index], run.train_steps[index]
    per_call = train_step.steps_per_dispatch(run.config.run.steps_per_dispatch, now.carry.state)
    per_call = per_call if run.streamed is None else 1
    step, every, shown = now.position.step, run.config.run.progress_every, now.position.step
    while step < num_steps:
        count = min(per_call, num_steps - step)
        now.carry = train_steps(
            now.carry,
            next(inputs),
            plan,
            run.key,
            epoch,
            step,
            now.position.global_step,
            count=count,
        )
        step += count
        global_step = now.position.global_step + count
        now.position = now.position._replace(
            step=step, global_step=global_step, seconds=time.monotonic() - started
        )
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
            _heed(now, request)
            if now.stopped_by and step < num_steps:
                return


def _fetch(run: Run, now: Progressing) -> dict[str, float]:
    """Metric means so far; ends the run if a step was not finite and the policy says so."""
    values = train_step.means(now.carry.sums)
    if values["nonfinite"] and run.config.run.nonfinite == "stop":
        _save(run, now)
        undone = int(values["nonfinite"])
        raise NonFiniteError(
            f"{undone} of the steps up to {now.position.global_step} gave a "
            "number that is not finite and were undone; the state without them is saved. Go on "
            "from it with --config.run.nonfinite=skip, or start in another folder, for example "
            "with a lower method.learning_rate"
        )
    return values


def _end_epoch(run, now, stage, seconds, examples, writer, progress) -> None:
    """Writes the epoch's row, evaluates and saves where it is time."""
    epochs, total = now.position.epoch, run.first_epochs[-1]
    row = {"epoch": epochs - 1, "stage": stage.name, "step": now.position.global_step}
    row |= _fetch(run, now)
    if epochs % run.config.run.eval_every == 0 or epochs == total:
        row |= run.evaluator.row(now.carry.state)
        if run.stage_index(epochs - 1) == run.stage_index(total - 1):
            now.position = run.keeper.offer(now.position, row, now.carry.state)
    row |= {"seconds": seconds, "examples_per_second": examples / max(seconds, 1e-9)}
    progress.update(0, epoch=epochs - 1, num_epochs=total, stage=stage.name, metrics=row)
    if writer:
        writer.append(row)
    if epochs % run.config.run.checkpoint_every == 0 and epochs != total:
        _save(run, now)


def _save(run: Run, now: Progressing) -> None:
    run.checkpoints.save(now.position, now.carry)
