"""Several labels per image from a table: a column of file names, and one per label or one of all.

file,split,dog,cat          file,split,labels
a.jpg,train,1,0             a.jpg,train,dog
b.jpg,train,,1              b.jpg,train,dog|cat
c.jpg,test,0,0              c.jpg,test,
"""

import collections
import logging
import os
import pathlib
import re
from collections.abc import Iterable

import numpy as np

from pujax.data.raw import UNKNOWN, RawDataset
from pujax.data.readers import csv_tables, image_folders, image_listing, image_lists, packed
from pujax.data.readers.columns import MISSING

_LOG = logging.getLogger(__name__)
_SPLIT, _LABELS = "split", "labels"


def load(path: pathlib.Path, *, image_size: int, load_size: int, missing: str) -> RawDataset:
    """Reads a table with a header and commas, semicolons or tabs.

    The first column is the image's file name, relative to the folder of the table. The column
    `split` (optional) says 'train' or 'test'; without it a fifth of the rows whose labels are all
    known is the test set, the same one on every run. The rest is either one column per label,
    with 1, 0, and in training rows -1 or nothing for unknown; or the single column `labels` with
    the names of all labels of the image, separated by `|` or `;`, which no name contains; a comma
    is a part of a name, with a warning where it looks like a separator. NA, ? and other words of
    `columns.MISSING` are unknown in both; among the names of an image they say so of every label
    that is not named, with a warning. What is quoted here may be in upper case.

    Args:
      path: the table.
      image_size: side length that a network sees; 0 is 224.
      load_size: side length before the random crop; 0 is 8/7 of `image_size`.
      missing: 'fail', or 'skip' to leave out images whose file is missing.

    Returns:
      A `RawDataset` of image files. Classes follow the columns, or the alphabet.

    Raises:
      MissingDataError: image files are missing.
      ValueError: naming the file, and what in it is not accepted.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv_tables.lines(os.fspath(path), file)
    except UnicodeDecodeError as error:
        raise ValueError(packed.encoding_error(os.fspath(path))) from error
    if pathlib.PurePath(lines.header[0]).suffix.lower() in image_listing.SUFFIXES:
        raise ValueError(
            f"{path} begins with the image {lines.header[0]!r}; accepted: a header first, such as "
            "file,split,dog,cat or file,split,labels"
        )
    columns = {
        name: [cell.strip() for cell in cells]
        for name, cells in zip(lines.header, zip(*lines.rows, strict=True), strict=True)
    }
    files = columns.pop(lines.header[0])
    _check_files(path, files)
    splits = columns.pop(_called(_SPLIT, columns), None)
    if list(columns) == [_called(_LABELS, columns)]:
        names, labels = _listed(path, files, *columns.values())
    else:
        names, labels = tuple(columns), _coded(path, files, columns)
    image_listing.check_apart(path, names)
    if not names:
        raise ValueError(f"{path} has no labels; accepted: a column per label, or one of all")
    if "" in columns:
        place = lines.header.index("", 1) + 1
        raise ValueError(f"{path} has no name in column {place} of its header; accepted: a label")
    whole = image_lists.Split(path.parent, files, labels)
    if splits is None:
        parts = image_lists.hold_out(path, whole)
    else:
        parts = image_lists.divide(whole, _test_rows(path, files, splits))
    unknown = (parts[1].labels == UNKNOWN).any(axis=1)
    if unknown.any():
        example = parts[1].names[int(unknown.argmax())]
        raise ValueError(
            f"{path}: {int(unknown.sum())} test images have an unknown label, the first is "
            f"{example!r}; accepted: 1 or 0 throughout the test set"
        )
    return image_lists.build(
        "multilabel",
        parts,
        names,
        image_size=image_size,
        load_size=load_size,
        missing=missing,
        default_size=224,
        is_own=True,
    )


def _called(name: str, columns: Iterable[str]) -> str:
    """The name as it stands among columns, in upper or lower case; the name itself if nowhere."""
    found = [column for column in columns if column.lower() == name]
    return name if name in found or not found else found[0]


def _check_files(path: pathlib.Path, files: list[str]) -> None:
    if "" in files:
        raise ValueError(f"{path}: example {files.index('') + 1} has no file name")
    image_lists.check_names(path, files)
    names, counts = np.unique([os.path.normpath(file) for file in files], return_counts=True)
    if counts.max() > 1:
        raise ValueError(
            f"{path} has {int((counts > 1).sum())} images in several lines, such as "
            f"{str(names[counts.argmax()])!r}; accepted: one line per image with all its labels, "
            "and its file name in the first column"
        )


def _listed(
    path: pathlib.Path, files: list[str], cells: list[str]
) -> tuple[tuple[str, ...], np.ndarray]:
    """Names and labels of a column that lists names."""
    lists = [{name.strip() for name in re.split(r"[|;]", cell)} - {""} for cell in cells]
    unknown = [named & MISSING for named in lists]
    lists = [named - MISSING for named in lists]
    names = tuple(sorted(set().union(*lists)))
    parts = {name: {part.strip() for part in name.split(",")} for name in names}
    for name in names:
        # A name may hold a comma, but not between two other names.
        if "," in name and parts[name] <= set(names):
            file = files[next(row for row, named in enumerate(lists) if name in named)]
            raise ValueError(
                f"{path}: {_LABELS!r} of {file!r} is {name!r}, whose parts are labels of other "
                "images; accepted: names separated by | or ;"
            )
    counts = collections.Counter(part for name in names for part in parts[name] - {""})
    doubtful = [name for name in names if "," in name and any(counts[x] > 1 for x in parts[name])]
    if not any(re.search(r"[|;]", cell) for cell in cells) and all("," in name for name in names):
        doubtful = list(names)
    if doubtful:
        row = next(row for row, named in enumerate(lists) if doubtful[0] in named)
        _LOG.warning(
            "%s: the comma in %d of %d labels, such as %r of %r, looks like a separator and is "
            "taken for a part of the name; names are separated by | or ;",
            path,
            len(doubtful),
            len(names),
            doubtful[0],
            files[row],
        )
    if any(unknown):
        row = next(row for row, words in enumerate(unknown) if words)
        _LOG.warning(
            "%s: %r of %d images, the first is %r, holds %r or the like; labels that are not named "
            "there are taken for unknown: leave such a cell empty if the image has none of them",
            path,
            _LABELS,
            sum(map(bool, unknown)),
            files[row],
            min(unknown[row]),
        )
    others = [UNKNOWN if words else 0 for words in unknown]
    rows = zip(lists, others, strict=True)
    return names, np.array(
        [[1 if name in named else other for name in names] for named, other in rows], np.int8
    )


def _coded(path: pathlib.Path, files: list[str], columns: dict[str, list[str]]) -> np.ndarray:
    """Labels of one column per label."""
    codes = {"1": 1, "0": 0, "-1": UNKNOWN, "1.0": 1, "0.0": 0, "-1.0": UNKNOWN}
    codes |= dict.fromkeys(MISSING, UNKNOWN)
    labels = np.empty((len(files), len(columns)), np.int8)
    for column, (name, cells) in enumerate(columns.items()):
        for row, cell in enumerate(cells):
            if cell not in codes:
                raise ValueError(
                    f"{path}: {name!r} of {files[row]!r} is {cell!r}; accepted: 1, 0, -1 or "
                    f"nothing; names of labels go into one column {_LABELS!r}, and rows of numbers "
                    "into an archive NAME.npz"
                )
            labels[row, column] = codes[cell]
    return labels


def _test_rows(path: pathlib.Path, files: list[str], splits: list[str]) -> np.ndarray:
    accepted = " or ".join(image_folders.SPLITS)
    for name, split in zip(files, splits, strict=True):
        if split.lower() not in image_folders.SPLITS:
            raise ValueError(f"{path}: {_SPLIT} of {name!r} is {split!r}; accepted: {accepted}")
    parts = [split.lower() for split in splits]
    for split in image_folders.SPLITS:
        if split not in parts:
            raise ValueError(f"{path} has no {split!r} in column {_SPLIT!r}; accepted: both")
    return np.array([part == "test" for part in parts])
