"""The command `pujax check DATA`: faults of PU data, before anything is trained.

What it looks for is in `pujax/audit/`; checks of arguments are in `pujax/checks.py`.
"""

import os
import sys

from absl import flags

from pujax import accelerator, audit, files, usage
from pujax.audit import report
from pujax.console import message, run_command


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("label", "positive", "id_column", "leave_out", "words", "json"):
        flags.DEFINE_string(name, "", name, flag_values=values)
    flags.DEFINE_integer("seed", 0, "seed", lower_bound=0, flag_values=values)
    return values


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    values = _flags()

    def check(rest: list[str]) -> int:
        if len(rest) != 1:
            raise ValueError(
                f"command line: DATA is {' '.join(rest)!r}; accepted: one file or one folder "
                "(--help says more)"
            )
        _check_writable(values.json, rest[0])
        accelerator.devices()
        found = audit.audit(
            rest[0],
            label=values.label,
            positive=values.positive,
            id_column=values.id_column,
            leave_out=values.leave_out,
            words=values.words,
            seed=values.seed,
        )
        if values.json:
            files.make_folder_of(values.json)
            files.write_json(values.json, report.document(found))
        message(report.text(found))
        return found.status

    return run_command(argv, values, lambda: usage.text("check", argv[0]), check)


def _check_writable(path: str, data: str) -> None:
    """Raises a ValueError before the work unless the JSON file is new, or an earlier result."""
    if not path:
        return
    files.check_writable("--json", path)
    if not os.path.exists(path):
        return
    if not os.path.isfile(path):  # a pipe or a device
        raise ValueError(f"--json is {path!r}, no regular file; accepted: a file")
    if os.path.exists(data) and os.path.samefile(path, data):
        raise ValueError(f"--json is {path!r}, the data themselves; accepted: another file")
    if os.path.getsize(path) and not report.is_document(path):
        raise ValueError(
            f"--json is {path!r}, a file that pujax check did not make; accepted: the name of a "
            "new file, or of an earlier result"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv))
