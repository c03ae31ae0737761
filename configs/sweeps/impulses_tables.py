"""ImPULSeS' Tables III, V and VI: each row beside its published figure.

    python -m pujax.sweep --plan=configs/sweeps/impulses_tables.py:size=32 --workdir=DIR \
        --data_dir=cifar10=FOLDER,cifar100=FOLDER

Arguments: metric = accuracy (default), f1, auc (another metric reads the same runs and trains
nothing anew); size = 224 (default), 32, small, as in `configs/impulses.py`; data = all (default)
or one of its tasks. Only rows at size 224 are the paper's setting. Figures are means of three runs
at the last epoch, and so they are here; the paper states no deviations.
"""

from pujax import sweep
from pujax.configs import common, impulses

# Accuracy / F1 / AUC in percent, by row of `configs/impulses.py`; Table V has no AUC.
_PUBLISHED = {
    "cifar10-imbalanced": {
        "impulses": (95.25, 94.01, 98.99),
        "imbnnpu": (86.54, 83.06, 93.18),
        "simclr": (60.05, 0.25, 98.67),
        "debiased": (60.03, 0.15, 98.93),
        "contrastive_nnpu": (93.09, 90.74, None),
        "contrastive_imbnnpu": (94.26, 92.50, None),
        "debiased_nnpu": (92.75, 90.20, None),
        "debiased_wbce": (95.9, 94.9, 99.4),
        "supervised_wbce": (91.0, 88.3, 96.8),
    },
    "cifar10-balanced": {
        "impulses": (97.15, 96.41, 99.40),
        "simclr": (60.00, 0.14, 99.31),
        "debiased": (60.00, 0.22, 99.38),
    },
    "cifar100-imbalanced": {
        "impulses": (89.11, 62.64, 95.89),
        "imbnnpu": (86.68, 44.06, 82.87),
        "simclr": (90.03, 0.60, 96.04),
        "debiased": (90.00, 0.00, 95.74),
        "debiased_wbce": (91.7, 68.8, 97.1),
        "supervised_wbce": (91.0, 53.3, 88.2),
    },
}
_LABELS = {
    "impulses": "ImPULSeS (debiased + imbnnPU)",
    "imbnnpu": "imbnnPU from scratch",
    "simclr": "SimCLR, U as negative",
    "debiased": "debiased, U as negative",
    "contrastive_nnpu": "contrastive + nnPU",
    "contrastive_imbnnpu": "contrastive + imbnnPU",
    "debiased_nnpu": "debiased + nnPU",
    "debiased_wbce": "debiased + wBCE (true labels)",
    "supervised_wbce": "supervised wBCE (true labels)",
}
_METRICS = ("accuracy", "f1", "auc")


def get_plan(argument: str = "") -> sweep.Plan:
    """One cell per row of the tables; where the paper has no such figure, without one."""
    chosen = common.parse(
        argument, metric=_METRICS, size=("224", "32", "small"), data=("all", *_PUBLISHED)
    )
    metric, size = chosen["metric"], chosen["size"]
    cells = []
    for task, rows in _PUBLISHED.items():
        for row, figures in rows.items():
            figure = figures[_METRICS.index(metric)]
            if chosen["data"] in ("all", task):
                config = impulses.get_config(f"task={task},size={size},row={row}")
                published = None if figure is None else (figure, None)
                cells.append(sweep.Cell(_LABELS[row], task, config, published))
    return sweep.Plan(f"ImPULSeS at size {size}: {metric}", cells, metric=metric)
