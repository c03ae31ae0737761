"""The numbers of a trained state that prediction looks at: taken out of it, and put back.

The rest of a state (an optimizer's moments, memories of the training rows) is not saved: it is
rebuilt from shapes, as zeros.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pujax.checks import require
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods.base import Method
from pujax.training import seed_axis, train_step

Info = DataInfo | MultilabelInfo


def numbers_of(method: Method, state: Any, info: Info) -> dict[str, np.ndarray]:
    """The parts of a state that prediction looks at, by their place in it.

    Args:
      method: whose state it is.
      state: as it is evaluated, arrays on the host.
      info: numbers of the data set.
    """
    leaves = jax.tree_util.tree_leaves_with_path(state)
    used = _used(method, state, info)
    return {
        jax.tree_util.keystr(path): np.asarray(leaf, order="C")
        for (path, leaf), is_used in zip(leaves, used, strict=True)
        if is_used
    }


def restored(
    numbers: Mapping[str, np.ndarray],
    method: Method,
    info: Info,
    *,
    most_bytes: float = math.inf,
) -> Any:
    """The state with the numbers of `numbers_of`, and zeros that take no memory elsewhere.

    Args:
      numbers: by their place in the state.
      method: whose state it is.
      info: numbers of the data set.
      most_bytes: that the numbers may take; what prediction does not look at, such as a memory of
        all training rows, may be larger.

    Raises:
      ValueError: for a number of another shape or type, one that is missing, or one that the state
        does not have; for a state that is too large. 32 bits and 64, of which `jax_enable_x64`
        decides, are one type.
    """
    shapes = _shapes(method, info)
    used = {
        jax.tree_util.keystr(place): wanted
        for (place, wanted), is_used in zip(
            jax.tree_util.tree_leaves_with_path(shapes), _used(method, shapes, info), strict=True
        )
        if is_used
    }
    needed = sum(math.prod(x.shape) * x.dtype.itemsize for x in used.values())
    require(needed <= most_bytes, "the size of the state", needed, f"at most {most_bytes} bytes")
    missing = sorted(used.keys() - set(numbers))
    if missing:
        raise ValueError(f"{missing[0]} is missing; accepted: all numbers that prediction looks at")
    left = set(numbers)

    def of_leaf(place, wanted):
        name = jax.tree_util.keystr(place)
        left.discard(name)
        array = numbers.get(name)
        if array is None:
            return np.broadcast_to(np.zeros((), wanted.dtype), wanted.shape)
        if array.shape != wanted.shape or not _is_one_type(array.dtype, wanted.dtype):
            raise ValueError(
                f"{name} is {array.dtype}{list(array.shape)}; accepted: "
                f"{wanted.dtype}{list(wanted.shape)}"
            )
        return jnp.asarray(array, wanted.dtype)

    state = jax.tree_util.tree_map_with_path(of_leaf, shapes)
    if left:
        raise ValueError(f"{min(left)} is not a part of the state; accepted: what was saved")
    return state


def _is_one_type(saved: np.dtype, wanted: np.dtype) -> bool:
    """Whether two types are the same but for what `jax_enable_x64` makes of it."""
    widths = {saved.itemsize, wanted.itemsize}
    return saved == wanted or (saved.kind == wanted.kind and widths == {4, 8})


def _used(method: Method, state: Any, info: Info) -> list[bool]:
    """Which leaves of a state prediction looks at, by tracing it."""
    leaves, structure = jax.tree.flatten(state)

    def predict(leaves, inputs):
        return method.predict(jax.tree.unflatten(structure, leaves), inputs)

    inputs = jax.ShapeDtypeStruct([2, *info.input_shape], info.input_dtype)
    traced = jax.make_jaxpr(predict)(leaves, inputs).jaxpr
    return _looked_at(traced)[: len(leaves)]


def _looked_at(trace: Any) -> list[bool]:
    """Which arguments a trace looks at; of a compiled call those that the call's own trace does."""
    seen = {id(v) for v in trace.outvars}
    for equation in trace.eqns:
        given = equation.invars
        if equation.primitive.name in train_step.COMPILED_CALLS:
            inside = _looked_at(equation.params["jaxpr"].jaxpr)
            given = [v for v, is_used in zip(given, inside, strict=True) if is_used]
        seen |= {id(v) for v in given}
    return [id(v) in seen for v in trace.invars]


def _shapes(method: Method, info: Info) -> Any:
    """Shapes of the state as it is evaluated after the last stage."""
    shape: Any = jax.ShapeDtypeStruct
    labels, n_support = shape([info.n], bool), 0
    if isinstance(info, MultilabelInfo):
        labels = shape([info.n, info.num_classes], np.int8)
    else:
        n_support = info.n_support
    data = TrainingData(
        shape([info.n, *info.input_shape], info.input_dtype),
        labels,
        shape([n_support, *info.input_shape], info.input_dtype),
        shape([n_support], np.float32),
    )
    shapes = seed_axis.state_shapes(method.stages, data)
    return method.evaluated(shapes) if method.evaluated else shapes
