"""The programs that a run compiles, traced for devices that are not there."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from jax.extend import core as jax_core
from jax.sharding import Mesh

from pujax import accelerator
from pujax.aot import problem as problem_lib
from pujax.aot.problem import Problem
from pujax.methods.base import Stage
from pujax.training import sharding, stage_shapes, train_step
from pujax.training.evaluation import evaluator
from pujax.training.stage_shapes import StageShapes

# What makes a program worth a compilation of its own in the report: products, loops, orders.
_HEAVY = {"dot_general", "conv_general_dilated", "while", "scan", "sort", "ragged_dot_general"}


class Program(NamedTuple):
    """One program of a run.

    Attributes:
      name: 'train main', 'predict', 'refresh main: embed' and so on.
      num_steps: training steps of one call; 0 for a program that is no training.
      trace: traces it, as `jax.jit(...).trace` does.
    """

    name: str
    num_steps: int
    trace: Callable[[], jax.stages.Traced]


def all_programs(problem: Problem) -> tuple[list[Program], list[str]]:
    """Every stage's step, `predict`, and what encoding, refreshing and calibrating compile.

    Args:
      problem: the run.

    Returns:
      The programs, and sentences on what is not among them.
    """
    shapes = problem_lib.stage_shapes(problem)
    programs: list[Program] = []
    notes: list[str] = []
    first_epoch = 0
    for index, (stage, own) in enumerate(zip(problem.method.stages, shapes, strict=True)):
        if stage.encode is not None:
            programs.append(_mapped(f"encode {stage.name}", stage.encode, own, problem))
        if stage.refresh is not None:
            found, note = _refreshing(stage, own, problem)
            programs, notes = programs + found, notes + note
        programs.append(_training(index, own, first_epoch, problem))
        first_epoch += stage.num_epochs
    if problem.method.calibrate is not None:
        given = [shapes[-1].state, problem.data]
        found, note = _called("calibrate", problem.method.calibrate, given, problem)
        programs, notes = programs + found, notes + note
    programs.append(_mapped("predict", problem.method.predict, shapes[-1], problem))
    return programs, notes


def steps_per_call(problem: Problem, stage: Stage) -> int:
    """Steps of one call on an accelerator; those of an epoch where these are fewer."""
    if problem.streamed:
        return 1
    wanted = problem.config.run.steps_per_dispatch or train_step.STEPS_PER_CALL
    num_steps = stage.batching.steps_per_epoch(problem.data.labeled.shape[0])
    return train_step.steps_per_call(num_steps, wanted)


def _training(index: int, shapes: StageShapes, first_epoch: int, problem: Problem) -> Program:
    """Some steps in one call, as `train_step.make_train` compiles them."""
    stage = problem.method.stages[index]
    count = steps_per_call(problem, stage)
    names = problem.metric_names[index]

    def trace() -> jax.stages.Traced:
        train = train_step.make_train(
            stage,
            problem.mesh,
            first_epoch=first_epoch,
            streamed=problem.streamed,
            packed=accelerator.few_kernels(problem.config.run.few_kernels),
        )
        return stage_shapes.trace_train(train, shapes, names, problem.mesh, count=count)

    return Program(f"train {stage.name}", count, trace)


def _mapped(
    name: str, function: Callable[..., Any], shapes: StageShapes, problem: Problem
) -> Program:
    """A function of state and raw inputs, on a batch of `run.eval_batch_size`, as a run has it."""
    size, rows = problem.config.run.eval_batch_size, problem.data.inputs.shape[0]
    if name == "predict":
        size, rows = sharding.even_batch(size, problem.mesh), problem.num_test
    size = min(size, rows)
    batch = stage_shapes.batch_of(problem.data.inputs, size, problem.mesh)

    def trace() -> jax.stages.Traced:
        compiled: Any = evaluator.compiled(function, problem.mesh)
        return compiled.trace(shapes.state, batch)

    return Program(name, 0, trace)


def _refreshing(
    stage: Stage, shapes: StageShapes, problem: Problem
) -> tuple[list[Program], list[str]]:
    """What the first refresh of a stage compiles, or the second where the first compiles nothing.

    One that records what an epoch has done has nothing to do before the first.
    """
    name = f"refresh {stage.name}"
    given = [shapes.state, problem.data, shapes.key]
    refresh: Any = stage.refresh
    second = stage.refresh_every if 0 < stage.refresh_every < stage.num_epochs else 0
    for epoch in (0, second):
        found, notes = _called(name, functools.partial(refresh, epoch=epoch), given, problem)
        if found or notes:
            break
    return found, notes


def _called(
    name: str, function: Callable[..., Any], arguments: list[Any], problem: Problem
) -> tuple[list[Program], list[str]]:
    """The compiled functions that a function of the host calls, each once for every shape.

    The function is traced: the compiled ones that it calls are equations of the trace. One that
    looks at a number before it goes on cannot be traced.
    """
    try:
        traced = jax.make_jaxpr(function)(*arguments)
    # What JAX raises where a traced value is asked for its number; a fault is no note.
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        reason = str(error).strip().splitlines()[0]
        return [], [
            f"{name}: what it compiles is not known, since it looks at numbers on the host "
            f"({type(error).__name__}: {reason[:100]})"
        ]
    size = min(problem.config.run.eval_batch_size, problem.data.inputs.shape[0])
    programs: dict[tuple[str, ...], Program] = {}
    for equation in traced.jaxpr.eqns:
        if equation.primitive.name not in train_step.COMPILED_CALLS:
            continue
        # A function that checks its arguments compiles a private one of the same name.
        closed, label = equation.params["jaxpr"], equation.params["name"].lstrip("_")
        types = tuple(str(variable.aval) for variable in closed.jaxpr.invars)
        if (label, *types) in programs or not _HEAVY & set(_primitives(closed.jaxpr)):
            continue
        trace = _tracing(closed, size, problem.mesh)
        programs[label, *types] = Program(f"{name}: {label}", 0, trace)
    return list(programs.values()), []


def _tracing(closed: Any, size: int, mesh: Mesh) -> Callable[[], jax.stages.Traced]:
    """Traces a compiled function again, its batches split over the devices, all else copied."""

    def of(aval: Any) -> jax.ShapeDtypeStruct:
        if aval.shape and aval.shape[0] == size and len(aval.shape) > 1:
            return stage_shapes.batch_of(aval, size, mesh)
        return stage_shapes.on_mesh(aval, mesh)

    def trace() -> jax.stages.Traced:
        function: Any = jax.jit(
            jax_core.jaxpr_as_fun(closed), out_shardings=sharding.replicated(mesh)
        )
        return function.trace(*(of(variable.aval) for variable in closed.jaxpr.invars))

    return trace


def _primitives(jaxpr: Any) -> Iterator[str]:
    """Names of all operations of a function, those of functions inside of it among them."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _primitives(inner)
