"""Naive baseline: treat every unlabeled example as negative."""

import ml_collections

from pujax import checks, risks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import alignment, calibration, classifier, losses, online, sections
from pujax.methods.base import Method

SELECTION = "vpu_risk"


def default_config() -> ml_collections.ConfigDict:
    """Baseline settings and which naive loss to take.

    `weighting`: 'balanced' gives P and U the weight 1 each (GradPU, section 2); 'pooled' is the
    plain mean over the batch, which collapses to all-negative where labels are few; 'prior' gives
    them the class prior and its complement. Batches are joint: on digits that is the stronger
    baseline by two points. A joint batch without P has no P term, so where P is rare in a batch
    'balanced' gives it less than the weight 1; `batching='separate'` does not.
    """
    return sections.baseline_config(
        "naive",
        weighting="balanced",
        loss="logistic",
        **online.default_config(weights=True),
        **alignment.switch(),
    )


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds the naive classifier."""
    c = config.method
    checks.one_of("method.weighting", c.weighting, ("balanced", "pooled", "prior"))
    loss = losses.surrogate(c.loss)
    if c.weighting == "pooled":
        sections.require_pooled(c)
    online.check_weights(c)
    checks.require(
        c.weighting == "pooled" or not online.has_weights(c),
        "method.weighting",
        c.weighting,
        "'pooled' while method.example_weights is not 'none', since all weights are then learned",
    )
    if c.weighting == "prior":
        calibration.require_prior(info)

    def balanced(scores, labeled):
        return risks.naive(scores, labeled, loss=loss)

    def pooled(scores, labeled, weights=None):
        return risks.weighted_bce(scores, labeled, positive_weight=1.0, weights=weights)

    def by_prior(scores, labeled):
        # The uPU parts with no positives in U: `prior E_P l(g) + (1 - prior) E_U l(-g)`.
        parts = risks.pu_parts(
            scores,
            labeled,
            prior=info.prior,
            loss=loss,
            unlabeled_prior=0.0,
            unlabeled_weight=1 - info.prior,
        )
        return parts.positive + parts.negative

    risk = {"balanced": balanced, "pooled": pooled, "prior": by_prior}[c.weighting]
    return classifier.build(config, info, risk)
