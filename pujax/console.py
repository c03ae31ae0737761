"""Terminal output: messages on the standard output, log lines of this package, plain tables."""

import contextlib
import logging
import math
import os
import pathlib
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from absl import flags
from absl import logging as absl_logging

import pujax
from pujax import command_line

_LONGEST = 300
"""Characters, about, of a line that another library wrote."""


class _Lasting:
    """A standard stream that goes silent, instead of raising, once nobody reads it any more."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._is_lost = False

    def write(self, text: str) -> int:
        if not self._is_lost:
            try:
                return self._stream.write(text)
            except (OSError, ValueError):
                self._lose()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if not self._is_lost:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._lose()

    def isatty(self) -> bool:
        return not self._is_lost and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def redirect(self, descriptor: int) -> None:
        """Writes to another descriptor from now on."""
        self._stream = open(descriptor, "w", encoding="utf-8", errors="replace")  # noqa: SIM115

    def _lose(self) -> None:
        """Sends what is still buffered, and what libraries write, to nowhere."""
        self._is_lost = True
        with contextlib.suppress(OSError, ValueError):
            descriptor = self._stream.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


def outlast_terminal() -> None:
    """Lets this process go on when nobody reads its output any more, or its terminal is closed.

    For commands: what is printed goes to files too, and is worth less than the work. SIGHUP, which
    a terminal sends when it closes, is ignored; SIGINT and SIGTERM stop a run as ever.
    """
    for descriptor in range(3):  # closed ones would be given to the next files that are opened
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        if not isinstance(stream, _Lasting):
            setattr(sys, name, _Lasting(stream))
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def divert_native_messages(start_reader: Callable[[int, int], None]) -> None:
    """Gives what libraries write past Python to a reader of its own; Python's own text stays.

    Only in a command (see `outlast_terminal`), and not where PUJAX_LOG=debug asks for everything.

    Args:
      start_reader: is given the end of a pipe to read from, and where to write.
    """
    stream = sys.stderr
    if not isinstance(stream, _Lasting) or os.environ.get("PUJAX_LOG") == "debug":
        return
    stream.flush()
    own = os.dup(2)
    read, write = os.pipe()
    start_reader(read, own)
    os.dup2(write, 2)
    os.close(read)
    os.close(write)
    stream.redirect(own)


def _drop_late_callbacks() -> None:
    """Keeps tracebacks out that say nothing: those of saves that go on after one has failed.

    When one array of a checkpoint cannot be written, the error is raised; the threads that write
    the others then find the event loop closed, and each would print that. They are native threads,
    whose errors end nothing.
    """
    report = sys.unraisablehook

    def report_others(unraisable):
        if "Event loop is closed" not in str(unraisable.exc_value):
            report(unraisable)

    sys.unraisablehook = report_others


def _is_of_orbax(record: logging.LogRecord) -> bool:
    """Whether orbax wrote a log line, or asyncio wrote it of an error within orbax.

    Of the arrays of a checkpoint that cannot be written, the error of one is raised; asyncio then
    reports the others, which nobody asked for. The error of a future that no Python code has raised
    was set by native code, which nothing here but orbax has beside asyncio.
    """
    places = [record.pathname]
    if record.name == "asyncio" and record.exc_info:
        frames = list(traceback.walk_tb(record.exc_info[2]))
        if not frames:
            return record.getMessage().startswith("Future exception was never retrieved")
        places += [frame.f_code.co_filename for frame, _ in frames]
    return any("orbax" in pathlib.Path(place).parts for place in places)


def show_own_messages() -> None:
    """Shows this package's informative log lines; of other libraries warnings, in one line each.

    Everything is shown where the environment has PUJAX_LOG=debug. The process outlasts its
    terminal, see `outlast_terminal`.
    """
    package = pathlib.Path(pujax.__file__).resolve().parent
    shows_all = os.environ.get("PUJAX_LOG") == "debug"

    def is_wanted(record: logging.LogRecord) -> bool:
        if shows_all or pathlib.Path(record.pathname).resolve().is_relative_to(package):
            return True
        # What fails in orbax is raised too, and reported by this package.
        if record.levelno < logging.WARNING or _is_of_orbax(record):
            return False
        record.msg, record.args = in_one_line(record.getMessage()), ()
        record.exc_info = record.exc_text = record.stack_info = None
        return True

    absl_logging.use_absl_handler()
    outlast_terminal()  # after absl has looked for handlers of the stream as it was
    # These commands have flags of their own; absl would say that its are not parsed yet.
    flags.FLAGS.mark_as_parsed()
    absl_logging.set_verbosity(absl_logging.DEBUG if shows_all else absl_logging.INFO)
    handler = absl_logging.get_absl_handler()
    handler.python_handler.setStream(sys.stderr)
    handler.addFilter(is_wanted)
    handler.setFormatter(logging.Formatter("%(message)s"))
    if not shows_all:
        _drop_late_callbacks()


def message(text: str) -> None:
    """Writes text to the standard output, above the bar if there is one; nowhere if that is lost.

    Results are in files by then, and must not be lost with a pipe.
    """
    # sys.stdout is read at every call: while a bar is shown, rich replaces it by its own stream.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def run_command(
    argv: Sequence[str],
    values: flags.FlagValues,
    usage: Callable[[], str],
    body: Callable[[list[str]], int],
) -> int:
    """Runs a command whose flags are absl's: `--help` shows its text, an error is one line.

    Args:
      argv: program name and arguments.
      values: its flags but `--help`; parsed when `body` is called.
      usage: gives the help text.
      body: `(arguments that are no flags) -> exit status`.

    Returns:
      The exit status of `body`; 0 after the help; 2 after a ValueError, an OSError or a wrong flag.
    """
    show_own_messages()
    flags.DEFINE_bool("help", False, "help", short_name="h", flag_values=values)
    try:
        rest = values(argv)[1:]
        if values.help:
            message(usage())
            return 0
        command_line.check_once(argv, values)
        return body(rest)
    except (ValueError, OSError, flags.Error) as error:
        sys.stderr.write(f"{command_line.describe(error, values)}\n")
        return 2


def first_line(error: BaseException) -> str:
    """The first line of what an error says, as `in_one_line`; its type if it says nothing."""
    return in_one_line(str(error)) or type(error).__name__


def in_one_line(text: str) -> str:
    """The first line of a text; of a very long one its two ends, where libraries say most."""
    line = (text.strip().splitlines() or [""])[0]
    return (
        line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    )


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


def fixed(value: float, digits: int, *, most: float = math.inf) -> str:
    """A number with so many decimals; more where it would read as 0 or `most`, and is neither."""
    text = f"{value:.{digits}f}"
    if not math.isfinite(value):
        return text
    distance = abs(value) if not float(text) else most - value if float(text) == most else 0.0
    return f"{value:.{math.ceil(-math.log10(distance))}f}" if distance > 0 else text


def plural(amount: int, word: str) -> str:
    """'1 row', '2 rows'."""
    return f"{amount:,} {word}{'s' * (amount != 1)}"
