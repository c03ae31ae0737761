"""How often a run evaluates where `run.eval_every` leaves it open.

Decided before the run from operations, not from seconds, so that a run that is stopped and goes on
evaluates the same epochs on any machine.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import ml_collections
from jax.sharding import Mesh

from pujax.data import pu_dataset
from pujax.data.pu_dataset import PUDataset
from pujax.methods.base import Method
from pujax.training import train_step
from pujax.training.evaluation import model_selection
from pujax.training.evaluation.tasks import Problem

SHARE = 0.1
"""Of an epoch's operations, what evaluation may add before it happens less often."""

MIN_EVALUATIONS = 10
"""Evaluations that a stage keeps where it has as many epochs, whatever they cost."""


class EvalInterval(NamedTuple):
    """Of one stage.

    Attributes:
      every: epochs between evaluations.
      cost: operations of an evaluation over those of an epoch; NaN where they were not needed.
    """

    every: int
    cost: float = math.nan


def of_stages(
    config: ml_collections.ConfigDict, method: Method, data: Problem, mesh: Mesh
) -> tuple[EvalInterval, ...]:
    """How often each stage of a run is evaluated; nothing is computed.

    A number in `run.eval_every` is taken as it is. 0 evaluates every epoch where something chooses
    among epochs: `run.selection`, or the rules that are compared on held-out validation examples.
    Else evaluation adds at most `SHARE` to a stage, unless `MIN_EVALUATIONS` cost more.

    Args:
      config: the resolved configuration.
      method: the method.
      data: what it trains on.
      mesh: devices; what is decided does not depend on them.
    """
    stages = method.stages
    if config.run.eval_every:
        return (EvalInterval(config.run.eval_every),) * len(stages)
    num_test = len(data.test_labels)
    has_validation = isinstance(data, PUDataset) and len(data.validation_inputs) > 0
    compares_epochs = config.run.selection != model_selection.LAST or has_validation
    is_short = all(stage.num_epochs < 2 * MIN_EVALUATIONS for stage in stages)
    if compares_epochs or is_short or not num_test:
        return (EvalInterval(1),) * len(stages)
    arrays, result = pu_dataset.flat(data.training_data()), []
    for stage, (state, batch, key) in zip(
        stages, train_step.step_arguments(stages, arrays, mesh), strict=True
    ):
        step = operations(stage.step, state, batch, key)
        epoch = step * stage.batching.steps_per_epoch(len(data.labeled))
        cost = _evaluation(method, state, data) / epoch if epoch else math.nan
        result.append(EvalInterval(_every(cost, stage.num_epochs), cost))
    return tuple(result)


def _every(cost: float, num_epochs: int) -> int:
    """Epochs between the evaluations of a stage."""
    if not cost > SHARE:  # NaN, of a network without products, is not
        return 1
    return max(min(math.ceil(cost / SHARE), num_epochs // MIN_EVALUATIONS), 1)


def _evaluation(method: Method, state: Any, data: Problem) -> float:
    """Operations of one evaluation of the test set, as `Evaluator.begin` has it."""
    two = jax.ShapeDtypeStruct((2, *data.inputs.shape[1:]), data.inputs.dtype)

    def per_example(function: Callable[..., Any]) -> float:
        return operations(function, state, two) / 2

    num_test = len(data.test_labels)
    rows = num_test
    if method.calibrate is not None or method.adjust is not None:
        rows += num_test  # scores before them are reported too
    if method.calibrate is not None:
        rows += len(data.labeled)
    others = sum(map(per_example, (method.alternatives or {}).values()))
    return rows * per_example(method.predict) + num_test * others


def describe(intervals: tuple[EvalInterval, ...], method: Method) -> list[str]:
    """A line for every stage that 0 in `run.eval_every` evaluates less often, and why."""
    return [
        f"Stage {stage.name!r} is evaluated every {found.every} epochs, since an evaluation "
        f"computes {found.cost:.2g} times as much as an epoch of training. "
        "--config.run.eval_every=1 evaluates every epoch."
        for stage, found in zip(method.stages, intervals, strict=True)
        if found.every > 1 and not math.isnan(found.cost)
    ]


def operations(function: Callable[..., Any], *args: Any) -> float:
    """Multiplications and additions of the matrix products and convolutions of a function.

    A loop counts as often as it runs if that is known before it does (`scan`), else once (`while`).
    Of several branches the most expensive one counts; of those for several platforms the default
    one, whatever the platform.

    Args:
      function: of arrays.
      *args: arrays, or shapes of arrays.
    """
    return _of_program(jax.make_jaxpr(function)(*args).jaxpr)


def _of_program(program: Any) -> float:
    return sum(map(_of_equation, program.eqns))


def _of_equation(equation: Any) -> float:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return 2.0 * equation.outvars[0].aval.size * math.prod(left[i] for i in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval
        out_channels = kernel.shape[params["dimension_numbers"].rhs_spec[0]]
        # A gradient's dilated operand holds a number at one place in so many.
        places = equation.outvars[0].aval.size / math.prod(params["lhs_dilation"])
        return 2.0 * places * kernel.size / out_channels
    inner = [_of_program(program) for program in _programs(list(params.values()))]
    if name == "cond":
        platforms = params.get("branches_platforms") or ()
        return inner[platforms.index(None)] if None in platforms else max(inner, default=0.0)
    return sum(inner) * params.get("length", 1)


def _programs(value: Any) -> Iterator[Any]:
    """Programs among the parameters of an equation."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _programs(item)
    else:
        program = getattr(value, "jaxpr", value)
        if hasattr(program, "eqns"):
            yield program
