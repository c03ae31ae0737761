"""The compiled part of training: one program per stage over the mesh.

A call runs one or more steps: it looks up the batch on the device, splits it over the mesh, calls
the method's step, undoes a step that is not finite, and adds the metrics to running sums that stay
on the device until they are fetched.

Several seeds can share a program: state, data, order, sums and keys then have a leading seed axis,
and a `Stage` is one whose functions take it, see `seed_axis.join_stages`. Functions here see from
the keys which it is: a scalar key is one seed without an axis, `[seeds]` keys are several.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from pujax import checks, packing
from pujax.data import batching, pu_dataset
from pujax.data.batching import EpochPlan
from pujax.data.pu_dataset import TrainingData
from pujax.methods.base import Stage
from pujax.training import row_names, sharding

STEPS_PER_CALL = 32
"""At most, where calls cost more than a rolled loop."""

COMPILED_CALLS = ("jit", "pjit")
"""What the call of a compiled function is in a trace, by version of jax."""

# One named integer per purpose that draws from the run's key.
INIT, ORDER, STEP, REFRESH = range(4)


class Carry(NamedTuple):
    """What a compiled call takes and gives back, donated.

    Attributes:
      state: the method's state.
      sums: metric sums over the counted steps of this epoch, float32 scalars or `[seeds]`, with
        `steps` (how many), `nonfinite` (how many were undone) and, where the method reports it,
        `skipped` (how many the method itself left out). Undone and skipped steps are not counted.
    """

    state: Any
    sums: dict[str, jax.Array]


def run_key(seed: int | Sequence[int], mesh: Mesh) -> jax.Array:
    """The key of a run with a seed, or `[seeds]` keys of runs with several."""
    if np.ndim(seed) == 0:
        return jax.jit(jax.random.key, out_shardings=sharding.replicated(mesh))(seed)
    make = jax.jit(jax.vmap(jax.random.key), out_shardings=sharding.of_seeds(mesh))
    return make(np.asarray(seed, np.int32))


def stage_key(key: jax.Array, purpose: int, index: int | jax.Array) -> jax.Array:
    """Key of one purpose at one index (stage, epoch or step), for every seed."""

    def of_one_seed(key):
        return jax.random.fold_in(jax.random.fold_in(key, purpose), index)

    return _per_seed(of_one_seed, key)(key)


def _per_seed(function: Callable[..., Any], key: jax.Array) -> Callable[..., Any]:
    """A function of one seed's arrays, mapped over the seed axis where the key has one."""
    return jax.vmap(function) if key.ndim else function


def init_state(stage: Stage, key: jax.Array, previous: Any, data: TrainingData, mesh: Mesh) -> Any:
    """State at the start of a stage, for every seed."""
    return make_init(stage.init, mesh)(key, previous, data)


@functools.lru_cache(maxsize=16)
def make_init(init: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Compiles a stage's `init`; the same one for the same arguments."""
    return jax.jit(init, out_shardings=sharding.of_seeds(mesh), compiler_options=_runs_once(mesh))


def _runs_once(mesh: Mesh) -> dict[str, Any] | None:
    """Options for a program that runs once: on a CPU it compiles in half the time, and is slower.

    The numbers are the same to the bit.
    """
    if mesh.devices.flat[0].platform != "cpu":
        return None
    return {"xla_backend_optimization_level": 1, "xla_cpu_parallel_codegen_split_count": 1}


def traced_once(stage: Stage) -> Stage:
    """The stage with functions that are traced once for each set of argument types.

    The check before a run, the program of many steps, and that of the steps that remain all take
    over the same trace, which for a deep network takes seconds. Programs are the same.
    """
    once = functools.partial(jax.jit, inline=True)
    return stage._replace(init=once(stage.init), step=once(stage.step))


def metric_names(stages: tuple[Stage, ...], data: TrainingData, mesh: Mesh) -> list[list[str]]:
    """Names of every stage's metrics, by tracing one seed's stages without computing anything.

    Raises:
      ValueError: if a stage does not report its loss, or reports a number by the name of one of the
        run's own columns.
    """
    names = []
    for stage, shapes in zip(stages, step_arguments(stages, data, mesh), strict=True):
        reported = sorted(jax.eval_shape(stage.step, *shapes)[1])
        field = f"metrics of stage {stage.name!r}"
        checks.require("loss" in reported, field, reported, "names that include 'loss'")
        row_names.check(f"a metric of stage {stage.name!r}", reported)
        names.append(reported)
    return names


def step_arguments(
    stages: tuple[Stage, ...], data: TrainingData, mesh: Mesh
) -> Iterator[tuple[Any, batching.Batch, Any]]:
    """State, batch and key of every stage's step, as shapes of one seed.

    Shapes are on the mesh, as arrays are later, so that `traced_once` need not trace again.
    """

    def on_mesh(tree):
        where = sharding.replicated(mesh)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype, sharding=where), tree
        )

    state = None
    key, data = on_mesh((jax.eval_shape(lambda: jax.random.key(0)), data))
    for stage in stages:
        state = on_mesh(jax.eval_shape(stage.init, key, state, data))
        yield state, on_mesh(batch_shapes(stage, state, data)), key


