"""Kernels of a profile by name, from the events of a `trace.json.gz` (Chrome's trace format)."""

import gzip
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

TOP = 40


def read(folder: str) -> list[dict[str, Any]] | None:
    """The events of the newest profile below a folder, or None where JAX wrote none."""
    files = sorted(pathlib.Path(folder).rglob("*.trace.json.gz"))
    if not files:
        return None
    with gzip.open(files[-1], "rt", encoding="utf-8") as file:
        return json.load(file)["traceEvents"]


def summarize(events: Sequence[Mapping[str, Any]], *, steps: int) -> dict[str, Any] | None:
    """Kernels by time.

    On a GPU kernels are the events of its streams, on a TPU those of the line 'XLA Ops', on a CPU
    the operations of XLA's threads. Numbers at the end of a name are left out: `fusion_12` and
    `fusion_7` are one entry.

    Args:
      events: of the trace; times in microseconds.
      steps: training steps that it covers.

    Returns:
      None if there are no kernels, else per step `kernels`, `busy_seconds` (at least one kernel
      runs) and `gap_seconds` (none runs, between the first and the last), and `top`, the names that
      take most time with `seconds`, `count` and `share` of the sum over all kernels.
    """
    kernels = list(_kernels(events))
    if not kernels:
        return None
    by_name: dict[str, list[float]] = {}
    for event in kernels:
        name = re.sub(r"[._]?\d+$", "", event["name"]) or event["name"]
        by_name.setdefault(name, []).append(event["dur"])
    whole = sum(event["dur"] for event in kernels)
    largest = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:TOP]
    busy, span = _busy_and_span(kernels)
    return {
        "steps": steps,
        "kernels": len(kernels) / steps,
        "busy_seconds": 1e-6 * busy / steps,
        "gap_seconds": 1e-6 * (span - busy) / steps,
        "top": [
            {
                "name": name,
                "seconds": 1e-6 * sum(times) / steps,
                "count": len(times) / steps,
                "share": sum(times) / whole if whole else 0.0,
            }
            for name, times in largest
        ],
    }


def _kernels(events: Sequence[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    processes, threads = {}, {}
    for event in events:
        if event.get("ph") == "M":
            name = event.get("args", {}).get("name", "")
            if event["name"] == "process_name":
                processes[event["pid"]] = name
            if event["name"] == "thread_name":
                threads[event["pid"], event["tid"]] = name
    timed = [event for event in events if event.get("ph") == "X" and "dur" in event]
    on_device = [e for e in timed if processes.get(e["pid"], "").startswith("/device:")]
    if not on_device:
        return [event for event in timed if "hlo_op" in event.get("args", {})]
    line = {id(e): threads.get((e["pid"], e.get("tid")), "") for e in on_device}
    on_streams = [e for e in on_device if line[id(e)].startswith("Stream")]
    return on_streams or [e for e in on_device if line[id(e)] == "XLA Ops"]


def _busy_and_span(kernels: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """Time that at least one kernel takes, and that from the first to the last, all devices."""
    busy = span = 0.0
    # Devices run beside one another: each has its own line of time.
    by_device: dict[Any, list[tuple[float, float]]] = {}
    for event in kernels:
        ends = (event["ts"], event["ts"] + event["dur"])
        by_device.setdefault(event["pid"], []).append(ends)
    for intervals in by_device.values():
        intervals.sort()
        first, reached = intervals[0][0], intervals[0][0]
        for start, end in intervals:
            busy += max(end - max(start, reached), 0.0)
            reached = max(reached, end)
        span += reached - first
    return busy, span
