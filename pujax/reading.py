"""Files that may hold anything: what a header promises is compared with the file's size first.

A file takes at most `ROOM` bytes of memory and `FACTOR` times its size on disk, packed or not. An
honest file seldom needs more: gzip and zip cannot pack more than 1,032 bytes into one. What bzip2,
xz, Parquet and images of one colour pack better is refused beyond `ROOM`, and the message says what
to do.
"""

import ast
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterable
from typing import IO, Any

import numpy as np
import safetensors.numpy

ROOM = 64 * 2**20
"""Bytes that a file may take whatever its size is."""
FACTOR = 1100
"""Bytes of memory for every byte of a file."""

_QUOTED = 40
"""Characters of a file that a message quotes."""
_EMPTY = 2**20
"""Longest side of an array without elements, of which no byte of the file can tell."""


def most_bytes(path: str | os.PathLike) -> int:
    """Bytes of memory that the content of a file may take."""
    return ROOM + FACTOR * os.path.getsize(path)


def check_size(
    path: str | os.PathLike, needed: int, what: str, *, remedy: str = "save it without packing it"
) -> None:
    """Requires that what a file's header promises is in proportion to the file.

    Args:
      path: of the file.
      needed: bytes of memory for it.
      what: how the message begins, such as 'its header says 3 x 4 values'.
      remedy: what to do where the file is meant so.

    Raises:
      ValueError: in one line, without the file's name.
    """
    if needed > most_bytes(path):
        raise ValueError(
            f"{what}, {needed} bytes, and the file has {os.path.getsize(path)}; accepted: at most "
            f"{FACTOR} times as many, and {ROOM // 2**20} MiB (if it is meant so, {remedy})"
        )


def one_line(error: object) -> str:
    """The text of an error in one line, and its type where it has no text."""
    text = " ".join(str(error).split())
    return text or type(error).__name__


def one_line_of_text(error: object) -> str:
    """`one_line` of an error that ends with bytes of a file, as text and at most 40 characters."""

    def shown(match: re.Match[str]) -> str:
        try:
            text = ast.literal_eval(match.group()).decode("utf-8", "replace")
        except (SyntaxError, ValueError):
            return match.group()
        return repr(text if len(text) <= _QUOTED else f"{text[:_QUOTED]}...")

    return re.sub(r"""\bb(['"]).*\1$""", shown, one_line(error))


def parse_json(text: str, *, object_hook: Callable[[dict], Any] | None = None) -> Any:
    """What a JSON text says.

    Raises:
      ValueError: in one line; also where it is nested more deeply than Python can read.
    """
    try:
        return json.loads(text, object_hook=object_hook)
    except RecursionError as error:
        raise ValueError("its lists and objects are nested too deeply") from error


def read_json(path: str | os.PathLike, *, object_hook: Callable[[dict], Any] | None = None) -> Any:
    """What a JSON file says.

    Args:
      path: of the file, in UTF-8.
      object_hook: as of `json.load`.

    Raises:
      OSError: it cannot be opened.
      ValueError: in one line, without the file's name.
    """
    with open(path, encoding="utf-8") as file:
        return parse_json(file.read(), object_hook=object_hook)


def is_json_object(path: str | os.PathLike, keys: set[str]) -> bool:
    """Whether a file is a JSON object with these keys, as one that is recognised by them.

    Raises:
      OSError: it cannot be opened.
    """
    try:
        found = read_json(path)
    except ValueError:  # no text, or no JSON
        return False
    return isinstance(found, dict) and keys <= set(found)


def check_npy(path: str | os.PathLike) -> None:
    """Raises a ValueError unless a `.npy` file is as long as its header says.

    Raises:
      OSError: it cannot be opened.
      ValueError: in one line, without the file's name.
    """
    with open(path, "rb") as file:
        _check_header(file, os.path.getsize(path))


