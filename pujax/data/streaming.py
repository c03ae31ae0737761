"""Batches of images from files, decoded by threads with grain while the device computes.

Nothing here has state that a checkpoint would need: which images a step sees is given, and the crop
of an image is a pure function of (seed, epoch, id). So a resumed run sees the same pixels as one
that was never stopped, with any number of threads, devices and hosts. Each host decodes only
the rows that its own devices hold. Threads are enough: Pillow works outside of Python's lock.
"""

import collections
import contextlib
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from pujax import processor
from pujax.checks import require, whole_number
from pujax.data.image_files import ImageFiles, check_rows
from pujax.data.readers.download import MissingDataError


def train_batches(
    files: ImageFiles,
    ids: np.ndarray,
    *,
    seed: int,
    epoch: int,
    first_step: int = 0,
    crop_sizes: tuple[int, ...],
    sharding: Sharding,
    num_threads: int = 0,
    read_ahead: int = 2,
) -> Generator[jax.Array, None, None]:
    """Batches of randomly cropped images, in the order of an epoch.

    Args:
      files: the training set.
      ids: int32 `[steps, batch]`, which rows of `files` each step of the epoch sees.
      seed: seed of the run, 0 or more.
      epoch: which epoch it is, 0 or more; each has crops of its own.
      first_step: step to begin with, from 0 to `steps`.
      crop_sizes: see `ImageFiles.read_crop`; () for `ImageFiles.read`, without a crop.
      sharding: how a batch lies on the devices. One that does not divide the batch evenly is
        replaced by copies on all devices of its mesh.
      num_threads: threads that decode, 0 for one per core.
      read_ahead: batches decoded ahead, from 1; one more is already on the device.

    Returns:
      An iterator of uint8 `[batch, side, side, 3]`, one for each step from `first_step` on. It may
      be closed early.

    Raises:
      ValueError: an argument is not acceptable. Taking a batch raises it for a file that cannot be
        read; the message names the file.
      MissingDataError: grain is not installed.
    """
    ids = check_rows("ids", ids, len(files))
    is_matrix = ids.ndim == 2 and ids.shape[1] > 0
    require(is_matrix, "the shape of ids", ids.shape, "[steps, batch], batch from 1")
    require(0 <= first_step <= len(ids), "first_step", first_step, f"0 to {len(ids)}")
    whole_number("seed", seed, 0)
    whole_number("epoch", epoch, 0)
    if crop_sizes:
        files.check_crop_sizes(crop_sizes)

    def read(index):
        if not crop_sizes:
            return files.read(index)
        rng = np.random.default_rng((seed, epoch, int(index)))
        return files.read_crop(index, rng, crop_sizes)

    return _stream(
        read,
        ids[first_step:],
        shape=(ids.shape[1], *files.shape[1:]),
        sharding=sharding,
        num_threads=num_threads,
        read_ahead=read_ahead,
    )


def all_batches(
    files: ImageFiles,
    *,
    batch_size: int,
    sharding: Sharding,
    num_threads: int = 0,
    read_ahead: int = 2,
) -> Generator[tuple[int, jax.Array], None, None]:
    """All images in their order, as they are tested.

    The last batch is moved back to full size, so it may begin with images that the batch before it
    has too, and a function of a batch is compiled for one shape only.

    Args:
      files: one image or more.
      batch_size: images per batch, at least 1; as many as there are if that is fewer.
      sharding: as in `train_batches`.
      num_threads: threads that decode, 0 for one per core.
      read_ahead: batches decoded ahead of their use, from 1.

    Returns:
      An iterator of the row of a batch's first image and the batch, uint8 `[batch, side, side, 3]`.
      It may be closed early.

    Raises:
      ValueError: as in `train_batches`.
      MissingDataError: grain is not installed.
    """
    whole_number("batch_size", batch_size, 1)
    n = len(files)
    require(n > 0, "the number of files", n, "1 or more")
    size = min(batch_size, n)
    starts = [min(start, n - size) for start in range(0, n, size)]
    batches = _stream(
        files.read,
        np.asarray(starts)[:, None] + np.arange(size),
        shape=(size, *files.shape[1:]),
        sharding=sharding,
        num_threads=num_threads,
        read_ahead=read_ahead,
    )
    return _with_starts(starts, batches)


