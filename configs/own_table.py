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
    names = [name for name in methods.names() if not methods.is_multilabel(name)]
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
    if "batching" in config.method:
        config.method.batching = "separate"
    if "num_epochs" in config.method and chosen["method"] == "nnpu":
        config.method.num_epochs = 30
    config.run.compare = ""
    return config
