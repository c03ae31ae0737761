"""Several seeds in one program: a leading axis of state, data, order, sums and keys.

A mean and a standard deviation then cost little more than one run where a device is not fully used
by one seed. One seed has no such axis. This module decides which seeds can share a program, and
joins their functions and their arrays.

A method is built on numbers of its split. Every seed therefore has functions of its own, even where
they do not use those numbers: GradPU uses no class prior, so the functions of its seeds compute the
same. Functions that are the same program are mapped over the axis by `jax.vmap` and compile once.

Where there are several devices, rows of them hold seeds apart (`rows_for`), so that eight seeds on
eight devices are eight runs of the program of one seed.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pujax.data import pu_dataset
from pujax.data.image_files import ImageFiles
from pujax.data.multilabel_dataset import MultilabelDataset
from pujax.data.pu_dataset import PUDataset, TrainingData
from pujax.methods.base import Method, Stage
from pujax.training import sharding, train_step
from pujax.training.method_setup import MethodSetup

_MEMINFO = "/proc/meminfo"


class Member(NamedTuple):
    """One seed of a run.

    Attributes:
      setup: configuration, method and the data it trains on.
      truth: the PU problem that evaluation compares with.
      folder: of the seed's results; a summary there is kept.
    """

    setup: MethodSetup
    truth: PUDataset | MultilabelDataset
    folder: str

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.setup.config.seed

    @property
    def summary(self) -> str:
        """Path of its summary, which a finished seed has."""
        return os.path.join(self.folder, "summary.json")

    @property
    def is_finished(self) -> bool:
        """Whether its summary has been written, for all hosts; every host must ask.

        A file system may show a new file to one host before another.
        """
        return not sharding.any_host(not os.path.exists(self.summary))


def why_sequential(members: Sequence[Member], mesh: Mesh) -> str:
    """Why these seeds cannot or should not train in one program; '' if they can.

    Args:
      members: the seeds.
      mesh: devices.
    """
    if len(members) < 2:
        return "there is only one seed"
    if jax.process_count() > 1:
        return "several hosts take part"
    if isinstance(members[0].setup.data.inputs, ImageFiles):
        return "their images are streamed"
    shapes = {member.setup.data.inputs.shape[1:] for member in members}
    if len(shapes) > 1:
        return f"their examples have different shapes ({', '.join(map(str, sorted(shapes)))})"
    counts = [_counts(member) for member in members]
    other = next((count for count in counts if count != counts[0]), None)
    if other:
        return (
            "their numbers of labeled, unlabeled and support examples differ "
            f"({counts[0]} and {other})"
        )
    on_cpu, rows = jax.default_backend() == "cpu", rows_for(members, mesh)
    if on_cpu and rows < len(members) and train_step.has_convolutions(_last_shapes(members[0])[0]):
        return "XLA runs the convolutions of several networks at once slowly on a CPU"
    needed = sum(map(_bytes, members)) // (1 if on_cpu else rows)  # CPU devices share one memory
    free = _memory()
    if free is None:
        return "how much memory is free is not known here"
    room = free // 2  # the other half is for what a step computes
    if needed > room:
        return f"their data and states take {needed / 1e9:.1f} GB, more than {room / 1e9:.1f} GB"
    return ""


def rows_for(members: Sequence[Member], mesh: Mesh) -> int:
    """In how many rows of devices the seeds of one program are held apart.

    The most that `run.seed_devices` allows and that divide the seeds evenly. One where seeds run
    different programs, because their methods are built on numbers that differ.

    Args:
      members: the seeds.
      mesh: devices.
    """
    most = min(members[0].setup.config.run.seed_devices or mesh.size, mesh.size, len(members))
    rows = max(count for count in range(1, most + 1) if len(members) % count == 0)
    if rows == 1:
        return 1
    first, *others = shared_methods(members)
    parts = _programs(first)
    is_same = all(_programs(method) == parts for method in others)
    return rows if is_same else 1


def _programs(method: Method) -> list[Callable[..., Any]]:
    return [part for stage in method.stages for part in (stage.init, stage.step)]


def describe(members: Sequence[Member], mesh: Mesh) -> str:
    """How seeds that train together are laid out over the devices.

    Args:
      members: the seeds; `why_sequential` must be ''.
      mesh: devices.
    """
    rows = rows_for(members, mesh)
    if rows > 1:
        each, per_row = len(members) // rows, mesh.size // rows
        return f"{rows} rows of {per_row} device(s) with {each} seed(s) each"
    if mesh.size == 1:
        return "all on the only device"
    if min(members[0].setup.config.run.seed_devices or mesh.size, len(members)) == 1:
        return f"all on every one of {mesh.size} devices, as run.seed_devices is 1"
    return (
        f"all on every one of {mesh.size} devices, since these cannot share them evenly or the "
        "methods are built on numbers of the splits that differ"
    )


def _counts(member: Member) -> tuple[int, int, int]:
    data = member.setup.data
    if data.labeled.ndim > 1:  # several labels per example are never drawn apart
        return 0, len(data.labeled), 0
    num_labeled = int(data.labeled.sum())
    return num_labeled, len(data.labeled) - num_labeled, len(data.support_labels)


def _last_shapes(member: Member) -> tuple[Any, Any]:
    """Shapes of one seed's last state, and of its training inputs where that encodes them."""
    data, stages = member.setup.data.training_data(), member.setup.method.stages
    state = state_shapes(stages, data)
    encode = stages[-1].encode
    return state, jax.eval_shape(encode, state, pu_dataset.like(data.inputs)) if encode else None


