"""Network floor: Flax Linen backbones and heads."""

import dataclasses
import math
import numbers
from typing import Any

import jax
import jax.numpy as jnp

from pujax import checks
from pujax.models import cnn, heads, layers, mlp, multilabel, resnet, resnet_v1

_BACKBONES = {
    "resnet18": resnet.ResNet18,
    "resnet50": resnet.ResNet50,
    "resnet_small": resnet.ResNetSmall,
    "resnet18_v1": resnet_v1.ResNet18V1,
    "resnet50_v1": resnet_v1.ResNet50V1,
    "resnet101_v1": resnet_v1.ResNet101V1,
    "lenet": cnn.LeNet,
    "cnn7": cnn.CNN7,
    "cnn9": cnn.CNN9,
    "cnn13": cnn.CNN13,
    "small_cnn": cnn.SmallCNN,
    "mlp": mlp.MLP,
}
NAMES = tuple(_BACKBONES)
FOR_TABLES = ("mlp",)
"""Networks that take rows of numbers `[batch, features]`; the others convolve images."""
WITH_MAPS = tuple(name for name, backbone in _BACKBONES.items() if hasattr(backbone, "pool"))
"""Networks that can put out their last feature map instead of a vector."""
DTYPES = ("float32", "bfloat16")
MAX_WIDTH = 2**16
"""Of a layer: its weights would fill the memory of any device."""
RANDOM = "random"
"""`model.init` of a network that starts from no file."""

# Fields of a backbone that no option sets: flax's own, `dtype`, and what makes the named net.
_RESERVED = {"parent", "name", "dtype", "block", "layout", "pad", "pool"}
# Lists that may be empty: a network without hidden layers is a linear one.
_MAY_BE_EMPTY = {"hidden"}
# Shares, which may be 0 and are less than 1.
_SHARES = {"dropout"}
# Options that are one of some words.
_WORDS = {
    "initializer": tuple(layers.INITIALIZERS),
    "pooling": resnet.POOLINGS,
    "stem": resnet_v1.STEMS,
}


def build(
    name: str,
    *,
    embedding_dim: int = 128,
    projection: str = "lagam",
    aligned_dim: int = 0,
    dtype: Any = "float32",
    **options: Any,
) -> heads.PUNet:
    """A network by name, as a config gives it: a backbone with its heads.

    Args:
      name: one of `NAMES`.
      embedding_dim: width of the projection head's embedding; 0 leaves that head out.
      projection: layers of that head, one of `heads.PROJECTIONS`.
      aligned_dim: width of the heads for alignment; 0 leaves them out.
      dtype: compute type of the backbone, "float32" or "bfloat16"; parameters are float32.
      **options: fields of the backbone, for instance `hidden=(64,)` for "mlp" or `width=16` for
        "resnet18".

    Returns:
      A `heads.PUNet`, called as `(inputs, train)`.

    Raises:
      ValueError: if the name, an option, the type, the width or the projection is not accepted.
    """
    backbone = _backbone_class(name)
    for field, width in (("embedding_dim", embedding_dim), ("aligned_dim", aligned_dim)):
        checks.whole_number(field, width, 0)
        checks.require(width <= MAX_WIDTH, field, width, f"an integer from 0 up to {MAX_WIDTH}")
    heads.check_projection(projection)
    options = check_options(name, options)
    built = backbone(dtype=_compute_type(dtype), **options)
    return heads.PUNet(built, embedding_dim, projection, aligned_dim)