def read_npy(path: str | os.PathLike) -> np.ndarray:
    """The array of a `.npy` file, whose header is compared with its size first.

    Args:
      path: of the file.

    Raises:
      OSError: it cannot be opened.
      ValueError: in one line, without the file's name; also for Python objects.
    """
    with open(path, "rb") as file:
        return _array(file, os.path.getsize(path))


def npz_names(path: str | os.PathLike) -> list[str]:
    """Names of the arrays of an `.npz` file, in its order.

    Raises:
      OSError: it cannot be opened.
      ValueError: in one line, without the file's name.
    """
    with open(path, "rb") as file:
        try:
            return list(_members(zipfile.ZipFile(file), path))
        except Exception as error:  # a damaged file makes zipfile raise errors of many types
            raise ValueError(one_line(error)) from error


def read_npz(path: str | os.PathLike, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Arrays of an `.npz` file by name; every header is compared with the file's size first.

    Args:
      path: of the file.
      names: which, all of them there; None is all.

    Raises:
      OSError: it cannot be opened.
      ValueError: in one line, without the file's name; also for Python objects.
    """
    with open(path, "rb") as file:
        try:
            archive = zipfile.ZipFile(file)
            members = _members(archive, path)
            wanted = members if names is None else names
            return {name: _member(archive, name, members[name]) for name in wanted}
        except MemoryError:
            raise
        except Exception as error:  # a damaged file makes zipfile raise errors of many types
            raise ValueError(one_line(error)) from error


def _member(archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        try:
            return _array(file, member.file_size)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


def read_safetensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Arrays of a safetensors file by name.

    Raises:
      OSError: it cannot be opened.
      ValueError: in one line, without the file's name.
    """
    try:
        return safetensors.numpy.load_file(path)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # of a type that NumPy does not have, too
        raise ValueError(one_line(error)) from error


def check_zip(content: IO[bytes] | str | os.PathLike, path: str | os.PathLike) -> None:
    """Requires that a zip archive unpacks to a size in proportion to its own.

    Args:
      content: the archive.
      path: its file.

    Raises:
      ValueError: in one line, without the file's name; also where it is no such archive.
    """
    try:
        with zipfile.ZipFile(content) as archive:
            _members(archive, path)
    except Exception as error:  # zipfile has no common base for what a damaged file makes it raise
        raise ValueError(one_line(error)) from error


def _members(archive: zipfile.ZipFile, path: str | os.PathLike) -> dict[str, zipfile.ZipInfo]:
    """The members by the names that NumPy gives them."""
    members = archive.infolist()
    if sum(member.compress_size for member in members) > os.path.getsize(path):
        raise ValueError("its members overlap")
    check_size(path, sum(member.file_size for member in members), "its members unpack to")
    return {member.filename.removesuffix(".npy"): member for member in members}


def _check_header(file: IO[bytes], size: int) -> None:
    """Compares what an array's header says with the bytes that follow it.

    Args:
      file: at its start.
      size: its length in bytes.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(
                f"it is of version {version} of NumPy's format; accepted: (1, 0), (2, 0)"
            )
        headers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
        shape, _, dtype = headers[version[0]](file)
    except OSError:
        raise
    except Exception as error:  # the header is Python's text, which is parsed by several modules
        raise ValueError(one_line(error)) from error
    if dtype.hasobject:
        raise ValueError(
            "Object arrays are not read: they hold Python objects (allow_pickle=False)"
        )
    needed, left = math.prod(shape) * dtype.itemsize, size - file.tell()
    if (
        min(shape, default=0) < 0
        or needed > left
        or (not needed and max(shape, default=0) > _EMPTY)
    ):
        raise ValueError(
            f"its header says {dtype} of shape {shape}, {needed} bytes, and {left} bytes follow"
        )


def _array(file: IO[bytes], size: int) -> np.ndarray:
    _check_header(file, size)
    file.seek(0)
    try:
        return np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # NumPy's and zlib's, which have no common base
        raise ValueError(one_line(error)) from error
