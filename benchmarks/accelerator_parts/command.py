"""The command line of `benchmarks/accelerator.py`."""

import argparse
import math
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.accelerator_parts import ahead, plan, results, runner, table
from pujax import checks
from pujax.data import sources
from pujax.files import check_folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks/accelerator.py",
        description="Measures what an accelerator does with this project, part by part.",
    )
    parser.add_argument("--out", default="", help="folder of the results; the next call goes on")
    parser.add_argument("--minutes", type=float, default=9.0, help="time of this call")
    parser.add_argument(
        "--ahead",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="before it measures, compiles the training steps that the chosen parts will time, as "
        "many at once as half the number of cores, for at most so long, which is taken from "
        "--minutes; of no use on a TPU, which takes one process at a time",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        default=0,
        help="length of train-lagam and train-ncpu, all else in proportion; default as published",
    )
    parser.add_argument("--part", default="", help="names or kinds from --list; default all")
    parser.add_argument("--data_dir", default="", help="FOLDER, or SOURCE=FOLDER,SOURCE=FOLDER")
    parser.add_argument("--list", action="store_true", help="prints the parts with their costs")
    parser.add_argument("--show", action="store_true", help="prints the table of what is there")
    parser.add_argument("--tiny", action="store_true", help="a dry run at tiny sizes, on a CPU too")
    parser.add_argument("--retry", action="store_true", help="tries parts that failed once more")
    return parser


def listing(parts: Sequence[plan.Part]) -> str:
    """Names, stated costs and descriptions."""
    width = max(len(part.name) for part in parts)
    lines = [f"{p.name:{width}s} {p.seconds:5.0f} s  {p.what}" for p in parts]
    whole = sum(part.seconds for part in parts)
    return "\n".join([*lines, f"{'all':{width}s} {whole:5.0f} s  and the time of training"])


def main(arguments: Sequence[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    given = _parser().parse_args(arguments)
    try:
        parts = plan.choose(plan.all_parts(tiny=given.tiny), given.part)
        if given.list:
            print(listing(parts))
            return 0
        checks.require(bool(given.out), "--out", given.out, "a folder")
        out = os.path.abspath(given.out)
        check_folder("--out", out)
        if not given.show:
            checks.positive("--minutes", given.minutes)
            checks.require(given.epochs >= 0, "--epochs", given.epochs, "0 (as published) or more")
            seconds = 60 * given.minutes
            accepted = f"seconds from 0 to less than the {seconds:g} of --minutes"
            is_within = math.isfinite(given.ahead) and 0 <= given.ahead < seconds
            checks.require(is_within, "--ahead", given.ahead, accepted)
            _check_folders(given.data_dir)
            # Parts know the results of others (a share of the measured peak), and a damaged one
            # is said before minutes are spent.
            table.entries(out)
            _check_epochs(out, runner.unsettled(parts, out, retry=given.retry), given.epochs)
            os.makedirs(out, exist_ok=True)
            _run(parts, out, given)
        print(table.render(table.entries(out)))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 2
    return 0


def _check_epochs(out: str, parts: Sequence[plan.Part], epochs: int) -> None:
    """Raises a ValueError if a run that would go on has another length."""
    for part in parts:
        entry = results.load(out, part.name) or {}
        asked = entry.get("values", {}).get("epochs_asked", epochs)
        accepted = f"{asked}, of which --out has a run of {part.name}; or another --out"
        checks.require(asked == epochs, "--epochs", epochs, accepted)


def _check_folders(text: str) -> None:
    """Raises a ValueError for data that are not there, which a part would find after minutes."""
    for part in filter(None, text.split(",") if "=" in text else [text]):
        source, _, folder = part.rpartition("=")
        if source:
            checks.one_of("--data_dir", source, sources.NAMES)
        accepted = "a folder that exists, or SOURCE=FOLDER,SOURCE=FOLDER"
        checks.require(os.path.isdir(folder), "--data_dir", part, accepted)


def _end(number: int, frame: Any) -> None:
    """Ends this call, so that its worker is ended too."""
    raise SystemExit(128 + number)


def _say(text: str) -> None:
    print(text, flush=True)


def _run(parts: Sequence[plan.Part], out: str, given: argparse.Namespace) -> None:
    told = [f"--out={out}", f"--data_dir={given.data_dir}", f"--epochs={given.epochs}"]
    told += ["--tiny"] if given.tiny else []
    budget = plan.Budget(60 * given.minutes)
    before = signal.signal(signal.SIGTERM, _end)  # what a time limit sends first
    try:
        if given.ahead:
            waiting = runner.unsettled(parts, out, retry=given.retry)
            ahead.run(waiting, out, given.ahead, command=[*ahead.WORKER, *told], say=_say)
        worker = [*runner.WORKER, *told]
        runner.run(
            *(parts, out, budget), worker=worker, say=_say, retry=given.retry, tiny=given.tiny
        )
    finally:
        signal.signal(signal.SIGTERM, before)