def build_multilabel(
    name: str,
    *,
    num_classes: int,
    head: str = "gap",
    reduced_width: int = 1024,
    attention_width: int = 512,
    graph_steps: int = 3,
    dtype: Any = "float32",
    **options: Any,
) -> multilabel.MultilabelNet:
    """A network with one logit per category by name, as a config gives it.

    Args:
      name: one of `NAMES`; one of `WITH_MAPS` for the head "semantic_graph".
      num_classes: number of categories.
      head: one of `multilabel.HEADS`.
      reduced_width: channels of the category vectors; this and the next two are of the head
        "semantic_graph", their defaults those of PU-MLC.
      attention_width: of the space in which that head compares positions and words.
      graph_steps: rounds of messages between categories.
      dtype: compute type of the backbone and of that head's large products, "float32" or
        "bfloat16"; parameters are float32.
      **options: fields of the backbone, as for `build`.

    Returns:
      A `multilabel.MultilabelNet`, called as `(inputs, train, constants=...)`.

    Raises:
      ValueError: if the name, the head, a number, an option or the type is not accepted, or the
        head takes feature maps and the network has none.
    """
    backbone = _backbone_class(name)
    multilabel.check_head(head)
    if head == "semantic_graph" and name not in WITH_MAPS:
        raise ValueError(
            f"head is {head!r}, and {name!r} has no feature map; accepted: head='gap', or one of "
            + ", ".join(WITH_MAPS)
        )
    widths: dict[str, Any] = {
        "num_classes": num_classes,
        "reduced_width": reduced_width,
        "attention_width": attention_width,
        "graph_steps": graph_steps,
    }
    for field, value in widths.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"{field} is {value!r}; accepted: a positive whole number")
        checks.between(field, value, 1, MAX_WIDTH)
    fixed = {"pool": False} if head == "semantic_graph" else {}
    options = check_options(name, options)
    dtype = _compute_type(dtype)
    return multilabel.MultilabelNet(
        backbone(dtype=dtype, **options, **fixed), head=head, dtype=dtype, **widths
    )


def count_parameters(params: Any) -> int:
    """Number of trainable numbers in a parameter tree of arrays or `jax.ShapeDtypeStruct`s."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def _backbone_class(name: str) -> Any:
    if name not in _BACKBONES:
        raise ValueError(f"model name is {name!r}; accepted: {', '.join(NAMES)}")
    return _BACKBONES[name]


def check_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options with lists as tuples, since modules must be hashable.

    The type of a field's default is the type that it accepts, and so are those of its items.

    Args:
      name: one of `NAMES`.
      options: as `build` takes them.

    Raises:
      ValueError: naming the option that there is not, or its value and what is accepted.
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
                + " (model.options={} leaves out all that a configuration has for another network)"
            )
        value = tuple(value) if isinstance(value, list) else value
        default = defaults[option]
        is_right = type(value) is type(default)
        if is_right and isinstance(default, tuple):
            is_right = {type(item) for item in value} <= set(map(type, default))
            is_right = is_right and (len(value) > 0 or option in _MAY_BE_EMPTY)
        if not is_right:
            raise ValueError(
                f"model.options.{option} is {value!r}; accepted: a {type(default).__name__},"
                f" for instance {default!r}"
            )
        if value not in _WORDS.get(option, (value,)):
            raise ValueError(
                f"model.options.{option} is {value!r}; accepted: {', '.join(_WORDS[option])}"
            )
        if option in _SHARES:
            checks.between(f"model.options.{option}", value, 0, 1, include="low")
        sizes = value if isinstance(value, tuple) else (value,)
        if any(isinstance(size, int) and size < 1 for size in sizes if size is not False):
            raise ValueError(f"model.options.{option} is {value!r}; accepted: positive numbers")
        if any(isinstance(size, int) and size > MAX_WIDTH for size in sizes):
            raise ValueError(
                f"model.options.{option} is {value!r}; accepted: numbers up to {MAX_WIDTH}"
            )
        checked[option] = value
    drops, hidden = (checked.get(name, defaults.get(name)) for name in ("dropout", "hidden"))
    accepted = "0.0 without a hidden layer, whose outputs it drops"
    checks.require(not drops or bool(hidden), "model.options.dropout", drops, accepted)
    return checked


def _compute_type(dtype: Any) -> jnp.dtype:
    try:
        resolved = jnp.dtype(dtype)
    except TypeError:
        resolved = None
    if resolved is None or resolved.name not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; accepted: {', '.join(DTYPES)}")
    return resolved
