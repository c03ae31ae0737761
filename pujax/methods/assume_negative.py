"""Assume-negative cross-entropy: every label that is not known to be positive is negative."""

import ml_collections

from pujax import risks
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.methods._common import classifier, sections
from pujax.methods.base import Method

MULTILABEL = True


def default_config() -> ml_collections.ConfigDict:
    """Settings of every multi-label method."""
    return sections.multilabel_config("assume_negative")


def build(config: ml_collections.ConfigDict, info: MultilabelInfo) -> Method:
    """Builds the classifier."""
    return classifier.build(config, info, risks.assume_negative_bce)
