"""Method floor: one file per PU method, each exposing `default_config()` and `build(...)`.

A method is a `Method` of pure functions. The loop owns keys, sharding, donation, logging,
evaluation, checkpoints, signals and non-finite numbers; a method owns its mathematics. Adding one
is adding a file here, which `config.method.name` names, or a module anywhere that Python can import
it from: a name with a dot is that of such a module, as `mypackage.mine`.
"""

import functools
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import ml_collections
import numpy as np

from pujax import catalogue, checks
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.data.pu_dataset import DataInfo
from pujax.methods import _loading
from pujax.methods._common import alignment, averaging, freezing
from pujax.methods._common.network import build as build_network
from pujax.methods._common.optimizer import RENAMED
from pujax.methods._common.sections import shared_fields
from pujax.methods._loading import UnusableMethod
from pujax.methods.base import Method, Metrics, Stage

__all__ = [
    "MARKERS",
    "RENAMED",
    "Method",
    "Metrics",
    "Stage",
    "UnusableMethod",
    "build",
    "build_network",
    "compares_views",
    "for_own_rows",
    "from_labels",
    "has_network",
    "is_multilabel",
    "is_own",
    "label_warnings",
    "module",
    "names",
    "needs_negatives",
    "of_kind",
    "own_rows",
    "selection",
    "set_length",
    "shared_fields",
    "stage_lengths",
    "without_negatives",
]

MARKERS: dict[str, Any] = {
    "COMPARES_VIEWS": False,
    "MULTILABEL": False,
    "NEEDS_NEGATIVES": False,
    "NETWORK": True,
    "ORACLE": False,
    "OWN_ROWS": {},
    "ROUND_LENGTHS": (),
    "SELECTION": "last",
    "SELECTION_WITHOUT_PRIOR": "proxy_auc",
    "STAGE_LENGTHS": (),
}
"""What a method's module may say of it in upper case, and what holds where it says nothing.

`docs/adding_a_method.md` says what each means. Other names in upper case that a method's module
gives a value begin with an underscore, so that a misspelt one is found: near ones are refused, and
the others by `tests/contract`.
"""


def _said(name: str, marker: str) -> Any:
    """What a method's module says, or what holds for all."""
    return getattr(module(name), marker, MARKERS[marker])


def names() -> tuple[str, ...]:
    """Names of all methods of pujax, in alphabetical order.

    They are the files and folders here but `base.py` and those that start with `_`.
    """
    return _names_in(tuple(__path__))


