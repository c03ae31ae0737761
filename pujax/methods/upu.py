"""uPU: the unbiased PU risk (du Plessis, Niu, Sugiyama, NIPS 2014 and ICML 2015)."""

import ml_collections

from pujax import risks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import alignment, calibration, classifier, losses, online, sections
from pujax.methods.base import Method

SELECTION = "nnpu_risk"


def default_config() -> ml_collections.ConfigDict:
    """Baseline settings; the surrogate loss and the calibration are those of nnPU."""
    return sections.baseline_config(
        "upu",
        batching="separate",
        loss="sigmoid",
        calibration="auto",
        **online.default_config(weights=True),
        **alignment.switch(),
    )


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds the uPU classifier, whose risk may go far below zero: it is not bounded."""
    c = config.method
    numbers = calibration.risk_numbers(info, c.calibration)
    loss = losses.surrogate(c.loss)

    def risk(scores, labeled, prior=None, weights=None):
        told = numbers
        if prior is not None:
            told = calibration.risk_numbers(calibration.at_prior(info, prior), c.calibration)
        return risks.upu(scores, labeled, loss=losses.weighted(loss, weights), **told)

    learnable = {"prior": online.class_prior(info)}
    return classifier.build(config, info, risk, scalars=learnable, groups=True)
