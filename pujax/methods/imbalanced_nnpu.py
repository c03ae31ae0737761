"""Imbalanced nnPU: the balanced risk from PU data (Su, Chen, Xu, IJCAI 2021)."""

from typing import Any

import ml_collections

from pujax import checks, risks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import calibration, classifier, losses, online, sections
from pujax.methods.base import Method


def default_config() -> ml_collections.ConfigDict:
    """Baseline settings with the batches of the authors' code: 10 of P and 500 of U, in one pass.

    An epoch is as long as for the other methods, not one pass over P as in that code.
    """
    return sections.baseline_config(
        "imbalanced_nnpu",
        batch_size=510,
        batching="separate",
        positives_per_batch=10,
        loss="sigmoid",
        beta=0.0,
        gamma=1.0,
        ascent=True,
        target_prior=0.5,
        calibration="auto",
        **online.default_config(weights=True),
    )


def risk(config: ml_collections.ConfigDict, info: DataInfo) -> Any:
    """The risk `(scores, labeled) -> scalar` for the prior `target_prior`, whatever the data's is.

    It takes the keywords `prior`, `target_prior` and `weights`, see `nnpu.risk`.

    Raises:
      ValueError: for a setting that cannot be.
    """
    c = config
    checks.between("method.target_prior", c.target_prior, 0, 1, include="neither")
    checks.at_least("method.beta", c.beta, 0)
    checks.at_least("method.gamma", c.gamma, 0)
    numbers: dict[str, Any] = {
        "prior": calibration.unlabeled_prior(info, c.calibration),
        "loss": losses.surrogate(c.loss),
    }
    numbers |= {name: c[name] for name in ("target_prior", "beta", "gamma", "ascent")}
    loss = numbers.pop("loss")

    def of_batch(scores, labeled, prior=None, weights=None, **learned):
        told = numbers | learned
        if prior is not None:
            known = calibration.at_prior(info, prior)
            told["prior"] = calibration.unlabeled_prior(known, c.calibration)
        weighted = losses.weighted(loss, weights)
        return risks.imbalanced_nnpu(scores, labeled, loss=weighted, **told)

    return of_batch


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds the classifier."""
    learnable = {
        "prior": online.class_prior(info),
        "target_prior": online.Scalar(config.method.target_prior, 0.01, 0.99),
    }
    return classifier.build(config, info, risk(config.method, info), scalars=learnable, groups=True)
