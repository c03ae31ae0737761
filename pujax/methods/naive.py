"""Naive baseline: treat every unlabeled example as negative."""

import ml_collections

from pujax import risks
from pujax.data.dataset import DataInfo
from pujax.methods import Method, _checks, _classifier


def default_config() -> ml_collections.ConfigDict:
    """Plain classifier settings and which naive loss to take."""
    config = _classifier.default_config("naive")
    # 'balanced' gives P and U the weight 1 each (GradPU, section 2); 'pooled' is the plain mean
    # over the batch, which collapses to all-negative where labels are few.
    config.weighting = "balanced"
    return config


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds the naive classifier."""
    weighting = config.method.weighting
    _checks.one_of("method.weighting", weighting, ("balanced", "pooled"))

    def pooled(scores, labeled):
        return risks.weighted_bce(scores, labeled, positive_weight=1.0)

    return _classifier.build(config, info, risks.naive if weighting == "balanced" else pooled)
