"""Compiles the programs of a run, and collects what a report says of each."""

import dataclasses
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import ml_collections

from pujax.aot import analysis, problem, programs, roofline
from pujax.aot.programs import Program
from pujax.aot.topologies import Topology

_SIZE = r"([\d.]+)\s*([KMGT]?)"
_OVER = re.compile(rf"total memory required.*?\({_SIZE}\).*?available \w+ \({_SIZE}\)", re.DOTALL)
_USED = re.compile(rf"Used {_SIZE} of {_SIZE}")
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


class OutOfMemoryError(ValueError):
    """A program that needs more memory than a device has; one line that says how much."""


def compile_all(
    config: ml_collections.ConfigDict,
    topology: Topology,
    *,
    say: Callable[[str], None] = lambda text: None,
    keep_text: Callable[[str, str], None] = lambda name, text: None,
) -> dict[str, Any]:
    """Compiles every program of a run.

    A program that does not fit is no error here: its entry says so under `out_of_memory`.

    Args:
      config: as from a file in `configs/`.
      topology: devices, see `topologies.find`.
      say: told what begins, since a compilation takes minutes.
      keep_text: given the name and the optimized HLO of every program.

    Returns:
      What a report holds, of JSON's types: `topology`, `devices`, `facts`, `programs`, `notes`.

    Raises:
      ValueError: see `problem.build`.
    """
    built = problem.build(config, topology.mesh)
    found, notes = programs.all_programs(built)
    entries = []
    for number, program in enumerate(found, 1):
        say(f"[{number}/{len(found)}] {program.name}")
        entry, text = compile_program(program, topology)
        if text:
            keep_text(program.name, text)
        entries.append(entry)
    facts = topology.facts
    return {
        "topology": topology.name,
        "devices": topology.mesh.size,
        "platform": topology.platform,
        "jax": jax.__version__,
        "facts": None
        if facts is None
        else {
            **{name: getattr(facts, name) for name in ("title", "memory", "usable", "bandwidth")},
            **{name: getattr(facts, name) for name in ("peak", "link", "launch")},
        },
        "method": built.config.method.name,
        "data": built.config.data.source,
        "notes": built.notes + notes,
        "programs": entries,
    }


def compile_program(program: Program, topology: Topology) -> tuple[dict[str, Any], str]:
    """What a report holds of a program, and its text; '' where it does not fit."""
    entry: dict[str, Any] = {"name": program.name, "steps": program.num_steps}
    started = time.monotonic()
    lowered = program.trace().lower(lowering_platforms=(topology.platform,))
    entry["trace_seconds"] = time.monotonic() - started
    started = time.monotonic()
    try:
        compiled = lowered.compile(compiler_options=topology.options or None)
    except jax.errors.JaxRuntimeError as error:
        needed, limit = _shortage(str(error))
        entry["out_of_memory"] = _advice(program.name, needed, limit)
        entry["compile_seconds"] = time.monotonic() - started
        return entry, ""
    entry["compile_seconds"] = time.monotonic() - started
    text = compiled.as_text()
    counts = analysis.analyse(text, num_steps=program.num_steps)
    entry["memory"] = memory(compiled.memory_analysis(), topology)
    entry["unknown_loops"] = counts.unknown_loops
    entry["per_call"] = dataclasses.asdict(counts.per_call)
    entry["per_step"] = dataclasses.asdict(counts.per_step) if counts.per_step else None
    if topology.facts is not None:
        one = counts.per_step or counts.per_call
        entry["roofline"] = roofline.limits(one, topology.facts, topology.mesh.size)
        if not entry["memory"]["fits"]:
            sizes = entry["memory"]
            entry["out_of_memory"] = _advice(program.name, sizes["peak"], sizes["limit"])
    return entry, text


def memory(stats: Any, topology: Topology) -> dict[str, Any]:
    """Bytes on one device.

    Args:
      stats: what `jax.stages.Compiled.memory_analysis` returns.
      topology: the devices.

    Returns:
      `arguments`, `outputs`, `shared` (outputs in the place of arguments), `temporaries`, `code`,
      and `peak`, what must be there at once; where the device is known `limit` and `fits`.
    """
    sizes = {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes,
        "shared": stats.alias_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
        "code": stats.generated_code_size_in_bytes,
    }
    sizes["peak"] = sum(sizes.values()) - 2 * sizes["shared"]
    if topology.facts is None:
        return sizes
    limit = int(topology.facts.memory * topology.facts.usable)
    return sizes | {"limit": limit, "fits": sizes["peak"] <= limit}


def _shortage(message: str) -> tuple[float, float]:
    """Bytes that a compiler needs and has, by its message.

    Raises:
      ValueError: in one line, for another message.
    """
    found = _OVER.search(message) or _USED.search(message)
    if found is None:
        raise ValueError(f"the compiler failed: {' '.join(message.split())[:400]}")
    needed, unit, limit, limit_unit = found.groups()
    return float(needed) * _UNITS[unit], float(limit) * _UNITS[limit_unit]


def _advice(name: str, needed: float, limit: float) -> str:
    """By how much it does not fit, and what to change."""
    gib = 1024**3
    return (
        f"{name} needs {needed / gib:.2f} GiB a device and {limit / gib:.2f} GiB are there, "
        f"{(needed - limit) / gib:.2f} GiB too few; take a smaller "
        + ("method.batch_size" if name.startswith("train") else "run.eval_batch_size")
        + ", more devices, or model.dtype=bfloat16"
    )
