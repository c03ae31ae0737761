"""LaGAM on CIFAR, the headline experiment: 1000 labelled positives, 500 support images, 400 epochs.

    python train.py --config=configs/lagam_cifar.py
    python train.py --config=configs/lagam_cifar.py:task=cifar10-2,backbone=cnn7

Arguments: task = cifar10-1 (default), cifar10-2, cifar100-1, cifar100-2; backbone = resnet18
(default), cnn7, cnn13. Published (mean of 5 runs): 96.2, 96.1, 92.1, 86.6 with ResNet-18; 89.6,
90.6 with the 7-layer CNN on CIFAR-10; 92.6, 85.9 with the 13-layer CNN on CIFAR-100.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one task and backbone."""
    chosen = common.parse(
        argument,
        task=("cifar10-1", "cifar10-2", "cifar100-1", "cifar100-2"),
        backbone=("resnet18", "cnn7", "cnn13"),
    )
    config = config_lib.default_config("lagam")
    common.set_task(config, chosen["task"])
    config.model.name = chosen["backbone"]
    # The authors' command lines: 5 clusters on CIFAR-10, 100 on CIFAR-100.
    config.method.num_clusters = 5 if config.data.source == "cifar10" else 100
    config.method.threshold = "zero"  # as published
    return config
