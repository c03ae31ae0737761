"""nnPU: the non-negative PU risk (Kiryo et al., NIPS 2017)."""

import math
from typing import Any

import ml_collections

from pujax import checks, risks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import alignment, calibration, classifier, losses, online, sections
from pujax.methods.base import Method

OWN_ROWS = {"loss": "logistic"}


def default_config() -> ml_collections.ConfigDict:
    """Baseline settings and those of the risk, see `risks.nnpu`.

    Two settings are not as published, since with the published ones some seeds fall into one class
    where labels are few (docs/results/nnpu.md has the numbers):
    - `positive_share`: at least this share of a batch is P, more where P is a larger share of the
      data. Where a batch holds a few of P, its estimate of what positives contribute to U is mostly
      noise. 0 takes as many as are in the data, as a shuffle of P and U together does on average.
    - `keep_positive`: the positive part stays in the gradient of a correction step, which without
      it pushes P down. False is Algorithm 1 of the paper.

    `first_bias='prior'` begins with the log odds of the prior as bias of the last layer, where the
    scores of a calibrated classifier are on average near; 'random' with the network's own.
    """
    return sections.baseline_config(
        "nnpu",
        batching="separate",
        positive_share=0.125,
        keep_positive=True,
        first_bias="random",
        **risk_config(),
        **online.default_config(weights=True),
        **alignment.switch(),
    )


def risk_config(**changes: Any) -> dict[str, Any]:
    """Fields of the risk: loss, sign rule, and how it is calibrated (`calibration`)."""
    fields = {"loss": "sigmoid", "beta": 0.0, "gamma": 1.0, "ascent": True, "calibration": "auto"}
    return fields | changes


def risk(config: ml_collections.ConfigDict, info: DataInfo) -> Any:
    """The risk `(scores, labeled) -> scalar` of a section with the fields of `risk_config`.

    It takes the keywords `prior`, another share of positives in the population, and `weights`
    `[batch]`, factors of the losses of single examples.

    Raises:
      ValueError: for a setting that cannot be.
    """
    checks.at_least("method.beta", config.beta, 0)
    checks.at_least("method.gamma", config.gamma, 0)
    loss = losses.surrogate(config.loss)
    numbers: dict[str, Any] = {"beta": config.beta, "gamma": config.gamma, "ascent": config.ascent}
    numbers["keep_positive"] = config.get("keep_positive", False)  # a field of nnPU alone
    numbers |= calibration.risk_numbers(info, config.calibration)

    def of_batch(scores, labeled, prior=None, weights=None):
        told = numbers
        if prior is not None:
            known = calibration.at_prior(info, prior)
            told = numbers | calibration.risk_numbers(known, config.calibration)
        return risks.nnpu(scores, labeled, loss=losses.weighted(loss, weights), **told)

    return of_batch


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds the nnPU classifier."""
    first = config.method.get("first_bias", "random")  # models of earlier versions are without it
    checks.one_of("method.first_bias", first, ("random", "prior"))
    return classifier.build(
        config,
        info,
        risk(config.method, info),
        scalars={"prior": online.class_prior(info)},
        groups=True,
        first_bias=math.log(info.prior / (1 - info.prior)) if first == "prior" else None,
    )
