"""GradPU's Table 1 on MNIST and Fashion-MNIST: 1000 and 3000 labelled positives, three seeds.

python -m pujax.sweep --plan=configs/sweeps/gradpu_table1.py --workdir=DIR \
    --data_dir=mnist=FOLDER,fashion_mnist=FOLDER
"""

from pujax import sweep
from pujax.configs import gradpu

_ROWS = {
    "naive": "naive",
    "upu": "uPU",
    "nnpu": "nnPU",
    "vpu": "VPU",
    "gradpu": "GradPU",
    "supervised": "supervised",
}
COLUMNS = {
    "MNIST 1k": "task=mnist,labeled=1000",
    "MNIST 3k": "task=mnist,labeled=3000",
    "FMNIST 1k": "task=fashion_mnist,labeled=1000",
    "FMNIST 3k": "task=fashion_mnist,labeled=3000",
}
# Table 1 of the paper, test accuracy in percent: the best epoch, as its Table 2 shows.
_PUBLISHED = {
    "MNIST 1k": ((92.9, 0.5), (92.5, 0.4), (93.6, 0.2), (93.9, 0.5), (96.4, 0.4), (96.7, 0.2)),
    "MNIST 3k": ((95.1, 0.3), (95.2, 0.3), (95.8, 0.3), (95.8, 0.4), (97.7, 0.2), (97.8, 0.2)),
    "FMNIST 1k": ((94.6, 0.4), (94.9, 0.2), (95.7, 0.2), (95.3, 0.7), (96.3, 0.2), (96.6, 0.2)),
    "FMNIST 3k": ((96.0, 0.3), (96.1, 0.3), (96.3, 0.4), (96.5, 0.1), (96.7, 0.1), (97.2, 0.2)),
}
RULES = ("last", "proxy_accuracy", "nnpu_risk", "oracle", "oracle_best_epoch")


def get_plan() -> sweep.Plan:
    """All cells, and uPU and nnPU once more with the literal, uncalibrated risk."""
    cells = []
    for column, argument in COLUMNS.items():
        published = dict(zip(_ROWS, _PUBLISHED[column], strict=True))
        for method, row in _ROWS.items():
            config = gradpu.get_config(f"{argument},method={method}")
            cells.append(sweep.Cell(row, column, config, published[method]))
            if method in ("upu", "nnpu"):
                literal = gradpu.get_config(f"{argument},method={method}")
                literal.method.calibration = "none"
                cells.append(
                    sweep.Cell(f"{row}, not calibrated", column, literal, published[method])
                )
    return sweep.Plan("GradPU, Table 1", cells, seeds=(0, 1, 2), rules=RULES)
