"""Weighted binary cross-entropy: unlabeled as negative, labelled positives weighted up."""

import ml_collections

from pujax import checks, risks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import classifier, online, sections, threshold
from pujax.methods.base import Method

SELECTION = "proxy_accuracy_vpu"
SELECTION_WITHOUT_PRIOR = "vpu_risk"


def default_config() -> ml_collections.ConfigDict:
    """Baseline settings; `positive_weight` 0 stands for n_u / n_p of the data set.

    `threshold`: 'zero' is the usual classifier; 'prior' leaves the share of positives of U above
    the cut; 'auto' is 'prior' where one is known, U holds both classes and images are not streamed.
    """
    return sections.baseline_config(
        "weighted_bce", positive_weight=0.0, threshold="auto", **online.default_config()
    )


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds the weighted classifier."""
    c = config.method
    sections.require_joint(c)
    checks.at_least("method.positive_weight", c.positive_weight, 0)
    weight = c.positive_weight or info.n_u / info.n_p

    def risk(scores, labeled, positive_weight=weight):
        return risks.weighted_bce(scores, labeled, positive_weight=positive_weight)

    learnable = {"positive_weight": online.weight(weight)}
    method = classifier.build(config, info, risk, scalars=learnable)
    return threshold.wrap(method, config, info)
