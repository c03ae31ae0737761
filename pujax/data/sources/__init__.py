"""Named data sets: every file here whose name does not start with an underscore is one source.

A source module has `load(directory, **options) -> RawDataset`. There `directory` is a
`pathlib.Path` to look in and to download to, and the options are keyword-only arguments, called
like the fields of a config's `data` section that set them; one without a default must be given.
A source is found by its file, and nothing but the list in its test has to be edited for one with
options that others have. A new option becomes a field in two places: among the options of sources
in `pujax/training/config/data_section.py`, without which no configuration can set it, and among the
later fields in `pujax/training/config/__init__.py`, without which runs that began before it cannot
go on.

A published source also has `without_data(**options)`, which returns its sizes, see `without_data`
here. A module says `OWN = True` where it reads a user's own P and U, for which methods have
settings of their own, and `MULTILABEL = True` where an example may have several labels. It names in
`LABEL_SETS` the sorts of labels that its files hold, of which its option `label_set` chooses one. A
source with the option `streamed` can leave its images in files; multi-label sources of image files
always do.
"""

import functools
import importlib
import inspect
import os
import pathlib
import pkgutil
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

from pujax.checks import one_of, require, whole_number
from pujax.data import raw
from pujax.data.image_files import ImageFiles
from pujax.data.readers import download, image_arrays, image_lists, image_trees
from pujax.files import check_folder

RawDataset = raw.RawDataset

NAMES: tuple[str, ...] = tuple(
    sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_")
)
STREAMING = ("auto", "on", "off")

_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "image_size": functools.partial(whole_number, low=0),
    "load_size": functools.partial(whole_number, low=0),
    "channels": functools.partial(one_of, choices=image_arrays.CHANNELS),
    "color_order": functools.partial(one_of, choices=image_arrays.COLOR_ORDERS),
    "missing": functools.partial(one_of, choices=image_lists.MISSING),
    "unreadable": functools.partial(one_of, choices=image_trees.UNREADABLE),
}
"""What options that several sources have may be."""


def is_multilabel(source: str) -> bool:
    """Whether the examples of a source of `NAMES` have several labels, as its module says."""
    return getattr(_module(source), "MULTILABEL", False)


def is_own(source: str) -> bool:
    """Whether a source of `NAMES` reads a user's own P and U, as its module says."""
    return getattr(_module(source), "OWN", False)


def is_published(source: str) -> bool:
    """Whether a source of `NAMES` is one data set with known sizes: its module has `without_data`.

    The files of all others are a user's choice, and may change between two calls.
    """
    return hasattr(_module(source), "without_data")


def check(
    source: str,
    *,
    streaming: str = "auto",
    fields: Collection[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Checks the options of a source before anything is read.

    Args:
      source: one of `NAMES`.
      streaming: as in `load`.
      fields: of the options those that the caller can set, which alone are recommended; None is
        all.
      **options: as in `load`.

    Returns:
      The keyword arguments of the source's own `load`.

    Raises:
      ValueError: naming the field of the `data` section, its value and what is accepted.
    """
    one_of("data.source", source, NAMES)
    one_of("data.streaming", streaming, STREAMING)
    own = _options(source)
    accepted = [name for name in own if name != "streamed"]
    given = {name: value for name, value in options.items() if value not in (None, "")}
    for name in [name for name in given if name not in accepted]:
        value = given.pop(name)
        if value != 0:
            can_be_set = [name for name in accepted if fields is None or name in fields]
            raise ValueError(
                f"data.{name} is {value!r}, but source {source!r} has no such option; accepted: "
                f"{', '.join(can_be_set) or 'none'}"
            )
    for name in accepted:
        is_set = name in given or own[name] is not inspect.Parameter.empty
        what = "a name"
        if name == "path":
            what = "a folder" if _has_files(source) else "a file"
        require(is_set, f"data.{name}", "", f"{what}, which data.source={source!r} needs")
    for name in [name for name in given if name in _CHECKS]:
        _CHECKS[name](f"data.{name}", given[name])
    if "label_set" in given:
        one_of("data.label_set", given["label_set"], ("", *_module(source).LABEL_SETS))
    if streaming == "on" and not _has_files(source):
        raise ValueError(
            f"data.streaming is 'on'; accepted: 'auto' or 'off' with data.source={source!r}, whose "
            f"examples are no image files; 'on' with {', '.join(filter(_has_files, NAMES))}"
        )
    return given | ({"streamed": streaming == "on"} if "streamed" in own else {})


def load(
    source: str,
    *,
    directory: str | os.PathLike[str] | None = None,
    streaming: str = "auto",
    **options: Any,
) -> raw.RawDataset:
    """Reads a named data set, downloading the original files where that is possible.

    Files are looked for in `directory` first and in `directory/<source>` second; downloads go to
    the latter.

    Args:
      source: one of `NAMES`.
      directory: where the files are or go; None or '' is `download.default_directory()`.
      streaming: 'on' leaves images in files, as `ImageFiles`; 'off' reads them into memory; 'auto'
        leaves those of multi-label sources in files.
      **options: what the source's own `load` takes, for example `label_set='fine'` for 'cifar100'
        or `tfds_name='cifar10'` for 'tfds'. None and '' mean the source's default, and an option
        that the source does not have may be 0, so that one set of options serves every source.

    Returns:
      A `RawDataset` whose parts were checked against one another.

    Raises:
      MissingDataError: a `ValueError` that says which file to put where, or what to install.
      ValueError: an unknown source or option, or a file that is damaged; the message names it.
    """
    given = check(source, streaming=streaming, **options)
    root = pathlib.Path(directory).expanduser() if directory else download.default_directory()
    if not (root.is_file() and is_multilabel(source)):  # whose data may be in one file
        check_folder("data.dir", root)
    data = raw.check(_module(source).load(root, **given))
    streamed = isinstance(data.train_inputs, ImageFiles)
    kept = "files, which are streamed" if streamed else "arrays, which are not streamed"
    require(
        streaming == "auto" or streamed == (streaming == "on"),
        "data.streaming",
        streaming,
        f"'auto' or {'on' if streamed else 'off'!r}, since these examples of data.source="
        f"{source!r} are {kept}",
    )
    return data


def without_data(source: str, *, streaming: str = "auto", **options: Any) -> raw.RawDataset:
    """What `load` returns, without the examples: no file is looked for.

    Counts, shapes and classes are those of the published set; see `pujax.data.absent`.

    Args:
      source: one of `NAMES`.
      streaming: as in `load`.
      **options: as in `load`.

    Returns:
      A `RawDataset` whose inputs have a shape and a type only.

    Raises:
      ValueError: an unknown source or option, or a source whose sizes its files tell.
    """
    given = check(source, streaming=streaming, **options)
    known = list(filter(is_published, NAMES))
    accepted = f"{', '.join(known)}, since the sizes of other sources are known from their files"
    require(source in known, "data.source", source, accepted)
    accepts = inspect.signature(_module(source).without_data).parameters
    # They change no size, and streaming was checked.
    idle = {"missing", "seed", "streamed"} - set(accepts)
    taken = {name: given[name] for name in given if name not in idle}
    return _module(source).without_data(**taken)


def _module(source: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{source}")


def _options(source: str) -> dict[str, Any]:
    """The options that a source's own `load` takes, and their defaults."""
    parameters = inspect.signature(_module(source).load).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _has_files(source: str) -> bool:
    """Whether a source may have images in files."""
    return "streamed" in _options(source) or is_multilabel(source)
