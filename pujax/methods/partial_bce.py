"""Partial cross-entropy on the known labels, negatives too (Durand et al., CVPR 2019)."""

import ml_collections

from pujax import checks, risks
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.methods._common import classifier, sections
from pujax.methods.base import Method

MULTILABEL = True


def default_config() -> ml_collections.ConfigDict:
    """Settings of every multi-label method, and the weight of scarcely labelled examples."""
    return sections.multilabel_config("partial_bce", gamma=1.0, weight_at_tenth=5.0)


def build(config: ml_collections.ConfigDict, info: MultilabelInfo) -> Method:
    """Builds the classifier; unlike PU methods it is told the known negatives."""
    c = config.method
    checks.require(c.gamma != 0, "method.gamma", c.gamma, "a number other than 0")
    checks.at_least("method.weight_at_tenth", c.weight_at_tenth, 0)

    def risk(scores, labels):
        return risks.partial_bce(scores, labels, gamma=c.gamma, weight_at_tenth=c.weight_at_tenth)

    return classifier.build(config, info, risk)
