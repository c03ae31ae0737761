"""Reads a file of rows some at a time, where its format allows it, in the frames of `frames`."""

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from pujax import reading
from pujax.checks import whole_number
from pujax.data.readers import frames, packed, separated
from pujax.data.readers.frames import Frame


class Chunk(NamedTuple):
    """Some consecutive rows of a file.

    Attributes:
      frame: the rows.
      done: how much of the file was read so far, in units of `total`.
      total: what `done` ends with; 0 where it is not known.
    """

    frame: Frame
    done: int
    total: int


def read(rows: Any, num_rows: int, *, accepted: str = frames.FORMATS) -> Iterator[Chunk]:
    """Reads rows in chunks; CSV, TSV, Parquet and `.npy` are never in memory as a whole.

    `.npz` and svmlight are read whole, and cut afterwards: the former is packed, and the width of
    the latter is known at its end.

    Args:
      rows: path of a file, or data in memory as `frames.of` takes them.
      num_rows: of a chunk; the last one may have fewer.
      accepted: as in `frames.read`.

    Yields:
      `Chunk`s, in the order of the rows.

    Raises:
      ValueError: as `frames.read` and `frames.of`, when the place in the file is reached.
    """
    whole_number("num_rows", num_rows, 1)
    if not isinstance(rows, str | os.PathLike):
        yield from _cut(frames.of(rows), num_rows)
        return
    path = os.fspath(rows)
    stem, is_packed = packed.split(path)
    ending = os.path.splitext(stem)[1]
    chunked: dict[str, Callable[[str, int], Iterator[Chunk]]]
    chunked = {".csv": _text, ".tsv": _text, ".tab": _text}
    if not is_packed:
        chunked |= {".parquet": _parquet, ".pq": _parquet, ".npy": _npy}
    if ending not in chunked or not os.path.isfile(path) or not os.path.getsize(path):
        # Which says what is wrong with the file.
        yield from _cut(frames.read(path, accepted=accepted), num_rows)
        return
    try:
        yield from chunked[ending](path, num_rows)
    except (OSError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be read ({reason}); accepted: {accepted}") from error


def _cut(frame: Frame, num_rows: int) -> Iterator[Chunk]:
    for first in range(0, frame.num_rows, num_rows):
        last = min(first + num_rows, frame.num_rows)
        yield Chunk(frame.take(np.arange(first, last)), last, frame.num_rows)


def _text(path: str, num_rows: int) -> Iterator[Chunk]:
    _, is_packed = packed.split(path)
    size = 0 if is_packed else os.path.getsize(path)
    for table, lines, done in separated.read_chunks(path, num_rows):
        yield Chunk(frames._check(Frame(path, table, lines=lines)), done, size)


def _parquet(path: str, num_rows: int) -> Iterator[Chunk]:
    with frames.parquet_errors(path):
        import pyarrow as pa
        import pyarrow.parquet as pq

        frames.check_parquet(path)
        done = 0
        with pq.ParquetFile(path) as file:
            total, index = file.metadata.num_rows, frames.range_index(file)
            if not total:
                frames.read(path)  # which says that there are no rows
            for batch in file.iter_batches(num_rows):
                rows = pa.Table.from_batches([batch])
                part = None if index is None else index[done : done + len(rows)]
                table = frames.table_of(rows, part)
                numbers = np.arange(done, done + len(table))
                frame = frames._check(Frame(path, table, numbers=numbers))
                done += frame.num_rows
                yield Chunk(frame, done, total)


def _npy(path: str, num_rows: int) -> Iterator[Chunk]:
    try:
        reading.check_npy(path)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}); accepted: real numbers") from error
    if not array.ndim or not array.size or array.dtype.kind not in "fiub":
        yield from _cut(frames.read(path), num_rows)
        return
    for first in range(0, len(array), num_rows):
        part = frames._rows(path, "the array", np.asarray(array[first : first + num_rows]))
        numbers = np.arange(first, first + len(part))
        frame = frames._check(Frame(path, part, numbers=numbers))
        yield Chunk(frame, first + len(part), len(array))
