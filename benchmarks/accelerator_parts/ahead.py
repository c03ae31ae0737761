"""Compiles the programs of several parts at once, before anything is timed.

A compiler keeps the processor busy and the device idle. Parts that run in turn wait for it in turn;
here each has a process of its own, and what it compiles is found in the cache by the part later.

python -m benchmarks.accelerator_parts.ahead --out=DIR --part=NAME [--data_dir=...] [--tiny]
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.accelerator_parts import plan, runner, worker

WORKER = (sys.executable, "-m", "benchmarks.accelerator_parts.ahead")
_STEPS = "steps:run"
# Several processes share the device: none may take its memory for itself, as JAX does at its start.
_SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def run(
    parts: Sequence[plan.Part],
    out: str,
    seconds: float,
    *,
    command: Sequence[str],
    say: Callable[[str], None],
) -> None:
    """Compiles the training steps of the parts that have some.

    Args:
      parts: chosen ones; those that time no training step are left out.
      out: folder of the results, which holds the cache.
      seconds: after which what still compiles is ended. Its part compiles again by itself.
      command: program and arguments of one process, without the part.
      say: takes a line per part.
    """
    begun = time.monotonic()
    log = os.path.join(out, "ahead.log")
    waiting = {
        part.name: runner.Worker(
            [*command, f"--part={part.name}"], part.flags, log, environment=_SHARED
        )
        for part in parts
        if part.function == _STEPS
    }
    try:
        while waiting and time.monotonic() - begun < seconds:
            for name, process in list(waiting.items()):
                status = process.status()
                if status is not None:
                    del waiting[name]
                    spent = time.monotonic() - begun
                    ended = "compiled" if status == 0 else f"not compiled, see {log}"
                    say(f"{name}: {ended} after {spent:.0f} s")
            time.sleep(runner.POLL_SECONDS)
        for name in waiting:
            say(f"{name}: not compiled within {seconds:.0f} s")
    finally:
        for process in waiting.values():
            process.kill()


def main() -> None:
    """Compiles one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    worker.add_arguments(parser)
    parser.add_argument("--part", required=True)
    given = parser.parse_args()
    worker.use_cache(given)
    part = next(p for p in plan.all_parts(tiny=given.tiny) if p.name == given.part)
    context = worker.context_of(given, lambda: float("inf"), {}, lambda **found: None)
    # JAX reads the place of its cache when it is imported, which the module of the steps does.
    steps = importlib.import_module(f"{__package__}.steps")
    steps.compile_ahead(context, **part.options)


if __name__ == "__main__":
    # As in `worker`: modules must see one another by the same names.
    importlib.import_module("benchmarks.accelerator_parts.ahead").main()
