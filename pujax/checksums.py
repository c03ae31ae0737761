"""Checksums of arrays, files and JSON documents, which show what a disk or a copy has changed.

They are made to find damage, not to keep out somebody who wants to deceive.
"""

import hashlib
import json
import os
from typing import Any

import numpy as np

_ROW = 2048
_ROWS_AT_ONCE = 64  # a megabyte, which stays in a processor's cache for the second sum


def of_array(array: Any) -> str:
    """Checksum of an array's numbers, type and shape.

    SHA-256 of the sums, modulo 2^64, of every row and of every column of the array's 64-bit words
    in rows of 2048, and of the words that are left over. Any change inside one row changes a sum of
    a column, and any change inside one column a sum of a row, so that one wrong word, block or page
    is always found. Several times as fast as a hash of all bytes, which a save would wait for.

    Args:
      array: what NumPy takes for an array, on the host.

    Returns:
      64 hexadecimal digits.
    """
    array = np.asarray(array)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    num_rows = len(flat) // (8 * _ROW)
    end = num_rows * 8 * _ROW
    words = flat[:end].view(np.uint64).reshape(num_rows, _ROW)
    columns, rows = np.zeros(_ROW, np.uint64), np.zeros(num_rows, np.uint64)
    for first in range(0, num_rows, _ROWS_AT_ONCE):
        block = words[first : first + _ROWS_AT_ONCE]
        columns += block.sum(axis=0)
        rows[first : first + len(block)] = block.sum(axis=1)
    result = hashlib.sha256(f"{array.dtype}{list(array.shape)}".encode())
    for part in (columns, rows, flat[end:]):
        result.update(part.tobytes())
    return result.hexdigest()


def of_file(path: str | os.PathLike) -> str:
    """SHA-256 of a file's bytes in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_document(document: Any) -> str:
    """SHA-256, in hexadecimal, of what JSON can hold, however it is written down."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
