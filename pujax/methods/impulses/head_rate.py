"""The learning rate of the head, which follows its width where the field says 'auto'.

A step of Adam moves every weight by about the rate, and so a score by the rate times the sum of the
features' sizes: a linear layer on fewer features learns more slowly, in proportion. So its rate is
in inverse proportion to their number (Yang et al., "Tensor Programs V", 2021, Table 3, output
weights with Adam). Fine-tuning keeps the published rate.
"""

import logging
import math

import ml_collections

from pujax import checks

_LOG = logging.getLogger(__name__)

AUTO = "auto"
PUBLISHED = 3e-4
"""The released code's rate, of a ResNet-50 and of a linear head on its features."""
_PUBLISHED_WIDTH = 2048


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError unless the field is 'auto' or a rate."""
    rate = config.head_learning_rate
    checks.between("method.head_learning_rate", rate, 0, math.inf, include="neither", word=AUTO)


def resolved(config: ml_collections.ConfigDict, num_features: int) -> float:
    """The rate of a section's head on so many features; says it where it is not the published one.

    Args:
      config: the method's section.
      num_features: that the head sees.

    Returns:
      The rate.
    """
    if config.head_learning_rate != AUTO:
        return float(config.head_learning_rate)
    if config.head != "linear":
        return PUBLISHED
    rate = linear(num_features)
    if num_features != _PUBLISHED_WIDTH:
        _LOG.warning(
            "method.head_learning_rate is %.3g: %g for the published %d features, here %d",
            *(rate, PUBLISHED, _PUBLISHED_WIDTH, num_features),
        )
    return rate


def linear(num_features: int) -> float:
    """The published rate of a linear head on 2,048 features, for another number of them."""
    return PUBLISHED * _PUBLISHED_WIDTH / num_features
