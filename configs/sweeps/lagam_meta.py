"""LaGAM's label update: which estimator, steps, parameters and support set give the best labels.

    python -m pujax.sweep --plan=configs/sweeps/lagam_meta.py --workdir=DIR
    python -m pujax.sweep --plan=configs/sweeps/lagam_meta.py:data=fashion_mnist --workdir=DIR \
        --data_dir=FOLDER

Arguments: data = digits (default), fashion_mnist: 10,000 training images of it, 500 of them
labelled positives, and LeNet. Five seeds, the last epoch is reported. Each row changes the
reference, the published update, by what its name says; with `rate` the step size of the virtual
step, K its steps. The same clean examples are held apart in all rows, also where none is looked at.
"""

import ml_collections

from pujax import sweep
from pujax.configs import common, lagam_digits

_DATA = ("digits", "fashion_mnist")
_REFERENCE = "kernel, K = 1 (published)"
# At the published rate of 0.001 K steps are K times one step; at this one they are not.
_RATE = {"meta_learning_rate": 0.1}
_FIVE = {**_RATE, "meta_num_steps": 5}
_ALL = {**_RATE, "meta_trainable": "all"}
_PSEUDO = {"support_source": "pseudo_negatives"}

_ROWS = {
    _REFERENCE: {},
    # No labels are learned at all.
    "no label update": {"use_meta": False, "record_label_gradients": False},
    # Parameters that move.
    "head, K = 1": {"meta_trainable": "head"},
    "last block, K = 1": {"meta_trainable": "last_block"},
    "all, K = 1": {"meta_trainable": "all"},
    # Steps, and the optimizer that takes them.
    "kernel, K = 1, rate 0.1": _RATE,
    "kernel, K = 5, rate 0.1": _FIVE,
    "all, K = 1, rate 0.1": _ALL,
    "kernel, K = 5, rate 0.1, momentum": {**_FIVE, "meta_optimizer": "momentum"},
    "kernel, K = 5, Adam": {"meta_num_steps": 5, "meta_optimizer": "adam"},
    # Estimators of the same gradient. 'mixed', 'forward' and 'finite_difference' are 'reverse'.
    "kernel, K = 5, rate 0.1, one_step": {**_FIVE, "meta_estimator": "one_step"},
    "kernel, K = 5, rate 0.1, truncated": {
        **_FIVE,
        "meta_estimator": "truncated",
        "meta_window": 3,
    },
    "kernel, K = 5, rate 0.1, implicit_cg": {
        **_FIVE,
        "meta_estimator": "implicit_cg",
        "meta_damping": 0.1,
    },
    "kernel, K = 5, rate 0.1, implicit_neumann": {**_FIVE, "meta_estimator": "implicit_neumann"},
    "kernel, K = 5, rate 0.1, es": {**_FIVE, "meta_estimator": "es"},
    # The loss of both levels, and the rule.
    "mean loss": {"meta_loss": "mean"},
    "soft update": {"label_update": "normalized"},
    # Support set without clean examples.
    "pseudo-negatives, lowest 5 %": {**_PSEUDO, "pseudo_negative_share": 0.05},
    "pseudo-negatives, lowest 20 %": {**_PSEUDO, "pseudo_negative_share": 0.2},
    "pseudo-negatives, lowest 50 %": {**_PSEUDO, "pseudo_negative_share": 0.5},
    # The rows that take longest; through whole networks 'mixed' is the fastest exact estimator.
    "all, K = 3, rate 0.1": {**_ALL, "meta_num_steps": 3, "meta_estimator": "mixed"},
    "all, K = 5, rate 0.1": {**_ALL, "meta_num_steps": 5, "meta_estimator": "mixed"},
}


def get_plan(argument: str = "") -> sweep.Plan:
    """All rows on one data set."""
    data = common.parse(argument, data=_DATA)["data"]
    cells = [sweep.Cell(row, data, _config(data, changes)) for row, changes in _ROWS.items()]
    title = f"LaGAM's label update on {data}"
    return sweep.Plan(title, cells, seeds=(0, 1, 2, 3, 4), reference=_REFERENCE)


def _config(data: str, changes: dict) -> ml_collections.ConfigDict:
    config = lagam_digits.get_config()
    config.run.update({"compare": "", "figures": False})
    if data == "fashion_mnist":
        common.set_task(config, "fashion_mnist")
        config.model.name = "lenet"  # all rows with five seeds are hours of a core, not days
        config.data.update({"num_labeled": 500, "num_support": 60, "num_unlabeled": 9500})
        # A fifth of the epochs of the digits over seven times as many images.
        config.method.update({"num_epochs": 12, "warmup_epochs": 3, "lr_drops": (8, 10)})
        config.method.update({"neighbors_after_epoch": 4, "padding": 2})
    config.run.eval_every = config.method.num_epochs
    config.method.record_label_gradients = True
    config.method.update(changes)
    return config
