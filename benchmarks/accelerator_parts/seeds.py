"""Several seeds in one program: what one more costs."""

from typing import Any

from benchmarks.accelerator_parts import measuring, problems
from benchmarks.accelerator_parts.worker import Context
from pujax.training import sharding

_COUNTS = (1, 3, 8)
_TINY_COUNTS = (1, 2)


def run(context: Context, *, network: str) -> None:
    """Measures the last stage of 1, 3 and 8 seeds.

    Args:
      context: of the worker.
      network: see `problems.config`.
    """
    mesh = sharding.make_mesh()
    dtype = "float32" if network == problems.GRADPU else "bfloat16"
    tree = problems.config(network, tiny=context.tiny, dtype=dtype, few_kernels="on")
    peak = measuring.measured_peak(context.out, dtype)
    counts = _TINY_COUNTS if context.tiny else _COUNTS
    members = [
        problems.build(tree, network, context, mesh, seed=seed) for seed in range(max(counts))
    ]
    last = members[0].setup.method.stages[-1].name
    found: list[dict[str, Any]] = []
    context.record(inputs=members[0].inputs, dtype=dtype, programs=found)
    for count in counts:
        for program in measuring.stage_programs(members[:count], mesh, tiny=context.tiny):
            if program.name == last:
                found.append(program.measure(peak, tiny=context.tiny))
                context.record(programs=found)
