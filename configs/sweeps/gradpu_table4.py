"""GradPU's Table 4: labelled positives that are easy to recognise, 1000 of them, three seeds.

python -m pujax.sweep --plan=configs/sweeps/gradpu_table4.py --workdir=DIR \
    --data_dir=mnist=FOLDER,fashion_mnist=FOLDER

Labels are drawn with weights r(x)^k of a logistic regression r; the paper's appendix, which would
say how, is not available. k = 1 is the literal rule, k = 10 the sharpened one of other code.
"""

from pujax import sweep
from pujax.configs import gradpu
from pujax.configs.sweeps import gradpu_table1

_TASKS = {"MNIST": "mnist", "FMNIST": "fashion_mnist"}
_POWERS = (1.0, 10.0)
_PUBLISHED = {
    "MNIST": ((89.7, 0.9), (91.5, 0.9), (81.7, 1.2), (90.5, 0.6), (94.1, 0.3)),
    "FMNIST": ((94.2, 0.2), (95.1, 0.3), (93.9, 0.5), (94.7, 0.7), (96.0, 0.3)),
}
_ROWS = {
    "nnPU": ("nnpu", {}),
    "nnPUSB": ("pusb", {}),
    "GradPU, beta_max 0": ("gradpu", {"beta_max": 0.0}),
    "GradPU, alpha 0": ("gradpu", {"alpha": 0.0}),
    "GradPU": ("gradpu", {}),
}


def get_plan() -> sweep.Plan:
    """All cells, for both powers."""
    cells = []
    for power in _POWERS:
        for task_name, task in _TASKS.items():
            published = zip(_ROWS.items(), _PUBLISHED[task_name], strict=True)
            for (row, (method, changes)), figures in published:
                config = gradpu.get_config(f"task={task},method={method}")
                config.data.labeling = "power"
                config.data.labeling_power = power
                config.method.update(changes)
                column = f"{task_name} k={power:g}"
                cells.append(sweep.Cell(row, column, config, figures))
    return gradpu_table1.plan("GradPU, Table 4", cells)
