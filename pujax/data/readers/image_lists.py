"""Image files that a list names, each with several labels: which are there, and what if not."""

import dataclasses
import logging
import os
import pathlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pujax.data import absent
from pujax.data.image_files import ImageFiles
from pujax.data.image_preparation import ImagePreparation
from pujax.data.raw import UNKNOWN, OwnRows, RawDataset
from pujax.data.readers import download, holdout, image_trees

_LOG = logging.getLogger(__name__)

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Per channel, of pixels in 0-1: what networks pretrained on ImageNet expect."""

MISSING = ("fail", "skip")
"""What to do about image files that are not there."""

TEST_FRACTION = 0.2
"""Share of the images that a test set is made of where the source has none."""

_SHOWN = 5
"""Names that a message lists."""


class Split(NamedTuple):
    """The images of one split.

    Attributes:
      folder: what the names are relative to.
      names: one file name per image, with its folder where it is in another.
      labels: int8 `[n, classes]`, 1, 0 or -1.
    """

    folder: pathlib.Path
    names: Sequence[str]
    labels: np.ndarray


def find_root(
    source: str, places: Iterable[pathlib.Path], needed: Sequence[str], *, hint: str
) -> pathlib.Path:
    """The folder that holds what a source needs.

    Args:
      source: name of the data set.
      places: folders to look in.
      needed: files and folders, relative to the folder.
      hint: where to get them, for the message.

    Returns:
      The first of `places` with all of `needed`.

    Raises:
      MissingDataError: naming what is missing, in the folder that has most of it.
    """
    places = list(places)
    lacking = [[name for name in needed if not (place / name).exists()] for place in places]
    best = min(range(len(places)), key=lambda i: len(lacking[i]))
    if lacking[best]:
        raise download.MissingDataError(
            f"cannot find {', '.join(lacking[best])} of source {source!r} in {places[best]} "
            f"(looked in {', '.join(map(str, places))}). {hint}, and pass the folder as "
            "--config.data.dir",
            reason="not found",
        )
    return places[best]


def check_names(path: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Requires that files which a list names lie in the list's own folder, or in folders of it.

    Args:
      path: of the list, for the message.
      names: of files, with the folders that they are in.

    Raises:
      ValueError: for an absolute path, one with '..', one that no file can have, and none.
    """
    for name in names:
        is_inside = not os.path.isabs(name) and not os.path.splitdrive(name)[0]
        is_inside = is_inside and ".." not in re.split(r"[/\\]", name)
        if not name or not is_inside or min(name) < " ":
            raise ValueError(
                f"{path} names the image {name!r}; accepted: paths within the folder of the "
                "images, without '..'"
            )


def divide(whole: Split, is_test: np.ndarray) -> tuple[Split, Split]:
    """The training and the test rows of a list, in its order.

    Args:
      whole: `n` images.
      is_test: bool `[n]`.

    Returns:
      `(train, test)`.
    """
    train, test = (
        Split(
            whole.folder,
            [whole.names[i] for i in np.flatnonzero(rows).tolist()],
            whole.labels[rows],
        )
        for rows in (~is_test, is_test)
    )
    return train, test


def hold_out(path: pathlib.Path, whole: Split) -> tuple[Split, Split]:
    """Cuts out a test set: a fifth of the images whose labels are all known, always the same.

    Args:
      path: for the message.
      whole: all images.

    Returns:
      `(train, test)`.

    Raises:
      ValueError: so few images are known that there is no fifth of them.
    """
    known = np.flatnonzero((whole.labels != UNKNOWN).all(axis=1))
    least = round(1 / TEST_FRACTION)
    if len(known) < least:
        raise ValueError(
            f"{path} names no test set and has {len(known)} images whose labels are all known; "
            f"accepted: at least {least}, to hold out a fifth of them, or a test set"
        )
    is_test = np.zeros(len(whole.labels), bool)
    one_class = np.zeros(len(known), np.int32)
    is_test[known] = holdout.is_test(one_class, test_fraction=TEST_FRACTION, seed=0)
    return divide(whole, is_test)


def without_data(
    source: str,
    sizes: tuple[int, int],
    class_names: Sequence[str],
    *,
    image_size: int,
    load_size: int,
    default_size: int,
) -> RawDataset:
    """What `build` returns of `sizes` training and test images, without a file."""
    side = image_size or default_size
    return absent.image_lists(
        source,
        train=sizes[0],
        test=sizes[1],
        class_names=tuple(class_names),
        side=side,
        load_side=load_size or default_load_side(side),
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
    )


