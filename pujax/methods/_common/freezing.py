"""Parts of a network that do not train, taken out of what is differentiated.

The trainable parameters are a tree of their own. The gradient is taken with respect to it alone, so
that XLA drops the gradients of the frozen kernels, and all of the backward pass below the first
layer that trains; the optimizer keeps no moments and applies no weight decay to the rest.
"""

import re
from collections.abc import Callable
from typing import Any

from flax import traverse_util

from pujax import checks

_STEM = re.compile(r"backbone/(stem|stem_norm)/")
_STAGE = re.compile(r"backbone/stage(\d+)_block\d+/")
_GLOBAL_BRANCH = "global_branch"


def split(params: Any, is_trainable: Callable[[str], bool]) -> tuple[Any, Any]:
    """Sorts the leaves of a tree of parameters into two trees.

    Args:
      params: nested dicts of arrays.
      is_trainable: takes the path of a leaf, its keys joined by "/", such as
        "backbone/stage1_block1/conv1/kernel".

    Returns:
      `(trainable, frozen)`, nested dicts that hold the leaves at their old places and nothing else.
    """
    parts = {}, {}
    for path, leaf in traverse_util.flatten_dict(params, keep_empty_nodes=True).items():
        # An empty dict has nothing to train and is kept so that `merge` restores it.
        trains = leaf is not traverse_util.empty_node and is_trainable("/".join(path))
        parts[0 if trains else 1][path] = leaf
    trainable, frozen = map(traverse_util.unflatten_dict, parts)
    return trainable, frozen


def merge(trainable: Any, frozen: Any) -> Any:
    """Puts two trees of `split` together again.

    Args:
      trainable: nested dicts of arrays.
      frozen: nested dicts of arrays at other places.

    Returns:
      One tree of nested dicts.

    Raises:
      ValueError: for a leaf that is in both trees.
    """
    here, there = (
        traverse_util.flatten_dict(tree, keep_empty_nodes=True) for tree in (trainable, frozen)
    )
    twice = sorted("/".join(path) for path in here.keys() & there.keys())
    if twice:
        raise ValueError(
            f"{twice[0]} is in both trees, as are {len(twice) - 1} others; accepted: two trees "
            "without a common leaf"
        )
    return traverse_util.unflatten_dict(here | there)


def trainable_path(frozen_stages: int) -> Callable[[str], bool]:
    """Which parameters of a residual network train in PU-MLC.

    Frozen are the stem and the first stages of the backbone, convolutions as well as scale and bias
    of batch norm. The global branches of LgConv, which no pretrained file has, train in all stages.

    Args:
      frozen_stages: how many stages are frozen, 3 in the paper's experiments; with 0 nothing is,
        the stem included.

    Returns:
      The `is_trainable` of `split`.

    Raises:
      ValueError: for a number of stages that cannot be.
    """
    checks.require(
        isinstance(frozen_stages, int) and not isinstance(frozen_stages, bool),
        "method.frozen_stages",
        frozen_stages,
        "a whole number",
    )
    checks.at_least("method.frozen_stages", frozen_stages, 0)

    def is_trainable(path: str) -> bool:
        if frozen_stages == 0 or _GLOBAL_BRANCH in path.split("/"):
            return True
        stage = _STAGE.match(path)
        is_frozen = _STEM.match(path) or (stage and int(stage[1]) <= frozen_stages)
        return not is_frozen

    return is_trainable


def check_stages(params: Any, frozen_stages: int) -> None:
    """Requires the backbone to have the stages that are to be frozen.

    Without it a backbone of other layers, a perceptron say, would train as a whole unnoticed.

    Args:
      params: parameters of the whole network, nested dicts.
      frozen_stages: as in `trainable_path`.

    Raises:
      ValueError: naming how many stages there are.
    """
    paths = traverse_util.flatten_dict(params, sep="/")
    stages = [int(stage[1]) for path in paths if (stage := _STAGE.match(path))]
    most = max(stages, default=0)
    checks.require(
        frozen_stages <= most,
        "method.frozen_stages",
        frozen_stages,
        f"0 to {most}, the stages of this backbone",
    )
