"""The section `data` of a config: its defaults, and the checks that need no data."""

import dataclasses
from typing import Any

import ml_collections
from ml_collections import config_dict

from pujax import checks
from pujax.data import dataset, multilabel_dataset, sources
from pujax.priors import NAMES as ESTIMATORS
from pujax.priors.consensus import NAME as CONSENSUS


def _source_options() -> dict[str, Any]:
    """Fields that a source takes, if it has an option of that name, and what leaves its default."""
    return {
        "streaming": "auto",  # 'on' leaves binary images in files, too, as multi-label sources do
        "tfds_name": "",  # for source 'tfds', for example 'cifar10'
        "train_split": "",  # of 'tfds', or a part such as 'train[80%:]'; '' is 'train'
        "test_split": "",  # likewise; '' is 'test' or, if there is none, 'validation'
        # For folders of images and 'tfds', where 0 keeps the stored size, and for multi-label
        # image files, where 0 is the source's own.
        "image_size": 0,
        "load_size": 0,  # of multi-label image files: side before the crop; 0 is the source's own
        "missing": "fail",  # or 'skip': what to do about image files that are not there
        "channels": 3,  # of image folders; 1 is grey
        "unreadable": "fail",  # or 'skip': what 'own_folder' does about damaged images
        "path": "",  # for 'own_table': the file; for 'own_folder': the folder
        "test_path": "",  # for 'own_table': a file of rows whose class is known, if there is one
        "label": "",  # for 'own_table': the label's column; for an .npy, the .npy of its labels
        "id_column": "",  # for 'own_table': what names a row; '' looks for one, 'none' is none
        "positive": "",  # for 'own_table': the word that marks a positive
        "zero_is": "auto",  # for 'own_table': what the run says of a 0, see readers.pu_labels
        "leave_out": "",  # for 'own_table': columns that are no features, with commas between them
        "words": "",  # for 'own_table': columns of words, whatever their cells look like, likewise
        "label_column": "",  # for 'table': its name in CSV files; '' is the last column
        "label_set": "",  # for 'cifar100': 'fine', or 'coarse', which is also what '' means
    }


def defaults() -> dict[str, Any]:
    """Every field of the section.

    Those that make a PU problem are the fields of `dataset.Settings`, or of
    `multilabel_dataset.Settings` where examples have several labels; these reach them by name.
    """
    return {
        "source": "digits",
        "dir": "",  # where the files are or go; '' is the user's cache
        **_source_options(),
        "known_ratio": 1.0,  # of multi-label sources: share of the labels that are known
        "known_seed": -1,  # which are; -1 is the run's seed, 0 the choice of PU-MLC's authors
        "positive_classes": (0, 2, 4, 6, 8),
        "num_positives": 0,  # that stay in the training set, P among them; 0: all
        "num_negatives": 0,  # likewise
        "num_labeled": 100,  # 0 takes the labels as they are, see also holdout
        "num_unlabeled": 0,  # 0: all that is left; else P and U are samples of their own
        "unlabeled_pool": "all",  # 'unknown_class' takes U from examples of unknown class alone
        "class_prior": config_dict.placeholder(object),  # draws U and the test set at it
        "num_support": 0,
        "setting": "one_sample",
        # Or 'balanced': U by class, too; 'uniform'; 'file_order': nothing at random.
        "sampling": "stratified",
        "labeling": "scar",  # or a biased choice: see pujax/data/splits/labeling_mechanisms.py
        "labeling_power": 1.0,  # exponent of 'power', 'power_mixed', 'gap', 'gap_boundary'
        "num_validation": 0,  # held out of training: rules choose an epoch by it
        "validation_labeled": 0,  # of its positives; 0 labels half of them
        "holdout": 0.0,  # share of P and of U that is held out where num_labeled is 0
        "split_seed": -1,  # of what is drawn of the data; -1 is the run's seed
        "scaling": "standard",  # by mean and deviation; 'unit': 0 to 1, tables as they are
        # None counts it in the source's labels, 'auto' estimates it before training.
        "prior": config_dict.placeholder(object),
        "prior_method": CONSENSUS,  # of 'auto': this, or one of pujax.priors.NAMES
        "prior_epochs": 5,  # of 'auto', for the network that scores P against U
    }


def check(data: ml_collections.ConfigDict) -> None:
    """Checks a section whose fields have the types of `defaults`.

    Raises:
      ValueError: naming the field, its value and what is accepted.
    """
    sources.check(data.source, fields=tuple(_source_options()), **source_options(data))
    is_multilabel = sources.is_multilabel(data.source)
    kind = "several labels" if is_multilabel else "one label"
    default = ml_collections.ConfigDict(defaults())
    own, other = (_fields(is_one) for is_one in (is_multilabel, not is_multilabel))
    for name in [name for name in other if name not in own]:
        checks.require(
            data[name] == default[name],
            f"data.{name}",
            data[name],
            f"{default[name]!r} with data.source={data.source!r}, whose examples have {kind} each",
        )
    _problem(is_multilabel).Settings(**settings(data))
    checks.one_of("data.prior_method", data.prior_method, (*ESTIMATORS, CONSENSUS))
    checks.at_least("data.prior_epochs", data.prior_epochs, 1)
    for name in ("prior_method", "prior_epochs"):
        accepted = f"{default[name]!r} where data.prior is not 'auto', since nothing is estimated"
        is_used = data.prior == dataset.AUTO or data[name] == default[name]
        checks.require(is_used, f"data.{name}", data[name], accepted)


def source_options(data: ml_collections.ConfigDict) -> dict[str, Any]:
    """The options of the source that differ from its defaults, as `sources.load` takes them."""
    options = _source_options()
    # A saved configuration may be older than a field.
    given = {name: data.get(name, unset) for name, unset in options.items()}
    return {name: value for name, value in given.items() if value != options[name]}


def settings(data: ml_collections.ConfigDict) -> dict[str, Any]:
    """The fields that make a problem out of a source, as its module's `build` takes them."""
    return {name: data[name] for name in _fields(sources.is_multilabel(data.source))}


def _problem(is_multilabel: bool) -> Any:
    return multilabel_dataset if is_multilabel else dataset


def _fields(is_multilabel: bool) -> list[str]:
    return [field.name for field in dataclasses.fields(_problem(is_multilabel).Settings)]
