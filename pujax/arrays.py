"""Array arguments of the mathematical packages: full precision, and checks of known values.

The values of an argument are known outside `jit`, `grad` and `vmap`, and inside them where it is a
constant. Only known values are checked.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike


def full_precision(values: ArrayLike) -> jax.Array:
    """`values` in at least float32."""
    values = jnp.asarray(values)
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


def on_host(value: ArrayLike) -> np.ndarray | None:
    """The numbers in `value`, or None where they are traced or lie on other hosts."""
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        return np.asarray(jax.device_get(value)) if value.is_fully_addressable else None
    return np.asarray(value)


def check_share(name: str, value: float | jax.Array) -> None:
    """Requires a known `value` to lie strictly between 0 and 1."""
    number = on_host(value)
    if number is not None and not np.all((number > 0) & (number < 1)):
        raise ValueError(f"{name} is {value}, but must lie strictly between 0 and 1")
