"""The command `pujax`: finds the module of a command, and imports no other.

A command is a module with `main(argv) -> exit status`. A help text that `usage` has is shown
without importing it, so that it is there at once.
"""

import importlib
import logging
import os
import sys
from collections.abc import Sequence

import pujax
from pujax import catalogue, console, huge_pages, usage

COMMANDS = {
    "train": ("pujax.train", "trains a method, from a configuration to a folder of results"),
    "predict": ("pujax.predict", "applies a trained model to new rows or images"),
    "check": ("pujax.check", "looks for faults of your own data before anything is trained"),
    "report": ("pujax.reports.__main__", "makes a page of a run: can it be used, and why"),
    "priors": ("pujax.priors.__main__", "estimates the share of positives in your own file"),
    "sweep": ("pujax.sweep.__main__", "trains methods x data sets x seeds, and writes a table"),
    "compile": ("pujax.compile", "compiles a run for GPUs and TPUs that need not be there"),
    "methods": ("pujax.methods.__main__", "lists the methods, or the fields of one"),
}
"""Module and one line of every command; a new one is one more line here."""

_RUN_NETWORKS = ("train", "predict", "sweep")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the process's exit status.

    Args:
      argv: program name, command and its arguments; None for those of this process.
    """
    is_own_process = argv is None
    argv = sys.argv if argv is None else argv
    command, rest = argv[1] if len(argv) > 1 else "--help", list(argv[2:])
    if command in ("--help", "-help", "-h"):
        console.message(_overview())
        return 0
    if command == "--version":
        console.message(f"pujax {pujax.__version__}")
        return 0
    if command not in COMMANDS:
        sys.stderr.write(f"command is {command!r}; accepted: {', '.join(COMMANDS)}\n")
        return 2
    words = [f"pujax {command}", *rest]
    if command in usage.texts() and usage.is_asked(words):
        console.message(usage.text(command, words[0]))
        return 0
    if is_own_process and command in _RUN_NETWORKS:
        huge_pages.restart()
    # A user's own configuration imports what lies beside it, as it does under `python -m`. At the
    # end of the path a folder takes no installed package's place.
    if not {"", "."} & set(sys.path):
        sys.path.append("")
    status = run(COMMANDS[command][0], words)
    if is_own_process:
        leave_if_compiling(status)
    return status


def leave_if_compiling(status: int) -> None:
    """Ends the process if a program that nobody needs any more is being compiled.

    XLA compiles for minutes, cannot be interrupted, and may crash while Python ends around it.
    """
    compile_ahead = sys.modules.get("pujax.training.compile_ahead")
    if compile_ahead is not None and compile_ahead.is_compiling():
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(module: str, words: Sequence[str]) -> int:
    """Imports the module of a command and runs it; an interrupt is one line and status 130.

    Args:
      module: its full name.
      words: the command's name and its arguments.

    Returns:
      The exit status, also where the command would end the process, as after a signal.
    """
    try:
        return importlib.import_module(module).main(words)
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        return end.code
    except KeyboardInterrupt:  # while it is imported, or of a command that says no more of it
        sys.stderr.write("interrupted\n")
        return 130


def _overview() -> str:
    rows = catalogue.lines((name, line) for name, (_, line) in COMMANDS.items())
    return f"""usage: pujax COMMAND [ARGUMENTS]
{rows}
`pujax COMMAND --help` lists the options of a command, `pujax --version` says the version.

Examples:
  pujax train --config=lagam_digits
  pujax methods nnpu
  pujax priors customers.csv --label=is_fraud"""
