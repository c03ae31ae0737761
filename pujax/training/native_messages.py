"""Reads what JAX's C++ code writes and passes it on, without the pages that end a process.

    python native_messages.py TEXT <pipe

Run as a file of its own beside a process of several hosts, with the other end of the pipe as that
process's standard error. When JAX ends the process because another host is gone, TEXT is written
in place of the report and the stack that follow. It lives as long as the pipe has a writer, and
imports nothing but the standard library, so that it starts at once.
"""

import re
import signal
import sys

# Of the log of the coordination service, whose errors come before the end.
_SERVICE = re.compile(rb"^[EF]\d{4} .*(coordination_service|coordination/|client\.h)")
_END = re.compile(rb"^F\d{4} .*JAX distributed service")


def main(text: str) -> None:
    """Passes lines on until the report of an end begins."""
    held: list[bytes] | None = None
    is_over = False
    for line in sys.stdin.buffer:
        if held is None and _SERVICE.match(line):
            held = []
        if held is None:
            _write(line)
            continue
        held.append(line)
        if not is_over and _END.match(line):
            is_over = True
            _write(text.encode() + b"\n")
    if held and not is_over:
        _write(b"".join(held))


def _write(text: bytes) -> None:
    try:
        sys.stderr.buffer.write(text)
        sys.stderr.buffer.flush()
    except (OSError, AttributeError):  # nobody reads it; the writer must not be stopped by that
        pass


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # which a terminal or a scheduler sends to all
        signal.signal(number, signal.SIG_IGN)
    main(sys.argv[1])
