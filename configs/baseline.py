"""Baselines on any task: the naive classifier and the supervised upper bound.

    python train.py --config=configs/baseline.py:method=supervised,task=cifar10-1,backbone=resnet18

Arguments: method = naive (default), supervised; task = digits (default) or any name in
configs/common.py; backbone = small_cnn (default) or any name in pujax/models.
"""

import ml_collections

from configs import common
from pujax import models
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one method, task and backbone."""
    others = tuple(name for name in models.NAMES if name != "small_cnn")
    chosen = common.parse(
        argument,
        method=("naive", "supervised"),
        task=tuple(common.TASKS),
        backbone=("small_cnn", *others),
    )
    config = config_lib.default_config(chosen["method"])
    common.set_task(config, chosen["task"])
    config.model.name = chosen["backbone"]
    return config
