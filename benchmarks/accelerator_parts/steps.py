"""Training steps of one network: time, share of the measured peak, memory, compilation."""

from collections.abc import Iterator
from typing import Any

from benchmarks.accelerator_parts import measuring, problems
from benchmarks.accelerator_parts.worker import Context, NotHereError
from pujax.training import sharding


def run(
    context: Context,
    *,
    network: str,
    dtype: str,
    few_kernels: str,
    only_stage: str = "",
    needs: str = "",
) -> None:
    """Measures every stage that trains on images.

    Args:
      context: of the worker.
      network: see `problems.config`.
      dtype: of the network.
      few_kernels: `run.few_kernels`.
      only_stage: measures this stage alone.
      needs: the only platform that this is about.
    """
    if not problems.on_platform(context, needs):
        raise NotHereError(f"the flags are those of the platform {needs!r}")
    problem, programs = _programs(context, network, dtype, few_kernels)
    peak = measuring.measured_peak(context.out, dtype)
    found: list[dict[str, Any]] = []
    context.record(inputs=problem.inputs, dtype=dtype, few_kernels=few_kernels, programs=found)
    for program in programs:
        if only_stage in ("", program.name):
            found.append(program.measure(peak, tiny=context.tiny))
            context.record(programs=found)


def compile_ahead(
    context: Context,
    *,
    network: str,
    dtype: str,
    few_kernels: str,
    only_stage: str = "",
    needs: str = "",
) -> bool:
    """Compiles what `run` measures, whose arguments these are; nothing is recorded.

    Returns:
      Whether `run` would measure something on this platform.
    """
    if not problems.on_platform(context, needs):
        return False
    _, programs = _programs(context, network, dtype, few_kernels)
    for program in programs:
        if only_stage in ("", program.name):
            seconds = program.compile()["compile_seconds"]
            print(f"{network} {dtype} {program.name}: {seconds:.1f} s", flush=True)
    return True


def _programs(
    context: Context, network: str, dtype: str, few_kernels: str
) -> tuple[problems.Problem, Iterator[measuring.StageProgram]]:
    mesh = sharding.make_mesh()
    tree = problems.config(network, tiny=context.tiny, dtype=dtype, few_kernels=few_kernels)
    problem = problems.build(tree, network, context, mesh)
    return problem, measuring.stage_programs([problem], mesh, tiny=context.tiny)
