"""Checked inputs of the contrastive losses, in full precision."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax.arrays import check_shape_of_number, full_precision, is_real, on_host, real


def pair(**views: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Two matrices of one shape and one dtype, at least float32, by the names of the arguments."""
    first, second = (real(name, view) for name, view in views.items())
    if first.ndim != 2 or first.shape != second.shape:
        raise ValueError(
            f"{' and '.join(views)} must be [batch, dim] and of one shape, "
            f"got {first.shape} and {second.shape}"
        )
    dtype = jnp.promote_types(jnp.promote_types(first.dtype, second.dtype), jnp.float32)
    return first.astype(dtype), second.astype(dtype)


def several(views: ArrayLike) -> jax.Array:
    """Views `[M, batch, dim]` with M >= 2 in at least float32."""
    views = full_precision(views, "views")
    if views.ndim != 3 or views.shape[0] < 2:
        raise ValueError(
            f"views has shape {views.shape}, but must be [M, batch, dim] with at least 2 views M"
        )
    return views


def check_batch(batch: int) -> None:
    """Requires at least one image besides the anchor's, which gives the negatives."""
    if batch < 2:
        raise ValueError(
            f"batch is {batch}, but must be at least 2: the negatives are the other images"
        )


def check_temperature(temperature: float | jax.Array) -> None:
    """Requires a known `temperature` to be positive and finite."""
    number = _known_number("temperature", temperature)
    if number is not None and not 0 < number < np.inf:
        raise ValueError(f"temperature is {number}, but must be above 0 and finite")


def check_tau_plus(tau_plus: float | jax.Array) -> None:
    """Requires a known `tau_plus` to lie in [0, 1)."""
    number = _known_number("tau_plus", tau_plus)
    if number is not None and not 0 <= number < 1:
        raise ValueError(f"tau_plus is {number}, but must lie in [0, 1), 1 excluded")


def checked_block_size(block_size: int) -> int:
    """`block_size` as an integer that is 0 or more."""
    try:
        size = -1 if isinstance(block_size, bool) else operator.index(block_size)
    except TypeError:
        size = -1
    if size < 0:
        raise ValueError(f"block_size is {block_size}, but must be an integer, 0 or more")
    return size


def _known_number(name: str, value: float | jax.Array) -> float | None:
    """The number in `value`, or None where it is traced or lies on other hosts."""
    try:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
    except ValueError as error:  # rows of several lengths
        raise ValueError(f"{name} is {value!r}, but must be a single number") from error
    if not is_real(array.dtype):
        raise ValueError(f"{name} is {value!r}, but must be a single number")
    check_shape_of_number(name, value)
    number = on_host(value)
    return None if number is None else float(number)
