"""Rows that a saved model is to score, read and prepared some at a time, with their names.

A network sees batches of one size, cut from the rows in their order, whatever the chunks were: what
a row's score is does not depend on them.
"""

import os
import reprlib
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np

from pujax import reading
from pujax.data.digests import Digests
from pujax.data.image_preparation import ImagePreparation
from pujax.data.preparation import Preparation
from pujax.data.readers import (
    columns,
    frame_chunks,
    image_arrays,
    image_listing,
    pu_labels,
)

ROWS = 8192
"""Rows of a table in a chunk."""
IMAGES = 512
"""Images in a chunk."""


class Chunk(NamedTuple):
    """Some consecutive rows.

    Attributes:
      ids: what the rows are called; numbers from 1 where they have no names.
      inputs: `[m, ...]`, what the network sees.
      readable: bool `[m]`; where it is False, the inputs are zeros.
      done: how much was read so far, in units of `total`.
      total: what `done` ends with; 0 where it is not known.
    """

    ids: Sequence[Any]
    inputs: np.ndarray
    readable: np.ndarray
    done: int
    total: int


class NewRows(NamedTuple):
    """Rows to be scored.

    Attributes:
      id_name: what the rows are named by; 'row' counts them from 1.
      chunks: the rows, in their order; to be read once.
      reasons: why a row cannot be read, in one line each; filled while the rows are read.
    """

    id_name: str
    chunks: Iterator[Chunk]
    reasons: list[str]


def of_table(learned: Preparation, rows: Any, *, id_name: str, num_rows: int = 0) -> NewRows:
    """Rows of a table.

    Args:
      learned: the model's preparation.
      rows: path of a file, pandas DataFrame, or array `[n, d]`.
      id_name: the column that named the rows in training, which new rows may have or not; '' where
        none did, whatever columns are called.
      num_rows: of a chunk; 0 is `ROWS`.

    Raises:
      ValueError: for what cannot be read, when its place is reached; for an id that occurs twice,
        at the end.
    """
    num_rows = num_rows or ROWS
    parts = frame_chunks.read(rows, num_rows, accepted=learned.formats)
    first = next(parts)
    has_ids = id_name in learned.aside and id_name in first.frame.names
    name = id_name if has_ids else "row"

    def chunks() -> Iterator[Chunk]:
        seen, now, start = Digests(), [first], 0

        def read_frames() -> Iterator[Any]:
            yield first.frame
            for part in parts:
                now[0] = part
                yield part.frame

        for inputs in learned.transform_parts(read_frames()):
            part, ids = now[0], _numbers(start, len(inputs))
            if has_ids:
                ids = np.asarray(pu_labels.ids(part.frame, name, hint=_without(name)).values)
                seen.add(str(one).encode() for one in ids)
            start += len(inputs)
            yield Chunk(ids, inputs, np.ones(len(inputs), bool), part.done, part.total)
        twice = seen.repeated()
        if twice is not None:
            raise _occurs_twice(frame_chunks.read(rows, num_rows), name, twice)

    return NewRows(name, chunks(), [])


def of_images(
    learned: ImagePreparation, rows: Any, *, unreadable: str = "fail", num_rows: int = 0
) -> NewRows:
    """Images.

    Args:
      learned: the model's preparation.
      rows: a folder, whose images are found in the folders below it, too, and named by their path
        within it, in alphabetical order; the path of one image; a list of paths, which are the
        names; or an array as `ImagePreparation.with_channels` takes it, in memory or as the path of
        an `.npy` file.
      unreadable: 'fail' refuses an image that cannot be read, 'skip' marks it as not readable.
      num_rows: of a chunk; 0 is `IMAGES`.

    Raises:
      ValueError: for rows that are none of these, a folder without images, and, with 'fail', an
        image that cannot be read.
    """
    num_rows = num_rows or IMAGES
    if isinstance(rows, str | os.PathLike) and os.fspath(rows).lower().endswith(".npy"):
        path, rows = os.fspath(rows), _array_in(os.fspath(rows), learned.takes)
        rows = learned.with_channels(rows, f"the array of images in {path}")
    if isinstance(rows, np.ndarray):
        rows = learned.with_channels(rows)
        return NewRows("row", _array_chunks(learned, rows, num_rows), [])
    names, paths = _named(rows, learned.takes)
    reasons: list[str] = []

    def chunks() -> Iterator[Chunk]:
        with futures.ThreadPoolExecutor() as threads:
            for start in range(0, len(paths), num_rows):
                part = paths[start : start + num_rows]
                inputs = np.zeros([len(part), *learned.shape], np.uint8)
                readable = np.ones(len(part), bool)
                images = [threads.submit(learned.read, path) for path in part]
                for row, image in enumerate(images):
                    try:
                        inputs[row] = image.result()
                    except ValueError as error:
                        if unreadable == "fail":
                            threads.shutdown(cancel_futures=True)
                            hint = "images, or unreadable='skip' to keep a row without a score"
                            raise ValueError(f"{error}; accepted: {hint}") from error
                        reasons.append(str(error))
                        readable[row] = False
                done = start + len(part)
                yield Chunk(names[start:done], inputs, readable, done, len(paths))

    return NewRows("file", chunks(), reasons)


