"""The report of `compile_all` as text."""

from typing import Any

from pujax import reading
from pujax.aot import analysis, parts
from pujax.console import render_table

_MB = 1e6


def text(report: dict[str, Any]) -> str:
    """All of a report.

    Args:
      report: what `compilation.compile_all` returned.
    """
    facts = report["facts"]
    title = facts["title"] if facts else "this machine's CPU"
    lines = [
        f"{report['method']} on {report['data']}, compiled for {report['devices']} x {title} "
        f"({report['topology']}), jax {report['jax']}. All figures are those of one device."
    ]
    for entry in report["programs"]:
        lines += ["", *_program(entry, facts)]
    if report["notes"]:
        lines += ["", *(f"Note: {note}." for note in report["notes"])]
    return "\n".join(lines)


def is_document(path: str) -> bool:
    """Whether a file holds a report as JSON.

    Raises:
      OSError: it cannot be opened.
    """
    return reading.is_json_object(path, {"topology", "devices", "programs"})


def _program(entry: dict[str, Any], facts: dict[str, Any] | None) -> list[str]:
    steps = f", {entry['steps']} steps a call" if entry["steps"] else ""
    lines = [
        f"== {entry['name']}{steps}: traced in {entry['trace_seconds']:.1f} s, compiled in "
        f"{entry['compile_seconds']:.1f} s"
    ]
    if "memory" in entry:
        lines.append(_memory(entry["memory"]))
    if "out_of_memory" in entry:
        lines.append(f"DOES NOT FIT: {entry['out_of_memory']}")
    if "per_call" not in entry:
        return lines
    is_training = entry["per_step"] is not None
    lines.append(
        _work("a step" if is_training else "a call", entry["per_step"] or entry["per_call"])
    )
    if is_training and entry["per_call"]["kernels"]:
        lines.append(_work("a call, outside of its steps", entry["per_call"]))
    if entry["unknown_loops"]:
        lines.append(
            f"{entry['unknown_loops']} loops of a length that only the run knows: their kernels "
            "count once, and the host waits for a number at every turn"
        )
    if facts is not None:
        lines.append(_roofline(entry["roofline"], "step" if is_training else "call"))
    lines.append(_kernels(entry))
    return lines


def _memory(memory: dict[str, Any]) -> str:
    told = ", ".join(
        f"{name} {memory[name] / _MB:,.1f} MB"
        for name in ("arguments", "temporaries", "outputs", "shared", "peak")
    )
    if "limit" not in memory:
        return f"memory: {told}"
    verdict = "fits" if memory["fits"] else "does not fit"
    return f"memory: {told}; {verdict} {memory['limit'] / _MB:,.0f} MB"


def _work(what: str, totals: dict[str, Any]) -> str:
    flops = ", ".join(f"{n / 1e9:,.2f} GFLOP of {name}" for name, n in totals["flops"].items())
    exchanged = ", ".join(
        f"{entry['launches']:g} {kind} of {entry['bytes'] / _MB:,.3f} MB"
        for kind, entry in totals["collectives"].items()
    )
    return (
        f"{what}: {totals['kernels']:g} kernels, {totals['launches']:g} launches, "
        f"{flops or 'no products'}, {totals['num_bytes'] / _MB:,.1f} MB read and written, "
        f"{exchanged or 'no collectives'}"
    )


def _roofline(limits: dict[str, Any], what: str) -> str:
    told = ", ".join(
        f"{name} {limits[name] * 1e3:.3f} ms"
        for name in ("multiplications", "memory", "launches", "exchange")
    )
    return (
        f"roofline, an estimate: {told}; a {what} takes at least {limits['longest'] * 1e3:.3f} ms, "
        f"bound by {limits['bound_by']}"
    )


def _kernels(entry: dict[str, Any]) -> str:
    """Kernels by part and kind; of a training program those of a step, then those of a call."""
    rows = []
    scopes = [("step", entry["per_step"]), ("call", entry["per_call"])]
    for scope, totals in scopes if entry["per_step"] else scopes[1:]:
        if not totals["kernels"]:
            continue
        for part in parts.PARTS:
            kinds = totals["by_part_and_kind"].get(part)
            if kinds:
                rows.append({"part": f"{scope}: {part}", **_row(kinds)})
        rows.append({"part": f"{scope}: all", **_row(totals["by_kind"])})
    used = [kind for kind in analysis.KINDS if any(row.get(kind) for row in rows)]
    return render_table(rows, ("part", "kernels", *used))


def _row(kinds: dict[str, float]) -> dict[str, str]:
    return {"kernels": f"{sum(kinds.values()):g}"} | {
        kind: f"{number:g}" for kind, number in kinds.items() if number
    }
