"""PU-MLC on scene (Boutell et al., 2004): six labels, a tenth of which is known.

    python train.py --config=configs/pu_mlc_scene.py --config.data.dir=FOLDER/scene.npz

Under two minutes on two CPU cores, with the assume-negative and the fully labelled cross-entropy on
the same data beside it. It is `configs/pu_mlc.py:data=scene` with less to choose.
"""

import ml_collections

from pujax.configs import common, pu_mlc


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration; it takes no argument."""
    common.parse(argument)
    config = pu_mlc.get_config("data=scene")
    config.data.known_ratio = 0.1
    config.run.compare = "assume_negative,multilabel_supervised"
    return config
