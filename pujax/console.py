"""Terminal output: messages on the standard output, log lines of this package, plain tables."""

import logging
import math
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from absl import logging as absl_logging

import pujax


def show_own_messages() -> None:
    """Shows this package's informative log lines; of other libraries only warnings."""

    package = pathlib.Path(pujax.__file__).resolve().parent

    def is_wanted(record: logging.LogRecord) -> bool:
        own = pathlib.Path(record.pathname).resolve().is_relative_to(package)
        return own or record.levelno >= logging.WARNING

    absl_logging.use_absl_handler()
    # These commands have flags of their own; absl would say that its are not parsed yet.
    flags.FLAGS.mark_as_parsed()
    absl_logging.set_verbosity(absl_logging.INFO)
    handler = absl_logging.get_absl_handler()
    handler.addFilter(is_wanted)
    handler.setFormatter(logging.Formatter("%(message)s"))


def message(text: str) -> None:
    """Writes text to the standard output, above the bar if there is one."""
    # sys.stdout is read at every call: while a bar is shown, rich replaces it by its own stream.
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def first_line(error: BaseException) -> str:
    """What an error says, in one line of at most 300 characters; its type if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def render_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """A table in plain text.

    Args:
      rows: cells by column name; text is shown as it is, a float with four decimals, and a value
        that is absent, None or not finite as a dash.
      columns: names of the columns, which are also their headings. The first is aligned to the
        left, the others to the right.

    Returns:
      Lines without a newline at the end: headings, a rule, the rows.
    """
    cells = [list(columns)] + [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def line(texts):
        padded = [
            text.rjust(width) if i else text.ljust(width)
            for i, (text, width) in enumerate(zip(texts, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
