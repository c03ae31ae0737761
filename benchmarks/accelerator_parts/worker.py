"""The process that runs parts: it reads one request per line until its input ends.

python -m benchmarks.accelerator_parts.worker --out=DIR [--tiny] [--data_dir=...] [--epochs=N]
"""

import argparse
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.accelerator_parts import plan, results


class NotHereError(Exception):
    """A part that cannot run on this machine, or without data."""


class Context(NamedTuple):
    """What a part is given.

    Attributes:
      out: folder of the results.
      tiny: whether this is a dry run at tiny sizes.
      data_dir: `FOLDER` or `SOURCE=FOLDER,...` of published data; '' is none.
      num_epochs: length of the runs of one network, 0 for the published one.
      seconds_left: until the part should end.
      known: values of an earlier call, of a part that continues.
      record: adds values to the part's file at once.
    """

    out: str
    tiny: bool
    data_dir: str
    num_epochs: int
    seconds_left: Callable[[], float]
    known: dict[str, Any]
    record: Callable[..., None]


def carry_out(part: plan.Part, given: argparse.Namespace, seconds: float) -> None:
    """Runs one part; what it raises is written into its file.

    Args:
      part: the part, whose file exists.
      given: see `add_arguments`.
      seconds: that it may take.
    """
    out = given.out
    started = time.monotonic()
    before = results.load(out, part.name) or {}
    values = dict(before.get("values", {})) if part.continues else {}
    spent = before.get("seconds", 0) if part.continues else 0

    def write(status: str, **more: Any) -> None:
        entry = {"status": status, "what": part.what, "flags": part.flags}
        entry |= {"seconds": spent + time.monotonic() - started, "tiny": given.tiny} | more
        results.save(out, part.name, entry | {"values": values})

    def record(**found: Any) -> None:
        values.update(found)
        write(results.RUNNING)

    end = started + seconds
    left: Callable[[], float] = lambda: end - time.monotonic()  # noqa: E731
    context = context_of(given, left, dict(values), record)
    module, _, name = part.function.partition(":")
    try:
        function = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        is_finished = function(context, **part.options)
        write(results.UNFINISHED if is_finished is False else results.DONE)
    except NotHereError as error:
        write(results.SKIPPED, reason=_line(error))
    except SystemExit:
        write(results.UNFINISHED, reason="stopped in time; the next call goes on")
    except Exception as error:  # one part must not keep the others from running
        traceback.print_exc()
        write(results.FAILED, reason=f"{type(error).__name__}: {_line(error)}")
    gc.collect()  # arrays of this part are not to stand in the way of the next one


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]


def _end(number: int, frame: Any) -> None:
    """A part that is stopped before its own handler is there ends like one that has stopped."""
    raise SystemExit(128 + number)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what every process of a part is told."""
    parser.add_argument("--out", required=True)
    parser.add_argument("--data_dir", default="")
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--tiny", action="store_true")


def context_of(
    given: argparse.Namespace,
    seconds_left: Callable[[], float],
    known: dict[str, Any],
    record: Callable[..., None],
) -> Context:
    """What a part is given by a process that was told `given`."""
    told = (given.out, given.tiny, given.data_dir, given.epochs)
    return Context(*told, seconds_left, known, record)


def use_cache(given: argparse.Namespace) -> None:
    """Keeps compiled programs in the folder of the results, before JAX starts."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        # Seconds to compile are said with whether the program was found here.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(given.out, "compiled")
    if given.tiny:  # programs of a dry run compile fast, and many are the same
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"


def main() -> None:
    """Runs parts until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    use_cache(given)
    by_name = {part.name: part for part in plan.all_parts(tiny=given.tiny)}
    for line in sys.stdin:
        request = json.loads(line)
        carry_out(by_name[request["part"]], given, request["seconds"])


if __name__ == "__main__":
    # Parts import this module by its name, and must see the same exceptions.
    importlib.import_module("benchmarks.accelerator_parts.worker").main()
