"""What alignment adds: risks and LaGAM with and without it, beside NcPU and the naive classifier.

    python -m pujax.sweep --plan=configs/sweeps/alignment.py:data=digits --workdir=DIR

Arguments: data = digits (default), fashion_mnist (1,000 P and 9,000 U, with `--data_dir=FOLDER`);
rows = switch (default), others.
With rows=switch every method has the length, batches and network of NcPU on the same data and its
own optimizer; LaGAM has its own settings, and a support set of clean examples. 'aligned' rows add
`method.align_weight=50`; LaGAM's pairs count from the end of its own warm-up. The last epoch.
With rows=others the methods without the switch have the same data and network, and for the rest
their own defaults: length, batches, views, and the epoch that they report (`run.selection=auto`),
which some choose on 100 digits, or 500 images, held out; Self-PU has 60 or 200 known examples more,
from which it learns weights. nnPU by its defaults is compared with.
Five seeds on the digits, three on Fashion-MNIST.
"""

import ml_collections

from pujax import methods, sweep
from pujax.configs import baseline, common, lagam_digits, lagam_mnist, ncpu
from pujax.training import config as config_lib

_METHODS = ("naive", "upu", "nnpu", "vpu", "dist_pu", "gradpu")
_SEEDS = {"digits": 5, "fashion_mnist": 3}
_NUM_SUPPORT = {"digits": 60, "fashion_mnist": 200}
_SHARED = ("batch_size", "flip", "num_epochs")
_WEIGHT = 50.0


def get_plan(argument: str = "") -> sweep.Plan:
    """All rows on one data set."""
    chosen = common.parse(argument, data=tuple(_SEEDS), rows=("switch", "others"))
    data = chosen["data"]
    if chosen["rows"] == "others":
        return _others(data)
    rows = {"ncpu": ncpu.get_config(f"task={data}"), "lagam": _lagam(data)}
    rows["lagam, aligned"] = aligned = _lagam(data)
    aligned.method.update(_alignment(data, _WEIGHT))
    aligned.method.align_warmup_epochs = aligned.method.warmup_epochs
    for name in _METHODS:
        rows[name] = _config(data, name, 0.0)
        rows[f"{name}, aligned"] = _config(data, name, _WEIGHT)
    cells = []
    for row, config in rows.items():
        config.run.update({"figures": False, "compare": "", "eval_every": config.method.num_epochs})
        cells.append(sweep.Cell(row, data, config))
    return sweep.Plan("Alignment", cells, seeds=tuple(range(_SEEDS[data])), reference="nnpu")


def _others(data: str) -> sweep.Plan:
    """Methods without the switch, by their own defaults."""
    shown = {"lagam", "ncpu", *_METHODS} - {"nnpu"}
    cells = []
    for name in methods.of_kind(multilabel=False):
        if name in shown:
            continue
        config = baseline.get_config(f"method={name},task={data}")
        config.data = ncpu.get_config(f"task={data}").data
        common.hold_out(config, data)
        if name == "self_pu":  # which learns the weights of examples from known ones
            config.data.num_support = _NUM_SUPPORT[data]
        config.run.update({"figures": False, "compare": ""})
        cells.append(sweep.Cell(name, data, config))
    seeds = tuple(range(_SEEDS[data]))
    rules = ("reported", "last", "oracle_best_epoch")
    return sweep.Plan(
        "Others by their defaults", cells, seeds=seeds, rules=rules, reference="nnpu", also=("auc",)
    )


def _lagam(data: str) -> ml_collections.ConfigDict:
    """LaGAM's own settings on the same images."""
    if data == "digits":
        return lagam_digits.get_config()
    config = lagam_mnist.get_config("task=fashion_mnist")
    config.data = ncpu.get_config(f"task={data}").data
    config.data.num_support = _NUM_SUPPORT[data]
    return config


def _alignment(data: str, weight: float) -> dict[str, float]:
    """Fields of alignment: NcPU's on the same data."""
    like = ncpu.get_config(f"task={data}").method
    return {
        "align_weight": weight,
        "align_crop_area": like.crop_area,
        "align_warmup_epochs": like.warmup_epochs,
        "target_momentum": like.target_momentum,
    }


def _config(data: str, method: str, weight: float) -> ml_collections.ConfigDict:
    """A method on NcPU's data with its length, batches, network and weak views."""
    like = ncpu.get_config(f"task={data}")
    config = config_lib.default_config(method)
    config.data = like.data
    config.model.name = like.model.name
    if method == "gradpu":  # an input gradient of one example is not defined under batch norm
        config.model.options = ml_collections.ConfigDict({"batch_norm": False})
    section = config.method
    section.update({name: like.method[name] for name in _SHARED})
    if "warmup_epochs" in section:
        section.warmup_epochs = section.num_epochs // 3
    section.update(
        {
            "augment": True,
            "padding": 1 if data == "digits" else 2,
            **_alignment(data, weight),
        }
    )
    return config
