"""Arrays of several packages: full precision, masked means, products, shuffles, and checks.

The values of an argument are known outside `jit`, `grad` and `vmap`, and inside them where it is a
constant. Only known values are checked.
"""

import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

_REAL = (jnp.bool_, jnp.integer, jnp.floating)
_LABELED_CODES = ((0, 1), (-1, 1))


def full_precision(values: ArrayLike, name: str = "") -> jax.Array:
    """`values` in at least float32; with the `name` of an argument they must be real numbers."""
    values = real(name, values) if name else jnp.asarray(values)
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


def real(name: str, values: ArrayLike) -> jax.Array:
    """`values` as an array, traced or not, which must hold real numbers or booleans."""
    try:
        array = jnp.asarray(values)
    except (TypeError, ValueError) as error:  # words, None, or rows of several lengths
        shown = " ".join(reprlib.repr(values).split())
        raise ValueError(f"{name} is {shown}; accepted: an array of real numbers") from error
    if not is_real(array.dtype):
        raise ValueError(f"{name} is {array.dtype}; accepted: an array of real numbers")
    return array


def is_real(dtype: np.dtype) -> bool:
    """Whether numbers of this type, or booleans, are real."""
    return any(jnp.issubdtype(dtype, kind) for kind in _REAL)


def mean_where(values: jax.Array, mask: jax.Array, axis: int | None = None) -> jax.Array:
    """Mean of `values` where `mask` holds; 0 where it holds nowhere."""
    return jnp.sum(jnp.where(mask, values, 0), axis) / jnp.maximum(jnp.sum(mask, axis), 1)


def weighted(values: jax.Array, weights: jax.Array) -> jax.Array:
    """`weights * values`, 0 where an infinite value has no weight.

    A finite one stays, for the derivative by its weight.
    """
    return weights * jnp.where((weights == 0) & jnp.isinf(values), 0, values)


def clipped(values: jax.Array, low: float, high: float) -> jax.Array:
    """`values` kept within `[low, high]`; one at an end has its whole gradient, one beyond none.

    PyTorch's `clamp` differentiates so; `jnp.clip` halves the gradient at the ends.
    """
    return jnp.where(values < low, low, jnp.where(values > high, high, values))


def consecutive_shuffles(key: jax.Array, size: int, wanted: int) -> jax.Array:
    """The first `wanted` entries of shuffles of `range(size)`, one after another."""
    if not wanted:
        return jnp.zeros([0], jnp.int32)
    keys = jax.random.split(key, -(-wanted // size))
    return jax.vmap(lambda k: jax.random.permutation(k, size))(keys).reshape(-1)[:wanted]


def ranks(values: jax.Array) -> jax.Array:
    """Place of every value `[n]` in ascending order, from 0; equal ones in their order."""
    return jnp.argsort(jnp.argsort(values, stable=True))


def on_host(value: ArrayLike) -> np.ndarray | None:
    """The numbers in `value`, or None where they are traced or lie on other hosts."""
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        return np.asarray(jax.device_get(value)) if value.is_fully_addressable else None
    return np.asarray(value)


def _without_holes(name: str, value: Any) -> Any:
    """`value`, which must not be rows of several lengths, of which NumPy makes no array."""
    if isinstance(value, list | tuple):
        try:
            np.shape(value)  # type: ignore[arg-type]  # of traced values, too
        except ValueError as error:
            shown = " ".join(reprlib.repr(value).split())
            raise ValueError(f"{name} is {shown}; accepted: rows of one length") from error
    return value


def check_shape_of_number(
    name: str, value: ArrayLike, shapes: Sequence[tuple[int, ...]] = ((),)
) -> None:
    """Requires one number, or an array of one of the `shapes`.

    Another shape would broadcast into the values of another function: `[batch]` against
    `[batch, 1]` is a matrix, whose sum looks like a risk.
    """
    shape = np.shape(_without_holes(name, value))  # type: ignore[arg-type]  # of traced values, too
    if shape not in shapes:
        others = [f"an array of shape {accepted}" for accepted in shapes if accepted]
        accepted = " or ".join(["a single number"] * (() in shapes) + others)
        raise ValueError(f"{name} has shape {shape}, but must be {accepted}")


def check_number(
    name: str,
    value: float | jax.Array,
    is_accepted: Callable[[np.ndarray], np.ndarray],
    accepted: str,
    *,
    finite: bool = True,
    shapes: Sequence[tuple[int, ...]] | None = ((),),
) -> None:
    """Requires a known `value` to be `is_accepted`, described as `accepted`, and to be finite.

    It must have one of the `shapes`, traced or not, unless these are None.
    """
    if shapes is not None:
        check_shape_of_number(name, value, shapes)
    number = on_host(_without_holes(name, value))
    if number is None:
        return
    if not _is_numeric(number) or not np.all(
        is_accepted(number) & (np.isfinite(number) | (not finite))
    ):
        is_infinite = finite and _is_numeric(number) and not np.all(np.isfinite(number))
        limit = " and finite" if is_infinite and "finite" not in accepted else ""
        raise ValueError(f"{name} is {_shown(value)}, but must be {accepted}{limit}")


def check_share(
    name: str, value: float | jax.Array, shapes: Sequence[tuple[int, ...]] = ((),)
) -> None:
    """Requires one number, or an array of one of the `shapes`, if known between 0 and 1."""
    check_shape_of_number(name, value, shapes)
    number = on_host(value)
    if number is None:
        return
    if not _is_numeric(number) or not np.all((number > 0) & (number < 1)):
        raise ValueError(f"{name} is {_shown(value)}, but must lie strictly between 0 and 1")


def check_codes(name: str, codes: ArrayLike, accepted: Sequence[tuple[int, ...]]) -> None:
    """Requires known `codes` to hold booleans or the values of one of the `accepted` codings."""
    values = on_host(_without_holes(name, codes))
    if values is None or values.dtype == bool:
        return
    codings = " or ".join("/".join(map(str, coding)) for coding in accepted)
    if not _is_numeric(values):
        raise ValueError(f"{name} has type {values.dtype}, but must be {codings}, or booleans")
    if any(np.all(np.any([values == code for code in coding], axis=0)) for coding in accepted):
        return
    held = np.unique(values.astype(np.float64)).tolist()
    listed = ", ".join(f"{value:g}" for value in held[:8]) + (", ..." if len(held) > 8 else "")
    raise ValueError(f"{name} holds the values {listed}, but must be {codings}, or booleans")


def check_key(key: Any, purpose: str = "") -> None:
    """Requires one key of `jax.random`, new style or raw, traced or not, for a `purpose`."""
    kind = getattr(key, "dtype", None)
    is_typed = kind is not None and jax.dtypes.issubdtype(kind, jax.dtypes.prng_key)
    words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))).shape  # of a raw key
    ok = np.shape(key) == () if is_typed else kind == "uint32" and np.shape(key) == words
    if not ok:
        shown = " ".join(repr(key).split())
        raise ValueError(f"key is {shown}; accepted: one jax.random key{purpose}")


def check_labeled(labeled: ArrayLike) -> None:
    """Requires known `labeled` to tell labelled positives from unlabeled examples."""
    check_codes("labeled", labeled, _LABELED_CODES)


def _shown(value: object) -> str:
    """Text in quotes, since '0.3' is not 0.3."""
    return repr(value) if isinstance(value, str) else str(value)


def _is_numeric(values: np.ndarray) -> bool:
    """Whether these are real numbers or booleans, which text, None and complex numbers are not."""
    return bool(jnp.issubdtype(values.dtype, jnp.floating)) or values.dtype.kind in "biu"
