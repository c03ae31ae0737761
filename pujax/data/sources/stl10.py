"""STL-10: 5,000 labelled, 100,000 unlabeled and 8,000 test images of 96 x 96 (Coates, 2011)."""

import os
import pathlib
from typing import BinaryIO

import numpy as np

from pujax.data import absent, raw
from pujax.data.readers import archive, download

SIDE = 96
FOLDER = "stl10_binary"
ARCHIVE = download.RemoteFile(
    filename="stl10_binary.tar.gz",
    url="https://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
    checksum="md5:91f7769df0f17e558f3565bffb0c7dfb",
    size=2640397119,
)
CLASS_NAMES = (
    "airplane",
    "bird",
    "car",
    "cat",
    "deer",
    "dog",
    "horse",
    "monkey",
    "ship",
    "truck",
)
SIZES = (5000, 100000, 8000)

_CHUNK = 500
_ROOM = 5000
"""Rows left free in front of the unlabeled images, so that the labelled ones can be put there.

Joining the two afterwards would need their 2.9 GB twice."""


def load(directory: pathlib.Path) -> raw.RawDataset:
    """Reads STL-10 from the original binary files, packed or unpacked.

    The training set is the labelled images followed by the unlabeled ones, whose label is -1.
    Classes 1..10 of the files become 0..9. Read from the unpacked folder it starts faster.

    Args:
      directory: folder with the archive, `stl10_binary/` or its files, or with `stl10/`.

    Returns:
      A `RawDataset`.

    Raises:
      MissingDataError: nothing is there and it cannot be downloaded.
      ValueError: a file is damaged or missing from its folder.
    """
    location = archive.find(directory, "stl10", (FOLDER, ARCHIVE.filename), marker="train_X.bin")
    if location is None:
        hint = f"The unpacked folder {FOLDER} is accepted as well."
        (location,) = download.fetch_all([ARCHIVE], directory=directory / "stl10", hint=hint)
    names = ("train_X.bin", "train_y.bin", "unlabeled_X.bin", "test_X.bin", "test_y.bin")
    files = archive.read_members(location, FOLDER, names, _read)
    train, test, unlabeled = (files[f"{split}_X.bin"] for split in ("train", "test", "unlabeled"))
    for split, images in (("train", train), ("test", test)):
        if len(images) != len(files[f"{split}_y.bin"]):
            raise ValueError(
                f"{location}: {split}_X.bin has {len(images)} images, "
                f"but {split}_y.bin has {len(files[f'{split}_y.bin'])} labels"
            )
    start = _ROOM - len(train)
    if start < 0:
        raise ValueError(f"{location}: train_X.bin has {len(train)} images; accepted: {_ROOM}")
    unlabeled[start:_ROOM] = train
    unknown = np.full(len(unlabeled) - _ROOM, raw.UNKNOWN, np.int32)
    sizes = (len(train), len(unknown), len(test))
    archive.warn_if_partial(location, sizes=sizes, original=SIZES)
    return raw.RawDataset(
        name="stl10",
        train_inputs=unlabeled[start:],
        train_labels=np.concatenate([files["train_y.bin"], unknown]),
        test_inputs=test,
        test_labels=files["test_y.bin"],
        class_names=CLASS_NAMES,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
    )


def _read(stream: BinaryIO, where: str) -> np.ndarray:
    """Labels as int32 `[n]` from 0, or images as uint8 `[n, 96, 96, 3]`."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if where.endswith("_y.bin"):
        labels = np.frombuffer(archive.read_exactly(stream, size, where), np.uint8)
        if labels.size and not (labels.min() >= 1 and labels.max() <= len(CLASS_NAMES)):
            raise ValueError(
                f"{where} holds labels in {labels.min()}..{labels.max()}; "
                f"accepted: 1..{len(CLASS_NAMES)}"
            )
        return labels.astype(np.int32) - 1
    count, rest = divmod(size, 3 * SIDE * SIDE)
    if rest or not count:
        raise ValueError(
            f"{where} is truncated or not such a file: {size} bytes; "
            f"accepted: a multiple of {3 * SIDE * SIDE}"
        )
    room = _ROOM if "unlabeled" in pathlib.PurePath(where).name else 0
    images = np.empty((room + count, SIDE, SIDE, 3), np.uint8)
    for first in range(0, count, _CHUNK):
        part = min(_CHUNK, count - first)
        content = archive.read_exactly(stream, part * 3 * SIDE * SIDE, where)
        # On disk: channel by channel, and within a channel column by column.
        columns = np.frombuffer(content, np.uint8).reshape(part, 3, SIDE, SIDE)
        images[room + first :][:part] = columns.transpose(0, 3, 2, 1)
    return images


def without_data() -> raw.RawDataset:
    """What `load` returns, without the images: see `pujax.data.absent`."""
    train, unknown, test = SIZES
    return absent.one_class(
        "stl10",
        (SIDE, SIDE, 3),
        train=[train // len(CLASS_NAMES)] * len(CLASS_NAMES),
        test=[test // len(CLASS_NAMES)] * len(CLASS_NAMES),
        class_names=CLASS_NAMES,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        unknown=unknown,
    )
