"""LaGAM on your own images in folders; docs/your_own_data.md says how to lay them out.

    python train.py --config=configs/lagam_image_folder.py --config.data.dir=FOLDER

Set data.positive_classes, data.num_labeled and data.num_support to what the folder holds. Argument:
backbone = resnet18 (default), small_cnn, cnn7, resnet50.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration; 64 pixels until overridden, and the class positive that is called so."""
    chosen = common.parse(argument, backbone=("resnet18", "small_cnn", "cnn7", "resnet50"))
    config = config_lib.default_config("lagam")
    config.data.update(
        {
            "source": "image_folder",
            "image_size": 64,
            "positive_classes": (),  # the class called positive; else by name: ('sick',)
            "num_labeled": 100,
            "num_support": 60,
        }
    )
    config.model.name = chosen["backbone"]
    config.method.support_batch_size = 60
    config.method.num_epochs = 100
    config.method.warmup_epochs = 10
    config.method.lr_drops = (70, 85)
    return config
