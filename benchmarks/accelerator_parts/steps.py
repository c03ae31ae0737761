"""Training steps of one network: time, share of the measured peak, memory, compilation."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.accelerator_parts import measuring, problems
from benchmarks.accelerator_parts.worker import Context, NotHereError
from pujax.training import sharding


class Asked(NamedTuple):
    """What a part asks for.

    Attributes:
      network: see `problems.config`.
      dtype: of the network.
      few_kernels: `run.few_kernels`.
      only_stage: this stage alone; '' is all.
      needs: the only platform that this is about; '' is any.
    """

    network: str
    dtype: str
    few_kernels: str
    only_stage: str = ""
    needs: str = ""


def run(context: Context, **options: str) -> None:
    """Measures every stage that trains on images.

    Args:
      context: of the worker.
      options: fields of `Asked`.
    """
    asked = Asked(**options)
    if not problems.on_platform(context, asked.needs):
        raise NotHereError(f"the flags are those of the platform {asked.needs!r}")
    problem, programs = _programs(context, asked)
    peak = measuring.measured_peak(context.out, asked.dtype)
    found: list[dict[str, Any]] = []
    said = {"dtype": asked.dtype, "few_kernels": asked.few_kernels}
    context.record(inputs=problem.inputs, **said, programs=found)
    for program in programs:
        found.append(program.measure(peak, tiny=context.tiny))
        context.record(programs=found)


def compile_ahead(context: Context, **options: str) -> bool:
    """Compiles what `run` measures; nothing is recorded.

    Args:
      context: of the process.
      options: as those of `run`.

    Returns:
      Whether `run` would measure something on this platform.
    """
    asked = Asked(**options)
    if not problems.on_platform(context, asked.needs):
        return False
    for program in _programs(context, asked)[1]:
        seconds = program.compile()["compile_seconds"]
        print(f"{asked.network} {asked.dtype} {program.name}: {seconds:.1f} s", flush=True)
    return True


def _programs(
    context: Context, asked: Asked
) -> tuple[problems.Problem, Iterator[measuring.StageProgram]]:
    mesh = sharding.make_mesh()
    settings = {"dtype": asked.dtype, "few_kernels": asked.few_kernels}
    tree = problems.config(asked.network, tiny=context.tiny, **settings)
    problem = problems.build(tree, asked.network, context, mesh)
    programs = measuring.stage_programs([problem], mesh, tiny=context.tiny)
    return problem, (p for p in programs if asked.only_stage in ("", p.name))
