"""The training loop: stages, epochs, evaluation and checkpoints of one seed, or of several.

A run resumes from its newest usable checkpoint if there is one, else it starts from scratch.

Seeds that train together share a program, see `seed_axis`. Every seed gets the numbers of a
separate run, up to rounding. One that meets a number that is not finite leaves the others, with a
checkpoint of its own in its own folder, and they go on.
"""

import collections
import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pujax.console import message
from pujax.data import streaming
from pujax.data.pu_dataset import TrainingData
from pujax.training import loop_state, nonfinite, preemption, seed_axis, sharding, train_step
from pujax.training.evaluation import evaluator as evaluator_lib
from pujax.training.evaluation import model_selection, one_class
from pujax.training.loop_state import LoopState
from pujax.training.progress import Progress
from pujax.training.run_state import Run
from pujax.training.train_step import Carry

_LOG = logging.getLogger(__name__)

_MOST_STEPS_BETWEEN_AGREEMENTS = 64
_SECONDS_BETWEEN_AGREEMENTS = 5.0
"""After so many steps, or the steps of so many seconds, several hosts tell each other of a signal.
A batch system may leave half a minute from a signal to the end."""
_CALLS_AHEAD = 2
"""Calls that devices have before them. More would be an epoch that no signal and no progress line
comes into: a call returns at once on an accelerator, and what waits for its result cannot be
interrupted. With fewer a device would wait for the host."""


class NonFiniteError(FloatingPointError):
    """Training met a number that is not finite and `run.nonfinite` is 'stop'."""


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
    state = loop_state.start(run)
    progress.start_at(state.position.global_step)
    stop_after = min(run.config.run.stop_after_epoch or run.num_epochs, run.num_epochs)
    while state.position.epoch < stop_after and not state.stopped_by:
        _train_epoch(state, request, progress)
    _finish_epoch(state)
    loop_state.save(state)
    state.run.checkpoints.wait()
    _note_signal(state, request)
    return state


def _note_signal(state: LoopState, request: preemption.StopRequest) -> None:
    """Notes a signal that any host received."""
    if sharding.any_host(bool(request.signal)):
        state.stopped_by = request.signal or signal.SIGTERM


def _train_epoch(state: LoopState, request: preemption.StopRequest, progress: Progress) -> None:
    """Trains one epoch, or the rest of a resumed one; stops between two steps if a signal came."""
    run, epoch = state.run, state.position.epoch
    index = run.stage_index(epoch)
    started = time.monotonic() - state.position.seconds
    if state.position.step == 0:
        refreshed = _refreshed(run, state.carry.state, epoch)
        state.carry = Carry(refreshed, loop_state.zero_sums(run, index, run.num_seeds))
    if state.data is None:
        state.data = _stage_data(run, index, state.carry.state)
    state.plan = train_step.epoch_plan(run.stages[index], run.key, epoch, run.on_device)
    with _profiled(run, epoch):
        started = _train_steps(state, index, started, request, progress)
    if state.position.step < run.steps_per_epoch(index):
        return
    state.position = state.position._replace(epoch=epoch + 1, step=0, seconds=0.0)
    _end_epoch(state, index, time.monotonic() - started, progress)


@contextlib.contextmanager
def _profiled(run: Run, epoch: int) -> Iterator[None]:
    """Traces the steps of the epoch that `run.profile_epoch` names, counted from 1.

    The steps of an epoch end with a look at their metrics, so that all of them are in the trace.
    """
    if run.config.run.get("profile_epoch", 0) != epoch + 1:
        yield
        return
    folder = os.path.join(run.members[0].folder, "profile")
    with jax.profiler.trace(folder):
        yield
    if sharding.is_writer():
        message(f"profile of epoch {epoch + 1} of {run.num_epochs}: {folder}")


def _refreshed(run: Run, state: Any, epoch: int) -> Any:
    """The state at the start of an epoch.

    Seed by seed: a refresh runs outside the compiled step, where it may decide on the host. What it
    computes there is that of the first host: others may round otherwise. Types stay as they were,
    which under `jax_enable_x64` are not always those of a host's numbers: a resume asks for them.
    """
    index = run.stage_index(epoch)
    stage_epoch = epoch - run.first_epochs[index]
    if not run.stages[index].is_refreshed(stage_epoch):
        return state
    key = train_step.stage_key(run.key, train_step.REFRESH, epoch)
    refreshes: list[Any] = [method.stages[index].refresh for method in run.methods]
    states = []
    for seed, refresh in enumerate(refreshes):
        before, *given = run.of_seed((state, run.on_device, key), seed)
        after = refresh(before, *given, stage_epoch)
        kind, kept = (str(jax.tree.structure(x)) for x in (after, before))
        if kind != kept:
            raise ValueError(
                f"refresh of stage {run.stages[index].name!r} returns {kind}; accepted: a state "
                f"like the one it is given, {kept}"
            )
        states.append(jax.tree.map(lambda old, new: _as_type(new, old.dtype), before, after))
    return seed_axis.join([sharding.arrays_of_first_host(own) for own in states], run.mesh)


