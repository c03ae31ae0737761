"""Arguments in full precision, and checks of those numbers that are at hand.

Numbers are looked at only where they are known, that is outside `jit`, `grad` and `vmap`, or as
constants inside them.
"""

import jax
import jax.numpy as jnp
import numpy as np


def full_precision(values: jax.Array) -> jax.Array:
    """`values` in at least float32."""
    values = jnp.asarray(values)
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


def matrices(**named: jax.Array) -> list[jax.Array]:
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


def check_share(name: str, value: float | jax.Array) -> None:
    """Requires a known `value` to lie strictly between 0 and 1."""
    number = on_host(value)
    if number is not None and not np.all((number > 0) & (number < 1)):
        raise ValueError(f"{name} is {value}, but must lie strictly between 0 and 1")


def check_positive(name: str, value: float | jax.Array) -> None:
    """Requires a known `value` to be above 0."""
    number = on_host(value)
    if number is not None and not np.all(number > 0):
        raise ValueError(f"{name} is {value}, but must be above 0")


def check_not_negative(name: str, value: float | jax.Array) -> None:
    """Requires a known `value` to be 0 or more."""
    number = on_host(value)
    if number is not None and not np.all(number >= 0):
        raise ValueError(f"{name} is {value}, but must be 0 or more")


def check_finite(name: str, values: jax.Array) -> None:
    """Requires known `values` to be finite."""
    array = on_host(values)
    if array is not None and not np.isfinite(array).all():
        rows = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
        raise ValueError(
            f"{name} has {rows.size} examples with values that are not finite, the first in row "
            f"{rows[0]}"
        )


def on_host(value: float | jax.Array) -> np.ndarray | None:
    """The numbers in `value`, or None where they are traced or lie on other hosts."""
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        return np.asarray(jax.device_get(value)) if value.is_fully_addressable else None
    return np.asarray(value)
