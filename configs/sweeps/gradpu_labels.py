"""GradPU's Figure 5: more labelled positives, from 1,000 to 16,000, three seeds.

python -m pujax.sweep --plan=configs/sweeps/gradpu_labels.py:data=mnist --workdir=DIR \
    --data_dir=mnist=FOLDER,fashion_mnist=FOLDER

Arguments: data = mnist (default), fashion_mnist, all. The figure's numbers are not known. What it
shows is that GradPU stays above its baselines, and reaches supervised training on MNIST from about
4,000 labels on. Settings are those of Table 1, whose column of 1,000 labels is the same runs.
"""

from pujax import sweep
from pujax.configs import common, gradpu
from pujax.configs.sweeps import gradpu_table1

_TASKS = {"mnist": "MNIST", "fashion_mnist": "FMNIST"}
_LABELED = (1000, 2000, 4000, 8000, 16_000)
# Self-PU, the fifth baseline, takes ten times as long as the others; `gradpu_table1` has it.
_ROWS = {
    "naive": "naive",
    "upu": "uPU",
    "nnpu": "nnPU",
    "vpu": "VPU",
    "gradpu": "GradPU",
    "supervised": "supervised",
}


def get_plan(argument: str = "") -> sweep.Plan:
    """A column for every number of labels."""
    chosen = common.parse(argument, data=(*_TASKS, "all"))["data"]
    cells = []
    for task in _TASKS if chosen == "all" else (chosen,):
        for labeled in _LABELED:
            for method, row in _ROWS.items():
                config = gradpu.get_config(f"task={task},method={method}")
                config.data.num_labeled = labeled
                column = f"{_TASKS[task]} {labeled // 1000}k"
                cells.append(sweep.Cell(row, column, config))
    return gradpu_table1.plan("GradPU, Figure 5", cells)
