"""GradPU at the learning rates that the paper searched: MNIST, 1000 labels, three seeds.

python -m pujax.sweep --plan=configs/sweeps/gradpu_rates.py --workdir=DIR --data_dir=FOLDER

The rate of the default, 1e-3, was not tuned. Which rate the paper used is not stated; a rate is
chosen here by the nnPU risk on the validation set, which needs no negative label.
"""

from pujax import sweep
from pujax.configs import gradpu
from pujax.configs.sweeps import gradpu_table1

_RATES = (4e-5, 1e-4, 4e-4, 1e-3)
_PUBLISHED = (96.4, 0.4)  # Table 1, the best epoch; the last one has 95.9 +- 0.5 in Table 2


def get_plan() -> sweep.Plan:
    """GradPU of Table 1 at four rates."""
    cells = []
    for rate in _RATES:
        config = gradpu.get_config("task=mnist")
        config.method.learning_rate = rate
        cells.append(sweep.Cell(f"learning rate {rate:g}", "MNIST 1k", config, _PUBLISHED))
    return sweep.Plan("GradPU, learning rates", cells, seeds=(0, 1, 2), rules=gradpu_table1.RULES)
