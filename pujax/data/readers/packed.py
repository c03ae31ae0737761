"""Opens text and bytes that may be packed with gzip, bzip2 or xz."""

import bz2
import gzip
import io
import lzma
import os
from typing import Any

from pujax import reading

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_BUFFER = 2**17


class _Unpacked(io.RawIOBase):
    """Unpacked bytes, up to what a file of that size may hold.

    bzip2 and xz can pack a gigabyte of zeros into some hundred bytes.
    """

    def __init__(self, path: str):
        self._file = _OPENERS[_ending(path)](path, "rb")
        self._path = path
        self._left = reading.most_bytes(path)

    def readable(self) -> bool:
        """True: it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Bytes that were read into the buffer."""
        count = self._file.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise ValueError(
                f"{self._path} unpacks to more than {reading.most_bytes(self._path)} bytes; "
                f"accepted: at most {reading.FACTOR} times its size, and "
                f"{reading.ROOM // 2**20} MiB (if it is meant so, unpack it first)"
            )
        return count

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()


def _ending(path: str) -> str:
    return os.path.splitext(path.lower())[1]


def split(path: str) -> tuple[str, bool]:
    """The path in lower case without the ending of a packed file, and whether it had one."""
    stem, ending = os.path.splitext(path.lower())
    return (stem, True) if ending in _OPENERS else (path.lower(), False)


def open_binary(path: str) -> Any:
    """A file of the unpacked bytes.

    Reading it raises a `ValueError` that names the file where it unpacks to more than a file of its
    size may take, see `pujax.reading`.
    """
    if _ending(path) not in _OPENERS:
        return open(path, "rb")
    return io.BufferedReader(_Unpacked(path), _BUFFER)


def open_text(path: str) -> Any:
    """A file of the unpacked UTF-8 text, without a byte order mark, its line ends as they are."""
    return io.TextIOWrapper(open_binary(path), encoding="utf-8-sig", newline="")


def encoding_error(path: str) -> str:
    """What to say of a text file that is not UTF-8: its first such line and byte."""
    with open_binary(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return (
                    f"{path}, line {number}, byte {error.start + 1} is {line[error.start]:#04x}; "
                    "accepted: text in UTF-8 (save the file with this encoding)"
                )
    return f"{path} ends within a character; accepted: text in UTF-8"
