"""Your own images: from one folder to ranked, calibrated predictions (docs/your_own_data.md).

    python train.py --config=configs/own_folder.py --config.data.path=FOLDER

FOLDER holds positive/ and unlabeled/, and if you like negative/ and test/. Writes predictions.csv
for the unlabeled images, and model/ for `python -m pujax.predict`. Arguments: method = nnpu
(default) or any other name in pujax/methods that needs no hidden label (lagam takes the images of
negative/); backbone = small_cnn (default), another name in pujax/models that takes images, or
saved, the network of the run that init_from names.

Images become 64 x 64 pixels (data.image_size). The network is the small one of three convolutions,
with 16, 32 and 64 channels: 13 million multiplications per image, so that two cores of a CPU train
on some thousand images in minutes, where a ResNet-18 needs over a hundred times as many, and more
labelled positives (on a GPU: backbone=resnet18, and method.augment=True for random views).
"""

import ml_collections

from pujax import models
from pujax.configs import common
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration: a small network, a fifth held out, and a prior that is estimated."""
    num_epochs = config_lib.OWN_EPOCHS["own_folder"]
    for_images = [x for x in models.NAMES if x not in ("small_cnn", *models.FOR_TABLES)]
    config, chosen = common.own_rows(
        argument,
        source="own_folder",
        num_epochs=num_epochs,
        backbone=("small_cnn", *for_images, config_lib.SAVED),
    )
    config.model.name = chosen["backbone"]
    if chosen["backbone"] == "small_cnn":
        config.model.options.channels = (16, 32, 64)
    if chosen["method"] == "gradpu":
        common.suit_gradpu(config)
    config.run.compare = ""
    return config
