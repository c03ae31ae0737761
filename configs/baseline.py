"""Any method with its own defaults on any task.

    python train.py --config=configs/baseline.py:method=nnpu,task=fashion_mnist,setting=two_sample

Arguments: method = naive (default) or any name in pujax/methods but those for several labels per
example (see configs/pu_mlc.py), or a module of your own, such as mypackage.mine
(docs/adding_a_method.md); task = digits (default) or any name in configs/common.py;
backbone = auto (default: small_cnn for images, mlp for tables) or any name in pujax/models;
setting = one_sample (default), two_sample. Methods whose last epoch is well below their best one
hold out 500 examples, of digits 100, that choose the epoch without a negative label
(docs/methods.md, "Which epoch is reported"); not on tasks that take labels in the order of files.
Methods with experiments of their own have a file of their own.
"""

from collections.abc import Sequence

import ml_collections

from pujax import methods, models
from pujax.configs import common
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one method, task, backbone and setting."""
    chosen = common.parse(
        argument,
        own_methods=True,
        method=_first("naive", methods.of_kind(multilabel=False)),
        task=tuple(common.TASKS),
        backbone=("auto", *models.NAMES),
        setting=("one_sample", "two_sample"),
    )
    config = config_lib.default_config(chosen["method"])
    common.set_task(config, chosen["task"])
    config.data.setting = chosen["setting"]
    config.model.name = chosen["backbone"]
    if chosen["backbone"] == "auto":
        config.model.name = "mlp" if chosen["task"] in common.TABLES else "small_cnn"
    if chosen["method"] == "gradpu" and chosen["task"] not in common.TABLES:
        common.suit_gradpu(config)
    common.hold_out(config, chosen["task"])
    if chosen["method"] == "lagam":
        config.method.support_batch_size = min(64, config.data.num_support)
    return config


def _first(default: str, names: Sequence[str]) -> tuple[str, ...]:
    """All names, the default one first."""
    return default, *(name for name in names if name != default)
