"""Image folders: `train/CLASS/IMAGE` and `test/CLASS/IMAGE`, class ids in alphabetical order.

The training folder `unlabeled` is no class: its images have the class id -1. Folders within those
of the classes are looked into.
"""

import logging
import pathlib

import numpy as np

from pujax.data import raw
from pujax.data.image_files import ImageFiles
from pujax.data.readers import image_arrays, image_listing

_LOG = logging.getLogger(__name__)

SPLITS = ("train", "test")


def is_image_folder(root: pathlib.Path) -> bool:
    """Whether a folder has at least one of the two split folders, each with class folders."""
    return any(
        (root / split).is_dir() and any(entry.is_dir() for entry in (root / split).iterdir())
        for split in SPLITS
    )


def check_beside(root: pathlib.Path) -> None:
    """Says which images of a user's own folder are in none of the class folders.

    Those of the split folders themselves are refused. Folders beside these, such as `val`, may be
    meant for something else, so that a warning names those with images.

    Args:
      root: folder with `train` and `test`.

    Raises:
      ValueError: images lie beside class folders.
    """
    accepted = "images in class folders, and unlabeled ones in train/unlabeled"
    for split in SPLITS:
        image_listing.check_none_beside(root / split, str(root / split), accepted)
    names = [name for name in image_listing.folder_names(root) if name not in SPLITS]
    others = [f"{name}/" for name in names if image_listing.has_images(root / name)]
    if loose := image_listing.image_files(root):
        others.append(loose[0].name + f" and {len(loose) - 1} more" * (len(loose) > 1))
    if others:
        _LOG.warning(
            "%s: images beside train/ and test/ are not read: %s; read are %s",
            root,
            ", ".join(others),
            accepted,
        )


def load(
    root: pathlib.Path,
    *,
    name: str,
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    image_size: int,
    channels: int,
    color_order: str = "rgb",
    streamed: bool,
    any_mode: bool = False,
) -> raw.RawDataset:
    """Reads all images of a folder into memory, or their names.

    Class ids are the positions of the class folders of `train` in alphabetical order. Files whose
    name does not end like an image's, and hidden ones, are passed over.

    Args:
      root: folder with `train` and `test`.
      name: name of the data set.
      statistics: mean and deviation per channel, of pixels in 0-1; None for those of the training
        images.
      image_size: side length to resize to (bilinear), or 0 for the stored size, which all images
        must share.
      channels: 1 or 3.
      color_order: 'rgb' or 'bgr'.
      streamed: leaves the images in files; what a batch then sees are the same pixels.
      any_mode: as in `ImageFiles`.

    Returns:
      A `RawDataset`.

    Raises:
      ValueError: a split or class folder is missing or empty, an image is damaged or of another
        size; the message names the path.
    """
    for split in SPLITS:
        if not (root / split).is_dir():
            raise ValueError(f"{root / split} is missing; accepted: a folder of class folders")
    names = image_listing.folder_names(root / "train")
    unlabeled = image_listing.unlabeled_folder(root / "train")
    classes = tuple(name for name in names if name != unlabeled)
    unknown = sorted(set(image_listing.folder_names(root / "test")) - set(classes))
    if unknown:
        raise ValueError(
            f"{root / 'test'} has classes that train has not: {', '.join(unknown)}"
            f"{image_listing.composed_otherwise(unknown, classes)}; accepted: {', '.join(classes)}"
        )
    ids = {name: i for i, name in enumerate(classes)}
    train_paths, train_labels = _listed(
        root / "train", ids | ({unlabeled: raw.UNKNOWN} if unlabeled else {})
    )
    test_paths, test_labels = _listed(root / "test", ids)
    train, test = (
        ImageFiles(
            paths,
            image_size or image_arrays.stored_size(paths[0], turned=any_mode),
            channels=channels,
            color_order=color_order,
            resample="bilinear",
            any_mode=any_mode,
        )
        for paths in (train_paths, test_paths)
    )
    if streamed and not image_size:
        for files in (train, test):
            files.check_sizes()
    inputs = [files if streamed else files.array() for files in (train, test)]
    mean, std = statistics or raw.channel_statistics(inputs[0])
    return raw.RawDataset(
        name=name,
        train_inputs=inputs[0],
        train_labels=train_labels,
        test_inputs=inputs[1],
        test_labels=test_labels,
        class_names=classes,
        mean=mean,
        std=std,
    )


def _listed(folder: pathlib.Path, class_ids: dict[str, int]) -> tuple[tuple[str, ...], np.ndarray]:
    """Paths and class ids of the images of one split."""
    paths: list[str] = []
    labels: list[int] = []
    for name, i in class_ids.items():
        below = image_listing.images_if_there(folder / name)
        paths += [str(folder / name / path) for path in below]
        labels += [i] * len(below)
    if not paths:
        raise ValueError(
            f"{folder} has no images in class folders; accepted: {image_listing.SUFFIXES}"
        )
    return tuple(paths), np.array(labels, np.int32)
