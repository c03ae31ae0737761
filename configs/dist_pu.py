"""Dist-PU's own experiments: 1000 labelled positives, and U is the whole training set.

    python train.py --config=configs/dist_pu.py:task=fashion_mnist --config.data.dir=FOLDER

Arguments: task = cifar10-1 (default; vehicles positive), fashion_mnist (classes 0, 2, 4, 6
positive, which is not GradPU's choice), alzheimer (dementia of any degree positive). Networks are
the authors': 13-layer CNN, perceptron with batch norm, torchvision's ResNet-50 from random weights.
Pixels are normalised as elsewhere in this package; the authors have ImageNet's mean and deviation
for photographs and slices. Their accuracies, as recalled: 91.88, 95.40, 71.57. Their script also
prints the best test epoch, which no rule here may report. Comparisons on other protocols go through
configs/baseline.py:method=dist_pu.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib

_TASKS = {
    "cifar10-1": {"source": "cifar10", "positive_classes": (0, 1, 8, 9)},
    "fashion_mnist": {"source": "fashion_mnist", "positive_classes": (0, 2, 4, 6)},
    "alzheimer": {"source": "alzheimer", "image_size": 224, "positive_classes": (0, 1, 3)},
}
_MODELS = {
    "cifar10-1": ("cnn13", {"initializer": "he_normal"}),
    "fashion_mnist": ("mlp", {"batch_norm": True, "initializer": "he_normal"}),
    "alzheimer": ("resnet50_v1", {}),
}


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one task."""
    task = common.parse(argument, task=tuple(_TASKS))["task"]
    config = config_lib.default_config("dist_pu")
    config.data.update(_TASKS[task])
    config.data.update({"num_labeled": 1000, "setting": "two_sample", "sampling": "uniform"})
    config.model.name, options = _MODELS[task]
    config.model.options = ml_collections.ConfigDict(options)
    if config.model.name == "mlp":
        # Dense layers only, so a rolled loop is fast on a CPU too; 238 steps an epoch.
        config.run.steps_per_dispatch = 34
    return config
