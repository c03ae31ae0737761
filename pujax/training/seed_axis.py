"""Which functions of several methods are one program, so that seeds can share it.

A method is built on numbers of its split. Every seed therefore has functions of its own, even where
those numbers go nowhere: GradPU uses no class prior, so its seeds differ in name only. Seeds whose
functions are the same object are mapped over by `jax.vmap` and compile once.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pujax.data.pu_dataset import TrainingData
from pujax.methods.base import Method
from pujax.training import train_step


def share_methods(methods: Sequence[Method], data: TrainingData) -> list[Method]:
    """The methods, with one function for `init`, `step` and `predict` wherever programs agree.

    What runs outside the compiled program (`refresh`, `calibrate`) stays each method's own.

    Args:
      methods: of the seeds, of equal stages, shapes and structures.
      data: training arrays of one seed, or their shapes.

    Returns:
      As many methods.
    """
    key, state, stages = jax.eval_shape(lambda: jax.random.key(0)), None, []
    for each in zip(*(method.stages for method in methods), strict=True):
        inits = share([stage.init for stage in each], key, state, data)
        state = jax.eval_shape(inits[0], key, state, data)
        batch = train_step.batch_shapes(each[0], state, data)
        steps = share([stage.step for stage in each], state, batch, key)
        encodes = [stage.encode for stage in each]
        if encodes[0] is not None:
            encodes = share(encodes, state, data.inputs)
        parts = zip(each, inits, steps, encodes, strict=True)
        stages.append([s._replace(init=i, step=t, encode=e) for s, i, t, e in parts])
    inputs = jax.ShapeDtypeStruct([2, *data.inputs.shape[1:]], data.inputs.dtype)
    predicts = share([method.predict for method in methods], state, inputs)
    parts = zip(methods, zip(*stages, strict=True), predicts, strict=True)
    return [method._replace(stages=x, predict=predict) for method, x, predict in parts]


def share(functions: Sequence[Callable[..., Any]], *args: Any) -> list[Callable[..., Any]]:
    """The functions, each replaced by the first of those that are the same program.

    Args:
      functions: functions of the same arguments.
      *args: arrays, or shapes of arrays.
    """
    if all(function is functions[0] for function in functions):
        return list(functions)
    first = {}
    return [first.setdefault(digest(function, *args), function) for function in functions]


def digest(function: Callable[..., Any], *args: Any) -> str:
    """Hash of what a function computes: its operations, their shapes and every constant.

    Functions of equal digest compute the same; of unequal digest they may.

    Args:
      function: a function of arrays without callbacks to Python.
      *args: arrays, or shapes of arrays.
    """
    closed, out = jax.make_jaxpr(function, return_shape=True)(*args)
    # Closures are printed with their address, which says nothing about what they compute.
    text = re.sub(r"0x[0-9a-f]+", "", f"{jax.tree.structure(out)} {closed}")
    result = hashlib.blake2b(text.encode(), digest_size=16)
    for value in _constants(closed):
        array = _to_numpy(value)
        result.update(f"{array.shape} {array.dtype}".encode())
        result.update(array.tobytes())
    return result.hexdigest()


def _constants(value: Any) -> Iterator[Any]:
    """Arrays and numbers in a traced program; its text shortens them or leaves them out."""
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from _constants(each)
    elif hasattr(getattr(value, "jaxpr", value), "eqns"):
        yield from getattr(value, "consts", ())
        inner = getattr(value, "jaxpr", value)
        for equation in inner.eqns:
            yield from (x.val for x in equation.invars if hasattr(x, "val"))
            yield from _constants(list(equation.params.values()))
        yield from (x.val for x in inner.outvars if hasattr(x, "val"))
    elif isinstance(value, (np.ndarray, jax.Array)):
        yield value


def _to_numpy(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)
