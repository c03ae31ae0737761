"""Checks of arguments; all errors have the form "FIELD is VALUE; accepted: ...".

The command `pujax check` is in `pujax/check.py`.
"""

import datetime
import numbers
import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np

_NO_NUMBERS = str, bytes, np.datetime64, np.timedelta64, datetime.date, datetime.timedelta
ON_THE_HOST = "not traced: this is computed on the host, outside of jit, grad and vmap"
"""What a message about a traced value adds to what is accepted."""


def require(ok: bool, field: str, value: object, accepted: str) -> None:
    """Raises a ValueError that names the field, its value and what is accepted, unless `ok`."""
    if not ok:
        shown = repr(value)  # of several lines for a section of a configuration
        shown = " ".join(shown.split()) if "\n" in shown else shown
        raise ValueError(f"{field} is {shown}; accepted: {accepted}")


def one_of(field: str, value: object, choices: Iterable[object]) -> None:
    """Requires `value` to be among `choices`."""
    choices = tuple(choices)
    # An array compares element by element, and is no choice.
    is_array = isinstance(value, np.ndarray) or getattr(value, "ndim", 0) > 0
    known = not is_array and value in choices
    require(known, field, value, ", ".join(map(repr, choices)))


def between(
    field: str, value: object, low: float, high: float, *, include: str = "both", word: str = ""
) -> None:
    """Requires a number in an interval; NaN fails, and so does what is no number.

    `include` says which ends belong to it: 'both', 'low', 'high' or 'neither'. `word`, such as
    'auto', is accepted in place of a number; '' for none. Beside a word, True and False are not
    taken for numbers.
    """
    if word and isinstance(value, str) and value == word:
        return
    number: Any = value
    ok = is_number(value) and not (word and isinstance(value, bool))
    if ok:
        above = number >= low if include in ("both", "low") else number > low
        below = number <= high if include in ("both", "high") else number < high
        try:
            ok = bool(above and below)
        except TypeError as error:
            if not is_of_traced(error):
                raise
            accepted = f"a number in {_interval(low, high, include)} that is known, not traced"
            raise ValueError(f"{field} is {value!r}; accepted: {accepted}") from error
    instead = f"{word!r}, or " if word else ""
    require(ok, field, value, f"{instead}a number in {_interval(low, high, include)}")


def _interval(low: float, high: float, include: str) -> str:
    left = "[" if include in ("both", "low") else "("
    right = "]" if include in ("both", "high") else ")"
    return f"{left}{low}, {high}{right}"


def is_of_traced(error: Exception) -> bool:
    """Whether it is JAX's error of a traced value; JAX is not imported for a check."""
    return type(error).__name__.startswith("Tracer")


def is_number(value: object) -> bool:
    """Whether it is one real number, or an array of them without axes."""
    if isinstance(value, numbers.Real):
        return True
    kind = getattr(getattr(value, "dtype", None), "kind", "V")  # V is bfloat16's
    return getattr(value, "shape", None) == () and kind in "biufV"


def unmasked(field: str, values: object) -> None:
    """Requires that it is no masked array: what lies under the mask would be read."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{field} is a masked array; accepted: an array without a mask")


def real_numbers(field: str, values: object, accepted: str) -> np.ndarray:
    """The array of real numbers in `values`: floating-point ones as they are, others as float64.

    Requires that they are real numbers: words, also of digits, None, complex numbers, dates, masked
    arrays and rows of several lengths are not.
    """
    unmasked(field, values)
    try:
        array = np.asarray(values)
        # NumPy would drop a part of complex numbers, with no more than a warning, and count days.
        if array.dtype.kind in "cmM":
            raise TypeError("complex numbers, or dates")
        # NumPy would read '0.5' as a number and None as NaN.
        is_other = array.dtype.kind in "SU"
        if array.dtype.kind == "O":
            is_other = any(x is None or isinstance(x, _NO_NUMBERS) for x in array.flat)
        if is_other:
            raise TypeError("words, dates, or None")
        return array if array.dtype.kind in "fV" else array.astype(np.float64)  # V is bfloat16's
    except (TypeError, ValueError, OverflowError) as error:
        shown = " ".join(reprlib.repr(values).split())  # the first few of many
        if is_of_traced(error):
            accepted += f", {ON_THE_HOST}"
        raise ValueError(f"{field} is {shown}; accepted: {accepted}") from error


def positive(field: str, value: object) -> None:
    """Requires a finite number above 0."""
    between(field, value, 0, float("inf"), include="neither")


def at_least(field: str, value: object, low: float) -> None:
    """Requires a finite number of at least `low`."""
    between(field, value, low, float("inf"), include="low")


def whole_number(field: str, value: object, low: int) -> None:
    """Requires an integer, which True and False are not, of at least `low`."""
    accepted = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= low
    require(bool(accepted), field, value, f"an integer from {low}")
