"""Several seeds of one configuration in one program, each with its own split, keys and folder.

State, data and randomness of the seeds lie along a leading axis (see `stacked`), so that a mean and
a standard deviation cost little more than one run where a device has room to spare. Every seed
computes what it would compute alone, to rounding, and leaves the folder that it would leave alone,
but for figures. The group saves and resumes as one.
"""

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from absl import logging
from jax.sharding import Mesh

from pujax.files import to_plain, write_json
from pujax.training import group as group_lib
from pujax.training import init_from, preemption, sharding, stacked, train_loop, train_step
from pujax.training.checkpoint import Position
from pujax.training.evaluation import model_selection, tasks
from pujax.training.group import Group, Member
from pujax.training.progress import Progress
from pujax.training.train_step import Carry


@dataclasses.dataclass
class Progressing:
    """What changes while a group trains.

    Attributes:
      position: where it stands.
      carry: state and metric sums, stacked.
      data: of the current stage, stacked, see `Stage.encode`; None until its first epoch here.
      kept: states of the epochs that `run.selection` prefers so far, stacked; None under 'last'.
        Before the last stage they mean nothing.
    """

    position: Position
    carry: Carry
    kept: Any
    data: Any = None

    def tree(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"carry": self.carry} | ({} if self.kept is None else {"kept": self.kept})


def train(
    members: Sequence[Member], folder: str, mesh: Mesh, request: preemption.StopRequest
) -> list[dict[str, Any]] | None:
    """Trains a group to its end, or goes on with it.

    Args:
      members: the seeds; `group.obstacle` must find nothing.
      folder: of the group's checkpoints.
      mesh: devices.
      request: tells whether a signal came.

    Returns:
      The summaries, also written to every member's folder, or None after `run.stop_after_epoch`.

    Raises:
      SystemExit: after a signal, once all is saved.
      NonFiniteError: see `run.nonfinite`; the group is saved first.
      ValueError: if the folders hold something else.
    """
    group = group_lib.prepare(members, folder, mesh)
    steps = [group.steps_per_epoch(i) * x[0].num_epochs for i, x in enumerate(group.stages)]
    config = members[0].built.config
    seeds = ", ".join(str(member.built.config.seed) for member in members)
    try:
        with Progress(sum(steps), description=f"{config.method.name} x {len(members)}") as progress:
            now = _start(group)
            progress.start_at(now.position.global_step)
            total = group.stage_ends[-1]
            last = min(config.run.stop_after_epoch or total, total)
            while now.position.epoch < last and not request.signal:
                _train_epoch(group, now, request, progress)
            _save(group, now)
        if request.signal:
            logging.info("seeds %s: saved after epoch %d", seeds, now.position.epoch)
            raise SystemExit(128 + request.signal)
        return _finish(group, now) if now.position.epoch == total else None
    finally:
        group.close()


def _start(group: Group) -> Progressing:
    """Resumes from the newest usable checkpoint, else starts from scratch.

    Raises:
      ValueError: if a member's folder says something else than the group's checkpoint.
    """
    found = group.checkpoints.restore_newest(lambda position: _like(group, position))
    if found is None:
        now = Progressing(Position(), None, None)
        _enter_stage(group, now, 0, None)
    else:
        position, tree = found
        now = Progressing(position, tree["carry"], tree.get("kept"))
        logging.info("going on after epoch %d, step %d", position.epoch, position.step)
    epoch = now.position.epoch
    for member, writer in zip(group.members, group.writers, strict=True):
        if member.finished and epoch < group.stage_ends[-1]:
            raise ValueError(
                f"{member.folder} holds a finished run, but its group has trained {epoch} epochs; "
                "accepted: the folders as written (remove the group's to train the others anew)"
            )
        hole = writer.hole(epoch)
        if hole:
            raise ValueError(hole)
    for writer in group.writers:
        writer.truncate(epoch)
    return now


