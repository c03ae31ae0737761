"""What is gained by scalars and weights of examples that are learned while a method trains.

    python -m pujax.sweep --plan=configs/sweeps/online.py --workdir=DIR
    python -m pujax.sweep --plan=configs/sweeps/online.py:part=scalars --workdir=DIR

Digits, even against odd, 100 labelled positives, a perceptron, 100 epochs, batches of 128. Support
are 60 clean examples, which only the learning rows look at. Arguments: part = prior (default): the
class prior from a wrong start, kept or learned; scalars: other scalars; weights: of examples.
trainable = head (default) or all: what moves in a virtual step.
"""

from typing import Any

import ml_collections

from pujax import sweep
from pujax.configs import common
from pujax.training import config as config_lib

_STARTS = (0.3, 0.7)
_PRIOR_METHODS: dict[str, dict[str, Any]] = {
    "nnpu": {},
    "upu": {},
    "imbalanced_nnpu": {},
    "dist_pu": {"online_estimator": "es"},
}
_SCALARS = {
    "nnpu": ("temperature", "augmentation"),
    "weighted_bce": ("positive_weight",),
    "imbalanced_nnpu": ("target_prior",),
    "vpu": ("mixup_weight",),
    "gradpu": ("alpha",),
    "dist_pu": ("mixup_weight", "entropy_weight,mixed_entropy_weight"),
}


def get_plan(argument: str = "") -> sweep.Plan:
    """All cells of one part."""
    parts = {"prior": _prior, "scalars": _scalars, "weights": _weights}
    chosen = common.parse(argument, part=tuple(parts), trainable=("head", "all"))
    cells = parts[chosen["part"]]()
    for cell in cells:
        if "online_trainable" in cell.config.method:
            cell.config.method.online_trainable = chosen["trainable"]
    title = "Accuracy with scalars and weights learned online"
    return sweep.Plan(title, cells, seeds=tuple(range(5)))


def _prior() -> list[sweep.Cell]:
    cells = []
    for method, changes in _PRIOR_METHODS.items():
        cells.append(sweep.Cell("true prior", method, _config(method)))
        for start in _STARTS:
            for row, online in ((f"{start} kept", ""), (f"{start} learned", "prior")):
                config = _config(method, online=online, **changes)
                config.data.prior = start
                cells.append(sweep.Cell(row, method, config))
    return cells


def _scalars() -> list[sweep.Cell]:
    cells = []
    for method, names in _SCALARS.items():
        for name in names:
            changes = {"augment": True} if name == "augmentation" else {}
            for row, online in (("kept", ""), ("learned", name)):
                config = _config(method, online=online, **changes)
                cells.append(sweep.Cell(row, f"{method} {name}", config))
    return cells


def _weights() -> list[sweep.Cell]:
    # As many examples of known class as the support set has, and nothing else.
    alone = _config("supervised", num_epochs=1000, batch_size=60)
    alone.data.update({"num_labeled": 1, "num_unlabeled": 59, "num_support": 0})
    cells = [sweep.Cell("60 clean examples alone", "supervised", alone)]
    cells.append(sweep.Cell("none", "naive balanced", _config("naive")))
    for row in ("none", "batch", "stored"):
        config = _config("naive", weighting="pooled", example_weights=row)
        cells.append(sweep.Cell(row, "naive pooled", config))
        cells.append(sweep.Cell(row, "nnpu", _config("nnpu", example_weights=row)))
    return cells


def _config(method: str, **changes: Any) -> ml_collections.ConfigDict:
    config = config_lib.default_config(method)
    common.set_task(config, "digits")
    config.model.name = "mlp"
    options: dict[str, Any] = {"hidden": (64, 64), "batch_norm": method != "gradpu"}
    config.model.options = ml_collections.ConfigDict(options)
    config.method.update({"num_epochs": 100, "batch_size": 128, **changes})
    if "threshold" in config.method:
        config.method.threshold = "zero"  # another cut does not move with the weight of P
    if method == "dist_pu":
        config.method.warmup_epochs = 50
    if method == "vpu":
        config.method.steps_per_epoch = 10
    # Only the last epoch is reported.
    config.run.update({"figures": False, "eval_every": config.method.num_epochs})
    return config
