"""nnPU, uPU, imbalanced nnPU and nnPUSB in their authors' protocols.

    python train.py --config=configs/nnpu.py:method=nnpu,task=mnist --config.data.dir=FOLDER

Arguments: method = nnpu (default), upu, imbalanced_nnpu, pusb; task = mnist (default; even digits
positive), cifar10 (vehicles positive); for imbalanced_nnpu one class is, the threes or airplanes.
Case-control data: 1000 labelled positives, U is the whole training set. Batches are drawn from P
and U together but for imbalanced_nnpu, whose authors take 10 of P and 500 of U. Pixels are those of
the authors, between 0 and 1. Networks begin as those of PyTorch do, not as the authors' of nnPU,
see `pujax/models/layers.py`. For pusb the authors take the posterior that biases the labels from
the network, trained on all data, here it is a logistic regression's, whose labels are more biased;
and they find the threshold on the scores of the test set, here it is found on those of U
(`method.threshold_on`).
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib

_MODELS = {"mnist": "mlp", "cifar10": "cnn13"}
_RARE = {"mnist": 3, "cifar10": 0}
"""The one positive class of imbalanced nnPU, a tenth of the images."""
# Learning rate and batch size of Kiryo et al. (2017) and of Kato et al. (2019).
_RATES = {
    "nnpu": {"mnist": (1e-3, 30_000), "cifar10": (1e-5, 500)},
    "pusb": {"mnist": (1e-5, 1000), "cifar10": (1e-5, 224)},
}


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one method and task."""
    chosen = common.parse(
        argument,
        method=("nnpu", "upu", "imbalanced_nnpu", "pusb"),
        task=("mnist", "cifar10"),
    )
    name, task = chosen["method"], chosen["task"]
    config = config_lib.default_config(name)
    common.set_task(config, "cifar10-1" if task == "cifar10" else "mnist")
    config.data.update({"num_support": 0, "setting": "two_sample", "sampling": "uniform"})
    config.data.scaling = "unit"
    config.model.name = _MODELS[task]
    if task == "mnist":
        config.model.options = ml_collections.ConfigDict({"batch_norm": True})
    if name == "imbalanced_nnpu":
        config.method.num_epochs = 200
        config.data.positive_classes = (_RARE[task],)
        return config
    rate, batch_size = _RATES.get(name, _RATES["nnpu"])[task]
    config.method.update(
        {"learning_rate": rate, "batch_size": batch_size, "batching": "joint", "num_epochs": 100}
    )
    if name == "nnpu":
        config.method.keep_positive = False  # Algorithm 1
    if name == "pusb":
        config.data.labeling = "pusb"
    return config
