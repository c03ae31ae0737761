"""What was not finite: undone steps, computed again, tell which numbers and which examples."""

import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pujax.data import batching
from pujax.training import sharding, train_step
from pujax.training.loop_state import LoopState

_SECONDS = 20.0
_STEPS_OF_HOSTS = 16  # where several must agree on how many
_SHOWN = 5


def describe(state: LoopState, seed: int) -> str:
    """Which numbers of which step are not finite, and on which training examples.

    The steps of the epoch are computed again on the present state, the latest first, for some
    seconds, since the compiled step keeps nothing of what it undoes. One that was not finite on an
    earlier state may be finite now.

    Args:
      state: of the loop, after the undone steps.
      seed: counted from 0.

    Returns:
      A clause without a full stop.
    """
    run, position = state.run, state.position
    if run.streamed is not None:
        return "which examples is not known, since their images are streamed"
    last = position.step or run.steps_per_epoch(run.stage_index(position.epoch - 1))
    epoch = position.epoch if position.step else position.epoch - 1
    index = run.stage_index(epoch)
    stage = run.methods[seed].stages[index]
    carry, data, plan, key = run.of_seed((state.carry, state.data, state.plan, run.key), seed)
    is_alone, started, count = jax.process_count() == 1, time.monotonic(), 0
    for count, step in enumerate(reversed(range(last)), start=1):
        global_step = position.global_step - last + step
        place: Any = {
            "epoch": jnp.int32(epoch),
            "step": jnp.int32(global_step),
            "first_epoch": run.first_epochs[index],
        }
        batch = batching.gather(data, plan, jnp.int32(step), **place)
        step_key = train_step.stage_key(key, train_step.STEP, global_step)
        # The stage was compiled once by itself, see `train_step.traced_once`.
        new, metrics = stage.step(carry.state, batch, step_key)
        found = _bad_numbers(new, metrics)
        if found:
            # `predict` reads raw inputs, a stage that encodes trains on features of them.
            whole = run.of_seed(run.on_device, seed)
            raw = batching.gather(whole, plan, jnp.int32(step), **place).inputs
            scores = run.methods[seed].predict(carry.state, raw)
            examples = _bad_examples(batch.ids, batch.inputs, scores)
            return f"step {global_step + 1} computed again gives {found}; {examples}"
        over = time.monotonic() - started > _SECONDS if is_alone else count == _STEPS_OF_HOSTS
        if over:
            break
    return f"computed again on the present state, the latest {count} steps are finite"


def _bad_numbers(state: Any, metrics: dict[str, jax.Array]) -> str:
    """Metrics that are not finite, else the first array of the state; '' if all are."""
    values = {name: float(sharding.to_host(value)) for name, value in metrics.items()}
    bad = [f"{name} {value}" for name, value in values.items() if not math.isfinite(value)]
    if bad:
        return ", ".join(bad)
    for path, leaf in jax.tree.leaves_with_path(state):
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        if floating and not bool(jnp.all(jnp.isfinite(leaf))):
            return f"finite metrics, but a state whose {jax.tree_util.keystr(path)} is not finite"
    return ""


def _bad_examples(ids: jax.Array, inputs: jax.Array, scores: jax.Array) -> str:
    """Which training examples of a batch have inputs, or else scores, that are not finite."""
    numbers = sharding.to_host(ids)
    for what, values in (("inputs that are", inputs), ("a score that is", scores)):
        array = sharding.to_host(jnp.asarray(values, jnp.float32)).reshape(len(numbers), -1)
        bad = numbers[~np.isfinite(array).all(axis=1)]
        if len(bad):
            more = ", ..." if len(bad) > _SHOWN else ""
            return (
                f"{len(bad)} of its {len(numbers)} examples have {what} not finite: "
                f"training examples {', '.join(map(str, bad[:_SHOWN]))}{more}, counted from 0"
            )
    return f"its {len(numbers)} examples have finite inputs and scores"
