"""Checks of the arguments; numbers are checked where they are known."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import arrays


def matrices(**named: ArrayLike) -> list[jax.Array]:
    """Matrices of one dtype, at least float32, with one second axis and at least one row each."""
    matrices = [arrays.full_precision(values, name) for name, values in named.items()]
    for name, array in zip(named, matrices, strict=True):
        if array.ndim != 2 or array.shape[0] == 0:
            raise ValueError(
                f"{name} has shape {array.shape}, but must be a matrix [n, dim] with at least one "
                "row"
            )
        if array.shape[1] != matrices[0].shape[1]:
            raise ValueError(
                f"{name} has shape {array.shape}, but its second axis must be that of "
                f"{next(iter(named))}, {matrices[0].shape}"
            )
    dtype = jnp.result_type(*matrices)
    return [array.astype(dtype) for array in matrices]


def check_width(
    name: str, value: float | jax.Array, shapes: Sequence[tuple[int, ...]] = ((),)
) -> None:
    """Requires one number, or an array of one of the `shapes`, if known finite and above 0."""
    arrays.check_number(name, value, lambda x: x > 0, "above 0 and finite", shapes=shapes)


def check_ridge(
    name: str, value: float | jax.Array, shapes: Sequence[tuple[int, ...]] = ((),)
) -> None:
    """Requires one number, or an array of one of the `shapes`, if known finite and 0 or more."""
    arrays.check_number(name, value, lambda x: x >= 0, "0 or more and finite", shapes=shapes)


def check_finite(name: str, values: ArrayLike) -> None:
    """Requires known `values` to be finite."""
    array = arrays.on_host(values)
    if array is not None and not np.isfinite(array).all():
        rows = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
        raise ValueError(
            f"{name} has {rows.size} examples with values that are not finite, the first in row "
            f"{rows[0]}"
        )
