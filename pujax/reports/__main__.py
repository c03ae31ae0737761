"""The command `pujax report RUN [RUN...]`: one HTML page of what runs left."""

import os
import sys

from absl import flags

from pujax import reports, usage
from pujax.console import message, run_command


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("out", "", "out", flag_values=values)
    flags.DEFINE_bool("examples", True, "examples", flag_values=values)
    return values


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    values = _flags()

    def report(rest: list[str]) -> int:
        if not rest:
            raise ValueError(
                "command line: RUN is missing; accepted: one or several folders of runs (--help "
                "says more)"
            )
        path = values.out or os.path.join(rest[0], reports.PAGE)
        if values.out or os.path.isdir(rest[0]):  # else the folder is what is wrong
            reports.check_writable(path)
        page = reports.build(rest, with_examples=values.examples)
        reports.write(path, page)
        lines = [f"{page.verdict.word}:", *page.verdict.sentences, f"Report: {path}"]
        message("\n".join(lines))
        return 0

    return run_command(argv, values, lambda: usage.text("report", argv[0]), report)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
