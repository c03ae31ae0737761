"""PU-MLC and what it is compared with on small multi-label data.

    python train.py --config=configs/pu_mlc.py:data=emotions --config.data.dir=FILE.npz

Arguments: data = scene (default), yeast, emotions (tables; an .npz file with X_train, Y_train,
X_test, Y_test), voc5 (64 pixels), coco128 (96 pixels), own_table, own_images (files of images,
streamed; see docs/your_own_data.md); method = pu_mlc (default), assume_negative, partial_bce,
asymmetric, multilabel_supervised; lgconv = on (default), off, of the residual network for images.

The settings are not a paper's. For tables they are one hidden layer of 256 and a learning rate of
3e-4, the best of 1e-3, 3e-4 and 1e-4 for PU-MLC on a fifth of the training rows held out with all
their labels (scene and emotions, a tenth of the other labels known; never the test set). For
images they are a ResNet-18 of a quarter of the width, from random weights.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib

METHODS = ("pu_mlc", "assume_negative", "partial_bce", "asymmetric", "multilabel_supervised")
TABLES = ("scene", "yeast", "emotions", "own_table")
_CROPS = {
    "voc5": (64, 56, 48, 40),
    "coco128": (96, 84, 72, 60),
    "own_images": (256, 224, 192, 160, 128),
}
# An epoch has 3, 4 or unknown steps: averages of 0.99 would be mostly the first weights.
_SHORT = ("emotions", "coco128", "own_table", "own_images")


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one data set and method."""
    chosen = common.parse(argument, data=(*TABLES, *_CROPS), method=METHODS, lgconv=("on", "off"))
    data = chosen["data"]
    config = config_lib.default_config(chosen["method"])
    config.data.source = "multilabel"
    if data in _SHORT:
        config.method.average_decay = 0.9
    if data in TABLES:
        config.model.name = "mlp"
        config.model.options = ml_collections.ConfigDict({"hidden": (256,)})
        config.method.update({"augment": False, "num_epochs": 60, "batch_size": 128})
        config.method.learning_rate = 3e-4
        config.run.update({"eval_every": 10, "checkpoint_every": 60})
        return config
    config.model.name = "resnet18_v1"
    width = 64 if data == "own_images" else 16
    options = {"lgconv": chosen["lgconv"] == "on", "width": width, "stem": "imagenet"}
    config.model.options = ml_collections.ConfigDict(options)
    config.method.update({"crop_sizes": _CROPS[data], "num_epochs": 30, "batch_size": 32})
    config.method.learning_rate = 1e-3
    config.run.eval_every = 5
    return config
