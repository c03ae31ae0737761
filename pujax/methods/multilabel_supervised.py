"""Supervised upper bound for several labels per example: cross-entropy on all true labels."""

import ml_collections

from pujax import risks
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.methods._common import classifier, sections
from pujax.methods.base import Method

MULTILABEL = True
ORACLE = True


def default_config() -> ml_collections.ConfigDict:
    """Settings of every multi-label method."""
    return sections.multilabel_config("multilabel_supervised")


def build(config: ml_collections.ConfigDict, info: MultilabelInfo) -> Method:
    """Builds the oracle; unknown labels are left out of the loss."""

    def risk(scores, labels):
        # Known labels at equal weight: with all of them known it is the plain cross-entropy.
        return risks.partial_bce(scores, labels, weight_at_tenth=1.0)

    return classifier.build(config, info, risk, reveals="all")
