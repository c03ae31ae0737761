"""LaGAM's learned labels late in a run: which update keeps them right as the support loss falls.

    python -m pujax.sweep --plan=configs/sweeps/lagam_labels.py --workdir=DIR
    python -m pujax.sweep --plan=configs/sweeps/lagam_labels.py:data=fashion_mnist --workdir=DIR \
        --data_dir=FOLDER

Arguments: data = digits (default; five seeds), fashion_mnist: 400 P, 8,000 U and 200 support images
of it for 40 epochs (three seeds); rows = updates (default), or methods: the published update beside
methods that learn no labels, on the same split and network, with the same views, epochs, steps of
an epoch, batches and warm-up, and otherwise as they are. The last epoch is reported; every fourth
one writes the accuracy of the labels, and the share of gradients that have the sign of the hidden
truth by quarters of their size, into `metrics.csv`. Nothing of that enters the training.
"""

import ml_collections

from pujax import sweep
from pujax.configs import common, lagam_digits, lagam_mnist
from pujax.training import config as config_lib

_SEEDS = {"digits": 5, "fashion_mnist": 3}
_REFERENCE = "projected (published)"
_BY_LOSS = {"label_memory": "support_loss"}
_WEIGHTED = {"label_update": "weighted"}
_ROWS = {
    _REFERENCE: {},
    "weighted": _WEIGHTED,
    "memory by support loss": _BY_LOSS,
    "weighted, memory by support loss": {**_WEIGHTED, **_BY_LOSS},
    "margin of 3": {"support_margin": 3.0},
    "longer memory": {"rho_start": 0.95, "rho_end": 0.9},
    "K = 5, rate 0.1": {"meta_num_steps": 5, "meta_learning_rate": 0.1},
}


_METHODS = ("naive", "nnpu", "vpu", "dist_pu", "supervised")
# What methods share with LaGAM: lengths of the run and of a batch, and the weak views.
_SHARED = ("num_epochs", "batch_size", "augment", "flip", "padding")


def get_plan(argument: str = "") -> sweep.Plan:
    """All rows on one data set."""
    chosen = common.parse(argument, data=tuple(_SEEDS), rows=("updates", "methods"))
    data = chosen["data"]
    if chosen["rows"] == "updates":
        cells = [sweep.Cell(row, data, _config(data, changes)) for row, changes in _ROWS.items()]
    else:
        configs = {_REFERENCE: _config(data, {})} | {x: _other(data, x) for x in _METHODS}
        cells = [sweep.Cell(row, data, config) for row, config in configs.items()]
    title = f"LaGAM's labels late in a run, {data}"
    seeds = tuple(range(_SEEDS[data]))
    return sweep.Plan(title, cells, seeds=seeds, reference=_REFERENCE)


def _other(data: str, method: str) -> ml_collections.ConfigDict:
    """A method that learns no labels, where LaGAM's support set is held apart all the same."""
    like = _config(data, {})
    config = config_lib.default_config(method)
    config.data, config.model, config.run = like.data, like.model, like.run
    config.method.update({field: like.method[field] for field in _SHARED})
    if "steps_per_epoch" in config.method:
        config.method.steps_per_epoch = 0  # as many as the examples make, like LaGAM's
    if "warmup_epochs" in config.method:
        config.method.warmup_epochs = like.method.warmup_epochs
    return config


def _config(data: str, changes: dict) -> ml_collections.ConfigDict:
    if data == "digits":
        config = lagam_digits.get_config()
    else:
        config = lagam_mnist.get_config("task=fashion_mnist")
        config.data.update({"num_labeled": 400, "num_unlabeled": 8000, "num_support": 200})
        # Twice the epochs of that file, and all that is counted in them.
        config.method.update({"num_epochs": 40, "warmup_epochs": 4, "lr_drops": (28, 34)})
        config.method.update({"neighbors_after_epoch": 8, "rho_start": 0.8, "rho_end": 0.6})
    config.run.update({"compare": "", "figures": False, "eval_every": 4})
    config.method.record_label_gradients = True
    config.method.update(changes)
    return config