def default_load_side(side: int) -> int:
    """Side before the random crop: 8/7 of what a network sees, as 512 to 448 in the paper."""
    return side * 8 // 7


def build(
    source: str,
    splits: Sequence[Split],
    class_names: Sequence[str],
    *,
    image_size: int,
    load_size: int,
    missing: str,
    default_size: int,
    is_own: bool = False,
) -> RawDataset:
    """A data set of image files, with the mean and deviation of ImageNet.

    Args:
      source: name of the data set.
      splits: training and test images.
      class_names: one name per class.
      image_size: side length that a network sees, or 0 for `default_size`.
      load_size: side length that training images are resized to before they are cropped; 0 is
        8/7 of `image_size`, the ratio of 512 to 448 in the paper.
      missing: one of `MISSING`.
      default_size: of `image_size`.
      is_own: whether they are a user's own, of any mode, which new ones may follow, and of which
        test images may be copies of training images.

    Returns:
      A `RawDataset`, without the images that are missing.

    Raises:
      MissingDataError: image files are missing, and `missing` is 'fail' or none is left.
    """
    side = image_size or default_size
    load_side = load_size or default_load_side(side)
    prepared = ImagePreparation(side, channels=3, resample="bicubic")
    parts = []
    for name, split in zip(("training", "test"), splits, strict=True):
        rows = _present(source, name, split, missing)
        names = [split.names[row] for row in rows.tolist()]
        paths = tuple(os.path.join(split.folder, name) for name in names)
        files = prepared.files(paths) if is_own else ImageFiles(paths, side)
        parts.append((names, dataclasses.replace(files, load_side=load_side), split.labels[rows]))
    (ids, train_inputs, train_labels), (_, test_inputs, test_labels) = parts
    own = None
    if is_own:
        own = OwnRows(
            id_name="file",
            ids=np.array(ids, object),
            preparation=prepared,
            test_copies=image_trees.copies(train_inputs.paths + test_inputs.paths, len(ids)),
        )
    return RawDataset(
        name=source,
        train_inputs=train_inputs,
        train_labels=train_labels,
        test_inputs=test_inputs,
        test_labels=test_labels,
        class_names=tuple(class_names),
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        own=own,
    )


def _present(source: str, which: str, split: Split, missing: str) -> np.ndarray:
    """Rows whose file exists, by one listing per folder instead of a question per file."""
    places = [os.path.split(os.path.join(split.folder, name)) for name in split.names]
    listings = {folder: names_in(folder) for folder in {folder for folder, _ in places}}
    is_there = np.array([name in listings[folder] for folder, name in places], bool)
    absent = [split.names[row] for row in np.flatnonzero(~is_there).tolist()]
    if absent:
        message = (
            f"source {source!r}: {len(absent)} of {len(split.names)} {which} images are not in "
            f"{split.folder}: {first_few(absent)}{_nearly_there(split.folder, absent)}"
        )
        if missing == "fail" or len(absent) == len(split.names):
            raise download.MissingDataError(
                f"{message}; accepted: all of them there, or, if only some are missing, "
                "--config.data.missing=skip to leave those out",
                reason="images not found",
            )
        _LOG.warning("%s; they are left out, as data.missing='skip' says", message)
    return np.flatnonzero(is_there)


def _nearly_there(folder: pathlib.Path, absent: Sequence[str]) -> str:
    """Why the first of some names is not found though its file is there; '' where it is not."""
    name = absent[0]
    place, last = os.path.split(os.path.join(folder, name.replace("\\", "/")))
    there = names_in(place)
    if "\\" in name and last in there:
        return " (the first is there with / in place of \\, which pujax reads)"
    forms = {unicodedata.normalize("NFC", x): x for x in there}
    if unicodedata.normalize("NFC", last) in forms:
        return " (the first is there, but its letters are composed otherwise: Unicode NFC and NFD)"
    other = {x.casefold(): x for x in there}.get(last.casefold())
    return f" (there is {other!r}, in other upper or lower case)" if other else ""


def names_in(folder: str | os.PathLike[str]) -> set[str]:
    """Names of what a folder holds, without links to nothing; none if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return {x.name for x in entries if not x.is_symlink() or os.path.exists(x.path)}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def first_few(values: Sequence[object]) -> str:
    """The first values for a message, with dots where there are more."""
    return ", ".join(map(str, values[:_SHOWN])) + (", ..." if len(values) > _SHOWN else "")
