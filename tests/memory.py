"""What a call allocates, as tests see it."""

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_TIMES = 3


def peak_of(call: Callable[[], _T]) -> tuple[int, _T]:
    """Bytes that a call takes at most beside those taken before, and its result.

    The least of three calls: a first call may import modules, and a thread of another test may
    allocate at the same time. Both only add.
    """
    peaks = []
    for _ in range(_TIMES):
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            result = call()
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
        finally:
            tracemalloc.stop()
    return min(peaks), result
