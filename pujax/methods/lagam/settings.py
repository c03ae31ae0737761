"""The settings of LaGAM: what is published, what else can be set, and what cannot be."""

from collections.abc import Mapping
from typing import Any

import ml_collections

from pujax import checks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import alignment
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods.lagam import decision, virtual_steps

PSEUDO_NEGATIVES = "pseudo_negatives"
"""The value of `support_source` without clean examples."""
_LABEL_UPDATES = ("projected", "normalized", "weighted")
_LABEL_MEMORIES = ("schedule", "support_loss")


def default_config() -> ml_collections.ConfigDict:
    """The published settings (paper section 4.1 and the authors' command lines).

    But for `threshold`: 'zero' is published, for problems whose classes are about as frequent;
    'prior' follows the class prior, see `decision.threshold`; 'auto' is 'prior' where one is known.
    """
    config = optimizer_lib.default_config()
    config.update(
        {
            "name": "lagam",
            "num_epochs": 400,
            "warmup_epochs": 20,
            "batch_size": 64,
            "support_batch_size": 64,
            # Classification: 'balanced' (the code), 'mean' (paper Eq. 1) or 'nnpu' (Table 3).
            "classification_loss": "balanced",
            "entropy_weight": 0.0,
            "mixup_alpha": 4.0,
            "mixup_weight": 1.0,
            "skip_empty_batches": True,
            "threshold": "auto",
            # Contrastive part (paper section 3.2).
            "use_contrast": True,
            "contrast_weight": 1.0,
            "temperature": 0.07,
            "embedding_dim": 128,
            "use_groups": True,
            "use_cutoff": True,
            "cutoff": 0.5,
            "use_neighbors": True,
            "num_neighbors": 10,
            "neighbors_after_epoch": 50,
            "num_clusters": 100,
            "kmeans_iterations": 20,
            "kmeans_restarts": 5,
            # Label update (paper section 3.3).
            "use_meta": True,
            **virtual_steps.default_config(),
            "label_update": "projected",
            # What sets how much of an old label stays beside rho: nothing else, 'schedule', or the
            # share of the support loss that is left, 'support_loss' (in no paper).
            "label_memory": "schedule",
            "support_margin": 0.0,
            "rho_start": 0.95,
            "rho_end": 0.80,
            "pin_labeled": True,
            # Clean examples held apart, 'support', or known positives and unlabeled examples out of
            # the lowest-scored share, drawn anew before every epoch: 'pseudo_negatives'.
            "support_source": "support",
            "pseudo_negative_share": 0.5,
            "pseudo_support_size": 500,
            "record_label_gradients": False,
            # Views.
            "augment": True,
            "flip": True,
            "padding": 4,
            # Alignment, in no paper together with LaGAM.
            **alignment.switch(),
        }
    )
    return config


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be, before anything is compiled."""
    c = config
    optimizer_lib.check(c)
    checks.between("method.warmup_epochs", c.warmup_epochs, 0, c.num_epochs)
    forms = ("balanced", "mean", "nnpu")
    checks.one_of("method.classification_loss", c.classification_loss, forms)
    decision.check(c, info)
    checks.one_of("method.label_update", c.label_update, _LABEL_UPDATES)
    checks.one_of("method.label_memory", c.label_memory, _LABEL_MEMORIES)
    checks.at_least("method.support_margin", c.support_margin, 0)
    checks.one_of("method.support_source", c.support_source, ("support", PSEUDO_NEGATIVES))
    checks.between("method.pseudo_negative_share", c.pseudo_negative_share, 0, 1, include="high")
    checks.whole_number("method.pseudo_support_size", c.pseudo_support_size, 2)
    virtual_steps.check(c)
    for name in ("temperature", "mixup_alpha"):
        checks.positive(f"method.{name}", c[name])
    for name in ("mixup_weight", "contrast_weight", "entropy_weight"):
        checks.at_least(f"method.{name}", c[name], 0)
    for name in ("rho_start", "rho_end"):
        checks.between(f"method.{name}", c[name], 0, 1)
    checks.at_least("method.padding", c.padding, 0)
    for name in ("embedding_dim", "kmeans_iterations", "kmeans_restarts"):
        checks.at_least(f"method.{name}", c[name], 1)
    checks.at_least("method.num_neighbors", c.num_neighbors, 0)
    checks.at_least("method.neighbors_after_epoch", c.neighbors_after_epoch, 0)
    checks.between("method.num_clusters", c.num_clusters, 1, info.n)
    checks.require(
        not (c.align_weight and info.is_table),
        "method.align_weight",
        c.align_weight,
        f"0, since the data ({info.name}) are a table, whose rows have no two strong views",
    )
    if c.use_meta:
        checks.require(
            c.classification_loss != "nnpu",
            "method.classification_loss",
            c.classification_loss,
            "'balanced' or 'mean' while method.use_meta is True (nnPU has no labels to learn)",
        )
        if c.support_source == PSEUDO_NEGATIVES:
            _check_pseudo_support(c)
            return
        checks.require(
            0 < info.support_positives < info.n_support,
            "data.num_support",
            info.n_support,
            "enough support examples to hold both classes while method.use_meta is True "
            f"({info.support_positives} of these are positive)",
        )
        checks.between("method.support_batch_size", c.support_batch_size, 1, info.n_support)


def _check_pseudo_support(c: ml_collections.ConfigDict) -> None:
    """Raises a ValueError unless there are scores to choose by, and both classes in a batch."""
    where = f"with method.support_source={PSEUDO_NEGATIVES!r}"
    checks.require(
        c.warmup_epochs > 0,
        "method.warmup_epochs",
        c.warmup_epochs,
        f"at least 1 {where}, since an untrained network's lowest scores mean nothing",
    )
    size = c.support_batch_size
    checks.require(size >= 2, "method.support_batch_size", size, f"at least 2 {where}")


def needs_negatives(section: Mapping[str, Any]) -> bool:
    """Whether a configuration needs clean examples of both classes.

    Args:
      section: fields of the method; one that is missing has its default.
    """
    source = section.get("support_source", "support")
    return section.get("use_meta", True) and source != PSEUDO_NEGATIVES