def map_files(
    function: Callable[[jax.Array], Any],
    files: ImageFiles,
    *,
    batch_size: int,
    sharding: Sharding,
    num_threads: int = 0,
    read_ahead: int = 2,
) -> Any:
    """`batching.map_batches` for images in files.

    Args:
      function: maps uint8 images `[batch, side, side, 3]` to an array or pytree with the same first
        axis, row by row.
      files: `n` images, 1 or more.
      batch_size: images per call.
      sharding: as in `train_batches`.
      num_threads: threads that decode, 0 for one per core.
      read_ahead: batches decoded ahead of their use, from 1.

    Returns:
      What `function` returns, with first axis `n`; NumPy arrays are joined on the host.

    Raises:
      ValueError: as in `all_batches`, and where a file cannot be read.
      MissingDataError: grain is not installed.
    """
    results, done = [], 0
    batches = all_batches(
        files,
        batch_size=batch_size,
        sharding=sharding,
        num_threads=num_threads,
        read_ahead=read_ahead,
    )
    with contextlib.closing(batches):
        for start, images in batches:
            cut = done - start
            results.append(jax.tree.map(lambda x, cut=cut: x[cut:], function(images)))
            done = start + len(images)
    return jax.tree.map(_join, *results)


def _join(*parts):
    return (np if isinstance(parts[0], np.ndarray) else jnp).concatenate(parts)


def _stream(
    read, ids, *, shape, sharding, num_threads, read_ahead
) -> Generator[jax.Array, None, None]:
    """Batches of `read(id)` for `ids` `[steps, batch]`; `shape` is that of a batch."""
    whole_number("num_threads", num_threads, 0)
    whole_number("read_ahead", read_ahead, 1)
    grain = _import_grain()
    sharding = _even(sharding, shape)
    rows = _local_rows(sharding, shape)
    threads = num_threads or processor.num_cores()
    options = grain.ReadOptions(
        num_threads=threads, prefetch_buffer_size=max(threads, read_ahead * len(rows))
    )
    images = grain.MapDataset.source(ids[:, rows].reshape(-1)).map(read).to_iter_dataset(options)
    return _batches(images, len(ids), rows=rows, shape=shape, sharding=sharding)


def _batches(images, steps, *, rows, shape, sharding):
    """Stacks images and puts each batch on the devices one step before its use."""
    ready = collections.deque()
    with contextlib.closing(iter(images)) as decoded:
        for _ in range(steps):
            # A new array every time: on CPU the device may use it in place, without a copy.
            local = np.stack([next(decoded) for _ in rows])
            ready.append(_on_devices(local, rows=rows, shape=shape, sharding=sharding))
            if len(ready) > 1:
                yield ready.popleft()
    yield from ready


def _on_devices(local, *, rows, shape, sharding):
    """The global batch, of which this host has the rows `rows`."""

    def part(index):
        first, stop, _ = index[0].indices(shape[0])
        start = np.searchsorted(rows, first)
        return local[(slice(start, start + stop - first), *index[1:])]

    return jax.make_array_from_callback(shape, sharding, part)


def _local_rows(sharding, shape):
    """Rows of a batch that the devices of this host hold, in increasing order."""
    parts = sharding.addressable_devices_indices_map(shape).values()
    return np.unique(np.concatenate([np.arange(shape[0])[index[0]] for index in parts]))


def _even(sharding, shape):
    """`sharding`, or copies on its devices where it does not divide the batch evenly."""
    try:
        sharding.shard_shape(shape)
    except ValueError:
        if not isinstance(sharding, NamedSharding):
            raise
        return NamedSharding(sharding.mesh, PartitionSpec())
    return sharding


def _with_starts(starts, batches):
    with contextlib.closing(batches):
        yield from zip(starts, batches, strict=True)


def _import_grain():
    try:
        import grain
    except ImportError as error:
        raise MissingDataError(
            "images in files are streamed with grain: pip install 'grain>=0.2.15' (there is "
            "none for Windows; sets that fit into memory do not need it)"
        ) from error
    return grain
