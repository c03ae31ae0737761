"""Do the defaults hold: every method of one label per example, as it is, on five small sets.

    python -m pujax.sweep --plan=configs/sweeps/defaults_hold.py --workdir=DIR \
        --data_dir=mnist=FOLDER,fashion_mnist=FOLDER,a9a=FOLDER,mushrooms=FOLDER

Arguments: part = all (default) or one of the sets; method = all (default) or one of them, whose
fields can then be changed by `--set=method.FIELD=VALUE`.

What is reported by default stands beside the last epoch, what rules without negatives choose, and
the best epoch on the test set, which is no result: a default holds where the first is within two
points of the best. Methods train as long as by default. What differs from it is what keeps the plan
small: the network is the multilayer perceptron, MNIST and Fashion-MNIST have 10,000 training
images, half of them positive, a9a has 15,000 rows, 24 % of them positive, its share, and 500
examples (of digits 100) are held out for the rules. From seconds per epoch on MNIST, all of it
should take six to eight hours on two CPU cores, half of them LaGAM's 400 epochs.
"""

import ml_collections

from pujax import methods, sweep
from pujax.configs import baseline, common

_SETS = ("digits", "mushrooms", "a9a", "mnist", "fashion_mnist")
# Positives and negatives that stay in the training set.
_KEPT = {"a9a": (3600, 11_400), "mnist": (5000, 5000), "fashion_mnist": (5000, 5000)}
_RULES = (
    "reported",
    "last",
    "proxy_accuracy",
    "nnpu_risk",
    "vpu_risk",
    "proxy_accuracy_vpu",
    "proxy_auc",
    "oracle_best_epoch",
)


def get_plan(argument: str = "") -> sweep.Plan:
    """The methods of one label per example on all sets, or on one."""
    names = list(methods.of_kind(multilabel=False))
    chosen = common.parse(argument, part=("all", *_SETS), method=("all", *names))
    if chosen["method"] != "all":
        names = [chosen["method"]]
    tasks = _SETS if chosen["part"] == "all" else (chosen["part"],)
    cells = [sweep.Cell(name, task, _config(name, task)) for task in tasks for name in names]
    reference = "naive" if "naive" in names else ""
    return sweep.Plan("Defaults", cells, seeds=(0, 1, 2), rules=_RULES, reference=reference)


def _config(name: str, task: str) -> ml_collections.ConfigDict:
    """A method's defaults on one set, with a part held out."""
    config = baseline.get_config(f"method={name},task={task},backbone=mlp")
    config.data.num_validation = 100 if task == "digits" else 500
    if task in _KEPT:
        config.data.num_positives, config.data.num_negatives = _KEPT[task]
    config.run.figures = False
    return config
