"""Named data sets: every file here whose name does not start with an underscore is one source.

A source module has `load(directory, **options) -> RawDataset`, or `RawMultilabel` where an example
may have several labels, which it says by `MULTILABEL = True`. There `directory` is a `pathlib.Path`
to look in and to download to, and the options are keyword-only arguments with defaults. Nothing
else has to be edited to add one. A module whose files hold several sorts of labels names them in
`LABEL_SETS` and takes one as its option `labels`.
"""

import importlib
import inspect
import os
import pathlib
import pkgutil
from typing import Any

from pujax.data import multilabel_raw, raw
from pujax.data.readers import download

RawDataset = raw.RawDataset
RawMultilabel = multilabel_raw.RawMultilabel

NAMES: tuple[str, ...] = tuple(
    sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name[0] != "_")
)

_FIELDS = {"labels": "label_set"}
"""Fields of a config's `data` section that are not called like the option that they set."""


def label_sets(source: str) -> tuple[str, ...]:
    """The sorts of labels to choose from in a source of `NAMES`; none where it has but one."""
    return getattr(importlib.import_module(f"{__name__}.{source}"), "LABEL_SETS", ())


def is_multilabel(source: str) -> bool:
    """Whether the examples of a source of `NAMES` have several labels, as its module says."""
    return getattr(importlib.import_module(f"{__name__}.{source}"), "MULTILABEL", False)


def load(
    source: str, *, directory: str | os.PathLike[str] | None = None, **options: Any
) -> raw.RawDataset | multilabel_raw.RawMultilabel:
    """Reads a named data set, downloading the original files where that is possible.

    Files are looked for in `directory` first and in `directory/<source>` second; downloads go to
    the latter.

    Args:
      source: one of `NAMES`.
      directory: where the files are or go; None or '' is `download.default_directory()`.
      **options: what the source's own `load` takes, for example `labels='fine'` for 'cifar100' or
        `tfds_name='cifar10'` for 'tfds'. None and '' mean the source's default, and an option
        that the source does not have may be 0, so that one set of options serves every source.

    Returns:
      A `RawDataset` whose parts were checked against one another; a `RawMultilabel` if the source
        has several labels per example.

    Raises:
      MissingDataError: a `ValueError` that says which file to put where, or what to install.
      ValueError: an unknown source or option, or a file that is damaged; the message names it.
    """
    if source not in NAMES:
        raise ValueError(f"source is {source!r}, accepted: {', '.join(NAMES)}")
    module = importlib.import_module(f"{__name__}.{source}")
    parameters = inspect.signature(module.load).parameters.values()
    accepted = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    given = {name: value for name, value in options.items() if value not in (None, "")}
    for name in [name for name in given if name not in accepted]:
        value = given.pop(name)
        if value != 0:
            raise ValueError(
                f"data.{_FIELDS.get(name, name)} is {value!r}, but source {source!r} has no such "
                f"option, accepted: {', '.join(accepted) or 'none'}"
            )
    root = pathlib.Path(directory).expanduser() if directory else download.default_directory()
    data = module.load(root, **given)
    if isinstance(data, multilabel_raw.RawMultilabel):
        return multilabel_raw.check(data)
    return raw.check(data)
