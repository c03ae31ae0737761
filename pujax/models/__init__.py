"""Network floor: Flax Linen backbones and heads."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from pujax.models import cnn, heads, layers, mlp, resnet, resnet_v1

_BACKBONES = {
    "resnet18": resnet.ResNet18,
    "resnet50": resnet.ResNet50,
    "resnet_small": resnet.ResNetSmall,
    "resnet18_v1": resnet_v1.ResNet18V1,
    "resnet50_v1": resnet_v1.ResNet50V1,
    "cnn7": cnn.CNN7,
    "cnn13": cnn.CNN13,
    "small_cnn": cnn.SmallCNN,
    "mlp": mlp.MLP,
}
NAMES = tuple(_BACKBONES)
FOR_TABLES = ("mlp",)
"""Networks that take rows of numbers `[batch, features]`; the others convolve images."""
DTYPES = ("float32", "bfloat16")

# Fields of a backbone that no option sets: flax's own, `dtype`, and what makes the named net.
_RESERVED = {"parent", "name", "dtype", "block", "layout", "pad"}
# Options that are one of some words.
_WORDS = {"initializer": tuple(layers.INITIALIZERS), "stem": resnet_v1.STEMS}


def build(
    name: str,
    *,
    embedding_dim: int = 128,
    projection: str = "lagam",
    dtype: Any = "float32",
    **options: Any,
) -> heads.PUNet:
    """A network by name, as a config gives it: a backbone with its heads.

    Args:
      name: one of `NAMES`.
      embedding_dim: width of the projection head's embedding; 0 leaves that head out.
      projection: layers of that head, one of `heads.PROJECTIONS`.
      dtype: compute type of the backbone, "float32" or "bfloat16"; parameters are float32.
      **options: fields of the backbone, for instance `hidden=(64,)` for "mlp" or `width=16` for
        "resnet18".

    Returns:
      A `heads.PUNet`, called as `(inputs, train)`.

    Raises:
      ValueError: if the name, an option, the type, the width or the projection is not accepted.
    """
    if name not in _BACKBONES:
        raise ValueError(f"model name is {name!r}; accepted: {', '.join(NAMES)}")
    backbone = _BACKBONES[name]
    if embedding_dim < 0:
        raise ValueError(f"embedding_dim is {embedding_dim!r}; accepted: 0 or a positive number")
    heads.check_projection(projection)
    options = _check_options(name, options)
    return heads.PUNet(backbone(dtype=_compute_type(dtype), **options), embedding_dim, projection)


def count_parameters(params: Any) -> int:
    """Number of trainable numbers in a parameter tree of arrays or `jax.ShapeDtypeStruct`s."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def _check_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options with lists as tuples (modules must be hashable); raises on what is not accepted.

    The type of a field's default is the type that it accepts.
    """
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(_BACKBONES[name])
        if field.name not in _RESERVED
    }
    checked = {}
    for option, value in options.items():
        if option not in defaults:
            raise ValueError(
                f"model.options.{option} is no option of {name!r}; accepted: "
                + ", ".join(sorted(defaults))
            )
        value = tuple(value) if isinstance(value, list) else value
        default = defaults[option]
        if type(value) is not type(default):
            raise ValueError(
                f"model.options.{option} is {value!r}; accepted: a {type(default).__name__},"
                f" for instance {default!r}"
            )
        if value not in _WORDS.get(option, (value,)):
            raise ValueError(
                f"model.options.{option} is {value!r}; accepted: {', '.join(_WORDS[option])}"
            )
        sizes = value if isinstance(value, tuple) else (value,)
        if any(isinstance(size, int) and size < 1 for size in sizes if size is not False):
            raise ValueError(f"model.options.{option} is {value!r}; accepted: positive numbers")
        checked[option] = value
    return checked


def _compute_type(dtype: Any) -> jnp.dtype:
    try:
        resolved = jnp.dtype(dtype)
    except TypeError:
        resolved = None
    if resolved is None or resolved.name not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; accepted: {', '.join(DTYPES)}")
    return resolved
