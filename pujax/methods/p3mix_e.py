"""P3MIX-E: heuristic mixup with early-learning regularisation (Li et al., ICLR 2022).

Predictions on mixed examples are pulled to those of an averaged teacher, mixed with the same
partners. What both variants share is in `_p3mix`.
"""

import ml_collections

from pujax.data.pu_dataset import DataInfo
from pujax.methods import _p3mix
from pujax.methods.base import Method

SELECTION = "proxy_auc"


def default_config() -> ml_collections.ConfigDict:
    """Values of a public re-implementation: gamma 0.85, weights 0.5 and 5; see `_p3mix`."""
    return _p3mix.default_config("p3mix_e", gamma=0.85, entropy_weight=0.5, elr_weight=5.0)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds P3MIX-E."""
    return _p3mix.build(config, info)
