"""Supervised upper bound: the same network trained on true labels."""

import ml_collections

from pujax import checks, risks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import classifier, losses, sections
from pujax.methods.base import Method

NEEDS_NEGATIVES = True
SELECTION = "vpu_risk"
ORACLE = True


def default_config() -> ml_collections.ConfigDict:
    """Baseline settings, which labels are revealed and how classes weigh.

    `positives`: 'all' trains on the true label of every training example; 'labeled' trains the
    labelled positives against the true negatives of U, as GradPU's table does (section 6 of its
    protocol), so that it differs from the PU methods only in the hidden positives.
    `weighting`: 'pooled' is the mean over the batch, 'balanced' gives both classes the weight 1.
    """
    return sections.baseline_config(
        "supervised", positives="all", weighting="pooled", loss="logistic"
    )


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds the oracle; its data carry the truth, and its summary says so."""
    c = config.method
    checks.one_of("method.positives", c.positives, ("all", "labeled"))
    checks.one_of("method.weighting", c.weighting, ("pooled", "balanced"))
    loss = losses.surrogate(c.loss)
    if c.weighting == "pooled":
        sections.require_pooled(c)

    def risk(scores, labels):
        if c.weighting == "balanced":
            return risks.naive(scores, labels, loss=loss)
        return risks.weighted_bce(scores, labels, positive_weight=1.0)

    reveals = "all" if c.positives == "all" else "negatives"
    return classifier.build(config, info, risk, reveals=reveals)
