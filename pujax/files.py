"""Files that are replaced atomically.

In JSON a non-finite number becomes null, because JSON cannot express it; every other number is
written so that reading it gives the same bits.
"""

import contextlib
import json
import math
import numbers
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from pujax import reading


def write_json(path: str | os.PathLike, obj: Any) -> None:
    """Writes a JSON document atomically: indented by 2, keys in the order given.

    Args:
      path: file to write or replace.
      obj: what `to_plain` accepts.

    Raises:
      ValueError: if something in `obj` cannot be written as JSON.
    """
    text = json.dumps(to_plain(obj), indent=2, ensure_ascii=False, allow_nan=False)
    replace_text(os.fspath(path), text + "\n")


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a JSON document that `write_json` wrote of a mapping.

    Raises:
      ValueError: naming the file, if it is not what was written.
    """
    try:
        document = reading.read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); accepted: the file as written") from error
    if not isinstance(document, dict):
        raise ValueError(
            f"{path} is damaged (it holds a {type(document).__name__}, not an object); accepted: "
            "the file as written"
        )
    return document


def to_plain(value: Any, *, name: str = "value") -> Any:
    """Turns numbers and containers into JSON types, without loss of precision.

    Args:
      value: None, text, a path, a number or array of Python, NumPy or JAX, or a mapping or
        sequence of such.
      name: what to call `value` in an error.

    Returns:
      None, bool, int, float, str, list and dict only; a non-finite number is None.

    Raises:
      ValueError: naming the offending entry, if it is none of these.
    """
    match value:
        case None | bool() | str():
            return value
        case numbers.Integral():
            return int(value)
        case numbers.Real():
            return float(value) if math.isfinite(value) else None
        case os.PathLike():
            return os.fspath(value)
        case Mapping():
            return {str(k): to_plain(v, name=f"{name}.{k}") for k, v in value.items()}
        case _ if hasattr(value, "__array__"):
            return to_plain(_array_to_python(value), name=name)
        case Sequence() if not isinstance(value, bytes | bytearray):
            return [to_plain(v, name=f"{name}[{i}]") for i, v in enumerate(value)]
    raise ValueError(
        f"{name} is a {type(value).__name__}; accepted: None, text, numbers, arrays, and mappings "
        "or sequences of these"
    )


def _array_to_python(array: Any) -> Any:
    array = np.asarray(array)
    # bfloat16 and similar types, which NumPy calls void: every value is also a float32.
    return (array.astype(np.float32) if array.dtype.kind == "V" else array).tolist()


def check_folder(field: str, path: str | os.PathLike) -> None:
    """Requires that a path is a folder, or can become one: no part of it is a file.

    Raises:
      ValueError: naming the field, the path and the file in its way.
    """
    place = _nearest(os.path.abspath(path))
    if not os.path.isdir(place):
        what = "a file" if place == os.path.abspath(path) else f"below the file {place}"
        if not os.path.lexists(place):
            what = f"on {place}, which is not there"
        raise ValueError(f"{field} is {os.fspath(path)!r}, {what}; accepted: a folder")


def _nearest(path: str) -> str:
    """A path, or what is nearest above it of what there is.

    Its root where nothing is there, not even that: a drive that Windows does not have.
    """
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def check_writable(field: str, path: str | os.PathLike, *, is_folder: bool = False) -> None:
    """Requires that a file can be written, or a folder be made and written into; leaves nothing.

    A full disk is not noticed, which may have room again once there is something to write.

    Args:
      field: what a message calls it.
      path: of the file, whose folder may be missing, or of the folder.
      is_folder: which of both it is.

    Raises:
      ValueError: naming the field, the path and why nothing can be written there.
    """
    place = os.path.realpath(path)
    if not is_folder:
        place = os.path.dirname(place)
        if os.path.isdir(path):
            raise ValueError(f"{field} is {os.fspath(path)!r}, a folder; accepted: a file")
    place = _nearest(place)
    what = "a folder" if is_folder else "a file"
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
        if not is_folder:  # a name that is too long, with what `replacing` adds to it
            with contextlib.suppress(FileNotFoundError):
                os.lstat(_temporary(os.path.realpath(path)))
    except OSError as error:
        why = f"nothing can be written in {place} ({error.strerror})"
        if not os.path.isdir(place):
            why = f"{place} is no folder"
        raise ValueError(
            f"{field} is {os.fspath(path)!r}, but {why}; accepted: {what} that can be written"
        ) from error


def make_folder_of(path: str | os.PathLike) -> None:
    """Makes the folder of a file to write, if it is missing."""
    os.makedirs(os.path.dirname(os.path.realpath(path)), exist_ok=True)


@contextlib.contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Puts the name of a file into an `OSError` that has none, as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


def _temporary(target: str) -> str:
    """A name for what will take the place of a file.

    Two processes never write the same one, not on two machines that share a folder either.
    """
    return f"{target}.{uuid.uuid4().hex}.tmp"


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """A file to write bytes to, which takes its place once it is complete.

    At every moment either the complete old or the complete new one exists; after an error the old
    one stays, and nothing beside it. A link stays one, and the file that it names is replaced.

    Args:
      path: file to write or replace, in a folder that exists.
    """
    target = os.path.realpath(path)  # /dev/stdout may be a link, too
    temporary = _temporary(target)
    try:
        with naming(path):
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def replace_text(path: str | os.PathLike, text: str) -> None:
    """Writes a text file as `replacing` does."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
