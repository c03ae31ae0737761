"""A profile of LaGAM's main stage, by kernel."""

import tempfile

import jax

from benchmarks.accelerator_parts import measuring, problems, trace_summary
from benchmarks.accelerator_parts.worker import Context, NotHereError
from pujax.training import sharding

_CALLS = 2


def run(context: Context) -> None:
    """Profiles two calls of the main stage in bfloat16."""
    mesh = sharding.make_mesh()
    tree = problems.config(problems.LAGAM, tiny=context.tiny, dtype="bfloat16", few_kernels="on")
    problem = problems.build(tree, problems.LAGAM, context, mesh)
    for program in measuring.stage_programs([problem], mesh, tiny=context.tiny):
        if program.name != "main":
            continue
        jax.block_until_ready(program.call())
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for _ in range(_CALLS):
                    jax.block_until_ready(program.call())
            events = trace_summary.read(folder)
        if events is None:
            raise NotHereError("this version of jax.profiler writes no trace.json.gz")
        found = trace_summary.summarize(events, steps=_CALLS * program.count)
        if found is None:
            raise NotHereError("the profile names no kernels of this device")
        context.record(profile=found, steps_per_call=program.count)
