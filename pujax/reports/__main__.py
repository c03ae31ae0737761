"""The command `pujax report RUN [RUN...]`: one HTML page of what runs left."""

import os
import sys

from absl import flags

from pujax import usage
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
        from pujax.reports import page  # where it is needed: it loads for seconds

        path = values.out or os.path.join(rest[0], page.PAGE)
        if values.out or os.path.isdir(rest[0]):  # else the folder is what is wrong
            page.check_writable(path)
        built = page.build(rest, with_examples=values.examples)
        page.write(path, built)
        lines = [f"{built.verdict.word}:", *built.verdict.sentences, f"Report: {path}"]
        message("\n".join(lines))
        return 0

    return run_command(argv, values, lambda: usage.text("report", argv[0]), report)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
