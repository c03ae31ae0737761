"""One program over a mesh with a `data` axis: batches are split over it, everything else is copied.

One device, eight devices and many hosts run the same program. Where several seeds train, a mesh can
have an axis `seed` before it: each of its rows of devices then holds some of the seeds alone.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pujax import accelerator

SEED = "seed"
"""Axis of a mesh whose rows of devices hold seeds apart."""


def make_mesh() -> Mesh:
    """A mesh over all devices of all hosts with the single axis `data`."""
    return Mesh(np.asarray(accelerator.devices()), ("data",))


def spread_seeds(mesh: Mesh, num_rows: int) -> Mesh:
    """The devices of a mesh in `num_rows` rows of equally many, axes `seed` and `data`.

    One row is a mesh without the axis `seed`. Devices that are left over are not used.
    """
    devices = mesh.devices.flatten()
    if num_rows == 1:
        return Mesh(devices, ("data",))
    per_row = len(devices) // num_rows
    return Mesh(devices[: num_rows * per_row].reshape(num_rows, per_row), (SEED, "data"))


def num_rows(mesh: Mesh) -> int:
    """Rows of devices that hold seeds apart; 1 where every device holds all seeds."""
    return mesh.shape.get(SEED, 1)


def of_seeds(mesh: Mesh) -> NamedSharding:
    """Sharding of arrays with a leading seed axis: every row of devices has its own seeds."""
    return NamedSharding(mesh, PartitionSpec(SEED) if num_rows(mesh) > 1 else PartitionSpec())


def replicated(mesh: Mesh) -> NamedSharding:
    """A copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def of_batch(size: int, mesh: Mesh) -> NamedSharding:
    """Sharding of a batch: split where its size is a multiple of the devices, else replicated."""
    is_even = size % mesh.size == 0
    return NamedSharding(mesh, PartitionSpec(mesh.axis_names) if is_even else PartitionSpec())


def even_batch(size: int, mesh: Mesh) -> int:
    """`size` rounded down to what the devices share evenly, and at least a row for each."""
    return max(size - size % mesh.size, mesh.size)


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Puts host arrays on every device; every host must hold the same values."""
    return put(tree, replicated(mesh))


def put(tree: Any, sharding: NamedSharding) -> Any:
    """Puts host arrays where a sharding says; every host must hold the same values."""

    def put_leaf(array):
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(put_leaf, tree)


def replicate_numbers(tree: Any, mesh: Mesh) -> Any:
    """Puts whole numbers on every device, as int32 scalars; every host must hold the same ones."""
    numbers = jax.tree.map(np.int32, tree)
    if jax.process_count() > 1:
        return replicate(numbers, mesh)
    return jax.device_put(numbers, replicated(mesh))  # many at once, in a tenth of the time


def gather(tree: Any, mesh: Mesh) -> Any:
    """Brings device arrays, wherever their parts are, onto every device."""
    return move(tree, replicated(mesh))


def move(tree: Any, sharding: NamedSharding) -> Any:
    """Brings device arrays, wherever their parts are, where a sharding of these devices says."""
    return jax.jit(_same, out_shardings=sharding)(tree)


def _same(tree: Any) -> Any:
    # A function with a name is compiled once; a new lambda is compiled at every call.
    return tree


def split_batch(tree: Any, mesh: Mesh) -> Any:
    """Inside a compiled function: splits the first axis of every array over the devices.

    Scalars, and arrays whose first axis the devices do not divide (the support batch of a small
    support set, say), stay copied; the numbers are the same either way.
    """

    def constrain(array):
        layout = of_batch(array.shape[0], mesh) if array.ndim else replicated(mesh)
        return jax.lax.with_sharding_constraint(array, layout)

    return jax.tree.map(constrain, tree)


def split_batch_in_row(tree: Any, mesh: Mesh) -> Any:
    """The same inside of `jax.shard_map` over the rows of a mesh: over the devices of a row."""
    per_row = mesh.shape["data"]

    def constrain(array):
        if not array.ndim or array.shape[0] % per_row:
            return array
        return jax.lax.with_sharding_constraint(array, PartitionSpec("data"))

    return tree if per_row == 1 else jax.tree.map(constrain, tree)


def to_host(array: jax.Array) -> np.ndarray:
    """Value of an array that is the same on every device, on any number of hosts.

    That of an array that is split over the devices too, where all of them are this host's.
    """
    return np.asarray(one_copy(array))


def one_copy(array: jax.Array) -> jax.Array:
    """An array as one device has it; as it is where no device has all of it."""
    return array.addressable_data(0) if array.is_fully_replicated else array


def is_writer() -> bool:
    """True on the one process that writes files."""
    return jax.process_index() == 0


def barrier(name: str) -> None:
    """Waits for all hosts."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def of_first_host(text: str) -> str:
    """The text that the first host passed; every host must call it."""
    if jax.process_count() == 1:
        return text
    from jax.experimental import multihost_utils

    own = np.frombuffer(text.encode(), np.uint8)
    size = int(np.max(multihost_utils.process_allgather(np.asarray(len(own)))))
    padded = np.zeros(size, np.uint8)
    padded[: len(own)] = own
    first = np.asarray(multihost_utils.process_allgather(padded))[0]
    return first.tobytes().rstrip(b"\0").decode()


def arrays_of_first_host(tree: Any) -> Any:
    """A tree in which what every host made for itself is that of the first; all must call it.

    Arrays over the devices of all hosts stay as they are.
    """
    if jax.process_count() == 1:
        return tree
    from jax.experimental import multihost_utils

    def agreed(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return leaf
        return np.asarray(multihost_utils.process_allgather(np.asarray(leaf)))[0]

    return jax.tree.map(agreed, tree)


def any_host(flag: bool) -> bool:
    """True where any host says so; every host must call it."""
    return bool(largest(flag))


def largest(number: float) -> float:
    """The largest of the numbers that the hosts pass; every host must call it."""
    if jax.process_count() == 1:
        return number
    from jax.experimental import multihost_utils

    return float(np.max(multihost_utils.process_allgather(np.asarray(number, np.float32))))
