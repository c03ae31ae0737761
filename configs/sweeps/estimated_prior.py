"""What it costs to estimate the prior: a method at the true one and at estimates, on PURL's sets.

    python -m pujax.sweep --plan=configs/sweeps/estimated_prior.py:method=nnpu --workdir=DIR \
        --data_dir=a9a=FOLDER,mushrooms=FOLDER,...

Arguments: method = nnpu (default), gradpu, dist_pu. 1000 P and 2000 U at a class prior of 0.3, 0.5
and 0.7, drawn by the seed as in `configs/purl.py`, raw inputs, a perceptron, the method's own
length. Rows differ in the prior alone: the true one, the one by sixteen networks out of bag, which
is what `data.prior=auto` uses, and best bin. A difference is that to the true prior, by seed.

GradPU's loss has no prior. By default it enters there by the proxy accuracy of a part held out,
which chooses the epoch, so that 300 examples are held out for it; the last epoch stands beside it.
"""

import ml_collections

from pujax import methods, sweep
from pujax.configs import common, purl
from pujax.training import config as config_lib

_METHODS = ("nnpu", "gradpu", "dist_pu")
_TRUE = "true prior"
_ESTIMATED = {"out of bag": "out_of_bag", "best bin": "best_bin"}
_NUM_POSITIVES, _NUM_UNLABELED = 1000, 2000
_NUM_VALIDATION = 300
_HIDDEN = (100, 100)


def get_plan(argument: str = "") -> sweep.Plan:
    """All cells of one method."""
    method = common.parse(argument, method=_METHODS)["method"]
    cells = []
    for source in purl.DATA:
        for prior in sorted(purl.PRIORS):
            for row in (_TRUE, *_ESTIMATED):
                config = _config(method, source, float(prior), row)
                cells.append(sweep.Cell(row, f"{source} {prior}", config))
    title = f"Accuracy of {method} at estimated priors"
    rules = ("reported", "last") if _needs_held_out(method) else None
    return sweep.Plan(title, cells, seeds=tuple(range(10)), rules=rules, reference=_TRUE)


def _needs_held_out(method: str) -> bool:
    """Whether the epoch that a method reports is chosen on a part held out."""
    return methods.selection(method) != "last"


def _config(method: str, source: str, prior: float, row: str) -> ml_collections.ConfigDict:
    config = config_lib.default_config(method)
    config.data.update({"source": source, **purl.DATA[source]})
    config.data.update(
        {
            "setting": "two_sample",
            "sampling": "uniform",
            "num_labeled": _NUM_POSITIVES,
            "num_unlabeled": _NUM_UNLABELED,
            "num_support": 0,
            "class_prior": prior,
        }
    )
    if row != _TRUE:
        config.data.prior, config.data.prior_method = "auto", _ESTIMATED[row]
    config.model.name = "mlp"
    config.model.options = ml_collections.ConfigDict({"hidden": _HIDDEN})
    config.run.figures = False
    if _needs_held_out(method):
        config.data.num_validation = _NUM_VALIDATION
    else:  # only the last epoch is reported
        config.run.eval_every = config.method.num_epochs
    return config
