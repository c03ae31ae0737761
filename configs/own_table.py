"""Your own table: from one file to ranked, calibrated predictions (docs/your_own_data.md).

    python train.py --config=configs/own_table.py --config.data.path=customers.csv \\
      --config.data.label=is_fraud

Writes predictions.csv for the unlabeled rows, and model/ for `python -m pujax.predict`. Argument:
method = nnpu (default) or any other name in pujax/methods that needs no clean examples.
"""

import ml_collections

from configs import common
from pujax import methods
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration: a perceptron, a fifth held out, and a prior that is estimated."""
    others = ("lagam", "supervised")  # which need examples of known class
    names = [x for x in methods.names() if not methods.is_multilabel(x) and x not in others]
    chosen = common.parse(argument, method=("nnpu", *(x for x in names if x != "nnpu")))
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
    config.run.compare = ""
    return config
