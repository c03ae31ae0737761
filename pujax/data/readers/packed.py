"""Opens text and bytes that may be packed with gzip, bzip2 or xz."""

import bz2
import gzip
import lzma
import os
from typing import Any

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def split(path: str) -> tuple[str, bool]:
    """The path in lower case without the ending of a packed file, and whether it had one."""
    stem, ending = os.path.splitext(path.lower())
    return (stem, True) if ending in _OPENERS else (path.lower(), False)


def open_binary(path: str) -> Any:
    """A file of the unpacked bytes."""
    opener: Any = _OPENERS.get(os.path.splitext(path.lower())[1], open)
    return opener(path, "rb")


def open_text(path: str) -> Any:
    """A file of the unpacked UTF-8 text, without a byte order mark, its line ends as they are."""
    opener: Any = _OPENERS.get(os.path.splitext(path.lower())[1], open)
    return opener(path, "rt", encoding="utf-8-sig", newline="")


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
