"""MS-COCO 2014: 123,287 photographs with objects of 80 classes, in the official folders."""

import pathlib
from reprlib import repr as shortened
from typing import Any, NamedTuple

import numpy as np

from pujax import reading
from pujax.data.raw import RawDataset
from pujax.data.readers import image_lists

MULTILABEL = True
SIZES = (82783, 40504)
"""Images of the two splits."""
NUM_CLASSES = 80
_SPLITS = ("train2014", "val2014")
_FILES = tuple(f"annotations/instances_{split}.json" for split in _SPLITS)
_HINT = "Unpack train2014.zip, val2014.zip and annotations_trainval2014.zip into one folder"


class _Instances(NamedTuple):
    """What an annotation file says: category ids to names, file names, and int8 labels."""

    categories: dict[int, str]
    names: list[str]
    labels: np.ndarray


def load(
    directory: pathlib.Path, *, image_size: int = 0, load_size: int = 0, missing: str = "fail"
) -> RawDataset:
    """Reads the labels; the images are decoded when a batch needs them.

    `train2014` trains and `val2014` tests, each with all of its images, those without any object
    among them. An image has the label of every category that it has an annotation of, a crowd's
    too. Class ids follow the category ids, which have gaps; images follow the order of the file.

    Args:
      directory: folder with `train2014`, `val2014` and `annotations`, or with `coco2014/`.
      image_size: side length that a network sees; 0 is 448.
      load_size: side length before the random crop; 0 is 8/7 of `image_size`.
      missing: 'fail', or 'skip' to leave out images whose file is missing.

    Returns:
      A `RawDataset` of image files.

    Raises:
      MissingDataError: a folder, annotation file or image is missing.
      ValueError: an annotation file is damaged or contradicts itself or the other one.
    """
    root = image_lists.find_root(
        "coco2014", (directory, directory / "coco2014"), (*_SPLITS, *_FILES), hint=_HINT
    )
    train, test = (_read(root / file) for file in _FILES)
    if train.categories != test.categories:
        differing = sorted(set(train.categories.items()) ^ set(test.categories.items()))
        raise ValueError(
            f"the categories of {root / _FILES[1]} are not those of {_FILES[0]}, which differ in "
            f"{image_lists.first_few(differing)}; accepted: the same ids and names"
        )
    splits = [
        image_lists.Split(root / split, part.names, part.labels)
        for split, part in zip(_SPLITS, (train, test), strict=True)
    ]
    return image_lists.build(
        "coco2014",
        splits,
        tuple(train.categories.values()),
        image_size=image_size,
        load_size=load_size,
        missing=missing,
        default_size=448,
    )


def without_data(*, image_size: int = 0, load_size: int = 0) -> RawDataset:
    """What `load` returns, without the images and the names: see `pujax.data.absent`."""
    return image_lists.without_data(
        "coco2014",
        SIZES,
        [f"class {i}" for i in range(NUM_CLASSES)],
        image_size=image_size,
        load_size=load_size,
        default_size=448,
    )


def _without_outline(entry: dict[str, Any]) -> dict[str, Any]:
    """Drops the outlines as they are read: they are most of the file and no label needs them."""
    entry.pop("segmentation", None)
    return entry


def _read(path: pathlib.Path) -> _Instances:
    """Labels of one annotation file, class ids in the order of the category ids."""
    try:
        content = reading.read_json(path, object_hook=_without_outline)
        categories = {_id(x, "id"): _text(x, "name") for x in _entries(content, "categories")}
        images = {_id(x, "id"): _text(x, "file_name") for x in _entries(content, "images")}
        pairs = [
            (_id(x, "image_id"), _id(x, "category_id")) for x in _entries(content, "annotations")
        ]
    except KeyError as error:
        raise ValueError(f"{path} lacks {error}; accepted: a COCO instances file") from error
    except ValueError as error:  # no JSON, or none of that form
        raise ValueError(f"{path} is no COCO instances file: {reading.one_line(error)}") from error
    image_lists.check_names(path, images.values())
    if not images or len(images) < len(content["images"]):
        raise ValueError(
            f"{path} has {len(content['images'])} images with {len(images)} different ids; "
            "accepted: at least one image, each with an id of its own"
        )
    categories = dict(sorted(categories.items()))
    _refuse(path, "image ids without an image", [i for i, _ in pairs if i not in images])
    _refuse(path, "category ids without a category", [i for _, i in pairs if i not in categories])
    rows = {image: row for row, image in enumerate(images)}
    columns = {category: column for column, category in enumerate(categories)}
    labels = np.zeros((len(rows), len(columns)), np.int8)
    for image, category in pairs:
        labels[rows[image], columns[category]] = 1
    return _Instances(categories, list(images.values()), labels)


def _entries(content: Any, name: str) -> list[dict]:
    """A list of objects of an annotation file."""
    entries = content[name] if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{name!r} is no list of objects")
    return entries


def _id(entry: dict, name: str) -> int:
    value = entry[name]
    if type(value) is not int:
        raise ValueError(f"{name!r} is {shortened(value)}; accepted: a whole number")
    return value


def _text(entry: dict, name: str) -> str:
    value = entry[name]
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is {shortened(value)}; accepted: text")
    return value


def _refuse(path: pathlib.Path, what: str, ids: list[int]) -> None:
    """Raises a `ValueError` unless there are no such annotations."""
    if ids:
        raise ValueError(
            f"{path}: {len(ids)} annotations have {what}: "
            f"{image_lists.first_few(list(dict.fromkeys(ids)))}; accepted: ids in the file"
        )
