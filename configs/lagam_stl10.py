"""LaGAM on STL-10: 1000 labelled positives, 103,500 unlabeled images of 96 pixels, 400 epochs.

    python train.py --config=configs/lagam_stl10.py:task=stl10-2

Arguments: task = stl10-1 (default), stl10-2; backbone = resnet18 (default), cnn7. Published (mean
of 5 runs): 88.5, 88.1 with ResNet-18; 87.5, 81.9 with the 7-layer CNN.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one task and backbone."""
    chosen = common.parse(argument, task=("stl10-1", "stl10-2"), backbone=("resnet18", "cnn7"))
    config = config_lib.default_config("lagam")
    common.set_task(config, chosen["task"])
    config.model.name = chosen["backbone"]
    config.method.threshold = "zero"  # as published
    return config