def state_shapes(stages: Sequence[Stage], data: TrainingData) -> Any:
    """Shapes and types of one seed's state in the last of the stages, without computing it."""
    state, key = None, jax.eval_shape(lambda: jax.random.key(0))
    for stage in stages:
        state = jax.eval_shape(stage.init, key, state, data)
    return state


def _bytes(member: Member) -> int:
    """What one more seed needs.

    Training data and state count three times (alone, along the seed axis, and in the copy that
    joining or a step makes), what is evaluated once.
    """
    truth = member.truth
    trained = sum(x.nbytes for x in jax.tree.leaves(member.setup.data.training_data()))
    trained += sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(_last_shapes(member)))
    return 3 * trained + truth.test_inputs.nbytes + truth.validation_inputs.nbytes


def _memory() -> int | None:
    """Free bytes on the first device, or in the machine where the device does not say.

    None where the machine does not say either, as on Windows.
    """
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    with contextlib.suppress(FileNotFoundError), open(_MEMINFO, encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    if not hasattr(os, "sysconf"):  # Windows
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def put(trees: Sequence[Any], mesh: Mesh) -> Any:
    """Host arrays of several seeds, of equal structure and shapes, along the seed axis on a mesh.

    A single tree stays without an axis.
    """
    if len(trees) == 1:
        return sharding.replicate(trees[0], mesh)
    tree = jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
    return sharding.put(tree, sharding.of_seeds(mesh))


def join(trees: Sequence[Any], mesh: Mesh) -> Any:
    """The same for arrays on devices."""
    whole = [sharding.gather(tree, mesh) for tree in trees]
    return whole[0] if len(trees) == 1 else sharding.move(_stack(whole), sharding.of_seeds(mesh))


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@jax.jit
def pick(tree: Any, index: int) -> Any:
    """The part of a tree with a seed axis that belongs to one seed."""
    return jax.tree.map(lambda x: x[index], tree)


def keep(tree: Any, indices: Sequence[int], mesh: Mesh) -> Any:
    """A tree with a seed axis without the other seeds; a single one that is left has no axis."""
    return join([pick(tree, index) for index in indices], mesh)


def join_stages(stages: Sequence[Stage]) -> Stage:
    """One stage of all seeds: `init` and `step` take and give arrays with a seed axis.

    What runs outside the compiled program (`refresh`, `encode`) stays that of the first seed, and
    is called seed by seed.
    """
    if len(stages) == 1:
        return stages[0]
    return stages[0]._replace(
        init=over_seeds([stage.init for stage in stages]),
        step=over_seeds([stage.step for stage in stages]),
    )


def over_seeds(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Maps the function of every seed over the leading axis of its arguments.

    Where all seeds have the same function this is `jax.vmap`. Where they have not, because a number
    that a method is built on differs with the split (for example the prior in U), the same program
    calls one function after another; it takes longer to compile but, on a CPU, not longer to run,
    since dense layers use all cores in both cases.

    Args:
      functions: one per seed; shapes and structures must be equal.
    """
    if all(function is functions[0] for function in functions):
        return jax.vmap(functions[0])

    def one_after_another(*joined):
        results = [function(*pick(joined, index)) for index, function in enumerate(functions)]
        return _stack(results)

    return one_after_another


def shared_methods(members: Sequence[Member]) -> list[Method]:
    """Methods of the seeds; functions that compute the same are the same object."""
    first = members[0].setup
    # A method is built on numbers of its split. Where these are equal, so are the methods; where
    # they are not, the functions that do not use them are.
    methods = [
        first.method if member.setup.data.info == first.data.info else member.setup.method
        for member in members
    ]
    if all(method is first.method for method in methods):
        return methods
    return share_methods(methods, first.data.training_data())


def share_methods(methods: Sequence[Method], data: TrainingData) -> list[Method]:
    """The methods, with one function for `init`, `step` and `predict` wherever programs agree.

    What runs outside the compiled program (`refresh`, `calibrate`) stays each method's own.

    Args:
      methods: of the seeds, of equal stages, shapes and structures.
      data: training arrays of one seed, or their shapes.

    Returns:
      As many methods.
    """
    key, state, stages = jax.eval_shape(lambda: jax.random.key(0)), None, []
    for same in zip(*(method.stages for method in methods), strict=True):
        inits = share([stage.init for stage in same], key, state, data)
        state = jax.eval_shape(inits[0], key, state, data)
        batch = train_step.batch_shapes(same[0], state, data)
        steps = share([stage.step for stage in same], state, batch, key)
        encodes: list[Any] = [stage.encode for stage in same]
        if encodes[0] is not None:
            encodes = share(encodes, state, pu_dataset.like(data.inputs))
        parts = zip(same, inits, steps, encodes, strict=True)
        stages.append([s._replace(init=i, step=t, encode=e) for s, i, t, e in parts])
    inputs = jax.ShapeDtypeStruct([2, *data.inputs.shape[1:]], data.inputs.dtype)
    predicts: list[Callable[..., Any]] = [method.predict for method in methods]
    # Else some are evaluated on what `calibrate` returns, and others on the state itself.
    if len({method.calibrate is None for method in methods}) == 1:
        predicts = share(predicts, state, inputs)
    by_method = zip(methods, zip(*stages, strict=True), predicts, strict=True)
    return [method._replace(stages=x, predict=predict) for method, x, predict in by_method]


def share(functions: Sequence[Callable[..., Any]], *args: Any) -> list[Callable[..., Any]]:
    """The functions, each replaced by the first of those that are the same program.

    Args:
      functions: functions of the same arguments.
      *args: arrays, or shapes of arrays.
    """
    if all(function is functions[0] for function in functions):
        return list(functions)
    first: dict[str, Callable[..., Any]] = {}
    return [first.setdefault(digest(function, *args), function) for function in functions]


def digest(function: Callable[..., Any], *args: Any) -> str:
    """Hash of what a function computes: its operations, their shapes and every constant.

    Functions of equal digest compute the same; of unequal digest they may.

    Args:
      function: a function of arrays without callbacks to Python.
      *args: arrays, or shapes of arrays.
    """
    closed, out = jax.make_jaxpr(function, return_shape=True)(*args)
    # Closures are printed with their address, which does not depend on what they compute.
    text = re.sub(r"0x[0-9a-f]+", "", f"{jax.tree.structure(out)} {closed}")
    result = hashlib.blake2b(text.encode(), digest_size=16)
    for value in _constants(closed):
        array = _to_numpy(value)
        result.update(f"{array.shape} {array.dtype}".encode())
        result.update(array.tobytes())
    return result.hexdigest()


def _constants(value: Any) -> Iterator[Any]:
    """Arrays and numbers in a traced program; its text shortens them or leaves them out."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _constants(item)
    elif hasattr(getattr(value, "jaxpr", value), "eqns"):
        yield from getattr(value, "consts", ())
        inner = getattr(value, "jaxpr", value)
        for equation in inner.eqns:
            yield from (x.val for x in equation.invars if hasattr(x, "val"))
            yield from _constants(list(equation.params.values()))
        yield from (x.val for x in inner.outvars if hasattr(x, "val"))
    elif isinstance(value, (np.ndarray, jax.Array)):
        yield value


def _to_numpy(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)
