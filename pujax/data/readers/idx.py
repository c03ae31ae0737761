"""The idx files of MNIST and of the sets that copied its layout (LeCun, Cortes and Burges)."""

import math
import os
import pathlib
from typing import NamedTuple

import numpy as np

from pujax import reading
from pujax.data import absent, raw
from pujax.data.readers import archive, download, packed

SIDE = 28
_UBYTE = 0x08
_FILES = (
    ("train-images-idx3-ubyte", 3),
    ("train-labels-idx1-ubyte", 1),
    ("t10k-images-idx3-ubyte", 3),
    ("t10k-labels-idx1-ubyte", 1),
)


class IdxSource(NamedTuple):
    """What distinguishes one idx data set from another.

    Attributes:
      name: source name.
      folders: where other tools put the files, below the data directory.
      base_url: address of the folder that holds the four `.gz` files.
      files: per file of `_FILES`, the size of its `.gz` and its sha256.
      class_names: ten names.
      mean: of pixels in 0-1.
      std: of pixels in 0-1.
      train_counts: training images of every class.
      test_counts: test images of every class.
    """

    name: str
    folders: tuple[str, ...]
    base_url: str
    files: tuple[tuple[int, str], ...]
    class_names: tuple[str, ...]
    mean: float
    std: float
    train_counts: tuple[int, ...]
    test_counts: tuple[int, ...]


def without_data(source: IdxSource) -> raw.RawDataset:
    """The data set without its images."""
    return absent.one_class(
        source.name,
        (SIDE, SIDE, 1),
        train=source.train_counts,
        test=source.test_counts,
        class_names=source.class_names,
        mean=(source.mean,),
        std=(source.std,),
    )


def read_idx(path: pathlib.Path, *, rank: int) -> np.ndarray:
    """Reads one idx file of unsigned bytes, plain or gzipped.

    Args:
      path: the file; a name that ends in `.gz` is unpacked on the way.
      rank: number of dimensions it has to have.

    Returns:
      uint8 array of that rank.

    Raises:
      ValueError: the header is not that of such a file, or the length does not fit the header.
    """
    with archive.naming(str(path)), packed.open_binary(os.fspath(path)) as stream:
        header = archive.read_exactly(stream, 4 + 4 * rank, str(path))
        expected = bytes((0, 0, _UBYTE, rank))
        if header[:4] != expected:
            raise ValueError(
                f"{path} is not an idx file of bytes in {rank} dimensions: "
                f"it starts with {header[:4].hex()}; accepted: {expected.hex()}"
            )
        shape = tuple(int(size) for size in np.frombuffer(header, ">u4", offset=4))
        length = math.prod(shape)
        _check_length(path, shape, length)
        content = archive.read_exactly(stream, length, str(path))
        if stream.read(1):
            raise ValueError(f"{path} is longer than its header says: {length} bytes of {shape}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def load(source: IdxSource, directory: pathlib.Path) -> raw.RawDataset:
    """Reads the four files of an idx data set, or downloads them first.

    Args:
      source: which data set.
      directory: folder to look in, see `pujax.data.sources.load`.

    Returns:
      A `RawDataset` with one channel.

    Raises:
      MissingDataError: files are missing and cannot be downloaded.
      ValueError: a file is damaged or two files do not fit one another.
    """
    remotes = [
        download.RemoteFile(f"{name}.gz", f"{source.base_url}{name}.gz", f"sha256:{sum_}", size)
        for (name, _), (size, sum_) in zip(_FILES, source.files, strict=True)
        if _find(directory, source, name) is None
    ]
    if remotes:
        hint = "The unpacked files (the same names without .gz) are accepted as well."
        download.fetch_all(remotes, directory=directory / source.name, hint=hint)
    places = [_find(directory, source, name) for name, _ in _FILES]
    paths = [path for path in places if path is not None]
    arrays = [read_idx(path, rank=rank) for path, (_, rank) in zip(paths, _FILES, strict=True)]
    for images, labels in ((0, 1), (2, 3)):
        if len(arrays[images]) != len(arrays[labels]):
            raise ValueError(
                f"{paths[images]} has {len(arrays[images])} images, "
                f"but {paths[labels]} has {len(arrays[labels])} labels"
            )
        if arrays[labels].size and arrays[labels].max() >= len(source.class_names):
            raise ValueError(
                f"{paths[labels]} holds the label {arrays[labels].max()}; "
                f"accepted: 0..{len(source.class_names) - 1}"
            )
    return raw.RawDataset(
        name=source.name,
        train_inputs=arrays[0][..., None],
        train_labels=arrays[1].astype(np.int32),
        test_inputs=arrays[2][..., None],
        test_labels=arrays[3].astype(np.int32),
        class_names=source.class_names,
        mean=(source.mean,),
        std=(source.std,),
    )


def _check_length(path: pathlib.Path, shape: tuple[int, ...], length: int) -> None:
    """Raises a ValueError where the file cannot be so long, before memory is taken for it."""
    size = os.path.getsize(path) - 4 - 4 * len(shape)
    if path.suffix != ".gz" and length > size:
        raise ValueError(f"{path} is truncated: {size} of {length} bytes of {shape}")
    try:
        reading.check_size(path, length, f"its header says {shape}")
    except ValueError as error:
        raise ValueError(f"{path} is damaged or truncated: {error}") from error


def _find(directory: pathlib.Path, source: IdxSource, name: str) -> pathlib.Path | None:
    """The file by any of the names and places that are in use, plain or gzipped."""
    names = (name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz")
    places = ("", *source.folders)
    candidates = [f"{place}/{file}".lstrip("/") for place in places for file in names]
    return archive.find(directory, source.name, candidates)
