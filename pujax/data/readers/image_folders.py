"""Image folders: `train/CLASS/IMAGE` and `test/CLASS/IMAGE`, class ids in alphabetical order.

The training folder `unlabeled` is no class: its images have the class id -1.
"""

import pathlib

import numpy as np

from pujax.data import raw
from pujax.data.readers import image_arrays

SPLITS = ("train", "test")
UNLABELED = "unlabeled"
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")


def is_image_folder(root: pathlib.Path) -> bool:
    """Whether a folder has at least one of the two split folders, each with class folders."""
    return any(
        (root / split).is_dir() and any(entry.is_dir() for entry in (root / split).iterdir())
        for split in SPLITS
    )


def load(
    root: pathlib.Path,
    *,
    name: str,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    image_size: int,
    channels: int,
    color_order: str,
) -> raw.RawDataset:
    """Reads all images of a folder into memory.

    Class ids are the positions of the class folders of `train` in alphabetical order. Files whose
    name does not end like an image's, and hidden ones, are passed over.

    Args:
      root: folder with `train` and `test`.
      name: name of the data set.
      mean: per channel, of pixels in 0-1.
      std: per channel, of pixels in 0-1.
      image_size: side length to resize to, or 0 for the stored size, which all images must share.
      channels: 1 or 3.
      color_order: 'rgb' or 'bgr'.

    Returns:
      A `RawDataset`.

    Raises:
      ValueError: a split or class folder is missing or empty, an image is damaged or of another
        size; the message names the path.
    """
    image_arrays.check_options(image_size=image_size, channels=channels, color_order=color_order)
    for split in SPLITS:
        if not (root / split).is_dir():
            raise ValueError(f"{root / split} is missing, accepted: a folder of class folders")
    classes = tuple(name for name in class_names(root / "train") if name != UNLABELED)
    unknown = sorted(set(class_names(root / "test")) - set(classes))
    if unknown:
        raise ValueError(
            f"{root / 'test'} has classes that train has not: {', '.join(unknown)}, "
            f"accepted: {', '.join(classes)}"
        )
    read = {"image_size": image_size, "channels": channels, "color_order": color_order}
    ids = {name: i for i, name in enumerate(classes)}
    train = _read_split(root / "train", ids | {UNLABELED: raw.UNKNOWN}, **read)
    test = _read_split(root / "test", ids, **read)
    return raw.RawDataset(
        name=name,
        train_inputs=train[0],
        train_labels=train[1],
        test_inputs=test[0],
        test_labels=test[1],
        class_names=classes,
        mean=mean,
        std=std,
    )


def class_names(folder: pathlib.Path) -> tuple[str, ...]:
    """Names of the folders in a folder that are not hidden, in alphabetical order."""
    entries = (entry for entry in folder.iterdir() if entry.is_dir())
    return tuple(sorted(entry.name for entry in entries if not entry.name.startswith(".")))


def image_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The images in a folder, in alphabetical order; none if there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    )


def _read_split(
    folder: pathlib.Path, class_ids: dict[str, int], **options: object
) -> tuple[np.ndarray, np.ndarray]:
    """Images and class ids of one split, filled into one array as they are read."""
    files = [(path, i) for name, i in class_ids.items() for path in image_files(folder / name)]
    if not files:
        raise ValueError(f"{folder} has no images in class folders, accepted: {SUFFIXES}")
    images = None
    for row, (path, _) in enumerate(files):
        image = image_arrays.read(path, **options)
        if images is None:
            images = np.empty((len(files), *image.shape), np.uint8)
        if image.shape != images.shape[1:]:
            raise ValueError(
                f"{path} has the shape {image.shape}, others have {images.shape[1:]}; "
                f"set image_size to bring all to one size"
            )
        images[row] = image
    return images, np.array([label for _, label in files], np.int32)
