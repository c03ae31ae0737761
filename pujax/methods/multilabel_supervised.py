"""Supervised upper bound for several labels per example: cross-entropy on all true labels."""

import ml_collections

from pujax import risks
from pujax.data.multilabel import MultilabelInfo
from pujax.methods import Method, _multilabel

MULTILABEL = True


def default_config() -> ml_collections.ConfigDict:
    """Settings of every multi-label method."""
    return _multilabel.default_config("multilabel_supervised")


def build(config: ml_collections.ConfigDict, info: MultilabelInfo) -> Method:
    """Builds the oracle; labels that nobody knows are left out of the loss."""

    def risk(scores, labels):
        # Known labels at equal weight: with all of them known it is the plain cross-entropy.
        return risks.partial_bce(scores, labels, weight_at_tenth=1.0)

    return _multilabel.build(config, info, _multilabel.from_risk(risk), reveals="all")
