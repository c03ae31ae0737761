"""Compiles the programs of several parts at once, before anything is timed.

A compiler works on the processor for most of its time. Parts that run in turn wait for it in turn;
here several compile at once, and what they compile is found in the cache by the part later. On a
GPU the compiler also times kernels to choose among them, which the others disturb: the choice can
be another one than that of a part that compiles alone. A TPU takes one process at a time, so that
all but one end without a program.

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
_NOT_HERE = 3
_ENDED = {0: "compiled", _NOT_HERE: "nothing to compile on this platform"}
"""What the exit status of a process says; any other one is a failure."""
# Several processes share the device: none may take its memory for itself, as JAX does at its start.
_SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def run(
    parts: Sequence[plan.Part],
    out: str,
    seconds: float,
    *,
    command: Sequence[str],
    say: Callable[[str], None],
    at_once: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Compiles the training steps of the parts that have some, in their order.

    Args:
      parts: chosen ones; those that time no training step are left out.
      out: folder of the results, which holds the cache.
      seconds: after which what still compiles is ended. Its part compiles again by itself.
      command: program and arguments of one process, without the part.
      say: takes a line per part.
      at_once: processes at the same time; None is half as many as there are cores.
      clock: seconds from any origin; replaced in tests.
    """
    at_once = at_once or max((os.cpu_count() or 1) // 2, 1)
    begun = clock()
    log = os.path.join(out, "ahead.log")
    waiting = [part for part in parts if part.function == _STEPS]
    running: dict[str, runner.Worker] = {}
    try:
        while (waiting or running) and clock() - begun < seconds:
            while waiting and len(running) < at_once:
                part = waiting.pop(0)
                words = [*command, f"--part={part.name}"]
                running[part.name] = runner.Worker(words, part.flags, log, environment=_SHARED)
            for name, process in list(running.items()):
                status = process.status()
                if status is not None:
                    del running[name]
                    say(f"{name}: {_ENDED.get(status, f'not compiled, see {log}')}")
            time.sleep(runner.POLL_SECONDS)
        for name in [*running, *(part.name for part in waiting)]:
            say(f"{name}: not compiled within {seconds:.0f} s")
    finally:
        for process in running.values():
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
    is_here = steps.compile_ahead(context, **part.options)
    sys.exit(0 if is_here else _NOT_HERE)


if __name__ == "__main__":
    # As in `worker`: modules must see one another by the same names.
    importlib.import_module("benchmarks.accelerator_parts.ahead").main()
