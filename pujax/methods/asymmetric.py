"""Asymmetric loss for several labels per example (Ridnik et al., ICCV 2021)."""

import ml_collections

from pujax import checks, risks
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.methods._common import classifier, sections
from pujax.methods.base import Method
from pujax.risks.multilabel_supervised import UNKNOWN

MULTILABEL = True


def default_config() -> ml_collections.ConfigDict:
    """Settings of every multi-label method, and those of the loss, see `risks.asymmetric`."""
    return sections.multilabel_config(
        "asymmetric",
        gamma_negative=4.0,
        gamma_positive=1.0,
        clip=0.05,
        unknown="negative",  # or 'ignore'
        stop_weight_gradient=True,
    )


def build(config: ml_collections.ConfigDict, info: MultilabelInfo) -> Method:
    """Builds the classifier."""
    c = config.method
    checks.at_least("method.gamma_negative", c.gamma_negative, 0)
    checks.at_least("method.gamma_positive", c.gamma_positive, 0)
    checks.between("method.clip", c.clip, 0, 1, include="low")
    checks.one_of("method.unknown", c.unknown, UNKNOWN)
    settings = {
        "gamma_negative": c.gamma_negative,
        "gamma_positive": c.gamma_positive,
        "clip": c.clip,
        "unknown": c.unknown,
        "stop_weight_gradient": c.stop_weight_gradient,
    }

    def risk(scores, labels):
        return risks.asymmetric(scores, labels, **settings)

    return classifier.build(config, info, risk)
