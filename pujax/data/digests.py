"""Contents as 16 bytes each, so that those of millions of rows are compared in little memory."""

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np

_SIZE = 16
"""Bytes, of which two contents out of a billion share all with a chance of 1e-21."""


def of_numbers(rows: np.ndarray) -> Iterator[bytes]:
    """Rows of numbers as contents, equal where all of their numbers are.

    Args:
      rows: `[n, d]` of real numbers, integers with all of their digits.
    """
    if rows.dtype.kind == "f" and rows.dtype.itemsize > 8:  # which has bytes that mean nothing
        rows = rows.astype(np.float64)
    # -0 and 0 are the same number, and not the same bytes.
    return (row.tobytes() for row in rows + rows.dtype.type(0))


class Digests:
    """Digests of contents, such as names or cells of rows, in the order in which they come."""

    def __init__(self) -> None:
        self._digests = bytearray()

    def add(self, contents: Iterable[bytes]) -> None:
        """Adds the digests of the next contents."""
        for content in contents:
            self._digests += hashlib.blake2b(content, digest_size=_SIZE).digest()

    def __len__(self) -> int:
        return len(self._digests) // _SIZE

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._digests), _SIZE):
            yield bytes(self._digests[start : start + _SIZE])

    def among(self, others: "Digests") -> np.ndarray:
        """Which contents are among others, bool `[n]`; fewer than the others need less memory."""
        wanted = set(self)
        found = {digest for digest in others if digest in wanted}
        return np.fromiter((digest in found for digest in self), bool, len(self))

    def repeated(self) -> tuple[int, int] | None:
        """The first two contents, counted from 0, that are the same; None if all differ."""
        order, is_next = self._in_order()
        same = np.flatnonzero(is_next)
        if not len(same):
            return None
        place = same[np.argmin(order[same + 1])]  # the sort keeps the order of equal contents
        return int(order[place]), int(order[place + 1])

    def num_repeated(self) -> int:
        """How many contents are the same as another one."""
        _, is_next = self._in_order()
        return int((np.append(is_next, False) | np.append(False, is_next)).sum())

    def _in_order(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the contents, int `[n]`, equal ones together, and whether the next is equal.

        The latter is bool `[n - 1]`.
        """
        digests = np.frombuffer(self._digests, np.uint64).reshape(-1, 2)
        order = np.lexsort(digests.T)
        ordered = digests[order]
        return order, (ordered[1:] == ordered[:-1]).all(1)
