"""The state of a training loop: where it starts, what is saved of it, and seeds that leave it."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pujax.training import checkpoint, compile_ahead, seed_axis, sharding, train_step
from pujax.training import config as config_lib
from pujax.training.checkpoint import Checkpoints, Position
from pujax.training.evaluation import model_selection
from pujax.training.run_state import Run, own_checkpoints
from pujax.training.train_step import Carry

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass
class LoopState:
    """What changes during a run.

    Attributes:
      run: its fixed part, of the seeds that still train.
      position: where it stands.
      carry: state and metric sums.
      best: states of the stage's epochs that its rule prefers so far; None under 'last'.
      data: `TrainingData` of the current stage, see `Stage.encode`; None until its first epoch in
        this process.
      plan: `EpochPlan` of the current epoch.
      unfinished: what is left to do of the epoch before: its rows; None if nothing. It returns when
        the devices were done with their part of it, on the clock `time.monotonic`.
      stopped_by: 0, or the number of the signal that ended it early.
      left: messages of the seeds that left the run.
    """

    run: Run
    position: Position
    carry: Carry
    best: Any = None
    data: Any = None
    plan: Any = None
    unfinished: Callable[[], float] | None = None
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

    def handed_on(self) -> Any:
        """The states of all seeds that the next stage starts from, chosen likewise."""
        has_best = [value is not None for value in self.position.best_values]
        if all(has_best) or not any(has_best):
            return self.best if any(has_best) else self.carry.state
        return choose(has_best, self.best, self.carry.state)


def start(run: Run) -> LoopState:
    """Resumes from the newest usable checkpoint, else starts from scratch.

    Raises:
      ValueError: if a seed's folder and the checkpoint contradict each other.
    """
    restored = run.checkpoints.restore_newest(lambda position: _like(run, position))
    if restored is None:
        position = Position(members=tuple(run.indices), best_values=(None,) * run.num_seeds)
        state = LoopState(run, position, first_carry(run, 0, None))
        state.best = first_best(state)
    else:
        position, tree = restored
        _LOG.info("resuming after epoch %d, step %d", position.epoch, position.step)
        if list(position.members) != run.indices:
            run = run.keep(position.members)
        compile_ahead.finish(run.train_steps[run.stage_index(position.epoch)])
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
    run.describe()
    for writer in run.writers:
        if restored is None and writer.rows:
            _LOG.warning(
                "the run ended before its first checkpoint, after %d epochs: it starts again",
                len(writer.rows),
            )
        writer.truncate(epoch)
    return state


def first_carry(run: Run, index: int, previous: Any) -> Carry:
    """Carry at the start of a stage."""
    compile_ahead.finish(run.train_steps[index])
    key = train_step.stage_key(run.key, train_step.INIT, index)
    state = train_step.init_state(run.stages[index], key, previous, run.on_device, run.mesh)
    return Carry(state, zero_sums(run, index, run.num_seeds))


def zero_sums(run: Run, index: int, num_seeds: int) -> dict[str, jax.Array]:
    """Metric sums of a stage at the start of an epoch."""
    return train_step.zero_sums(run.metric_names[index], run.mesh, num_seeds=num_seeds)


def rule(run: Run, index: int) -> str:
    """By which of `model_selection.RULES` the best epoch of a stage is found."""
    if index == len(run.stages) - 1:
        return run.config.run.selection
    is_held_out = config_lib.holds_out(run.config)
    return run.stages[index].selection if is_held_out else model_selection.LAST


def keeps_best(run: Run, index: int) -> bool:
    """Whether a stage looks for its best epoch."""
    return rule(run, index) != model_selection.LAST


def first_best(state: LoopState) -> Any:
    """The best state when a stage begins: a copy, since the next call donates the carry."""
    keeps = keeps_best(state.run, state.run.stage_index(state.position.epoch))
    return jax.tree.map(jnp.copy, state.carry.state) if keeps else None


def enter(state: LoopState, index: int) -> None:
    """Begins a stage with what the one before hands on."""
    state.carry, state.data = first_carry(state.run, index, state.handed_on()), None
    state.position = state.position._replace(best_values=(None,) * state.run.num_seeds)
    state.best = first_best(state)


def choose(is_new: Sequence[bool], new: Any, old: Any) -> Any:
    """`new` for the seeds where this says so, else `old`."""
    mask = np.asarray(is_new if len(is_new) > 1 else is_new[0])
    return _choose(mask, new, old)


@jax.jit
def _choose(mask: jax.Array, new: Any, old: Any) -> Any:
    def of_leaf(a, b):
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return jax.tree.map(of_leaf, new, old)


def _like(run: Run, position: Position) -> dict[str, Any]:
    """Shapes, types and shardings of a checkpoint at a position, without computing anything."""
    index, count = run.stage_index(position.epoch), len(position.members)
    stages = run.methods[0].stages[: index + 1]
    state = seed_axis.state_shapes(stages, run.members[0].setup.data.training_data())
    axis = (count,) if count > 1 else ()
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct((*axis, *x.shape), x.dtype), state)
    sums: Any = train_step.sum_shapes(run.metric_names[index], num_seeds=count)
    tree = {"carry": Carry(state, sums)}
    if keeps_best(run, index):
        tree["best"] = state
    # The rows of the mesh are for all seeds of the run, of which some may have left since.
    is_whole = count == run.num_seeds
    where = sharding.of_seeds(run.mesh) if is_whole else sharding.replicated(run.mesh)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)


def save_alone(state: LoopState, seed: int) -> bool:
    """Saves one seed, counted from 0, as if it had trained alone; False if it is not finite."""
    run, position = state.run, state.position
    member = run.members[seed]
    checkpoints = Checkpoints(
        own_checkpoints(member),
        keep=run.config.run.keep_checkpoints,
        fingerprint=member.setup.fingerprint(),
    )
    with contextlib.closing(checkpoints):
        position = position._replace(members=(0,), best_values=(position.best_values[seed],))
        return checkpoints.save(position, run.of_seed(_tree(state), seed))


def keep(state: LoopState, seeds: Sequence[int]) -> None:
    """Keeps some of the seeds, counted from 0, and drops the others."""
    position = state.position
    is_whole = state.data is state.run.on_device
    state.run = state.run.keep(seeds)
    mesh = state.run.mesh
    state.carry = seed_axis.keep(state.carry, seeds, mesh)
    state.best = None if state.best is None else seed_axis.keep(state.best, seeds, mesh)
    if is_whole:  # one copy serves both
        state.data = state.run.on_device
    else:
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
    alone = [checkpoint.exists(own_checkpoints(member)) for member in state.run.members]
    rest = [i for i, is_alone in enumerate(alone) if not is_alone]
    if rest and len(rest) < len(alone):
        keep(state, rest)


def _tree(state: LoopState) -> dict[str, Any]:
    """What a checkpoint holds."""
    return {"carry": state.carry} | ({} if state.best is None else {"best": state.best})


def save(state: LoopState) -> bool:
    """Saves a checkpoint of the run; False where a number in it is not finite."""
    return state.run.checkpoints.save(state.position, _tree(state))
