"""P3MIX-C: heuristic mixup with label correction (Li et al., ICLR 2022).

An unlabeled example that the network is sure is positive counts as positive for that step, before
anything is mixed. What both variants share is in `_p3mix`.
"""

import ml_collections

from pujax.data.pu_dataset import DataInfo
from pujax.methods import _p3mix
from pujax.methods.base import Method

SELECTION = "vpu_risk"


def default_config() -> ml_collections.ConfigDict:
    """Values of a public re-implementation: gamma 0.8, entropy weight 0.1; see `_p3mix`."""
    return _p3mix.default_config("p3mix_c", gamma=0.8, entropy_weight=0.1, relabel=True)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds P3MIX-C."""
    return _p3mix.build(config, info)
