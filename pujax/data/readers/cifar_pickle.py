"""Unpickles a CIFAR batch: plain values and arrays of numbers, and nothing that a file could abuse.

Python's own unpickler is a machine that a file programs. Refusing what the file may call is not
enough: NumPy's arrays and types take a state, and a forged one gives an array whose memory is
wherever the file says; a nested tuple that is hashed exhausts the stack, and a large number of the
memo takes gigabytes. All of these crash the interpreter, which no `except` can catch. So

- the operations are read first, and only those that a batch is made of may occur, tuples and the
  numbers of the memo within bounds;
- what the file may call are stand-ins, which keep a few plain values and make no object of NumPy's;
- arrays are made afterwards, by `numpy.frombuffer`, of the plain types in `_CODES`.
"""

import io
import pickle
import pickletools
from typing import Any

import numpy as np

_CODES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
"""Types of an array's elements; CIFAR's are u1."""
_ORDERS = ("|", "<", ">", "=")
_MAX_TUPLES = 1000
"""A batch has some twenty."""

_OPERATIONS = frozenset(
    # Of protocol 2, which the originals are in; strings of Python 2 are bytes.
    ["PROTO", "STOP", "MARK", "POP", "POP_MARK", "NONE", "NEWTRUE", "NEWFALSE"]
    + ["INT", "BININT", "BININT1", "BININT2", "LONG1"]
    + ["BINSTRING", "SHORT_BINSTRING", "BINUNICODE"]
    + ["EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS"]
    + ["EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"]
    + ["PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET"]
    + ["GLOBAL", "REDUCE", "BUILD"]
    # Of protocols 3 and 4, for batches that were written again.
    + ["BINBYTES", "SHORT_BINBYTES", "SHORT_BINUNICODE", "FRAME", "MEMOIZE", "STACK_GLOBAL"]
)
_TUPLES = frozenset(["TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"])
_PUTS = frozenset(["PUT", "BINPUT", "LONG_BINPUT"])


def read(content: bytes) -> dict[str, Any]:
    """Reads a pickled dictionary.

    Args:
      content: the whole file.

    Returns:
      Its entries; an array is a NumPy array of whole numbers.

    Raises:
      ValueError: in one line, for a file that is damaged or holds or does anything else.
    """
    _check_operations(content)
    try:
        loaded = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged file makes the unpickler raise errors of many types
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
    if type(loaded) is not dict:
        raise ValueError(f"it is a {type(loaded).__name__}, no dictionary")
    entries = {}
    for key, value in loaded.items():
        name = key.decode("latin1") if isinstance(key, bytes) else key
        if not isinstance(name, str):
            raise ValueError(f"it has an entry called by a {type(name).__name__}")
        entries[name] = value.array() if isinstance(value, _Array) else value
    return entries


def _check_operations(content: bytes) -> None:
    """Raises a ValueError for operations that no batch is made of."""
    tuples = puts = 0
    try:
        for operation, argument, _ in pickletools.genops(content):
            name = operation.name
            if name not in _OPERATIONS:
                raise ValueError(f"its operation {name} is not allowed")
            tuples += name in _TUPLES
            if name in _PUTS:
                puts += 1
                # Original files count from 1, and Python's own from 0.
                if int(argument or 0) > puts:
                    raise ValueError(f"it has remembered {puts} objects and counts {argument}")
            if tuples > _MAX_TUPLES:
                raise ValueError(f"it has more than {_MAX_TUPLES} tuples")
    except ValueError:
        raise
    except Exception as error:  # pickletools has no common base for what it raises
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


class _Array:
    """What the file says of an array: its shape, the type of its elements, and its bytes."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state: tuple[Any, ...] | None = None

    def __setstate__(self, state: Any) -> None:
        if type(state) is not tuple or len(state) != 5 or self._state is not None:
            raise pickle.UnpicklingError("it gives an array another state than NumPy does")
        self._state = state

    def array(self) -> np.ndarray:
        """The array.

        Raises:
          ValueError: the state is not that of a plain array.
        """
        if self._state is None:
            raise ValueError("it holds an array without content")
        _, shape, kind, is_fortran, content = self._state
        is_shape = type(shape) is tuple and len(shape) <= 2
        is_shape = is_shape and all(type(side) is int for side in shape)
        if not is_shape or not isinstance(kind, _Kind) or type(content) is not bytes:
            raise ValueError("it holds an array that is not plain numbers")
        dtype = np.dtype(kind.order + kind.code)
        size = dtype.itemsize
        for side in shape:
            size *= side if 0 <= side <= len(content) else len(content) + 1
        if size != len(content):
            raise ValueError(f"it holds an array of shape {shape} in {len(content)} bytes")
        values = np.frombuffer(content, dtype)
        return values.reshape(shape, order="F" if is_fortran is True else "C")


class _Kind:
    """What the file says of a type: its code and its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        self.code = code
        self.order = "|"

    def __setstate__(self, state: Any) -> None:
        # The rest is of types within types: names, offsets, alignment.
        plain = type(state) is tuple and len(state) == 8 and state[2:] == _PLAIN
        order = _text(state[1]) if plain else None
        if order not in _ORDERS:
            raise pickle.UnpicklingError("it describes a type that is not plain numbers")
        self.order = order


_PLAIN = (None, None, None, -1, -1, 0)


def _text(value: Any) -> Any:
    """Text of Python 2, which arrives as bytes, or of Python 3."""
    return value.decode("latin1") if type(value) is bytes else value


class _Callable:
    """A stand-in for one function or class of NumPy's; it has no attributes that could be set."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any) -> Any:
        if self._name == "_reconstruct" and len(arguments) == 3:
            return _Array()
        if self._name == "dtype" and arguments and _text(arguments[0]) in _CODES:
            return _Kind(_text(arguments[0]))
        # How Python 3 writes bytes in protocol 2.
        if self._name == "encode" and len(arguments) == 2:
            text, encoding = arguments
            if type(text) is str and _text(encoding) == "latin1":
                return text.encode("latin1")
        raise pickle.UnpicklingError(f"it calls {self._name} in a way that is not allowed")

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError(f"it gives {self._name} a state, which is not allowed")


_GLOBALS = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
    ("numpy.core.multiarray", "_reconstruct"): "_reconstruct",
    ("numpy._core.multiarray", "_reconstruct"): "_reconstruct",
}


class _Unpickler(pickle.Unpickler):
    """Unpickles plain values and stand-ins."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in of one of the few names that a pickled array refers to."""
        known = _GLOBALS.get((module, name))
        if known is None:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not allowed")
        return _Callable(known)