def batch_shapes(stage: Stage, state: Any, data: TrainingData) -> batching.Batch:
    """Shapes and types of a batch of one seed's stage.

    Args:
      stage: the stage.
      state: its state, or its shapes.
      data: training arrays, or their shapes.
    """
    array: Any = jax.ShapeDtypeStruct  # stands for an array while shapes are traced
    if stage.encode is not None:
        inputs = jax.eval_shape(stage.encode, state, pu_dataset.like(data.inputs))
        support = array([data.support_labels.shape[0], *inputs.shape[1:]], inputs.dtype)
        data = data._replace(inputs=inputs, support_inputs=support)
    size = stage.batching.batch_size
    plan = EpochPlan(
        array([1, size], jnp.int32),
        array([1, stage.batching.support_batch_size], jnp.int32),
        array([size], jnp.float32) if stage.batching.num_positives else None,
    )
    return jax.eval_shape(
        lambda data, plan, at: batching.gather(data, plan, at, epoch=at, step=at),
        *(data, plan, array([], jnp.int32)),
    )


def stage_data(
    stage: Stage, state: Any, data: TrainingData, mesh: Mesh, *, batch_size: int
) -> TrainingData:
    """What one seed's stage trains on: the data, encoded where the stage asks for it.

    Args:
      stage: the stage.
      state: any of its states; encoding looks at nothing that training changes.
      data: training arrays on the devices.
      mesh: devices.
      batch_size: examples per call.
    """
    if stage.encode is None:
        return data
    encode = _compiled_encode(stage.encode, mesh)

    def all_of(inputs):
        if not len(inputs):
            shape = jax.eval_shape(stage.encode, state, pu_dataset.like(data.inputs)).shape[1:]
            return sharding.replicate(np.zeros([0, *shape], np.float32), mesh)
        encoded = batching.map_batches(encode, inputs, batch_size=batch_size, args=(state,))
        return sharding.gather(encoded, mesh)

    return data._replace(inputs=all_of(data.inputs), support_inputs=all_of(data.support_inputs))


@functools.lru_cache(maxsize=16)
def _compiled_encode(encode: Callable[..., jax.Array], mesh: Mesh) -> Callable[..., jax.Array]:
    """The function over the mesh; seeds with the same function share it, so it compiles once."""

    def on_mesh(state, inputs):
        return encode(state, sharding.split_batch(inputs, mesh))

    return jax.jit(on_mesh, out_shardings=sharding.replicated(mesh))


def zero_sums(names: list[str], mesh: Mesh, *, num_seeds: int = 0) -> dict[str, jax.Array]:
    """Metric sums at the start of an epoch, scalars, or `[num_seeds]` for several seeds."""
    shapes = sum_shapes(names, num_seeds=num_seeds)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    return sharding.put(zeros, sharding.of_seeds(mesh))


