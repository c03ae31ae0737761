"""A plan that trains in a second: dense layers of four units on the digits inside scikit-learn."""

from pujax import sweep
from pujax.training import config as config_lib

METHODS = ("naive", "weighted_bce", "supervised")


def plan(methods=METHODS, *, seeds=(0,), epochs=2):
    """One cell per method."""
    return sweep.Plan("Digits", [sweep.Cell(x, "even", _config(x, epochs)) for x in methods], seeds)


def _config(method, epochs):
    config = config_lib.default_config(method)
    config.data.update({"source": "digits", "num_labeled": 100})
    config.model.name = "mlp"
    config.model.options = {"hidden": (4,)}
    config.method.update({"num_epochs": epochs, "batch_size": 256, "augment": False})
    config.run.eval_every = 1
    return config
