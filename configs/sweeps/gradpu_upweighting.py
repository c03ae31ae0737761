"""Which reading of GradPU reproduces its gain from upweighting: MNIST, 1000 labelled positives.

python -m pujax.sweep --plan=configs/sweeps/gradpu_upweighting.py --workdir=DIR --data_dir=FOLDER

The paper does not say whether the weight of a positive is differentiated, nor how inputs are
scaled, which decides how strong a penalty of 0.2 is.
"""

from pujax import sweep
from pujax.configs import gradpu
from pujax.configs.sweeps import gradpu_table1

# Table 3 of the paper.
_PUBLISHED = {0.0: (94.8, 0.4), 3.0: (96.0, 0.4), 30.0: (96.4, 0.4)}


def get_plan() -> sweep.Plan:
    """Both scalings, both gradients, three weights; without a weight both gradients are one."""
    cells = []
    for scaling in ("standard", "unit"):
        for stop in (True, False):
            for beta_max, published in _PUBLISHED.items():
                if not beta_max and not stop:
                    continue
                config = gradpu.get_config("task=mnist")
                config.data.scaling = scaling
                config.method.stop_weight_gradient = stop
                config.method.beta_max = beta_max
                row = f"weight {'constant' if stop else 'differentiated'}, beta_max {beta_max:g}"
                cells.append(sweep.Cell(row, f"{scaling} inputs", config, published))
    return gradpu_table1.plan("GradPU, upweighting", cells)
