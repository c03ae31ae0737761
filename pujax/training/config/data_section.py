"""The section `data` of a config: its defaults, and the checks that need no data."""

from typing import Any

import ml_collections
from ml_collections import config_dict

from pujax import checks
from pujax.data import dataset, sources
from pujax.data.splits import labeling_mechanisms, split
from pujax.priors import NAMES as PRIOR_METHODS

_MULTILABEL_ONLY = ("load_size", "missing", "known_ratio", "known_seed")
_BINARY_ONLY = (
    *("positive_classes", "num_positives", "num_negatives", "num_labeled", "num_unlabeled"),
    *("class_prior", "num_support", "setting", "sampling", "labeling", "labeling_power"),
    *("num_validation", "validation_labeled", "prior"),
)


def defaults() -> dict[str, Any]:
    """Every field of the section; see `pujax.data.dataset.build`."""
    return {
        "source": "digits",
        "dir": "",  # where the files are or go; '' is the user's cache
        "tfds_name": "",  # for source 'tfds', for example 'cifar10'
        # For 'alzheimer' and 'tfds', where 0 keeps the stored size, and for streamed images, where
        # 0 is the source's own.
        "image_size": 0,
        "load_size": 0,  # of streamed images: side before the crop; 0 is the source's own
        "missing": "fail",  # or 'skip': what to do about image files that are not there
        "known_ratio": 1.0,  # of multi-label sources: share of the labels that are known
        "known_seed": -1,  # which are; -1 is the run's seed, 0 the choice of PU-MLC's authors
        "label_column": "",  # for 'table': its name in CSV files; '' is the last column
        "label_set": "",  # for 'cifar100': 'fine', or 'coarse', which is also what '' means
        "positive_classes": (0, 2, 4, 6, 8),
        "num_positives": 0,  # that stay in the training set, P among them; 0: all
        "num_negatives": 0,  # likewise
        "num_labeled": 100,
        "num_unlabeled": 0,  # 0: all that is left; else P and U are samples of their own
        "class_prior": config_dict.placeholder(object),  # draws U and the test set at it
        "num_support": 0,
        "setting": "one_sample",
        "sampling": "stratified",  # or 'uniform', or 'file_order': nothing at random
        "labeling": "scar",  # or a biased choice: see pujax/data/splits/labeling_mechanisms.py
        "labeling_power": 1.0,  # exponent of 'power', 'gap' and 'gap_boundary'
        "num_validation": 0,  # held out of training, for run.selection
        "validation_labeled": 0,  # of its positives; 0 labels half of them
        "scaling": "standard",  # by mean and deviation; 'unit': 0 to 1, tables as they are
        # None counts it in the source's labels, 'auto' estimates it before training.
        "prior": config_dict.placeholder(object),
        "prior_method": "best_bin",  # of 'auto', one of pujax.priors.NAMES
        "prior_epochs": 5,  # of 'auto', for the network that scores P against U
    }


def check(data: ml_collections.ConfigDict) -> None:
    """Checks a section whose fields have the types of `defaults`.

    Raises:
      ValueError: naming the field, its value and what is accepted.
    """
    _check_source(data)
    _check_multilabel(data)
    checks.one_of("data.setting", data.setting, dataset.SETTINGS)
    checks.one_of("data.scaling", data.scaling, dataset.SCALINGS)
    _check_counts(data)
    checks.one_of("data.labeling", data.labeling, labeling_mechanisms.NAMES)
    checks.at_least("data.labeling_power", data.labeling_power, 0)
    checks.require(
        data.labeling_power == 1.0 or data.labeling in labeling_mechanisms.WITH_POWER,
        "data.labeling_power",
        data.labeling_power,
        f"1.0 with data.labeling={data.labeling!r}, which has no exponent to choose",
    )
    if data.class_prior is not None:
        checks.between("data.class_prior", data.class_prior, 0, 1, include="neither")
    split.check_sampling(
        data.sampling,
        num_support=data.num_support,
        num_validation=data.num_validation,
        num_unlabeled=data.num_unlabeled,
        class_prior=data.class_prior,
        labeling="" if data.labeling == labeling_mechanisms.SCAR else data.labeling,
    )
    checks.one_of("data.prior_method", data.prior_method, PRIOR_METHODS)
    checks.at_least("data.prior_epochs", data.prior_epochs, 1)
    if data.prior not in (None, dataset.AUTO):
        checks.between("data.prior", data.prior, 0, 1, include="neither")


def _check_source(data):
    checks.one_of("data.source", data.source, sources.NAMES)
    if data.source == "tfds":
        checks.require(bool(data.tfds_name), "data.tfds_name", "", "the name of a TFDS data set")
    checks.at_least("data.image_size", data.image_size, 0)
    label_sets = sources.label_sets(data.source)
    named = f", {', '.join(map(repr, label_sets))}" if label_sets else ""
    checks.require(
        data.label_set in ("", *label_sets),
        "data.label_set",
        data.label_set,
        f"''{named} with data.source={data.source!r}",
    )


def _check_multilabel(data):
    """What only multi-label sources have, and what they have not."""
    checks.between("data.known_ratio", data.known_ratio, 0, 1, include="high")
    checks.at_least("data.known_seed", data.known_seed, -1)
    checks.at_least("data.load_size", data.load_size, 0)
    checks.one_of("data.missing", data.missing, ("fail", "skip"))
    is_multilabel, default = sources.is_multilabel(data.source), defaults()
    fields = _BINARY_ONLY if is_multilabel else _MULTILABEL_ONLY
    kind = "several labels" if is_multilabel else "one label"
    for name in fields:
        given, accepted = data[name], default[name]
        accepted = accepted.get() if hasattr(accepted, "get") else accepted
        checks.require(
            given == accepted,
            f"data.{name}",
            given,
            f"{accepted!r} with data.source={data.source!r}, whose examples have {kind} each",
        )


def _check_counts(data):
    checks.at_least("data.num_labeled", data.num_labeled, 1)
    counts = ("num_positives", "num_negatives", "num_unlabeled", "num_support")
    for name in (*counts, "num_validation", "validation_labeled"):
        checks.at_least(f"data.{name}", data[name], 0)
    checks.require(
        data.num_labeled <= data.num_positives or not data.num_positives,
        "data.num_labeled",
        data.num_labeled,
        f"at most {data.num_positives}, which is data.num_positives",
    )
    checks.require(
        data.validation_labeled <= data.num_validation,
        "data.validation_labeled",
        data.validation_labeled,
        f"at most {data.num_validation}, which is data.num_validation",
    )
