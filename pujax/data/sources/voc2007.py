"""Pascal VOC 2007: 9,963 photographs with objects of 20 classes, in the official folders."""

import pathlib
import xml.etree.ElementTree as ElementTree

import numpy as np

from pujax import reading
from pujax.data.raw import RawDataset
from pujax.data.readers import image_lists

MULTILABEL = True
CLASS_NAMES = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)
SIZES = (5011, 4952)
"""Images of the lists `trainval` and `test`."""
_LISTS = ("trainval", "test")
_NEEDED = ("JPEGImages", "Annotations", *(f"ImageSets/Main/{name}.txt" for name in _LISTS))
_HINT = (
    "Unpack VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar, which both write to "
    "VOCdevkit/VOC2007"
)


def load(
    directory: pathlib.Path, *, image_size: int = 0, load_size: int = 0, missing: str = "fail"
) -> RawDataset:
    """Reads the labels; the images are decoded when a batch needs them.

    `trainval` trains and `test` tests. An image has the labels of its objects that are not
    difficult, in both splits: one with difficult objects alone is negative, whereas the official
    evaluation leaves such an image out.

    Args:
      directory: `VOC2007`, `VOCdevkit`, or what holds one of them; `voc2007/` in it will do too.
      image_size: side length that a network sees; 0 is 448.
      load_size: side length before the random crop; 0 is 8/7 of `image_size`.
      missing: 'fail', or 'skip' to leave out images whose file is missing.

    Returns:
      A `RawDataset` of image files, in the order of the lists.

    Raises:
      MissingDataError: a folder, list or image is missing.
      ValueError: an annotation is missing, damaged, or of an unknown class.
    """
    inner = (".", "VOC2007", "VOCdevkit/VOC2007")
    places = [base / name for base in (directory, directory / "voc2007") for name in inner]
    root = image_lists.find_root("voc2007", places, _NEEDED, hint=_HINT)
    annotations = root / "Annotations"
    known = image_lists.names_in(annotations)
    splits = []
    for name in _LISTS:
        path = root / "ImageSets" / "Main" / f"{name}.txt"
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no list of image ids: {error}") from error
        ids = [line.strip() for line in lines if line.strip()]
        if not ids:
            raise ValueError(f"{path} is empty; accepted: one image id per line")
        image_lists.check_names(path, ids)
        absent = [i for i in ids if f"{i}.xml" not in known]
        if absent:
            raise ValueError(
                f"{annotations} lacks the annotations of {len(absent)} of the {len(ids)} images in "
                f"{path}: {image_lists.first_few(absent)}; accepted: ID.xml for each"
            )
        labels = np.zeros((len(ids), len(CLASS_NAMES)), np.int8)
        for row, i in enumerate(ids):
            labels[row, _class_ids(annotations / f"{i}.xml")] = 1
        names = [f"{i}.jpg" for i in ids]
        splits.append(image_lists.Split(root / "JPEGImages", names, labels))
    return image_lists.build(
        "voc2007",
        splits,
        CLASS_NAMES,
        image_size=image_size,
        load_size=load_size,
        missing=missing,
        default_size=448,
    )


def without_data(*, image_size: int = 0, load_size: int = 0) -> RawDataset:
    """What `load` returns, without the images: see `pujax.data.absent`."""
    return image_lists.without_data(
        "voc2007", SIZES, CLASS_NAMES, image_size=image_size, load_size=load_size, default_size=448
    )


def _class_ids(path: pathlib.Path) -> list[int]:
    """Classes of the objects that are not difficult; an object's parts have names of their own."""
    try:
        objects = ElementTree.parse(path).getroot().findall("object")
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # an unknown encoding, too
        raise ValueError(f"{path} cannot be read as XML: {reading.one_line(error)}") from error
    ids = []
    for entry in objects:
        name = entry.findtext("name", "").strip().lower()
        difficult = entry.findtext("difficult", "0").strip()
        if name not in CLASS_NAMES:
            raise ValueError(
                f"{path} has an object {name[:60]!r}; accepted: {', '.join(CLASS_NAMES)}"
            )
        if difficult not in ("0", "1"):
            raise ValueError(f"{path}: difficult is {difficult!r}; accepted: 0 or 1")
        if difficult == "0":
            ids.append(CLASS_NAMES.index(name))
    return ids
