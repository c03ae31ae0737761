"""One program over a mesh with a `data` axis: batches are split over it, everything else is copied.

One device, eight devices and many hosts run the same program.
"""

from typing import Any

import jax
import ml_collections
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def join_hosts(run: ml_collections.ConfigDict) -> None:
    """Joins the processes of a cluster if `run.distributed` says so; call before any array."""
    if not run.distributed:
        return
    given: dict[str, Any] = {}
    if run.coordinator:
        given["coordinator_address"] = run.coordinator
    if run.num_processes:
        given["num_processes"] = run.num_processes
    if run.process_id >= 0:
        given["process_id"] = run.process_id
    jax.distributed.initialize(**given)


def make_mesh() -> Mesh:
    """A mesh over all devices of all hosts with the single axis `data`."""
    return Mesh(np.asarray(jax.devices()), ("data",))


def replicated(mesh: Mesh) -> NamedSharding:
    """A copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def of_batch(size: int, mesh: Mesh) -> NamedSharding:
    """Sharding of a batch: split where its size is a multiple of the devices, else replicated."""
    return NamedSharding(mesh, PartitionSpec("data") if size % mesh.size == 0 else PartitionSpec())


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Puts host arrays on every device; every host must hold the same values."""
    sharding = replicated(mesh)

    def put(array):
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(put, tree)


def gather(tree: Any, mesh: Mesh) -> Any:
    """Brings device arrays, wherever their parts are, onto every device."""
    return jax.jit(_same, out_shardings=replicated(mesh))(tree)


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


def to_host(array: jax.Array) -> np.ndarray:
    """Value of an array that is the same on every device, on any number of hosts."""
    return np.asarray(array.addressable_data(0))


def is_writer() -> bool:
    """True on the one process that writes files."""
    return jax.process_index() == 0


def barrier(name: str) -> None:
    """Waits for all hosts."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def any_host(flag: bool) -> bool:
    """True where any host says so; every host must call it."""
    if jax.process_count() == 1:
        return flag
    from jax.experimental import multihost_utils

    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))