def _enter_stage(group: Group, now: Progressing, index: int, previous: Any) -> None:
    """Puts the state at the start of a stage into `now`."""
    keys = stacked.stage_keys(group.keys, train_step.INIT, index)
    stages = group.stages[index]
    state = stacked.init_state(stages, keys, previous, group.on_device, group.mesh)
    now.data = None
    now.carry = Carry(state, _zero_sums(group, index))
    if group.run.selection != model_selection.LAST:
        now.kept = jax.tree.map(jnp.copy, state)


def _zero_sums(group: Group, index: int) -> dict[str, jax.Array]:
    return train_step.zero_sums(group.metric_names[index], group.mesh, num_seeds=len(group.members))


def _like(group: Group, position: Position) -> dict[str, Any]:
    """Shapes, types and shardings of what a checkpoint at a position holds."""
    index = group.stage_index(position.epoch)
    keys, state = jax.eval_shape(lambda: group.keys), None
    for stages in group.stages[: index + 1]:
        init = stacked.over_seeds([stage.init for stage in stages])
        state = jax.eval_shape(init, keys, state, group.on_device)
    tree = {"carry": Carry(state, _zero_sums(group, index))}
    if group.run.selection != model_selection.LAST:
        tree["kept"] = state
    where = sharding.replicated(group.mesh)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)


def _train_epoch(group: Group, now: Progressing, request, progress) -> None:
    """One epoch, or what is left of it; leaves `now` at a step border if a signal came."""
    epoch = now.position.epoch
    index = group.stage_index(epoch)
    stages, num_steps = group.stages[index], group.steps_per_epoch(index)
    started = time.monotonic() - now.position.seconds
    if now.position.step == 0:
        now.carry = Carry(_refreshed(group, now, index), _zero_sums(group, index))
    if now.data is None:
        now.data = stacked.stage_data(
            stages,
            now.carry.state,
            group.on_device,
            group.mesh,
            batch_size=group.run.eval_batch_size,
        )
    plan = stacked.epoch_plan(stages[0], group.keys, epoch, group.on_device)
    per_call = train_step.steps_per_dispatch(
        group.run.steps_per_dispatch, jax.eval_shape(lambda x: stacked.pick(x, 0), now.carry.state)
    )
    step = shown = now.position.step
    while step < num_steps:
        count, at = min(per_call, num_steps - step), now.position.global_step
        now.carry = group.train_steps[index](
            now.carry, now.data, plan, group.keys, epoch, step, at, count=count
        )
        step += count
        now.position = now.position._replace(
            step=step, global_step=at + count, seconds=time.monotonic() - started
        )
        if step - shown >= group.run.progress_every or step == num_steps or request.signal:
            values = _fetch(group, now)
            mean = {name: sum(x[name] for x in values) / len(values) for name in values[0]}
            progress.update(
                step - shown,
                epoch=epoch,
                num_epochs=group.stage_ends[-1],
                stage=stages[0].name,
                metrics=mean,
            )
            shown = step
            if request.signal and step < num_steps:
                return
    now.position = now.position._replace(epoch=epoch + 1, step=0, seconds=0.0)
    _end_epoch(group, now, index, time.monotonic() - started, progress)


def _refreshed(group: Group, now: Progressing, index: int) -> Any:
    """The state at the start of an epoch.

    Seed by seed: a refresh runs outside the compiled step, and under `vmap` one that is due only
    now and then would be computed every epoch.
    """
    state = now.carry.state
    stage_epoch = now.position.epoch - [0, *group.stage_ends][index]
    if not group.stages[index][0].is_refreshed(stage_epoch):
        return state
    keys = stacked.stage_keys(group.keys, train_step.REFRESH, now.position.epoch)
    fresh = [
        stage.refresh(*stacked.pick((state, group.on_device, keys), seed), stage_epoch)
        for seed, stage in enumerate(group.stages[index])
    ]
    return sharding.gather(stacked.stack(fresh), group.mesh)


