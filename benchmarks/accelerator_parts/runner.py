"""Runs parts one after another in processes that may fail, hang, or be stopped by the budget.

This process never touches the accelerator. A worker takes one part after another as long as they
want the same XLA_FLAGS, so that JAX starts once; one that ends by itself costs its own part only.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from benchmarks.accelerator_parts import results
from benchmarks.accelerator_parts.plan import Budget, Part

_ROOT = pathlib.Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.1
_SECONDS_TO_END = 20
_PATIENCE = 3
"""A part that takes so many times its stated cost is ended, and the next begins."""
WORKER = (sys.executable, "-m", "benchmarks.accelerator_parts.worker")


class Worker:
    """A process that runs parts.

    Args:
      command: program and arguments.
      flags: XLA_FLAGS to add to those of this process.
      log: file that its output is added to.
      environment: variables to set besides.
    """

    def __init__(
        self,
        command: Sequence[str],
        flags: str,
        log: str,
        *,
        environment: Mapping[str, str] = MappingProxyType({}),
    ):
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
        xla = " ".join(filter(None, [os.environ.get("XLA_FLAGS", ""), flags]))
        self.flags = flags
        self._log = log
        self._log_start = os.path.getsize(log) if os.path.exists(log) else 0
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                text=True,
                env=os.environ
                | {"PYTHONPATH": path, **environment}
                | ({"XLA_FLAGS": xla} if xla else {}),
            )

    def send(self, request: dict[str, Any]) -> None:
        """Asks for a part; a process that has ended is noticed by `ended`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            self._process.wait()

    def status(self) -> int | None:
        """Exit status of the process, None while it runs."""
        return self._process.poll()

    def ended(self) -> str:
        """How the process ended, with the last line that it wrote; '' while it runs."""
        status = self.status()
        if status is None:
            return ""
        with open(self._log, "rb") as file:
            file.seek(self._log_start)
            text = file.read().decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f"its process ended with status {status}: {lines[-1][:300] if lines else ''}"

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Lets the process save what it trains, or ends it."""
        assert self._process.stdin is not None
        self._process.terminate()
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # or it would wait for another part
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.kill()

    def close(self) -> None:
        """Lets the process end by itself, or ends it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(_SECONDS_TO_END)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()


def unsettled(parts: Sequence[Part], out: str, *, retry: bool) -> list[Part]:
    """The parts that are not settled, whatever they cost."""
    return [p for p in parts if not results.is_settled(results.load(out, p.name), retry=retry)]


def run(
    parts: Sequence[Part],
    out: str,
    budget: Budget,
    *,
    worker: Sequence[str],
    say: Callable[[str], None],
    retry: bool = False,
    tiny: bool = False,
) -> None:
    """Runs what is not settled yet and fits.

    Args:
      parts: in order.
      out: folder of the results.
      budget: of this call.
      worker: command of a worker, see `worker`.
      say: takes a line per part.
      retry: tries parts that failed once more.
      tiny: a dry run; a part begins whatever its stated cost, and may take its time.

    Raises:
      ValueError: naming a damaged file, before anything runs.
    """
    entries = {part.name: results.load(out, part.name) for part in parts}
    current: Worker | None = None
    at, begun = None, 0.0
    try:
        for part in parts:
            entry = entries[part.name]
            if results.is_settled(entry, retry=retry):
                say(f"{part.name}: {entry['status']} before")
                continue
            if not (budget.fits(part) or (tiny and budget.left())):
                say(f"{part.name}: not begun, {part.seconds:.0f} s of {budget.left():.0f} s left")
                continue
            if current is not None and (current.flags != part.flags or current.ended()):
                current.close()
                current = None
            if current is None:
                current = Worker(worker, part.flags, os.path.join(out, "worker.log"))
            at, begun = part, time.monotonic()
            entry = _run_one(part, current, out, entry, budget, tiny=tiny)
            at = None
            say(f"{part.name}: {entry['status']} {entry.get('reason', '')}".rstrip())
    except BaseException:
        # A worker that outlived this process would hold the device's memory in the next call.
        if current is not None:
            current.stop()
            current = None
        if at is not None:
            _mark_stopped(at, out, time.monotonic() - begun)
        raise
    finally:
        if current is not None:
            current.close()


def _mark_stopped(part: Part, out: str, seconds: float) -> None:
    """Says of the part in progress that it was ended, unless it has said so itself."""
    with contextlib.suppress(ValueError, OSError):  # what ends this call is worth more
        entry = results.load(out, part.name) or {}
        if entry.get("status") == results.RUNNING:
            entry |= {"status": results.UNFINISHED, "reason": "this call was ended"}
            entry["seconds"] = max(entry.get("seconds", 0.0), seconds)
            results.save(out, part.name, {k: v for k, v in entry.items() if k != "part"})


def _run_one(
    part: Part,
    worker: Worker,
    out: str,
    before: dict[str, Any] | None,
    budget: Budget,
    *,
    tiny: bool,
) -> dict[str, Any]:
    """Runs one part and returns what its file holds in the end."""
    kept = (before or {}) if part.continues else {}
    kept = {key: value for key, value in kept.items() if key not in ("part", "reason")}
    results.save(out, part.name, kept | {"status": results.RUNNING, "flags": part.flags})
    seconds = budget.left()
    if not tiny and not part.continues:
        seconds = min(seconds, _PATIENCE * part.seconds)
    started = time.monotonic()
    worker.send({"part": part.name, "seconds": seconds})
    status, reason = results.FAILED, ""
    while not reason:
        entry = results.load(out, part.name) or {}
        if entry.get("status") != results.RUNNING:
            return entry
        reason = worker.ended()
        if not reason and time.monotonic() - started > seconds:
            worker.kill()
            if budget.left():
                reason = f"ended after {_PATIENCE} times its stated cost of {part.seconds:.0f} s"
            else:
                status, reason = results.UNFINISHED, "the minutes of this call were over"
            break
        time.sleep(POLL_SECONDS)
    # The part may have ended between the two looks.
    entry = results.load(out, part.name) or {}
    if entry.get("status") == results.RUNNING:
        entry |= {"status": status, "reason": reason, "seconds": time.monotonic() - started}
        results.save(out, part.name, {k: v for k, v in entry.items() if k != "part"})
    return entry
