"""The processor that this process runs on."""

import os


def num_cores() -> int:
    """Processor cores that this process may use, which not every system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