def _fetch(group: Group, now: Progressing) -> list[dict[str, float]]:
    """Metric means of every seed; ends the group if the policy on non-finite numbers says so."""
    values = stacked.means(now.carry.sums)
    undone = {
        member.built.config.seed: int(x["nonfinite"])
        for member, x in zip(group.members, values, strict=True)
        if x["nonfinite"]
    }
    if undone and group.run.nonfinite == "stop":
        _save(group, now)
        counts = ", ".join(f"{count} of seed {seed}" for seed, count in undone.items())
        raise train_loop.NonFiniteError(
            f"steps up to {now.position.global_step} gave a number that is not finite and were "
            f"undone ({counts}); the states without them are saved. Go on from them with "
            "run.nonfinite=skip, or start in another folder, for example with a lower "
            "method.learning_rate"
        )
    return values


def _end_epoch(group: Group, now: Progressing, index: int, seconds: float, progress) -> None:
    """Writes the epoch's rows, evaluates, enters the next stage and saves where it is time."""
    run, stage = group.run, group.stages[index][0]
    epochs, total, count = now.position.epoch, group.stage_ends[-1], len(group.members)
    examples = group.steps_per_epoch(index) * stage.batching.batch_size
    time_columns = {
        "seconds": seconds / count,
        "examples_per_second": examples * count / max(seconds, 1e-9),
    }
    is_evaluated = epochs % run.eval_every == 0 or epochs == total
    is_better = []
    for seed, values in enumerate(_fetch(group, now)):
        row = {"epoch": epochs - 1, "stage": stage.name, "step": now.position.global_step} | values
        if is_evaluated:
            row |= group.evaluators[seed].row(stacked.pick(now.carry.state, seed))
        is_better.append(_is_better(group, seed, row))
        row |= time_columns
        group.writers[seed].append(row)
    progress.update(0, epoch=epochs - 1, num_epochs=total, stage=stage.name, metrics=row)
    if any(is_better):
        now.kept = _keep(jnp.asarray(is_better), now.carry.state, now.kept)
    if epochs == group.stage_ends[index] and epochs != total:
        _enter_stage(group, now, index + 1, now.carry.state)
    if epochs % run.checkpoint_every == 0 and epochs != total:
        _save(group, now)


def _is_better(group: Group, seed: int, row: dict[str, Any]) -> bool:
    """Whether `run.selection` prefers an epoch of the last stage to all before it."""
    rule, last = group.run.selection, group.stages[-1][0].name
    if rule == model_selection.LAST or row["stage"] != last:
        return False
    before = [each for each in group.writers[seed].rows if each["stage"] == last]
    best = model_selection.choose(before, rule)
    column = model_selection.COLUMNS[rule]
    return model_selection.improves(rule, row.get(column), best and best[column])


@jax.jit
def _keep(is_better: jax.Array, state: Any, kept: Any) -> Any:
    """`state` for the seeds it is better for, else `kept`."""
    return jax.vmap(
        lambda better, *trees: jax.tree.map(lambda new, old: jnp.where(better, new, old), *trees)
    )(is_better, state, kept)


def _save(group: Group, now: Progressing) -> None:
    group.checkpoints.save(now.position, now.tree())


def _finish(group: Group, now: Progressing) -> list[dict[str, Any]]:
    """Evaluates the reported state of every seed and writes its summary, if that is not there."""
    results = []
    rule = group.run.selection
    for seed, (member, evaluator) in enumerate(zip(group.members, group.evaluators, strict=True)):
        if member.finished:
            with open(member.finished, encoding="utf-8") as file:
                results.append(json.load(file))
            continue
        config, rows = member.built.config, group.writers[seed].rows
        is_kept = rule != model_selection.LAST and model_selection.choose(rows, rule) is not None
        state = stacked.pick(now.kept if is_kept else now.carry.state, seed)
        method = member.built.method
        init_from.save(member.folder, config, method, state, member.truth.info)
        final = evaluator.final(state, sharding.replicate(member.truth.inputs, group.mesh))
        result = tasks.of(member.truth).summarize(
            config, method, final, member.truth, rows, group.mesh
        )
        result = to_plain(result | {"trained_together": len(group.members)})
        for text in result["warnings"]:
            logging.warning("%s, seed %d: %s", config.method.name, config.seed, text)
        write_json(os.path.join(member.folder, "summary.json"), result)
        results.append(result)
    return results
