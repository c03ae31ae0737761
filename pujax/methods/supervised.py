"""Supervised upper bound: the same network trained on the true labels of all training examples."""

import ml_collections

from pujax import risks
from pujax.data.dataset import DataInfo
from pujax.methods import Method, _classifier


def default_config() -> ml_collections.ConfigDict:
    """Plain classifier settings."""
    return _classifier.default_config("supervised")


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds the oracle; its data carry the truth, and its summary says so."""

    def cross_entropy(scores, labels):
        return risks.weighted_bce(scores, labels, positive_weight=1.0)

    return _classifier.build(config, info, cross_entropy, needs_truth=True)
