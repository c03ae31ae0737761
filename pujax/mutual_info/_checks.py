"""Checks of the arguments; numbers are checked where they are known."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax.arrays import full_precision, on_host


def matrices(**named: ArrayLike) -> list[jax.Array]:
    """Matrices of one dtype, at least float32, with one second axis and at least one row each."""
    arrays = [full_precision(values) for values in named.values()]
    for name, array in zip(named, arrays, strict=True):
        if array.ndim != 2 or array.shape[0] == 0:
            raise ValueError(
                f"{name} has shape {array.shape}, but must be a matrix [n, dim] with at least one "
                "row"
            )
        if array.shape[1] != arrays[0].shape[1]:
            raise ValueError(
                f"{name} has shape {array.shape}, but its second axis must be that of "
                f"{next(iter(named))}, {arrays[0].shape}"
            )
    dtype = jnp.result_type(*arrays)
    return [array.astype(dtype) for array in arrays]


def check_positive(name: str, value: ArrayLike) -> None:
    """Requires a known `value` to be above 0."""
    number = on_host(value)
    if number is not None and not np.all(number > 0):
        raise ValueError(f"{name} is {value}, but must be above 0")


def check_not_negative(name: str, value: ArrayLike) -> None:
    """Requires a known `value` to be 0 or more."""
    number = on_host(value)
    if number is not None and not np.all(number >= 0):
        raise ValueError(f"{name} is {value}, but must be 0 or more")


def check_finite(name: str, values: ArrayLike) -> None:
    """Requires known `values` to be finite."""
    array = on_host(values)
    if array is not None and not np.isfinite(array).all():
        rows = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
        raise ValueError(
            f"{name} has {rows.size} examples with values that are not finite, the first in row "
            f"{rows[0]}"
        )