def sum_shapes(names: list[str], *, num_seeds: int = 0) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of metric sums."""
    shape = jax.ShapeDtypeStruct([num_seeds] if num_seeds > 1 else [], jnp.float32)
    return dict.fromkeys([*names, "steps", "nonfinite"], shape)


def make_train(
    stage: Stage,
    mesh: Mesh,
    *,
    first_epoch: int = 0,
    streamed: bool = False,
    packed: bool = False,
) -> Callable[..., Carry]:
    """Compiles a stage's step; the same one for the same arguments, so that it compiles once.

    A number that is not finite undoes the step of its seed alone.

    Args:
      stage: the stage; on a mesh with rows for seeds that of the seeds of one row.
      mesh: devices to run on.
      first_epoch: epochs completed before this stage.
      streamed: whether `data.inputs` holds one batch, so that `count` is 1.
      packed: whether the steps of a call hand the state on as vectors, see `packing`: fewer
        kernels per step, and as many copies as the state has leaves per call.

    Returns:
      `train(carry, data, plan, key, epoch, first, global_step, wanted=None, *, count) -> carry`,
      which runs the steps `first .. first + count - 1` of an epoch; `global_step` is that of the
      first, `count` is static. Of these steps those from `wanted` on are computed and left out, so
      that the last call of an epoch is the same program as the others.
    """
    return _make_train(stage, mesh, first_epoch, streamed, packed)


@functools.lru_cache(maxsize=16)
def _make_train(
    stage: Stage, mesh: Mesh, first_epoch: int, streamed: bool, packed: bool
) -> Callable[..., Carry]:
    has_rows = sharding.num_rows(mesh) > 1

    def batch_of(data, plan, key, epoch, index, global_step):
        def look_up(data, plan):
            batch = batching.gather(
                data,
                plan,
                index,
                epoch=epoch,
                step=global_step,
                first_epoch=first_epoch,
                streamed=streamed,
            )
            split = sharding.split_batch_in_row if has_rows else sharding.split_batch
            return split(batch, mesh)

        return _per_seed(look_up, key)(data, plan)

    def steps(carry, data, plan, key, epoch, first, global_step, wanted, *, count):
        # What a step gives back as it was, such as an encoder that stays, is neither carried from
        # step to step nor packed, looked at and undone.
        one_batch = batch_of(data, plan, key, epoch, first, global_step)
        parts = _Parts(carry.state, _moves(stage.step, carry.state, one_batch, key))
        like = parts.moving(carry.state)
        is_packed = packed and count > 1

        def body(carry, offset):
            at = (epoch, first + offset, global_step + offset)
            state = carry.state
            if is_packed:
                state = packing.unpack(state, like, num_axes=key.ndim)
            batch, step_key = batch_of(data, plan, key, *at), stage_key(key, STEP, at[-1])
            state, metrics = stage.step(parts.whole(state), batch, step_key)
            state = parts.moving(state)
            if is_packed:
                state = packing.pack(state, num_axes=key.ndim)
            is_wanted = True if wanted is None else offset < wanted
            keep = functools.partial(_keep_finite, is_wanted=is_wanted)
            return _per_seed(keep, key)(carry, state, metrics), None

        first_state = packing.pack(like, num_axes=key.ndim) if is_packed else like
        carry = carry._replace(state=first_state)
        carry = body(carry, 0)[0] if count == 1 else jax.lax.scan(body, carry, jnp.arange(count))[0]
        state = carry.state
        if is_packed:
            state = packing.unpack(state, like, num_axes=key.ndim)
        return carry._replace(state=parts.whole(state))

    @functools.partial(
        jax.jit,
        static_argnames="count",
        donate_argnums=0,
        out_shardings=sharding.of_seeds(mesh),
    )
    def train(carry, data, plan, key, epoch, first, global_step, wanted=None, *, count):
        # One type for all counts: a Python number would be another one than a loop's index.
        epoch, first, global_step = (jnp.int32(x) for x in (epoch, first, global_step))
        run = functools.partial(steps, count=count)
        if has_rows:
            run = _on_every_row(run, mesh)
        return run(carry, data, plan, key, epoch, first, global_step, wanted)

    return train


class _Parts:
    """A state in two parts: the leaves that a step changes, and those that it does not."""

    def __init__(self, state: Any, moves: Sequence[bool]):
        leaves, self._structure = jax.tree.flatten(state)
        self._moves = moves
        self._fixed = [x for x, is_moving in zip(leaves, moves, strict=True) if not is_moving]

    def moving(self, state: Any) -> list[jax.Array]:
        """The leaves of a state that change."""
        pairs = zip(jax.tree.leaves(state), self._moves, strict=True)
        return [x for x, is_moving in pairs if is_moving]

    def whole(self, moving: Sequence[jax.Array]) -> Any:
        """The state with these leaves, and the others as they were."""
        new, old = iter(moving), iter(self._fixed)
        leaves = [next(new) if is_moving else next(old) for is_moving in self._moves]
        return jax.tree.unflatten(self._structure, leaves)


def _moves(step: Callable[..., Any], state: Any, batch: Any, key: jax.Array) -> list[bool]:
    """Whether a step gives back another value of each leaf of the state, by its trace."""
    count = len(jax.tree.leaves(state))
    trace = jax.make_jaxpr(step)(state, batch, key).jaxpr
    pairs = zip(trace.invars[:count], _handed_on(trace)[:count], strict=True)
    return [given is not found for given, found in pairs]


def _handed_on(trace: Any) -> list[Any]:
    """Results of a trace; in the place of one that calls hand on as it was, what they were given.

    With jax 0.12 a compiled step is a call in the trace of what takes it over, 'inline' or not.
    """
    given: dict[int, Any] = {}
    for equation in trace.eqns:
        if equation.primitive.name in COMPILED_CALLS:
            body = equation.params["jaxpr"].jaxpr
            taken = dict(zip(map(id, body.invars), equation.invars, strict=True))
            for outside, inside in zip(equation.outvars, _handed_on(body), strict=True):
                if id(inside) in taken:
                    value = taken[id(inside)]
                    given[id(outside)] = given.get(id(value), value)
    return [given.get(id(value), value) for value in trace.outvars]


def _on_every_row(steps: Callable[..., Carry], mesh: Mesh) -> Callable[..., Carry]:
    """Every row of devices runs the steps of its own seeds, without a word to the others.

    A row with one seed runs the program of a seed without an axis.
    """

    def of_row(carry, data, plan, key, *at):
        if len(key) > 1:
            return steps(carry, data, plan, key, *at)
        carry = steps(*jax.tree.map(lambda x: x[0], (carry, data, plan, key)), *at)
        return jax.tree.map(lambda x: x[None], carry)

    seeds, same = PartitionSpec(sharding.SEED), PartitionSpec()
    return jax.shard_map(
        of_row,
        mesh=mesh,
        in_specs=(seeds,) * 4 + (same,) * 4,
        out_specs=seeds,
        axis_names={sharding.SEED},
        check_vma=False,
    )


def _keep_finite(
    carry: Carry, state: Any, metrics: dict[str, jax.Array], *, is_wanted: jax.Array | bool = True
) -> Carry:
    """The carry after a step, or as it was but for the count if the step was not finite.

    A step that is not wanted leaves the carry as it was, its counts too.
    """
    finite = _is_finite(state, metrics)
    kept = finite & is_wanted
    # Everything is restored, batch statistics and momentum too.
    state = jax.tree.map(lambda old, new: jnp.where(kept, new, old), carry.state, state)
    skipped = kept & (metrics.get("skipped", jnp.zeros([])) > 0)
    counted = kept & ~skipped
    metrics = {k: jnp.where(counted, v.astype(jnp.float32), 0) for k, v in metrics.items()}
    metrics |= {"steps": counted, "nonfinite": is_wanted & ~finite}
    if "skipped" in metrics:
        metrics["skipped"] = skipped
    return Carry(state, {name: total + metrics[name] for name, total in carry.sums.items()})


def _is_finite(state: Any, metrics: dict[str, jax.Array]) -> jax.Array:
    """True where the loss and every floating-point number of the state are finite.

    Of the state that is what a step changes: another part that is not finite makes no step so by
    itself, and is never saved in a checkpoint.
    """
    leaves = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)]
    # The largest magnitude is NaN where anything is. On a CPU this costs half as much as asking
    # every number; the `where` that undoes a step is free, since it fuses with the update.
    largest = [jnp.max(jnp.abs(x), initial=0) for x in [*leaves, metrics["loss"]]]
    return jnp.all(jnp.isfinite(jnp.stack([x.astype(jnp.float32) for x in largest])))


def epoch_plan(stage: Stage, key: jax.Array, epoch: int, data: TrainingData) -> EpochPlan:
    """Order of one epoch for every seed; a pure function of the run's key and the epoch.

    All seeds have equally many labelled positives.
    """
    num_labeled = 0
    if stage.batching.num_positives:
        labeled = sharding.to_host(data.labeled)
        num_labeled = int(np.sum(labeled[0] if key.ndim else labeled))
    draw = functools.partial(
        batching.epoch_plan,
        num_labeled=num_labeled,
        num_support=data.support_labels.shape[-1],
        batching=stage.batching,
    )
    order = stage_key(key, ORDER, epoch if stage.batching.reshuffle else 0)
    return _per_seed(draw, key)(order, data.labeled)


def batches_without_positives(plan: EpochPlan, data: TrainingData) -> jax.Array:
    """How many batches of an epoch hold no labelled positive, `[]`, or `[seeds]` of several."""
    return _count_without_positives(plan.ids, data.labeled)


@jax.jit
def _count_without_positives(ids: jax.Array, labeled: jax.Array) -> jax.Array:
    if labeled.ndim > 1:
        return jax.vmap(_count_without_positives)(ids, labeled)
    return jnp.sum(~jnp.any(labeled[ids], axis=-1))


def steps_per_call(num_steps: int, most: int) -> int:
    """How many steps each call of an epoch runs, so that all calls are one program.

    The last call computes steps that are left out if the number does not divide the epoch's. A call
    is taken to cost as much as a tenth of a step.

    Args:
      num_steps: of an epoch.
      most: steps that one call may run; half as many are the fewest.

    Returns:
      Of the largest numbers the one that costs least.
    """
    if num_steps <= most:
        return num_steps

    def cost(count: int) -> float:
        return -num_steps % count + 0.1 * -(-num_steps // count)

    return min(range(most, (most + 1) // 2 - 1, -1), key=cost)


def calls(
    epoch: int, step: int, global_step: int, *, num_steps: int, per_call: int
) -> list[tuple[int, tuple[int, ...]]]:
    """How many steps each call that is left of an epoch is wanted for, and its place.

    Args:
      epoch: counted from 0.
      step: of the epoch, the first that is left.
      global_step: of that step.
      num_steps: of the epoch.
      per_call: of each call, the `count` that `train` of `make_train` takes.

    Returns:
      By call, the number and what `train` takes after the key.
    """
    found: list[tuple[int, tuple[int, ...]]] = []
    for first in range(step, num_steps, per_call):
        wanted = min(per_call, num_steps - first)
        place = epoch, first, global_step + first - step
        found.append((wanted, (*place, wanted) if per_call > 1 else place))
    return found


def steps_per_dispatch(setting: int, state: Any = None) -> int:
    """How many steps one call runs at most; see `run.steps_per_dispatch`.

    On accelerators enough to hide the dispatch, and so on a CPU for networks of dense layers. With
    convolutions on a CPU one, because XLA:CPU runs a convolution's gradient many times slower
    inside a rolled loop (jax-ml/jax#12868).

    Args:
      setting: a number to take instead; 0 for none.
      state: training state of one seed; None is taken to hold convolutions.
    """
    if setting:
        return setting
    rolled_is_slow = state is None or has_convolutions(state)
    return 1 if jax.default_backend() == "cpu" and rolled_is_slow else STEPS_PER_CALL


def has_convolutions(state: Any) -> bool:
    """Whether a floating-point leaf has the four axes of a convolution's kernel."""
    leaves = jax.tree.leaves(state)
    return any(x.ndim >= 4 and jnp.issubdtype(x.dtype, jnp.floating) for x in leaves)


def means(sums: dict[str, jax.Array]) -> list[dict[str, float]]:
    """Means over the counted steps so far by seed, fetched from the device; NaN before the first.

    `skipped` is the share of steps that the method left out, `nonfinite` the number undone.
    """
    # All copies start before the first is waited for.
    parts = jax.device_get({name: sharding.one_copy(total) for name, total in sums.items()})
    totals = {name: np.atleast_1d(total) for name, total in parts.items()}
    by_seed = zip(*totals.values(), strict=True)
    return [_means_of(dict(zip(totals, map(float, row), strict=True))) for row in by_seed]


def _means_of(values: dict[str, float]) -> dict[str, float]:
    """Means of one seed's sums."""
    steps, nonfinite = values.pop("steps"), values.pop("nonfinite")
    skipped = values.pop("skipped", None)
    result = {k: v / steps if steps else float("nan") for k, v in values.items()}
    if skipped is not None:
        result["skipped"] = skipped / max(steps + skipped, 1)
    return result | {"nonfinite": nonfinite}