@functools.cache
def _names_in(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The same, looked up once: a configuration asks dozens of times."""
    modules = (module.name for module in pkgutil.iter_modules(folders))
    return tuple(sorted(name for name in modules if name != "base" and not name.startswith("_")))


def of_kind(*, multilabel: bool) -> tuple[str, ...]:
    """Names of the methods of pujax for one label per example, or for several.

    None is imported. A file that is no Python is left out; who asks for its method is told.

    Args:
      multilabel: whether for several.
    """
    return tuple(x.name for x in catalogue.methods() if x.is_multilabel == multilabel)


def is_own(name: object) -> bool:
    """Whether a name is that of a module outside of pujax, which has a dot: PACKAGE.MODULE."""
    return isinstance(name, str) and "." in name


def is_multilabel(name: str) -> bool:
    """Whether a method is for several labels per example, which its module says."""
    return _said(name, "MULTILABEL")


def compares_views(name: str) -> bool:
    """Whether a method's loss compares random views of an example, which its module says.

    It then learns little or nothing from images without `method.augment`.
    """
    return _said(name, "COMPARES_VIEWS")


def needs_negatives(name: str, section: Mapping[str, Any] | None = None) -> bool:
    """Whether a method needs examples that are known to be negative, which its module says.

    Args:
      name: of the method.
      section: fields of the method that differ from the defaults, or all; None for the defaults. A
        module whose answer depends on them has the function `needs_negatives(section)`.
    """
    decides = getattr(module(name), "needs_negatives", None)
    if section is None or decides is None:
        return _said(name, "NEEDS_NEGATIVES")
    return decides(section)


def without_negatives(name: str = "", section: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Names of the methods of one label per example that need positive and unlabeled data only.

    Args:
      name: a method that is judged by its fields instead of its defaults, and which may be a
        module of one's own; '' for none. The others are not imported.
      section: those fields, as in `needs_negatives`.

    Raises:
      UnusableMethod: if `name` is that of a module which cannot be used.
    """
    free = {x.name for x in catalogue.methods() if not x.is_multilabel and not x.needs_negatives}
    if name in names() or is_own(name):
        is_free = not is_multilabel(name) and not needs_negatives(name, section)
        free = free | {name} if is_free else free - {name}
    return tuple(sorted(free))


def for_own_rows(
    name: str = "", section: Mapping[str, Any] | None = None, *, has_support: bool
) -> tuple[str, ...]:
    """Names of the methods of one label per example that can train on a user's own rows.

    Args:
      name: as in `without_negatives`.
      section: likewise.
      has_support: whether there are clean examples of both classes, `data.num_support`. Hidden
        labels, which an oracle trains on, there are none.

    Raises:
      UnusableMethod: as `without_negatives`.
    """
    accepted = set(without_negatives(name, section))
    if has_support:
        entries = (x for x in catalogue.methods() if not (x.is_multilabel or x.is_oracle))
        accepted |= {x.name for x in entries if x.needs_negatives}
        if is_own(name) and not is_multilabel(name) and not _said(name, "ORACLE"):
            accepted.add(name)
    return tuple(sorted(accepted))


def has_network(name: str) -> bool:
    """Whether a method trains a network, which its module denies with `NETWORK = False`."""
    return _said(name, "NETWORK")


def selection(name: str) -> str:
    """The rule by which a method reports an epoch where a part of the data is held out.

    Its module says it with `SELECTION` where the last epoch was measured to be well below the best
    one (docs/methods.md, "Which epoch is reported"). It needs no negative example.

    Args:
      name: of the method.

    Returns:
      A value of `run.selection`: 'last' for most methods.
    """
    return _said(name, "SELECTION")


def selection_without_prior(name: str) -> str:
    """The rule in place of `selection` where that one needs a class prior and none is known.

    Its module says it with `SELECTION_WITHOUT_PRIOR` where the proxy AUC was measured to be worse.

    Args:
      name: of the method.
    """
    return _said(name, "SELECTION_WITHOUT_PRIOR")


def own_rows(name: str) -> dict[str, Any]:
    """Settings of a method on a user's own rows, where its published ones fail or cannot be.

    Its module says them with `OWN_ROWS`. Published data have a thousand labelled positives and
    often half of all examples positive; one's own rows may have twenty, and one positive among
    thirty (docs/results/nnpu.md, "nnPU on your own rows"). Most hold no clean examples.

    Args:
      name: of the method.

    Returns:
      Fields of the method's section; most methods have none.
    """
    return dict(_said(name, "OWN_ROWS"))


def stage_lengths(name: str) -> tuple[str, ...]:
    """Fields that say how many of a method's epochs its stages take, or in which one they begin.

    Its module says them with `STAGE_LENGTHS`, and with `ROUND_LENGTHS` those of which the epochs
    are a whole number.

    Args:
      name: of the method.

    Returns:
      Fields of the method's section; none of a method of one stage.
    """
    return (*_said(name, "STAGE_LENGTHS"), *_said(name, "ROUND_LENGTHS"))


def set_length(section: ml_collections.ConfigDict, num_epochs: int) -> None:
    """Gives a method so many epochs, of which its stages take the shares that they had.

    A stage keeps at least one epoch and leaves one, where there are two; one of no epochs stays so,
    and so does a word, such as 'auto', which follows the length by itself. What trains no network
    has no epochs and stays as it is.

    Args:
      section: fields of a method and its `name`; changed in place.
      num_epochs: of all stages together, at least 1.

    Raises:
      ValueError: if `num_epochs` is no whole number from 1.
    """
    checks.whole_number("num_epochs", num_epochs, 1)
    if "num_epochs" not in section:
        return
    before, section.num_epochs = section.num_epochs, num_epochs
    for field in stage_lengths(section.name):
        if section[field] and not isinstance(section[field], str):
            scaled = round(section[field] / before * num_epochs)
            section[field] = min(max(scaled, 1), max(num_epochs - 1, 1))
    for field in _said(section.name, "ROUND_LENGTHS"):
        while num_epochs % max(section[field], 1):
            section[field] -= 1


def from_labels(config: ml_collections.ConfigDict, labeled: np.ndarray) -> dict[str, float]:
    """What a method takes from all labels that it trains on, before the first step.

    A module has the function `from_labels(section, labeled)` where it does.

    Args:
      config: the whole configuration, resolved.
      labeled: as in `TrainingData`.

    Returns:
      Numbers by the name of the field that they stand for, whose value is a word such as 'auto'.

    Raises:
      ValueError: for a setting that does not go with the labels.
    """
    function = getattr(module(config.method.name), "from_labels", None)
    return function(config.method, labeled) if function else {}


def label_warnings(config: ml_collections.ConfigDict, labeled: np.ndarray) -> list[str]:
    """What all labels that a method trains on say against its settings.

    A module has the function `label_warnings(section, labeled)` where there may be anything.

    Args:
      config: the whole configuration, resolved.
      labeled: as in `TrainingData`.

    Returns:
      Sentences for a person; usually none.
    """
    function = getattr(module(config.method.name), "label_warnings", None)
    return function(config.method, labeled) if function else []


def module(name: str) -> ModuleType:
    """Imports the module of a method.

    Args:
      name: file name without the ending, for example 'lagam'; or a module that Python can import
        from elsewhere by its dotted name, for example 'mypackage.mine'.

    Returns:
      A module with `default_config()` and `build(config, info)`.

    Raises:
      ValueError: if there is no such method.
      UnusableMethod: a ValueError, if its module cannot be imported or is not that of a method.
    """
    if is_own(name):
        accepted = "the dotted name of a module, PACKAGE.MODULE"
        parts = name.split(".")
        checks.require(all(map(str.isidentifier, parts)), "method.name", name, accepted)
        return _loading.load(name, name, MARKERS)
    checks.one_of("method.name", name, names())
    return _loading.load(name, f"{__name__}.{name}", MARKERS)


def build(config: ml_collections.ConfigDict, info: DataInfo | MultilabelInfo) -> Method:
    """Builds the method that a configuration names, with averaged weights where it asks for them.

    Args:
      config: the whole configuration, resolved.
      info: numbers of the data set.

    Returns:
      A `Method`.

    Raises:
      ValueError: for a setting that cannot be.
    """
    if not has_network(config.method.name):
        return _built(config, info)
    averaging.check(config.method)
    config = freezing.resolved(config)
    method = _built(config, info)
    method = alignment.diagnosed(method, config.method, info)
    return averaging.wrap(method, config.method, info)


def _built(config: ml_collections.ConfigDict, info: DataInfo | MultilabelInfo) -> Method:
    """What the method's own module builds."""
    name = config.method.name
    method = module(name).build(config, info)
    checks.require(isinstance(method, Method), f"build() of {name}", method, "a Method")
    return method
