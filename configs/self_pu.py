"""Self-PU's experiments: even against odd digits of MNIST, vehicles against animals of CIFAR-10.

    python train.py --config=configs/self_pu.py:task=mnist --config.data.dir=FOLDER

Arguments: task = mnist (default), cifar10-1; calibration = on (default), off (the authors' cheap
version). 1000 labelled positives; U is the whole training set, less, with calibration, the 500
support images that take the place of the authors' test set there. What is picked trains on its own
entropy, `soft_label`, as in the commands beside the published figures. Pixels are standardised; the
authors' of MNIST are between 0 and 1, those of CIFAR-10 less the means of ImageNet.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one task."""
    chosen = common.parse(argument, task=("mnist", "cifar10-1"), calibration=("on", "off"))
    config = config_lib.default_config("self_pu")
    common.set_task(config, chosen["task"])
    config.data.setting = "two_sample"
    config.data.sampling = "uniform"
    config.method.soft_label = True
    config.method.calibration_meta = chosen["calibration"] == "on"
    if not config.method.calibration_meta:
        config.data.num_support = 0
    if chosen["task"] == "mnist":
        config.model.name = "mlp"
        config.model.options = ml_collections.ConfigDict(
            {"batch_norm": True, "initializer": "he_normal"}
        )
    else:
        config.model.name = "cnn13"
        config.model.options = ml_collections.ConfigDict({"initializer": "he_normal"})
    return config
