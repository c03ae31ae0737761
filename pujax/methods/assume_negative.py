"""Assume-negative cross-entropy: every label that is not known to be positive is negative."""

import ml_collections

from pujax import risks
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.methods._common import multilabel
from pujax.methods.base import Method

MULTILABEL = True


def default_config() -> ml_collections.ConfigDict:
    """Settings of every multi-label method."""
    return multilabel.default_config("assume_negative")


def build(config: ml_collections.ConfigDict, info: MultilabelInfo) -> Method:
    """Builds the classifier."""
    return multilabel.build(config, info, multilabel.from_risk(risks.assume_negative_bce))