def _array_in(path: str, takes: str) -> np.ndarray:
    """The array of an `.npy` file, which is read as it is needed."""
    try:
        reading.check_npy(path)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read ({reading.one_line(error)}); accepted: {takes}"
        ) from error


def _named(rows: Any, takes: str) -> tuple[list[str], list[str]]:
    """Names and paths of images."""
    if isinstance(rows, str | os.PathLike):
        path = os.fspath(rows)
        if os.path.isdir(path):
            names = image_listing.images_below(path)
            if not names:
                endings = ", ".join(image_listing.SUFFIXES)
                raise ValueError(f"{path} holds no image; accepted: files called {endings}")
            return names, [os.path.join(path, name) for name in names]
        if not os.path.exists(path):
            raise ValueError(f"{path} does not exist; accepted: {takes}")
        _check_file(path, takes)
        if not path.lower().endswith(image_listing.SUFFIXES):
            _check_image(path, takes)
        rows = [path]
    is_list = isinstance(rows, list | tuple) and len(rows) > 0
    if not is_list or not all(isinstance(path, str | os.PathLike) for path in rows):
        what = reprlib.repr(rows) if isinstance(rows, list | tuple) else f"a {type(rows).__name__}"
        raise ValueError(f"the rows are {what}; accepted: {takes}")
    paths = [os.fspath(path) for path in rows]
    for path in paths:
        image_listing.check_name("the list of rows", path)
        _check_file(path, takes)
    return paths, paths


def _check_file(path: str, takes: str) -> None:
    """Raises a ValueError for what is there but no file: a pipe would be read for ever."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{path} is no file; accepted: {takes}")


def _check_image(path: str, takes: str) -> None:
    """Raises a ValueError for one file that is a table, or anything else but an image."""
    try:
        image_arrays.stored_size(path)
    except ValueError as error:
        raise ValueError(f"{path} is no image; accepted: {takes}") from error


def _array_chunks(learned: ImagePreparation, rows: np.ndarray, num_rows: int) -> Iterator[Chunk]:
    for start in range(0, len(rows), num_rows):
        inputs = learned.transform(rows[start : start + num_rows])
        done = start + len(inputs)
        ids, readable = _numbers(start, len(inputs)), np.ones(len(inputs), bool)
        yield Chunk(ids, inputs, readable, done, len(rows))


def _numbers(start: int, count: int) -> Any:
    return np.arange(start + 1, start + count + 1)


def _occurs_twice(
    parts: Iterator[frame_chunks.Chunk], name: str, rows: tuple[int, int]
) -> ValueError:
    """The error for an id that two rows have, which are looked up again."""
    places, value, start = [], "", 0
    for part in parts:
        for row in rows:
            if start <= row < start + part.frame.num_rows:
                places.append(part.frame.place(row - start))
                words = columns.text(part.frame.column(name, field="id_column"))
                value = words.iloc[row - start]
        start += part.frame.num_rows
    return ValueError(
        f"{places[0]} and {places[1].rpartition(', ')[2]}: column {name!r} is {value!r} in both; "
        f"accepted: ids that occur once{_without(name)}"
    )


def _without(name: str) -> str:
    """What new rows may have in place of ids."""
    return f", or no column {name!r}, so that rows are called by their numbers"


def batches(
    chunks: Iterator[Chunk], size: int, take: Callable[[Chunk], None]
) -> Iterator[tuple[np.ndarray, int]]:
    """Cuts chunks into batches of one size, in their order.

    Args:
      chunks: the rows.
      size: rows of a batch.
      take: is given every chunk when it is read.

    Yields:
      `(inputs [size, ...], count)`, of which the first `count` are rows; only the last batch has
      fewer than `size`, and zeros behind them.
    """
    waiting: list[np.ndarray] = []
    for chunk in chunks:
        take(chunk)
        waiting.append(chunk.inputs)
        if sum(map(len, waiting)) >= size:
            rows = np.concatenate(waiting)
            for start in range(0, len(rows) - size + 1, size):
                yield rows[start : start + size], size
            waiting = [rows[len(rows) // size * size :]]
    rows = np.concatenate(waiting) if waiting else np.zeros(0)
    if len(rows):
        padding = np.zeros([size - len(rows), *rows.shape[1:]], rows.dtype)
        yield np.concatenate([rows, padding]), len(rows)
