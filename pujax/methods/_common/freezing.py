"""Parts of a network that do not train.

Frozen parameters get updates of zero and no moments. What a gradient with respect to them would
cost is not computed: nothing reads it, so that the compiler drops it, and with it all of the
backward pass below the first layer that trains.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import ml_collections
import optax
from flax import traverse_util

from pujax import checks, models
from pujax.models.lgconv import GLOBAL_BRANCH

_STEM = re.compile(r"backbone/(stem|stem_norm)/")
_STAGE = re.compile(r"backbone/stage(\d+)_block\d+/")
_PUBLISHED_STAGES = 3
_NORMS = ("off", "on", "auto")


def default_config() -> dict[str, Any]:
    """Fields of every method."""
    return {
        # Stages of a residual network that do not train, from the stem on; -1 is 3 for a network
        # that starts from other weights, 0 for a fresh one.
        "frozen_stages": 0,
        "freeze_norm": "off",  # or 'on', running statistics in training too; 'auto' as above
    }


def resolved(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """The whole configuration with numbers in place of -1 and 'auto'.

    Raises:
      ValueError: for a setting that cannot be.
    """
    c = config.method
    checks.at_least("method.frozen_stages", c.frozen_stages, -1)
    checks.one_of("method.freeze_norm", c.freeze_norm, _NORMS)
    if c.frozen_stages >= 0 and c.freeze_norm != "auto":
        return config
    is_fresh = config.model.init == models.RANDOM and not config.init_from
    changed = ml_collections.ConfigDict(config.to_dict())
    if c.frozen_stages < 0:
        changed.method.frozen_stages = 0 if is_fresh else _PUBLISHED_STAGES
    if c.freeze_norm == "auto":
        changed.method.freeze_norm = "off" if is_fresh else "on"
    return ml_collections.FrozenConfigDict(changed)


def trainable_path(frozen_stages: int) -> Callable[[str], bool]:
    """Which parameters of a residual network train.

    Frozen are the stem and the first stages of the backbone, convolutions as well as scale and bias
    of batch norm, as in PU-MLC. The global branches of LgConv, which no pretrained file has, train
    in all stages.

    Args:
      frozen_stages: how many stages are frozen, 3 in PU-MLC's experiments; with 0 nothing is, the
        stem included.

    Returns:
      A function of the path of a parameter, its keys joined by "/", such as
      "backbone/stage1_block1/conv1/kernel".

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
        if frozen_stages == 0 or GLOBAL_BRANCH in path.split("/"):
            return True
        stage = _STAGE.match(path)
        is_frozen = _STEM.match(path) or (stage and int(stage[1]) <= frozen_stages)
        return not is_frozen

    return is_trainable


def trainable(params: Any, frozen_stages: int) -> Any:
    """For every parameter whether it trains, in a tree like `params` (nested dicts)."""
    is_trainable = trainable_path(frozen_stages)
    return jax.tree_util.tree_map_with_path(lambda path, _: is_trainable(joined(path)), params)


def joined(path: tuple[Any, ...]) -> str:
    """The key path of a leaf of nested dicts as one string."""
    return "/".join(str(entry.key) for entry in path)


def freeze(
    optimizer: optax.GradientTransformationExtraArgs, frozen_stages: int
) -> optax.GradientTransformationExtraArgs:
    """The optimizer for what trains alone; the updates of frozen parameters are zero."""
    if not frozen_stages:
        return optimizer

    def labels(params: Any) -> Any:
        return jax.tree.map(
            lambda trains: "trains" if trains else "frozen", trainable(params, frozen_stages)
        )

    return optax.partition({"trains": optimizer, "frozen": optax.set_to_zero()}, labels)


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
