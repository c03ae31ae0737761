"""What a traced function computes, equation by equation."""

from collections.abc import Callable, Iterator

import jax
from jax.extend import core


def of(function: Callable, *arguments) -> Iterator:
    """All equations of a function, those inside of its loops and inner functions too."""
    yield from _inside(jax.make_jaxpr(function)(*arguments).jaxpr)


def _inside(jaxpr) -> Iterator:
    for equation in jaxpr.eqns:
        yield equation
        for inner in core.jaxprs_in_params(equation.params):
            yield from _inside(inner)


def precisions(function: Callable, *arguments) -> list:
    """Of all matrix products of a function."""
    return [
        equation.params["precision"]
        for equation in of(function, *arguments)
        if equation.primitive.name == "dot_general"
    ]


def types(name: str, function: Callable, *arguments) -> set[str]:
    """Of what goes into the operations of a name, such as 'exp'."""
    return {
        equation.invars[0].aval.dtype.name
        for equation in of(function, *arguments)
        if equation.primitive.name == name
    }


HIGHEST = (jax.lax.Precision.HIGHEST,) * 2
