"""GradPU's Table 1 on MNIST and Fashion-MNIST: 1000 and 3000 labelled positives, three seeds.

python -m pujax.sweep --plan=configs/sweeps/gradpu_table1.py --workdir=DIR \
    --data_dir=mnist=FOLDER,fashion_mnist=FOLDER
"""

from collections.abc import Sequence

from pujax import sweep
from pujax.configs import gradpu

COLUMNS = {
    "MNIST 1k": "task=mnist,labeled=1000",
    "MNIST 3k": "task=mnist,labeled=3000",
    "FMNIST 1k": "task=fashion_mnist,labeled=1000",
    "FMNIST 3k": "task=fashion_mnist,labeled=3000",
}
# Table 1 of the paper in the order of the columns, test accuracy in percent: the best epoch, as its
# Table 2 shows.
_ROWS = {
    "naive": ("naive", ((92.9, 0.5), (95.1, 0.3), (94.6, 0.4), (96.0, 0.3))),
    "upu": ("uPU", ((92.5, 0.4), (95.2, 0.3), (94.9, 0.2), (96.1, 0.3))),
    "nnpu": ("nnPU", ((93.6, 0.2), (95.8, 0.3), (95.7, 0.2), (96.3, 0.4))),
    "vpu": ("VPU", ((93.9, 0.5), (95.8, 0.4), (95.3, 0.7), (96.5, 0.1))),
    "self_pu": ("Self-PU", ((94.2, 0.5), (96.0, 0.3), None, None)),
    "gradpu": ("GradPU", ((96.4, 0.4), (97.7, 0.2), (96.3, 0.2), (96.7, 0.1))),
    "supervised": ("supervised", ((96.7, 0.2), (97.8, 0.2), (96.6, 0.2), (97.2, 0.2))),
}
_PUBLISHED_RULE = "oracle_best_epoch"
_RULES = ("last", "proxy_accuracy", "nnpu_risk", "oracle", _PUBLISHED_RULE)


def get_plan() -> sweep.Plan:
    """All cells, and uPU and nnPU once more with the literal, uncalibrated risk."""
    cells = []
    for index, (column, argument) in enumerate(COLUMNS.items()):
        for method, (row, figures) in _ROWS.items():
            config = gradpu.get_config(f"{argument},method={method}")
            cells.append(sweep.Cell(row, column, config, figures[index]))
            if method in ("upu", "nnpu"):
                literal = gradpu.get_config(f"{argument},method={method}")
                literal.method.calibration = "none"
                cells.append(sweep.Cell(f"{row}, not calibrated", column, literal, figures[index]))
    return plan("GradPU, Table 1", cells)


def plan(title: str, cells: Sequence[sweep.Cell]) -> sweep.Plan:
    """A table of the paper: three seeds, and the published figures beside our best epochs."""
    return sweep.Plan(title, cells, seeds=(0, 1, 2), rules=_RULES, published_rule=_PUBLISHED_RULE)
