"""Sections of plain classifiers: their fields and defaults, checks, and the batches they ask for.

`classifier` trains what such a section says; methods with steps of their own have the same fields.
"""

from typing import Any

import ml_collections

from pujax import checks
from pujax.data.batching import Batching
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import optimizer as optimizer_lib
from pujax.models import multilabel

_LENGTH_AND_VIEWS = {
    "num_epochs": 100,
    "batch_size": 64,
    "augment": True,
    "flip": True,
}
_PADDING = {"padding": 4}
_BATCHES = {
    # 'joint' shuffles P and U together; 'separate' puts a fixed number of P in each batch.
    "batching": "joint",
    "positives_per_batch": 0,  # of separate batches; 0 is the share of P in the data
}
_MULTILABEL = {
    "head": "gap",  # or 'semantic_graph', that of PU-MLC's code
    "word_vectors": "",  # of that head: an .npy file [classes, width], or 'random'
    "reduced_width": 1024,  # of that head, as the next two
    "attention_width": 512,
    "graph_steps": 3,
    "crop_sizes": (),  # sides of random crops in pixels of the loaded image
}


def default_config(name: str, **changes: Any) -> ml_collections.ConfigDict:
    """Settings that every plain classifier has: by default those of LaGAM's comparison.

    Args:
      name: of the method.
      **changes: fields to set or add.

    Returns:
      A new `ConfigDict`.
    """
    settings = {"name": name, **_LENGTH_AND_VIEWS, **_PADDING, **_BATCHES}
    return optimizer_lib.default_config(**(settings | changes))


def baseline_config(name: str, **changes: Any) -> ml_collections.ConfigDict:
    """Settings of the PU baselines: Adam, batches of 256, no augmentation."""
    settings = dict(optimizer_lib.adam_config())
    settings |= {"batch_size": 256, "augment": False, "weight_decay": 5e-3}
    return default_config(name, **(settings | changes))


def multilabel_config(name: str, **changes: Any) -> ml_collections.ConfigDict:
    """Settings of every method for several labels: Adam, and averaged weights that predict."""
    settings = {"name": name, **_LENGTH_AND_VIEWS, **_MULTILABEL, "average_decay": 0.99}
    return optimizer_lib.adam_config(**(settings | changes))


def shared_fields() -> tuple[str, ...]:
    """Fields that methods have in common: optimizer, length, views, network, not how P is drawn."""
    shared = {**optimizer_lib.default_config(), **_LENGTH_AND_VIEWS, **_PADDING, **_MULTILABEL}
    return tuple(sorted(shared))


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    optimizer_lib.check(config)
    checks.at_least("method.padding", config.padding, 0)
    check_batches(config)


def check_batches(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for batches that cannot be."""
    checks.one_of("method.batching", config.batching, ("joint", "separate"))
    checks.between("method.positives_per_batch", config.positives_per_batch, 0, config.batch_size)
    checks.require(
        config.batching == "separate" or not config.positives_per_batch,
        "method.positives_per_batch",
        config.positives_per_batch,
        "0 while method.batching is 'joint'",
    )
    if "positive_share" in config:
        checks.between("method.positive_share", config.positive_share, 0, 1, include="low")


def require_joint(config: ml_collections.ConfigDict) -> None:
    """Requires batches in which P and U are as in the data, for weights that count on it."""
    accepted = "'joint', since the loss is a mean over the whole batch"
    checks.require(config.batching == "joint", "method.batching", config.batching, accepted)


def require_pooled(config: ml_collections.ConfigDict) -> None:
    """Requires what the pooled cross-entropy is: joint batches and the logistic loss."""
    require_joint(config)
    accepted = "'logistic' while method.weighting is 'pooled'"
    checks.require(config.loss == "logistic", "method.loss", config.loss, accepted)


def batches(config: ml_collections.ConfigDict, info: DataInfo, **changes: Any) -> Batching:
    """The batches that `config.batching` asks for.

    Separate ones hold `positives_per_batch` labelled positives, or as many as P's share in the data
    (at least one, and at least the share `positive_share` where the section has it), and the rest
    from U.

    Args:
      config: the method's section.
      info: numbers of the data set.
      **changes: fields of `Batching` to set.

    Returns:
      A `Batching`.
    """
    size, count = config.batch_size, 0
    if config.batching == "separate":
        most = size - 1
        share = config.get("positive_share", 0.0)
        least = max(1, min(round(size * share), most))
        count = config.positives_per_batch or max(least, round(size * info.n_p / info.n))
        checks.between("method.positives_per_batch", count, 1, most)
    return Batching(**({"batch_size": size, "num_positives": count} | changes))


def once_through_unlabeled(batching: Batching, info: DataInfo) -> Batching:
    """The same batches, in an epoch as many as U fills, so that none of it is seen twice.

    Args:
      batching: as from `batches`.
      info: numbers of the data set.

    Raises:
      ValueError: if U does not fill its part of one batch.
    """
    from_u = batching.batch_size - batching.num_positives
    accepted = (
        f"at most {info.n_u + batching.num_positives}, the labelled positives of a batch "
        f"({batching.num_positives}, method.positives_per_batch) and all of U ({info.n_u})"
    )
    is_filled = from_u <= info.n_u or not batching.num_positives
    checks.require(is_filled, "method.batch_size", batching.batch_size, accepted)
    return batching._replace(steps=info.n_u // from_u)


def check_multilabel(config: ml_collections.ConfigDict, info: MultilabelInfo) -> None:
    """Raises a ValueError for settings of several labels that cannot be."""
    optimizer_lib.check(config)
    checks.one_of("method.head", config.head, multilabel.HEADS)
    if config.crop_sizes and config.augment:
        side = info.load_side or min(info.input_shape[:2])
        for size in config.crop_sizes:
            accepted = f"whole numbers from 1 to {side}, the side of the loaded images"
            checks.require(1 <= size <= side, "method.crop_sizes", config.crop_sizes, accepted)
