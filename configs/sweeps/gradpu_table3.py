"""GradPU's Table 3: the largest weight of a positive, with 1000 labelled ones, three seeds.

python -m pujax.sweep --plan=configs/sweeps/gradpu_table3.py --workdir=DIR \
    --data_dir=mnist=FOLDER,fashion_mnist=FOLDER
"""

from pujax import sweep
from pujax.configs import gradpu
from pujax.configs.sweeps import gradpu_table1

_TASKS = {"MNIST": "mnist", "FMNIST": "fashion_mnist"}
_BETA_MAX = (0.0, 1.0, 3.0, 10.0, 30.0)
_PUBLISHED = {
    "MNIST": ((94.8, 0.4), (95.7, 0.2), (96.0, 0.4), (96.2, 0.3), (96.4, 0.4)),
    "FMNIST": ((95.9, 0.3), (96.0, 0.2), (96.1, 0.3), (96.3, 0.2), (96.2, 0.1)),
}


def get_plan() -> sweep.Plan:
    """All cells; those of the largest weight that Table 1 uses are the same runs as there."""
    cells = []
    for column, task in _TASKS.items():
        for beta_max, published in zip(_BETA_MAX, _PUBLISHED[column], strict=True):
            config = gradpu.get_config(f"task={task}")
            config.method.beta_max = beta_max
            cells.append(sweep.Cell(f"beta_max {beta_max:g}", column, config, published))
    return gradpu_table1.plan("GradPU, Table 3", cells)
