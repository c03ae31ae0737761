"""Your own table: from one file to ranked, calibrated predictions (docs/your_own_data.md).

    python train.py --config=configs/own_table.py --config.data.path=customers.csv \\
      --config.data.label=is_fraud

Writes predictions.csv for the unlabeled rows, and model/ for `python -m pujax.predict`. Argument:
method = nnpu (default) or another method that needs no known negatives.
"""

import ml_collections

from configs import common
from pujax import methods
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration: a perceptron, a fifth held out, and a prior that is estimated."""
    others = (x for x in methods.without_negatives() if x != "nnpu")
    chosen = common.parse(argument, method=("nnpu", *others))
    config = config_lib.default_config(chosen["method"])
    config.data.update(
        {
            "source": "own_table",
            "positive_classes": (),
            "num_labeled": 0,
            "num_support": 0,
            "holdout": 0.2,
            "prior": "auto",
        }
    )
    config.model.name = "mlp"
    if "augment" in config.method:
        config.method.augment = False
    if chosen["method"] == "nnpu":
        config.method.update({"batching": "separate", "num_epochs": 30})
    if chosen["method"] == "self_pu":
        config.method.calibration_meta = False  # it needs clean examples
    # Logistic regression takes a second, and where it ranks better the table says so.
    config.run.compare = "" if chosen["method"] == "classic" else "classic"
    return config
