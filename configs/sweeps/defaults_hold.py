"""Do the defaults hold: every method of one label per example, as it is, on five small sets.

    python -m pujax.sweep --plan=configs/sweeps/defaults_hold.py --workdir=DIR \
        --data_dir=mnist=FOLDER,fashion_mnist=FOLDER,a9a=FOLDER,mushrooms=FOLDER

Arguments: part = all (default) or one of the sets; epochs = 50 (default), 10, 100, the most that a
method trains. What is reported by default ('last') stands beside what rules without negatives
choose and beside the best epoch on the test set, which is no result: a default holds where the
first is within two points of the last. Networks are the multilayer perceptron, images are 10,000 of
the training set, and 500 examples are held out (digits: all images, 100 held out).
"""

import ml_collections

from configs import baseline, common
from pujax import methods, sweep

_SETS = ("digits", "mushrooms", "a9a", "mnist", "fashion_mnist")
_IMAGES = ("mnist", "fashion_mnist")
_OF_EACH_CLASS = 5000
_RULES = ("last", "proxy_accuracy", "nnpu_risk", "proxy_auc", "oracle_best_epoch")


def get_plan(argument: str = "") -> sweep.Plan:
    """The methods of one label per example on all sets, or on one."""
    chosen = common.parse(argument, part=("all", *_SETS), epochs=("50", "10", "100"))
    names = [name for name in methods.names() if not methods.is_multilabel(name)]
    tasks = _SETS if chosen["part"] == "all" else (chosen["part"],)
    cells = [
        sweep.Cell(name, task, _config(name, task, int(chosen["epochs"])))
        for task in tasks
        for name in names
    ]
    return sweep.Plan("Defaults", cells, seeds=(0, 1, 2), rules=_RULES, reference="naive")


def _config(name: str, task: str, most: int) -> ml_collections.ConfigDict:
    """A method's defaults with at most so many epochs, and a part held out."""
    config = baseline.get_config(f"method={name},task={task},backbone=mlp")
    config.data.num_validation = 100 if task == "digits" else 500
    if task in _IMAGES:
        config.data.update({"num_positives": _OF_EACH_CLASS, "num_negatives": _OF_EACH_CLASS})
    if methods.has_network(name):
        config.method.num_epochs = min(config.method.num_epochs, most)
    config.run.figures = False
    return config
