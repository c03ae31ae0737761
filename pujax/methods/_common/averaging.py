"""Moving averages of a method's weights, which predict in place of the weights of the last step.

It goes around any method: the method trains as it does without, and what it reads itself during
training (pseudo-labels, clusters, the epoch that it keeps) comes from its own weights. A stage that
hands on its best epoch (`Stage.selection`) finds it by the averages, and hands on the own weights.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax

from pujax import checks
from pujax.data.batching import Batch
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import freezing
from pujax.methods.base import Method, Stage

_MUCH = 0.02  # of the first weights in the average that is reported
_FIELDS = ("params", "batch_stats")


class State(NamedTuple):
    """The state of a method and the averages of its weights.

    Attributes:
      method: the method's own state, as it trains.
      average: averages of the leaves under `params` and `batch_stats` in it, but for frozen ones,
        in the order of the tree. They restart with every stage.
      calibrated: the method's state with averaged weights as its `calibrate` returns it, for an
        evaluation; None in training.
    """

    method: Any
    average: tuple[jax.Array, ...]
    calibrated: Any = None


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for a decay that cannot be."""
    checks.between("method.average_decay", config.average_decay, 0, 1, include="low")


def wrap(
    method: Method, config: ml_collections.ConfigDict, info: DataInfo | MultilabelInfo
) -> Method:
    """A method whose predictions, embeddings and encoder are those of averaged weights.

    Args:
      method: any method; with `average_decay` 0 it is returned as it is.
      config: its section, whose `average_decay` is the share of an average that stays in a step.
      info: numbers of the data set.

    Returns:
      A `Method` on `State`, whose alternative 'raw' predicts with the weights of the last step.
    """
    decay = config.average_decay
    if not decay:
        return method
    is_trainable = freezing.trainable_path(config.frozen_stages)

    def averaged(state: State) -> Any:
        if state.calibrated is not None:
            return state.calibrated
        return _with_weights(state.method, iter(state.average), is_trainable)

    # The functions of a method's state as functions of `State`: with averaged weights, and without.
    def reads(function: Any) -> Any:
        return function and (lambda state, *args: function(averaged(state), *args))

    def reads_raw(function: Any) -> Any:
        return function and (lambda state, *args: function(state.method, *args))

    own_calibrate: Any = method.calibrate

    def calibrate(state: State, data: TrainingData) -> State:
        return state._replace(
            method=own_calibrate(state.method, data),
            calibrated=own_calibrate(averaged(state), data),
        )

    def evaluated(state: State) -> State:
        inner = method.evaluated(state.method) if method.evaluated else state.method
        return state._replace(method=inner, calibrated=inner if method.calibrate else None)

    last = method.stages[-1]
    length = last.num_epochs
    if last.refresh_restarts and last.refresh_every:
        # Since the last refresh, which is before an epoch that `refresh_every` divides.
        length -= (length - 1) // last.refresh_every * last.refresh_every
    steps = length * last.batching.steps_per_epoch(info.n)

    def diagnose(estimates: dict[str, float]) -> list[str]:
        sentences = method.diagnose(estimates) if method.diagnose else []
        share = decay**steps
        if share >= _MUCH:
            sentences = [
                *sentences,
                f"after {steps} steps at method.average_decay={decay:g} the averaged weights still "
                f"are {100 * share:.0f} % those before training; a smaller one suits short runs",
            ]
        return sentences

    others = method.alternatives or {}
    return method._replace(
        stages=tuple(_wrapped(stage, decay, is_trainable) for stage in method.stages),
        predict=reads(method.predict),
        embed=reads(method.embed),
        soft_labels=reads_raw(method.soft_labels),
        label_gradients=reads_raw(method.label_gradients),
        calibrate=calibrate if method.calibrate else None,
        evaluated=evaluated if method.calibrate or method.evaluated else None,
        estimates=reads_raw(method.estimates),
        diagnose=diagnose,
        encoder=reads(method.encoder),
        alternatives={"raw": reads_raw(method.predict)}
        | {name: reads(other) for name, other in others.items()},
    )


def _wrapped(stage: Stage, decay: float, is_trainable: Callable[[str], bool]) -> Stage:
    """A stage that keeps averages of its weights."""
    own_refresh: Any = stage.refresh
    own_encode: Any = stage.encode

    def init(key: jax.Array, previous: State | None, data: TrainingData) -> State:
        state = stage.init(key, None if previous is None else previous.method, data)
        # Copies: a training step gives its buffers back, and may not do so twice.
        return State(state, tuple(map(jnp.copy, _weights(state, is_trainable))))

    def step(state: State, batch: Batch, key: jax.Array):
        after, metrics = stage.step(state.method, batch, key)
        weights = tuple(_weights(after, is_trainable))
        average = optax.incremental_update(weights, state.average, 1 - decay)
        return State(after, average), metrics

    def refresh(state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        after = own_refresh(state.method, data, key, epoch)
        before, weights = (tuple(_weights(s, is_trainable)) for s in (state.method, after))
        return State(after, _restarted(before, weights, state.average))

    def encode(state: State, inputs: jax.Array) -> jax.Array:
        return own_encode(state.method, inputs)

    return stage._replace(
        init=init,
        step=step,
        refresh=refresh if stage.refresh else None,
        encode=encode if stage.encode else None,
    )


@jax.jit
def _restarted(
    before: tuple[jax.Array, ...], after: tuple[jax.Array, ...], average: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """Averages after a refresh: those of the weights that it replaced restart."""
    return tuple(
        jnp.where(jnp.all(old == new), mean, new)
        for old, new, mean in zip(before, after, average, strict=True)
    )


def _is_averaged(path: tuple[Any, ...], is_trainable: Callable[[str], bool]) -> bool:
    """Whether a leaf of a method's state is a trained weight or a running statistic."""
    names = [getattr(entry, "name", None) for entry in path]
    for place, name in enumerate(names):
        if name in _FIELDS:
            return name != "params" or is_trainable(freezing.joined(path[place + 1 :]))
    return False


def _weights(state: Any, is_trainable: Callable[[str], bool]) -> Iterator[jax.Array]:
    """The leaves that are averaged."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if _is_averaged(path, is_trainable):
            yield leaf


def _with_weights(
    state: Any, weights: Iterator[jax.Array], is_trainable: Callable[[str], bool]
) -> Any:
    """A method's state with other numbers for the leaves that are averaged."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: next(weights) if _is_averaged(path, is_trainable) else leaf, state
    )
