"""GradPU's Table 2: other regularisers in the place of its gradient penalty, three seeds.

python -m pujax.sweep --plan=configs/sweeps/gradpu_table2.py:regulariser=dropout --workdir=DIR \
    --data_dir=mnist=FOLDER,fashion_mnist=FOLDER

Arguments: regulariser = all (default), width, weight_decay, dropout, input_noise, mixup. One row
per value that the paper tried, all with upweighting; the figure beside each is the paper's for the
best of them on the validation set. The paper does not say how mixup meets the weights of positives:
see `pujax.methods.gradpu`. Noise is in units of pixels in [0, 1]. All train at one rate, chosen
below; the row of the penalty itself at that rate is in `gradpu_rates`, and at its own in
`gradpu_table1`.
"""

from collections.abc import Callable

import ml_collections

from pujax import sweep
from pujax.configs import common, gradpu
from pujax.configs.sweeps import gradpu_table1

COLUMNS = {name: gradpu_table1.COLUMNS[name] for name in ("MNIST 1k", "MNIST 3k", "FMNIST 1k")}
# The values, and the published best epochs in the order of the columns.
_REGULARISERS = {
    "width": ((300, 150, 75, 35), ((92.3, 0.2), (96.1, 0.1), (95.7, 0.2))),
    "weight_decay": (
        (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
        ((93.9, 0.3), (95.8, 0.1), (95.6, 0.2)),
    ),
    "dropout": ((0.2, 0.4, 0.6, 0.8), ((92.6, 0.7), (96.2, 0.2), (95.8, 0.2))),
    "input_noise": ((0.05, 0.1, 0.2, 0.4), ((93.4, 0.1), (96.2, 0.2), (95.9, 0.1))),
    "mixup": ((0.1, 0.3, 1.0, 3.0, 10.0), ((94.2, 0.3), (96.3, 0.1), (95.8, 0.4))),
}
# Of 4e-5, 1e-4, 4e-4 and 1e-3, the paper's range, the one of the lowest nnPU risk on the validation
# set after 10 epochs of MNIST 1k (seed 0) without any regulariser.
_LEARNING_RATE = 1e-4


def _set_width(config: ml_collections.ConfigDict, value: float) -> None:
    config.model.options.hidden = (int(value),) * 4


def _set_dropout(config: ml_collections.ConfigDict, value: float) -> None:
    config.model.options.dropout = value


def _method_field(name: str) -> Callable[[ml_collections.ConfigDict, float], None]:
    return lambda config, value: config.method.update({name: value})


_SET = {
    "width": _set_width,
    "weight_decay": _method_field("weight_decay"),
    "dropout": _set_dropout,
    "input_noise": _method_field("input_noise"),
    "mixup": _method_field("mixup_alpha"),
}


def get_plan(argument: str = "") -> sweep.Plan:
    """A cell per value and column."""
    chosen = common.parse(argument, regulariser=("all", *_REGULARISERS))["regulariser"]
    cells = []
    for name, (values, published) in _REGULARISERS.items():
        if chosen not in ("all", name):
            continue
        for value in values:
            for (column, task), figure in zip(COLUMNS.items(), published, strict=True):
                config = gradpu.get_config(task)
                config.method.alpha = 0.0
                config.method.learning_rate = _LEARNING_RATE
                _SET[name](config, value)
                row = f"{name.replace('_', ' ')} {value:g}"
                cells.append(sweep.Cell(row, column, config, figure))
    return gradpu_table1.plan("GradPU, Table 2", cells)
