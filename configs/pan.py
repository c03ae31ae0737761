"""PAN: a classifier and a discriminator that tell P from U against each other; no class prior.

    python train.py --config=configs/pan.py:task=mnist --config.data.dir=FOLDER

Arguments: task = cifar10-1 (default, vehicles positive), mnist (even digits positive),
fashion_mnist (classes 0, 2, 4, 6, 8 positive); 1000 labelled positives, taken out of U. Published
for cifar10-1 with the 7-layer CNN (mean of 5 runs in the LaGAM paper): 87.0. It trains on all
examples, as published; the other tasks hold out 500 that choose the epoch without a negative label,
since the last one may be of no use (docs/results/defaults.md). None is set aside as clean support.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one task."""
    chosen = common.parse(argument, task=("cifar10-1", "mnist", "fashion_mnist"))
    config = config_lib.default_config("pan")
    common.set_task(config, chosen["task"])
    config.model.name = "cnn7" if chosen["task"] == "cifar10-1" else "small_cnn"
    config.data.num_support = 0
    config.method.threshold = "zero"  # as published
    if chosen["task"] != "cifar10-1":
        common.hold_out(config, chosen["task"])
    return config
