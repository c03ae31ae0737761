"""LaGAM on Alzheimer MRI slices: dementia of any degree against none.

    python train.py --config=configs/lagam_alzheimer.py --config.data.dir=FOLDER

FOLDER holds train/CLASS/*.jpg and test/CLASS/*.jpg. Arguments: backbone = resnet50 (default, the
paper's), resnet18, cnn7. The paper states neither its positive classes nor its split, and its row
(accuracy 77.8, F1 84.5) cannot have been scored on a balanced test set, so it is no target.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one backbone."""
    chosen = common.parse(argument, backbone=("resnet50", "resnet18", "cnn7"))
    config = config_lib.default_config("lagam")
    common.set_task(config, "alzheimer")
    config.model.name = chosen["backbone"]
    config.method.threshold = "zero"  # as published
    return config
