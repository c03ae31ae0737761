"""Dist-PU and Self-PU in their own protocols, on the data sets that a CPU can train.

python -m pujax.sweep --plan=configs/sweeps/own_protocols.py --workdir=DIR \
    --data_dir=mnist=FOLDER,fashion_mnist=FOLDER

Self-PU's published figure is that of the best epoch on the test set, and its example weights were
learned on test inputs; here these come from 500 training images kept apart. No figure of Dist-PU
on Fashion-MNIST could be checked.
"""

from pujax import sweep
from pujax.configs import dist_pu, self_pu


def get_plan() -> sweep.Plan:
    """One cell per published figure, and Self-PU without its learned weights."""
    # Four seeds of the authors' README: 93.87, 94.68, 94.44, 93.84.
    self_paced = (94.21, 0.42)
    cells = [
        sweep.Cell("Dist-PU", "FMNIST", dist_pu.get_config("task=fashion_mnist")),
        sweep.Cell("Self-PU", "MNIST", self_pu.get_config("task=mnist"), self_paced),
        sweep.Cell(
            "Self-PU, fixed weights",
            "MNIST",
            self_pu.get_config("task=mnist,calibration=off"),
            self_paced,
        ),
    ]
    rules = ("last", "oracle_best_epoch")
    return sweep.Plan("Own protocols", cells, seeds=(0, 1, 2), rules=rules)
