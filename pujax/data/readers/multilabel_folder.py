"""Several labels per image from folders: an image lies in the folder of each of its classes.

train/dog/a.jpg  train/cat/a.jpg  train/_none/b.jpg  train/unlabeled/c.jpg  test/dog/d.jpg
"""

import filecmp
import os
import pathlib

import numpy as np

from pujax.data.raw import UNKNOWN, RawDataset
from pujax.data.readers import image_folders, image_listing, image_lists

NONE = "_none"
"""What a folder of images that belong to no class is called, in upper or lower case."""


def is_one(root: pathlib.Path) -> bool:
    """Whether a folder has class folders with images, within `train` or `test` or without."""
    if not root.is_dir():
        return False
    return image_folders.is_image_folder(root) or any(
        image_listing.images_below(root / name) for name in image_listing.folder_names(root)
    )


def load(root: pathlib.Path, *, image_size: int, load_size: int, missing: str) -> RawDataset:
    """Reads `train/CLASS/IMAGE` and `test/CLASS/IMAGE`, or `CLASS/IMAGE` alone.

    An image that lies in several class folders under one name, as a copy or a link, has several
    labels; folders within them are looked into, and are a part of the name. The folder `_none`
    holds images of no class. Images in `unlabeled` have the labels of the class folders that they
    lie in too, and the others are unknown. Without `train` and `test` a fifth of the images whose
    labels are known is the test set, the same one on every run.

    Args:
      root: the folder.
      image_size: side length that a network sees; 0 is 224.
      load_size: side length before the random crop; 0 is 8/7 of `image_size`.
      missing: 'fail', or 'skip' to leave out images that are links to nothing.

    Returns:
      A `RawDataset` of image files, in alphabetical order of their names, as the classes.

    Raises:
      MissingDataError: images are links to nothing.
      ValueError: a folder is missing or empty, two different images have one name, two names look
        alike (`image_listing.check_apart`), images lie beside the class folders, or one of several
        of a name cannot be read.
    """
    if image_folders.is_image_folder(root):
        folders = [root / split for split in image_folders.SPLITS]
        for folder in folders:
            if not folder.is_dir():
                raise ValueError(f"{folder} is missing; accepted: a folder of class folders")
        image_folders.check_beside(root)
    else:
        folders = [root]
        accepted = "images in class folders, and unlabeled ones in unlabeled/"
        image_listing.check_none_beside(root, str(root), accepted)
    special = {*map(_none_folder, folders), *map(image_listing.unlabeled_folder, folders)}
    classes = [name for name in image_listing.folder_names(folders[0]) if name not in special]
    unknown = set(image_listing.folder_names(folders[-1])) - set(classes) - special
    if unknown:
        raise ValueError(
            f"{folders[-1]} has classes that {folders[0].name} has not: "
            f"{', '.join(sorted(unknown))}{image_listing.composed_otherwise(unknown, classes)}; "
            f"accepted: {', '.join(classes)}"
        )
    splits = [_read(folder, classes) for folder in folders]
    if len(splits) == 1:
        splits = [*image_lists.hold_out(root, splits[0])]
    elif (splits[1].labels == UNKNOWN).any():
        unlabeled = image_listing.unlabeled_folder(folders[1])
        raise ValueError(
            f"{folders[1] / unlabeled} has images; accepted: none, since every label "
            f"of a test set is known ({NONE} holds images of no class)"
        )
    return image_lists.build(
        "multilabel",
        splits,
        classes,
        image_size=image_size,
        load_size=load_size,
        missing=missing,
        default_size=224,
        is_own=True,
    )


def _read(folder: pathlib.Path, classes: list[str]) -> image_lists.Split:
    """The images of one split, each once."""
    folders_of: dict[str, list[str]] = {}
    none, unlabeled = _none_folder(folder), image_listing.unlabeled_folder(folder)
    for name in filter(None, (*classes, none, unlabeled)):
        for image in image_listing.images_if_there(folder / name):
            folders_of.setdefault(image, []).append(name)
    image_listing.check_apart(folder, folders_of)
    if not folders_of:
        raise ValueError(
            f"{folder} has no images in class folders; accepted: {image_listing.SUFFIXES}"
        )
    columns = {name: column for column, name in enumerate(classes)}
    labels = np.zeros((len(folders_of), len(classes)), np.int8)
    names = []
    for row, (image, places) in enumerate(sorted(folders_of.items())):
        paths = [folder / place / image for place in places]
        if none in places and len(places) > 1:
            other = next(place for place in places if place != none)
            raise ValueError(
                f"{folder / other / image} is in {none} too; accepted: one or the other"
            )
        for path in paths[1:]:
            if not _same(paths[0], path):
                raise ValueError(
                    f"{path} is another image than {paths[0]}; accepted: different names, since "
                    "one name in several class folders stands for one image with several labels"
                )
        if unlabeled in places:
            labels[row] = UNKNOWN
        labels[row, [columns[place] for place in places if place in columns]] = 1
        names.append(os.path.join(places[0], image))
    return image_lists.Split(folder, names, labels)


def _none_folder(folder: pathlib.Path) -> str:
    """Name of the folder of images of no class in a folder; '' if there is none."""
    return image_listing.folder_called(folder, (NONE,), "images of no class")


def _same(first: pathlib.Path, second: pathlib.Path) -> bool:
    try:
        return first.samefile(second) or filecmp.cmp(first, second, shallow=False)
    except OSError as error:  # of a link to nothing, say
        raise ValueError(
            f"{error.filename} cannot be read: {error.strerror}; accepted: an image, or a link to "
            "one"
        ) from error
