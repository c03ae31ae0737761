"""Your own table: from one file to ranked, calibrated predictions (docs/your_own_data.md).

    python train.py --config=configs/own_table.py --config.data.path=customers.csv \\
      --config.data.label=is_fraud

Writes predictions.csv for the unlabeled rows, and model/ for `python -m pujax.predict`. Argument:
method = nnpu (default) or another method that needs no hidden label; lagam takes known negatives.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration: a perceptron, a fifth held out, and a prior that is estimated."""
    num_epochs = config_lib.OWN_EPOCHS["own_table"]
    config, _ = common.own_rows(argument, source="own_table", num_epochs=num_epochs)
    config.model.name = "mlp"
    if "augment" in config.method:
        config.method.augment = False
    # Logistic regression takes a second, and where it ranks better the table says so.
    config.run.compare = "" if config.method.name == "classic" else "classic"
    return config