def _as_type(array: Any, dtype: Any) -> Any:
    if not hasattr(array, "dtype"):  # a number of Python
        return np.asarray(array, dtype)
    return array if array.dtype == dtype else array.astype(dtype)


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
) -> float:
    """The steps of an epoch that are not done; stops between two if a signal came.

    Returns:
      `started`, moved on by the time that was not spent on these steps.
    """
    interval, last_report = state.run.config.run.progress_seconds, time.monotonic()
    num_steps = state.run.steps_per_epoch(index)
    per_call = train_step.steps_per_call(num_steps, _most_steps(state.run, state.carry.state))
    step = last_reported = state.position.step
    calls = _calls(state, num_steps, per_call)
    num_seeds = state.run.num_seeds
    until_agreement = 1
    ahead: collections.deque[jax.Array] = collections.deque()
    with contextlib.closing(_inputs(state, index)) as inputs:
        while calls:
            wanted, at = calls.popleft()
            _call(state, index, next(inputs), per_call, wanted, at)
            ahead.append(jnp.copy(state.carry.sums["steps"]))  # the next call overwrites the sums
            if len(ahead) > _CALLS_AHEAD:
                jax.block_until_ready(ahead.popleft())
            # The devices go on with these steps while the host ends the epoch before, and begin
            # with them when they are done with its evaluation.
            started += _finish_epoch(state)
            step += wanted
            now = time.monotonic()
            state.position = state.position._replace(seconds=now - started)
            if _num_hosts() == 1:
                is_due = now - last_report >= interval or bool(request.signal)
            else:  # hosts agree on a signal, so that all must ask for it after the same step
                is_due = step - last_reported >= until_agreement
            if is_due or step == num_steps:
                values = _fetch(state)
                progress.update(
                    step - last_reported,
                    epoch=state.position.epoch,
                    num_epochs=state.run.num_epochs,
                    stage=state.run.stages[index].name,
                    metrics={k: sum(x[k] for x in values) / len(values) for k in values[0]},
                )
                now = time.monotonic()
                until_agreement = _steps_between_agreements(step - last_reported, now - last_report)
                last_reported, last_report = step, now
                if state.run.num_seeds < num_seeds:  # those left may share the devices otherwise
                    calls, num_seeds = _calls(state, num_steps, per_call), state.run.num_seeds
                _note_signal(state, request)
                if state.stopped_by and step < num_steps:
                    break
    return started


def _num_hosts() -> int:
    """Processes that train this run together."""
    return jax.process_count()


def _steps_between_agreements(steps: int, seconds: float) -> int:
    """After how many steps hosts agree again, the same number on all of them.

    Args:
      steps: that were done and waited for.
      seconds: that these took on this host.
    """
    slowest = sharding.largest(seconds / max(steps, 1))
    if slowest * _MOST_STEPS_BETWEEN_AGREEMENTS <= _SECONDS_BETWEEN_AGREEMENTS:
        return _MOST_STEPS_BETWEEN_AGREEMENTS
    return max(int(_SECONDS_BETWEEN_AGREEMENTS / slowest), 1)


def _calls(
    state: LoopState, num_steps: int, per_call: int
) -> collections.deque[tuple[int, tuple[jax.Array, ...]]]:
    """For every call that is left of an epoch: how many of its steps are wanted, and its place.

    Places are numbers that the compiled call takes. All are sent to the devices before the first
    call, so that nothing is sent between two.
    """
    position = state.position
    at = position.epoch, position.step, position.global_step
    calls = train_step.calls(*at, num_steps=num_steps, per_call=per_call)
    on_devices = sharding.replicate_numbers([place for _, place in calls], state.run.mesh)
    return collections.deque(zip([wanted for wanted, _ in calls], on_devices, strict=True))


def _call(
    state: LoopState,
    index: int,
    inputs: TrainingData,
    count: int,
    wanted: int,
    at: tuple[jax.Array, ...],
) -> None:
    """The first `wanted` steps of a call of `count`."""
    run, position = state.run, state.position
    state.carry = run.train_steps[index](state.carry, inputs, state.plan, run.key, *at, count=count)
    state.position = position._replace(
        step=position.step + wanted, global_step=position.global_step + wanted
    )


def _most_steps(run: Run, state: Any) -> int:
    """How many steps one call may run."""
    axes = int(run.num_seeds > 1)  # told from the shapes alone: nothing is traced every epoch
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[axes:], x.dtype), state)
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
        is_saved = loop_state.save(state)
        which = ", ".join(f"{counts[i]} of seed {run.members[i].seed}" for i in bad)
        text = (
            f"steps up to {state.position.global_step} gave a number that is not finite and were "
            f"undone ({which}; {nonfinite.describe(state, bad[0])}); "
        )
        if is_saved:
            text += (
                "the state without them is saved. Go on from it with --config.run.nonfinite=skip "
                "(of a sweep --set=run.nonfinite=skip), or start in another folder, for example "
                "with a lower method.learning_rate"
            )
        else:
            text += (
                "the state without them is not finite either, and is not saved. Start in another "
                "folder, for example with a lower method.learning_rate"
            )
        raise NonFiniteError("; ".join([*state.left, text]))
    for i in bad:
        is_saved = loop_state.save_alone(state, i)  # before anything else can fail
        text = (
            f"seed {run.members[i].seed} left the others: {counts[i]} of its steps up to "
            f"{state.position.global_step} gave a number that is not finite and were undone "
            f"({nonfinite.describe(state, i)}); "
        )
        if is_saved:
            text += (
                f"its state without them is saved in {run.members[i].folder}. It goes on alone "
                "with --set=run.nonfinite=skip"
            )
        else:
            text += "its state without them is not finite either, and is not saved"
        _LOG.error(text)
        state.left.append(text)
    rest = [i for i in range(run.num_seeds) if i not in bad]
    loop_state.keep(state, rest)
    return [values[i] for i in rest]


