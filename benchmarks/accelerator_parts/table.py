"""The Markdown table of everything that is in a folder of results."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.accelerator_parts import plan, results

_STEP_COLUMNS = (
    *("part", "stage", "seeds", "ms a step", "images/s", "share of peak", "GFLOP"),
    *("temporary MB", "compiled in s"),
)


def entries(out: str) -> dict[str, dict[str, Any]]:
    """What every part has written, in the order of the parts.

    Raises:
      ValueError: naming a damaged file.
    """
    loaded = {part.name: results.load(out, part.name) for part in plan.all_parts()}
    return {name: entry for name, entry in loaded.items() if entry is not None}


def render(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Two Markdown tables: all parts, and all training steps."""
    if not found:
        return "No part has run."
    parts, steps = [], []
    for name, entry in found.items():
        values = entry.get("values", {})
        text = entry.get("reason") or "; ".join(_lines(values))
        spent = entry.get("seconds")
        parts.append((name, entry["status"], _number(spent, "{:.0f}"), text))
        steps += [_step(name, program) for program in values.get("programs", [])]
    text = _markdown(("part", "status", "s", "found"), parts)
    return f"{text}\n\n{_markdown(_STEP_COLUMNS, steps)}" if steps else text


def _step(name: str, program: Mapping[str, Any]) -> Sequence[str]:
    compiled = _number(program["compile_seconds"], "{:.1f}")
    return (
        *(name, program["stage"], str(program["seeds"])),
        _number(program["step_seconds"], "{:.3f}", 1e3),
        _number(program["images_per_second"], "{:,.0f}"),
        _number(program["share_of_peak"], "{:.1f} %", 100),
        _number(program["flops"], "{:.4g}", 1e-9),
        _number(program.get("temporary_bytes"), "{:.4g}", 1e-6),
        f"{compiled} (found)" if program["found_in_cache"] else compiled,
    )


def _number(value: float | None, form: str, scale: float = 1) -> str:
    return "" if value is None or not math.isfinite(value) else form.format(scale * value)


def _lines(values: Mapping[str, Any]) -> Iterable[str]:
    """What a part found beside its training steps, in a few words."""
    if "kind" in values:
        yield f"{values['count']} x {values['kind']}, jax {values['versions']['jax']}"
    for name, flops in values.get("peak_flops", {}).items():
        yield f"{name} {flops / 1e12:.3g} TFLOP/s"
    if "bytes_per_second" in values:
        yield f"copy {values['bytes_per_second'] / 1e9:.4g} GB/s"
    if "seconds_per_kernel" in values:
        yield f"{1e6 * values['seconds_per_kernel']:.2f} us a kernel"
        yield f"{1e6 * values['seconds_per_kernel_in_a_loop']:.2f} us in a loop"
        yield f"{1e6 * values['seconds_per_call']:.2f} us a call"
    if "profile" in values:
        profile = values["profile"]
        yield f"{profile['kernels']:.0f} kernels a step"
        yield f"busy {1e3 * profile['busy_seconds']:.3f} ms"
        yield f"gaps {1e3 * profile['gap_seconds']:.3f} ms"
        first = profile["top"][0]
        yield f"most in {first['name'].replace('|', '/')} ({100 * first['share']:.0f} %)"
    for count, seconds in values.get("seconds_by_clusters", {}).items():
        yield f"{count} clusters {seconds:.3g} s"
    for name, seconds in values.get("seconds_by_view", {}).items():
        yield f"{name} {1e3 * seconds:.3g} ms"
    if "images" in values:
        for dtype, seconds in values["seconds"].items():
            yield f"{values['images']} images in {dtype} {seconds:.3g} s"
    if "epochs_done" in values:
        yield f"{values['epochs_done']} of {values['num_epochs']} epochs"
        yield f"{values['training_seconds']:.0f} s of training"
        known = [row["test_accuracy"] for row in values["curve"] if row.get("test_accuracy")]
        if known:
            yield f"test accuracy {100 * known[-1]:.2f} %, at best {100 * max(known):.2f} %"
    if "seeds_done" in values:
        yield f"{values['seeds_done']} of {values['seeds']} seeds"
        yield f"at most {max(values['trained_together'], default=0)} at once"
    undone = sum(program["undone_steps"] for program in values.get("programs", []))
    if undone:
        yield f"{undone:.0f} steps were not finite"
    if "inputs" in values:
        yield str(values["inputs"])


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
