"""PU-MLC on Pascal VOC 2007 and MS-COCO 2014 at 448 pixels, as its authors train it.

    python train.py --config=configs/pu_mlc_voc.py --config.data.known_ratio=0.1 \\
        --config.data.dir=VOC2007 --config.model.init=resnet101.safetensors

Arguments: data = voc (default), coco; method = pu_mlc (default), assume_negative, partial_bce,
asymmetric, multilabel_supervised; lgconv = on (default), off; head = gap (default), semantic_graph
(that of the released network and so of the published figures; it needs an .npy file as
--config.method.word_vectors); precision = float32 (default), bfloat16.

Without `model.init` the network starts from random weights and all of it trains, which no figure of
the paper is about; with it, the stem, three stages and the statistics of all batch norm stay fixed,
as in the authors' code, whose last stage trains scale and bias, too.

The exponent gamma is published at 10 % known labels only (VOC 0.85, COCO 0.55), and set so at every
ratio; at larger ones it should be smaller, as with `--config.method.gamma=auto`. A batch is that of
the authors' two GPUs, and its halves keep statistics of their own (`method.num_groups`); where it
does not divide over your devices, each of them computes all of it: take 96 or 72 on eight
(`--config.method.batch_size=96`). The one-cycle schedule is laid out for 80 epochs and left early,
as theirs. All test images count; theirs drop the last partial batch.
"""

import ml_collections

from pujax.configs import common, pu_mlc
from pujax.training import config as config_lib

_DATA = {
    "voc": {"source": "voc2007"},
    "coco": {"source": "coco2014"},
}
_TRAINING = {
    "voc": {"num_epochs": 56, "batch_size": 90, "learning_rate": 4e-5, "average_decay": 0.991},
    "coco": {"num_epochs": 41, "batch_size": 70, "learning_rate": 1e-4, "average_decay": 0.9997},
}
_RISK = {"voc": {"gamma": 0.85, "alpha": 2.0}, "coco": {"gamma": 0.55, "alpha": 1.0}}


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one data set and method."""
    chosen = common.parse(
        argument,
        data=tuple(_DATA),
        method=pu_mlc.METHODS,
        lgconv=("on", "off"),
        head=("gap", "semantic_graph"),
        precision=("float32", "bfloat16"),
    )
    data = chosen["data"]
    config = config_lib.default_config(chosen["method"])
    config.data.update({**_DATA[data], "image_size": 448, "load_size": 512, "known_seed": 0})
    config.model.update({"name": "resnet101_v1", "dtype": chosen["precision"]})
    options = {"lgconv": chosen["lgconv"] == "on", "width": 64, "stem": "imagenet"}
    config.model.options = ml_collections.ConfigDict(options)
    config.method.update(
        {
            **_TRAINING[data],
            "weight_decay": 1e-4,
            "lr_schedule": "one_cycle",
            "lr_cycle_epochs": 80,
            "head": chosen["head"],
            "frozen_stages": -1,
            "freeze_norm": "auto",
            "crop_sizes": (512, 448, 384, 320, 256),
        }
    )
    if chosen["method"] == "pu_mlc":
        config.method.update({**_RISK[data], "num_groups": 2})
    # The published figure is that of the best epoch, so every epoch is evaluated.
    config.run.update({"eval_every": 1, "eval_batch_size": 64, "checkpoint_every": 1})
    return config
