"""Robust-PU in its authors' protocol: P and U are drawn, and U and the test set have a given prior.

    python train.py --config=configs/robust_pu.py:data=mushrooms,prior=0.2 --config.data.dir=FOLDER

Arguments: data = mushrooms (default), spambase, mnist (even digits positive), cifar10 (0, 1, 8, 9
positive); prior = 0.2 (default), 0.4, 0.6; schedule = default, the method's own, or published, the
authors' command on MNIST: episodes of twenty epochs at a rate of 0.01, up to a hundred until five
in a row bring no higher accuracy on labelled validation data, of which twenty are trained here,
since tolerances stay after the fifth. The commands for other sets are not known. nnPU is that of
the same command with either schedule, but that its correction steps keep the positive part
(`method.keep_positive`). Pixels and the columns of mushrooms are not standardised, as there; those
of Spambase are: as they are, nnPU calls every row negative (docs/results/other_methods.md).

What differs from the authors' protocol: they choose the epoch, and that of nnPU, by true labels of
100 examples, 500 of images, which may be training examples, too. Here as many are held out besides
P and U, labelled positives among them, and an epoch of nnPU is chosen by the proxy accuracy;
`run.selection=oracle` chooses the result by the true labels of the held-out part of U, 62 to 83 of
the 100. The test set is the largest with the share of positives of U, in place of 1,000 rows and
5,000 images. Both stages have batches of one size, 128; in the authors' command the episodes have
64. The perceptron starts from He's weights, theirs from Glorot's.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib

# Source, positive classes, P, U and held-out examples, network and its options.
_MLP = {"hidden": (100,), "initializer": "he_normal"}
_DATA = {
    "mushrooms": ((1,), 400, 800, 100, "mlp", _MLP),
    "spambase": ((1,), 400, 800, 100, "mlp", _MLP),
    "mnist": ((0, 2, 4, 6, 8), 2000, 4000, 500, "mlp", _MLP),
    "cifar10": ((0, 1, 8, 9), 2000, 4000, 500, "cnn13", {"initializer": "he_normal"}),
}
PRIORS = ("0.2", "0.4", "0.6")
_PUBLISHED = {"learning_rate": 1e-2, "episode_epochs": 20, "num_epochs": 500}


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one data set, class prior and schedule."""
    chosen = common.parse(
        argument, data=tuple(_DATA), prior=PRIORS, schedule=("default", "published")
    )
    positive_classes, num_p, num_u, held_out, network, options = _DATA[chosen["data"]]
    config = config_lib.default_config("robust_pu")
    config.data.update(
        {
            "source": chosen["data"],
            "positive_classes": positive_classes,
            "setting": "two_sample",
            "sampling": "uniform",
            "num_labeled": num_p,
            "num_unlabeled": num_u,
            "num_validation": held_out,
            "scaling": "standard" if chosen["data"] == "spambase" else "unit",
        }
    )
    config.data.class_prior = float(chosen["prior"])
    config.model.name = network
    config.model.options = ml_collections.ConfigDict(options)
    config.method.update({"batching": "joint", "positive_share": 0.0})
    config.method.augment = False
    if chosen["schedule"] == "published":
        config.method.update(_PUBLISHED)
    return config
