"""Reads a user's file or folder as training would, and what training does not look at."""

import os
import pathlib
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from pujax.audit.base import Problem, problem, same
from pujax.data.image_files import as_array
from pujax.data.readers import image_listing, image_trees
from pujax.data.sources import own_folder, own_table

_SIDE = 16
"""Side of the grey images whose pixels are the features."""
_ROLES = ("positive", "unlabeled", "negative", image_trees.TEST)
_FACTS = ("width", "height", "bytes of the file", "ending of the file", "mode of the image")


class Input(NamedTuple):
    """What was read.

    Attributes:
      problem: P and U in numbers.
      kind: 'table' or 'images'.
      notes: sentences on how it was read.
      damaged: images that cannot be read, by their role, of which 'test' is one.
      test_copies: names of test images that are copies of training images.
    """

    problem: Problem
    kind: str
    notes: tuple[str, ...]
    damaged: dict[str, list[str]]
    test_copies: tuple[str, ...] = ()


def read(path: str, **options: str) -> Input:
    """Reads a file of rows or a folder of images.

    Args:
      path: of the file, in any format of `pujax.data.readers.frames`, or of a folder with
        `positive/` and `unlabeled/`.
      **options: how a file is read, see `pujax.audit.audit`; '' each for a folder.

    Raises:
      ValueError: in one line, what cannot be read.
    """
    try:
        if os.path.isdir(path):
            for name, value in options.items():
                if value:
                    raise ValueError(
                        f"--{name} is {value!r}; accepted: nothing, since DATA is the folder {path}"
                    )
            return _folder(path)
        return _table(path, options)
    except ValueError as error:
        raise ValueError(own_table.in_options(str(error))) from error


def _table(path: str, options: dict[str, Any]) -> Input:
    rows = own_table.read(pathlib.Path(), path=path, **options)
    read = own_table.dataset(rows)
    assert read.prepare is not None
    data = read.prepare(np.arange(len(read.train_labels)))
    assert data.own is not None
    learned = data.own.preparation
    constants = {x.name: x.offset for x in learned.columns if x.kind == "number" and x.offset}
    found = problem(
        as_array(data.train_inputs),
        data.train_labels == 1,
        # Arrays have no columns but their features, which name what is subtracted by themselves.
        [f"{x} - {constants[x]:.15g}" if x in constants else x for x in learned.sources]
        or learned.feature_names,
        ids=np.array([rows.named(i) for i in range(len(data.own.ids))], object),
    )
    found = found._replace(keys=same(learned.row_digests(rows.frame)))
    return Input(found, "table", tuple(map(own_table.in_options, data.own.notes)), {})


def _folder(path: str) -> Input:
    data = own_folder.load(
        pathlib.Path(), path=path, image_size=_SIDE, channels=1, unreadable="skip"
    )
    assert data.own is not None
    root, ids = pathlib.Path(path), data.own.ids
    names = image_trees.roles(root, field=f"data.path is {path!r}", accepted=_ROLES)
    damaged: dict[str, list[str]] = {}
    for role in _ROLES:
        lost = [x for x in data.own.unreadable if x.partition("/")[0] == names.get(role)]
        damaged |= {role: lost} if lost else {}
    pixels = as_array(data.train_inputs).reshape(len(ids), -1).astype(np.float32)
    if (pixels == pixels[:1]).all():
        raise ValueError(
            f"{path}: all images that can be read are alike once they are {_SIDE} pixels wide and "
            "grey; accepted: images that differ"
        )
    found = problem(
        pixels,
        data.train_labels == 1,
        [f"pixel {i // _SIDE + 1}, {i % _SIDE + 1}" for i in range(pixels.shape[1])],
        ids=ids,
    )
    digests = [image_trees.digest(root / name) for name in ids]
    found = found._replace(
        keys=same(digests), facts=_facts([root / name for name in ids]), fact_names=_FACTS
    )
    copies = []
    if image_trees.TEST in names:
        trained, skipped = set(digests), set(data.own.unreadable)
        test = names[image_trees.TEST]
        below = [f"{test}/{x}" for x in image_listing.images_below(root / test)]
        copies = [x for x in below if x not in skipped and image_trees.digest(root / x) in trained]
    return Input(found, "images", data.own.notes, damaged, tuple(copies))


def _facts(paths: list[pathlib.Path]) -> np.ndarray:
    """What is known of the files of images, float64 `[n, k]`; words are numbered."""
    rows = []
    for path in paths:
        with Image.open(path) as image:
            size, mode = image.size, image.mode
        rows.append((*size, path.stat().st_size, path.suffix.lower(), mode))
    parts = [
        np.unique(np.array(part), return_inverse=True)[1] if isinstance(part[0], str) else part
        for part in zip(*rows, strict=True)
    ]
    return np.array(parts, np.float64).T