def _finish_epoch(state: LoopState) -> float:
    """Does what `_end_epoch` left for later, if anything; returns how long the devices took of it.

    What the host does after that costs nothing: steps that were sent before run meanwhile, and what
    it waits for then may be those steps.
    """
    if state.unfinished is None:
        return 0.0
    started, finish = time.monotonic(), state.unfinished
    state.unfinished = None
    return finish() - started


def _end_epoch(state: LoopState, index: int, seconds: float, progress: Progress) -> None:
    """Evaluates, writes the epoch's rows, enters the next stage and saves where it is time.

    What the devices need not wait for is left to `_finish_epoch`: until something depends on it,
    or the next epoch has begun.
    """
    values = _fetch(state)
    run, stage = state.run, state.run.stages[index]
    epochs, total = state.position.epoch, run.num_epochs
    examples = run.steps_per_epoch(index) * stage.batching.batch_size * run.num_seeds
    time_columns = {
        "seconds": seconds / run.num_seeds,
        "examples_per_second": examples / max(seconds, 1e-9),
    }
    step = state.position.global_step
    counts_batches = run.on_device.labeled.dtype == bool and not stage.batching.num_positives
    ends_stage = epochs == run.first_epochs[index + 1]
    has_rule = loop_state.keeps_best(run, index)
    is_due = epochs % run.eval_every(index) == 0
    is_evaluated = is_due or epochs == total or (ends_stage and has_rule)
    evaluations = [
        run.evaluators[seed].begin(run.of_seed(state.carry.state, seed))
        if is_evaluated
        else evaluator_lib.Begun(dict)
        for seed in range(run.num_seeds)
    ]
    without = None
    if counts_batches:
        without = train_step.batches_without_positives(state.plan, run.on_device)
    keeps_best = is_evaluated and has_rule
    is_last_stage = index == len(run.stages) - 1

    def finish() -> float:
        for evaluation in evaluations:
            evaluation.wait()
        done, rows = time.monotonic(), []
        for seed, (means, evaluation) in enumerate(zip(values, evaluations, strict=True)):
            row = {"epoch": epochs - 1, "stage": stage.name, "step": step} | means
            if without is not None:
                counts = np.atleast_1d(sharding.to_host(without))
                row["batches_without_positives"] = int(counts[seed])
            rows.append(row | evaluation.row())
        if keeps_best:
            _keep_best(state, loop_state.rule(run, index), rows)
        for seed, row in enumerate(rows):
            row |= time_columns
            if run.writers:
                run.writers[seed].append(row)
                if is_evaluated and is_last_stage and progress.enabled:
                    _warn_of_one_class(run, seed)
        progress.update(0, epoch=epochs - 1, num_epochs=total, stage=stage.name, metrics=rows[-1])
        return done

    state.unfinished = finish
    saves = epochs % run.config.run.checkpoint_every == 0
    if keeps_best or ends_stage or saves:
        _finish_epoch(state)
    if ends_stage and epochs != total:
        loop_state.enter(state, index + 1)
    if saves and epochs != total:
        loop_state.save(state)


def _warn_of_one_class(run: Run, seed: int) -> None:
    """Says once that a seed, counted from 0, has predicted one class for several epochs."""
    period = one_class.reached(run.writers[seed].rows)
    if period is not None:
        config = run.members[seed].setup.config
        text = one_class.describe(period, config.method, run.stages[-1].batching)
        _LOG.warning("%s, seed %d: %s", config.method.name, config.seed, text)


def _keep_best(state: LoopState, rule: str, rows: Sequence[dict[str, Any]]) -> None:
    """Keeps the states of the seeds for which the rule prefers this epoch."""
    before = state.position.best_values
    # Other hosts may round otherwise, and keep another epoch of their part of the state.
    own = json.dumps([row[model_selection.COLUMNS[rule]] for row in rows], default=float)
    values = json.loads(sharding.of_first_host(own))
    is_better = [
        model_selection.improves(rule, value, best)
        for value, best in zip(values, before, strict=True)
    ]
    if not any(is_better):
        return
    state.best = loop_state.choose(is_better, state.carry.state, state.best)
    choices = zip(is_better, values, before, strict=True)
    state.position = state.position._replace(
        best_values=tuple(value if better else best for better, value, best in choices)
    )
