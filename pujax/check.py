"""The command `python -m pujax.check DATA`: faults of PU data, before anything is trained."""

import os
import sys

from absl import flags

from pujax import audit, files, usage
from pujax.audit import report
from pujax.console import message, show_own_messages

BAD_INPUT = 2
"""Exit status for input that is not accepted."""


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("label", "positive", "json"):
        flags.DEFINE_string(name, "", name, flag_values=values)
    flags.DEFINE_integer("seed", 0, "seed", lower_bound=0, flag_values=values)
    flags.DEFINE_bool("help", False, "help", short_name="h", flag_values=values)
    return values


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    show_own_messages()
    values = _flags()
    try:
        rest = values(argv)[1:]
        if values.help:
            message(usage.text("check", argv[0]))
            return 0
        if len(rest) != 1:
            raise ValueError(
                f"command line: DATA is {' '.join(rest)!r}; accepted: one file or one folder "
                "(--help says more)"
            )
        _check_writable(values.json)
        found = audit.audit(rest[0], label=values.label, positive=values.positive, seed=values.seed)
        if values.json:
            files.write_json(values.json, report.document(found))
    except (ValueError, OSError, flags.Error) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return BAD_INPUT
    message(report.text(found))
    return found.status


def _check_writable(path: str) -> None:
    """Raises a ValueError before the work unless the folder of the JSON file is there."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.path.isdir(folder):
        raise ValueError(f"--json is {path!r}; accepted: a file in a folder that exists")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
