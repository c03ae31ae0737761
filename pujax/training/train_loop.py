"""The training loop: stages, epochs, evaluation and checkpoints of one seed, or of several.

A run resumes from its newest usable checkpoint if there is one, else it starts from scratch.

Seeds that train together share a program, see `seed_axis`. Every seed gets the numbers of a
separate run, up to rounding. One that meets a number that is not finite leaves the others, with a
checkpoint of its own in its own folder, and they go on.
"""

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from pujax.data import streaming
from pujax.data.pu_dataset import TrainingData
from pujax.training import preemption, seed_axis, sharding, train_step
from pujax.training.checkpoint import Checkpoints, Position
from pujax.training.evaluation import model_selection
from pujax.training.progress import Progress
from pujax.training.run_state import Run, own_checkpoints
from pujax.training.train_step import Carry


class NonFiniteError(FloatingPointError):
    """Training met a number that is not finite and `run.nonfinite` is 'stop'."""


@dataclasses.dataclass
class LoopState:
    """What changes during a run.

    Attributes:
      run: its fixed part, of the seeds that still train.
      position: where it stands.
      carry: state and metric sums.
      best: states of the epochs that `run.selection` prefers so far; None under 'last' and before
        the last stage.
      data: `TrainingData` of the current stage, see `Stage.encode`; None until its first epoch in
        this process.
      plan: `EpochPlan` of the current epoch.
      stopped_by: 0, or the number of the signal that ended it early.
      left: messages of the seeds that left the run.
    """

    run: Run
    position: Position
    carry: Carry
    best: Any = None
    data: Any = None
    plan: Any = None
    stopped_by: int = 0
    left: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are done."""
        return self.position.epoch == self.run.num_epochs

    def reported(self, seed: int) -> Any:
        """The state of one seed, counted from 0, that `run.selection` reports at the end.

        That of its best epoch, or the last one under 'last' or where no epoch had a value.
        """
        is_last = self.position.best_values[seed] is None
        return self.run.of_seed(self.carry.state if is_last else self.best, seed)


def train(run: Run, progress: Progress, request: preemption.StopRequest) -> LoopState:
    """Trains until the end, a stop asked for, or a signal, saving and evaluating on the way.

    Args:
      run: what `run_state.prepare` returned.
      progress: the bar.
      request: tells whether a signal came.

    Returns:
      The state of the run at its end.

    Raises:
      NonFiniteError: see `run.nonfinite`, if no seed is left; metrics and the last finite state
        are saved first.
    """
    state = start(run)
    progress.start_at(state.position.global_step)
    stop_after = min(run.config.run.stop_after_epoch or run.num_epochs, run.num_epochs)
    while state.position.epoch < stop_after and not state.stopped_by:
        _train_epoch(state, request, progress)
    _save(state)
    _note_signal(state, request)
    return state


def _note_signal(state: LoopState, request: preemption.StopRequest) -> None:
    """Notes a signal that any host received."""
    if sharding.any_host(bool(request.signal)):
        state.stopped_by = request.signal or signal.SIGTERM


def start(run: Run) -> LoopState:
    """Resumes from the newest usable checkpoint, else starts from scratch.

    Raises:
      ValueError: if a seed's folder and the checkpoint contradict each other.
    """
    restored = run.checkpoints.restore_newest(lambda position: _like(run, position))
    if restored is None:
        position = Position(members=tuple(run.indices), best_values=(None,) * run.num_seeds)
        state = LoopState(run, position, _first_carry(run, 0, None))
        state.best = _first_best(state)
    else:
        position, tree = restored
        logging.info("resuming after epoch %d, step %d", position.epoch, position.step)
        if list(position.members) != run.indices:
            run = run.keep(position.members)
        state = LoopState(run, position, tree["carry"], tree.get("best"))
    _leave_seeds_with_checkpoints(state)
    run, epoch = state.run, state.position.epoch
    for member in run.members:
        if member.is_finished and not state.is_finished:
            raise ValueError(
                f"{member.folder} holds a finished run, but its group has trained {epoch} epochs; "
                "accepted: the folders as written (remove the group's to train the others again)"
            )
    hole = next(filter(None, (writer.hole(epoch) for writer in run.writers)), "")
    if sharding.any_host(bool(hole)):
        raise ValueError(hole or "the first host's metrics lack an epoch; its message says more")
    for writer in run.writers:
        writer.truncate(epoch)
    return state


def _first_carry(run: Run, index: int, previous: Any) -> Carry:
    """Carry at the start of a stage."""
    key = train_step.stage_key(run.key, train_step.INIT, index)
    state = train_step.init_state(run.stages[index], key, previous, run.on_device, run.mesh)
    return Carry(state, _zero_sums(run, index, run.num_seeds))


def _zero_sums(run: Run, index: int, num_seeds: int) -> dict[str, jax.Array]:
    return train_step.zero_sums(run.metric_names[index], run.mesh, num_seeds=num_seeds)


def _keeps_best(run: Run, index: int) -> bool:
    """Whether a stage looks for its best epoch: stages before the last prepare it only."""
    is_last_stage = index == len(run.stages) - 1
    return is_last_stage and run.config.run.selection != model_selection.LAST


def _first_best(state: LoopState) -> Any:
    """The best state when a stage begins: a copy, since the next call donates the carry."""
    keeps = _keeps_best(state.run, state.run.stage_index(state.position.epoch))
    return jax.tree.map(jnp.copy, state.carry.state) if keeps else None


def _like(run: Run, position: Position) -> dict[str, Any]:
    """Shapes, types and shardings of a checkpoint at a position, without computing anything."""
    index, count = run.stage_index(position.epoch), len(position.members)
    stages = run.methods[0].stages[: index + 1]
    state = seed_axis.state_shapes(stages, run.members[0].setup.data.training_data())
    axis = (count,) if count > 1 else ()
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct((*axis, *x.shape), x.dtype), state)
    tree = {"carry": Carry(state, _zero_sums(run, index, count))}
    if _keeps_best(run, index):
        tree["best"] = state
    where = sharding.replicated(run.mesh)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)


def _train_epoch(state: LoopState, request: preemption.StopRequest, progress: Progress) -> None:
    """Trains one epoch, or the rest of a resumed one; stops between two steps if a signal came."""
    run, epoch = state.run, state.position.epoch
    index = run.stage_index(epoch)
    started = time.monotonic() - state.position.seconds
    if state.position.step == 0:
        refreshed = _refreshed(run, state.carry.state, epoch)
        state.carry = Carry(refreshed, _zero_sums(run, index, run.num_seeds))
    if state.data is None:
        state.data = _stage_data(run, index, state.carry.state)
    state.plan = train_step.epoch_plan(run.stages[index], run.key, epoch, run.on_device)
    _train_steps(state, index, started, request, progress)
    if state.position.step < run.steps_per_epoch(index):
        return
    state.position = state.position._replace(epoch=epoch + 1, step=0, seconds=0.0)
    _end_epoch(state, index, time.monotonic() - started, progress)


def _refreshed(run: Run, state: Any, epoch: int) -> Any:
    """The state at the start of an epoch.

    Seed by seed: a refresh runs outside the compiled step, where it may decide on the host.
    """
    index = run.stage_index(epoch)
    stage_epoch = epoch - run.first_epochs[index]
    if not run.stages[index].is_refreshed(stage_epoch):
        return state
    key = train_step.stage_key(run.key, train_step.REFRESH, epoch)
    refreshes: list[Any] = [method.stages[index].refresh for method in run.methods]
    states = [
        refresh(*run.of_seed((state, run.on_device, key), seed), stage_epoch)
        for seed, refresh in enumerate(refreshes)
    ]
    return seed_axis.join(states, run.mesh)


def _stage_data(run: Run, index: int, state: Any) -> TrainingData:
    """What a stage trains on, of every seed."""
    if run.stages[index].encode is None:
        return run.on_device
    size, datas = run.config.run.eval_batch_size, []
    for seed, method in enumerate(run.methods):
        own, data = run.of_seed((state, run.on_device), seed)
        stage = method.stages[index]
        datas.append(train_step.stage_data(stage, own, data, run.mesh, batch_size=size))
    return seed_axis.join(datas, run.mesh)


def _inputs(state: LoopState, index: int) -> Generator[TrainingData, None, None]:
    """The training data for each call of an epoch, or of the rest of a resumed one.

    All examples every time; where images are streamed, the images of one batch.
    """
    run = state.run
    if run.streamed is None:
        while True:
            yield state.data
    batching = run.stages[index].batching
    batches = streaming.train_batches(
        run.streamed,
        sharding.to_host(state.plan.ids),
        seed=run.config.seed,
        epoch=state.position.epoch,
        first_step=state.position.step,
        crop_sizes=batching.crop_sizes,
        sharding=sharding.of_batch(batching.batch_size, run.mesh),
    )
    with contextlib.closing(batches):
        for images in batches:
            yield state.data._replace(inputs=images)


def _train_steps(
    state: LoopState,
    index: int,
    started: float,
    request: preemption.StopRequest,
    progress: Progress,
) -> None:
    """The steps of an epoch that are not done; stops between two if a signal came."""
    interval = state.run.config.run.progress_every
    num_steps = state.run.steps_per_epoch(index)
    per_call = _steps_per_call(state.run, state.carry.state)
    step = last_reported = state.position.step
    with contextlib.closing(_inputs(state, index)) as inputs:
        while step < num_steps:
            count = min(per_call, num_steps - step)
            _call(state, index, next(inputs), count)
            step += count
            seconds = time.monotonic() - started
            state.position = state.position._replace(seconds=seconds)
            signalled = bool(request.signal) and jax.process_count() == 1
            if step - last_reported >= interval or step == num_steps or signalled:
                values = _fetch(state)
                progress.update(
                    step - last_reported,
                    epoch=state.position.epoch,
                    num_epochs=state.run.num_epochs,
                    stage=state.run.stages[index].name,
                    metrics={k: sum(x[k] for x in values) / len(values) for k in values[0]},
                )
                last_reported = step
                _note_signal(state, request)
                if state.stopped_by and step < num_steps:
                    return


def _call(state: LoopState, index: int, inputs: TrainingData, count: int) -> None:
    """Some steps in one call."""
    run, position = state.run, state.position
    at = (position.epoch, position.step, position.global_step)
    state.carry = run.train_steps[index](state.carry, inputs, state.plan, run.key, *at, count=count)
    state.position = position._replace(
        step=position.step + count, global_step=position.global_step + count
    )


def _steps_per_call(run: Run, state: Any) -> int:
    """How many steps one call runs."""
    one = jax.eval_shape(lambda x: run.of_seed(x, 0), state)
    per_call = train_step.steps_per_dispatch(run.config.run.steps_per_dispatch, one)
    return per_call if run.streamed is None else 1


def _fetch(state: LoopState) -> list[dict[str, float]]:
    """Metric means so far of every seed; one that was not finite leaves if the policy says so.

    Raises:
      NonFiniteError: if no seed is left.
    """
    run, values = state.run, train_step.means(state.carry.sums)
    bad = [i for i, metrics in enumerate(values) if metrics["nonfinite"]]
    if not bad or run.config.run.nonfinite != "stop":
        return values
    counts = {i: int(values[i]["nonfinite"]) for i in bad}
    if len(bad) == run.num_seeds:
        _save(state)
        which = ", ".join(f"{counts[i]} of seed {run.members[i].seed}" for i in bad)
        raise NonFiniteError(
            f"steps up to {state.position.global_step} gave a number that is not finite and were "
            f"undone ({which}); the state without them is saved. Go on from it with "
            "--config.run.nonfinite=skip, or start in another folder, for example with a lower "
            "method.learning_rate"
        )
    for i in bad:
        text = (
            f"seed {run.members[i].seed} left the others: {counts[i]} of its steps up to "
            f"{state.position.global_step} gave a number that is not finite and were undone; its "
            f"state without them is saved in {run.members[i].folder}. It goes on alone with "
            "--config.run.nonfinite=skip"
        )
        logging.error(text)
        state.left.append(text)
        _save_alone(state, i)
    rest = [i for i in range(run.num_seeds) if i not in bad]
    _keep(state, rest)
    return [values[i] for i in rest]


def _save_alone(state: LoopState, seed: int) -> None:
    """Saves one seed, counted from 0, as if it had trained alone."""
    run, position = state.run, state.position
    member = run.members[seed]
    checkpoints = Checkpoints(
        own_checkpoints(member),
        keep=run.config.run.keep_checkpoints,
        fingerprint=member.setup.fingerprint(),
    )
    with contextlib.closing(checkpoints):
        position = position._replace(members=(0,), best_values=(position.best_values[seed],))
        checkpoints.save(position, run.of_seed(_tree(state), seed))


def _keep(state: LoopState, seeds: Sequence[int]) -> None:
    """Keeps some of the seeds, counted from 0, and drops the others."""
    position, mesh = state.position, state.run.mesh
    state.run = state.run.keep(seeds)
    state.carry = seed_axis.keep(state.carry, seeds, mesh)
    state.best = None if state.best is None else seed_axis.keep(state.best, seeds, mesh)
    state.data = None if state.data is None else seed_axis.keep(state.data, seeds, mesh)
    state.plan = None if state.plan is None else seed_axis.keep(state.plan, seeds, mesh)
    state.position = position._replace(
        members=tuple(position.members[seed] for seed in seeds),
        best_values=tuple(position.best_values[seed] for seed in seeds),
    )


def _leave_seeds_with_checkpoints(state: LoopState) -> None:
    """Drops the seeds that left the others after the group's newest checkpoint.

    Such a seed has checkpoints of its own.
    """
    if state.run.num_seeds == 1:
        return
    alone = [os.path.isdir(own_checkpoints(member)) for member in state.run.members]
    rest = [i for i, is_alone in enumerate(alone) if not is_alone]
    if rest and len(rest) < len(alone):
        _keep(state, rest)


def _end_epoch(state: LoopState, index: int, seconds: float, progress: Progress) -> None:
    """Writes the epoch's rows, evaluates, enters the next stage and saves where it is time."""
    values = _fetch(state)
    run, stage = state.run, state.run.stages[index]
    epochs, total = state.position.epoch, run.num_epochs
    examples = run.steps_per_epoch(index) * stage.batching.batch_size * run.num_seeds
    time_columns = {
        "seconds": seconds / run.num_seeds,
        "examples_per_second": examples / max(seconds, 1e-9),
    }
    is_evaluated = epochs % run.config.run.eval_every == 0 or epochs == total
    rows = []
    for seed, means in enumerate(values):
        row = {"epoch": epochs - 1, "stage": stage.name, "step": state.position.global_step}
        row |= means
        if is_evaluated:
            row |= run.evaluators[seed].row(run.of_seed(state.carry.state, seed))
        rows.append(row)
    if is_evaluated and _keeps_best(run, index):
        _keep_best(state, rows)
    for seed, row in enumerate(rows):
        row |= time_columns
        if run.writers:
            run.writers[seed].append(row)
    progress.update(0, epoch=epochs - 1, num_epochs=total, stage=stage.name, metrics=rows[-1])
    if epochs == run.first_epochs[index + 1] and epochs != total:
        state.carry, state.data = _first_carry(run, index + 1, state.carry.state), None
        state.best = _first_best(state)
    if epochs % run.config.run.checkpoint_every == 0 and epochs != total:
        _save(state)


def _keep_best(state: LoopState, rows: Sequence[dict[str, Any]]) -> None:
    """Keeps the states of the seeds for which `run.selection` prefers this epoch."""
    rule = state.run.config.run.selection
    before = state.position.best_values
    values = [row[model_selection.COLUMNS[rule]] for row in rows]
    is_better = [
        model_selection.improves(rule, value, best)
        for value, best in zip(values, before, strict=True)
    ]
    if not any(is_better):
        return
    mask = np.asarray(is_better if state.run.num_seeds > 1 else is_better[0])
    state.best = _choose(mask, state.carry.state, state.best)
    choices = zip(is_better, values, before, strict=True)
    state.position = state.position._replace(
        best_values=tuple(value if better else best for better, value, best in choices)
    )


@jax.jit
def _choose(mask: jax.Array, new: Any, old: Any) -> Any:
    """`new` for the seeds of the mask, else `old`."""

    def of_leaf(a, b):
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return jax.tree.map(of_leaf, new, old)


def _tree(state: LoopState) -> dict[str, Any]:
    """What a checkpoint holds."""
    return {"carry": state.carry} | ({} if state.best is None else {"best": state.best})


def _save(state: LoopState) -> None:
    state.run.checkpoints.save(state.position, _tree(state))
