"""Assume-negative cross-entropy: every label that is not known to be positive is negative."""

import ml_collections

from pujax import risks
from pujax.data.multilabel import MultilabelInfo
from pujax.methods import Method, _multilabel

MULTILABEL = True


def default_config() -> ml_collections.ConfigDict:
    """Settings of every multi-label method."""
    return _multilabel.default_config("assume_negative")


def build(config: ml_collections.ConfigDict, info: MultilabelInfo) -> Method:
    """Builds the classifier."""
    return _multilabel.build(config, info, _multilabel.from_risk(risks.assume_negative_bce))
