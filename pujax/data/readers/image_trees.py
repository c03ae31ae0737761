"""A user's own folder of images: what its folders are, which files are images, what is damaged."""

import collections
import difflib
import hashlib
import logging
import math
import os
import pathlib
from collections.abc import Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np

from pujax.checks import one_of
from pujax.data import raw
from pujax.data.image_files import ImageFiles
from pujax.data.readers import image_listing, pu_labels

_LOG = logging.getLogger(__name__)

UNREADABLE = ("fail", "skip")
"""What to do about images that cannot be read."""

TEST = "test"
_NAMES = {
    "positive": pu_labels.POSITIVE,
    "unlabeled": tuple(filter(None, pu_labels.UNLABELED)),
    "negative": pu_labels.NEGATIVE,
    TEST: (TEST,),
}
_QUEUED = 4096
"""Images that wait to be read, of which each takes two kilobytes until it is."""
_SHOWN = 20
"""Images that cannot be read that a message names."""


class Scan(NamedTuple):
    """What reading all images once tells.

    Attributes:
      reasons: why an image cannot be read, in one line that names it, by its row.
      sums: int64 `[n, channels]`, of the levels 0 to 255 of every image.
      squares: likewise, of their squares.
      pixels: uint8 `[n, height, width, channels]`; None where they are not kept.
    """

    reasons: dict[int, str]
    sums: np.ndarray
    squares: np.ndarray
    pixels: np.ndarray | None


def roles(folder: pathlib.Path, *, field: str, accepted: tuple[str, ...]) -> dict[str, str]:
    """Which of the folders in a folder is what, by their names in lower case.

    The names are those of labels in tables, `pu_labels`.

    Args:
      folder: that holds them.
      field: what to call the folder in messages, such as "data.path is 'images'".
      accepted: of 'positive', 'unlabeled', 'negative' and 'test'.

    Returns:
      Name of the folder by role; a role that no folder has is left out.

    Raises:
      ValueError: in one line, for a folder of another name, with the most similar one; for two
        folders of one role; for images that lie beside them.
    """
    found: dict[str, str] = {}
    for name in image_listing.folder_names(folder):
        role = next((role for role in accepted if name.lower() in _NAMES[role]), None)
        if role is None:
            raise ValueError(f"{field}, which holds the folder {name!r}{_hint(name, accepted)}")
        if role in found:
            raise ValueError(
                f"{field}, which holds {found[role]!r} and {name!r}, both of them {role}; "
                "accepted: one folder of each"
            )
        found[role] = name
    image_listing.check_none_beside(
        folder, f"{field}, which", f"images in folders called {', '.join(accepted)}"
    )
    return found


def _hint(name: str, accepted: tuple[str, ...]) -> str:
    names = [known for role in accepted for known in _NAMES[role]]
    similar = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f" (did you mean {similar[0]!r}?)" if similar else ""
    if name.lower() == "train":
        hint = " (folders train/ and test/ are for data.source=image_folder)"
    return f"{hint}; accepted: folders called {', '.join(accepted)}, or like a label of a table"


def scan(files: ImageFiles, *, keep: bool) -> Scan:
    """Reads all images once, several at a time.

    Args:
      files: `n` images.
      keep: whether their pixels are kept.

    Raises:
      ValueError: there is no memory for the pixels.
    """
    sums, squares = (np.zeros([len(files), files.channels], np.int64) for _ in range(2))
    try:
        pixels = np.zeros(files.shape, np.uint8) if keep else None
    except MemoryError as error:
        size = f"{math.prod(files.shape) / 2**30:.0f} GiB for {len(files)} images"
        raise ValueError(
            f"data.image_size is {files.shape[1]}, which takes {size}; accepted: a smaller one, or "
            "data.streaming=on"
        ) from error
    reasons: dict[int, str] = {}

    def read(row: int) -> None:
        try:
            image = files.read(row)
        except ValueError as error:
            reasons[row] = str(error)
            return
        levels = image.reshape(-1, files.channels).astype(np.int64)
        sums[row], squares[row] = levels.sum(0), np.square(levels).sum(0)
        if pixels is not None:
            pixels[row] = image

    _LOG.info("reading %d images", len(files))
    with futures.ThreadPoolExecutor() as threads:
        for start in range(0, len(files), _QUEUED):
            for _ in threads.map(read, range(start, min(start + _QUEUED, len(files)))):
                pass
    return Scan(dict(sorted(reasons.items())), sums, squares, pixels)


def check_readable(reasons: dict[int, str], num_images: int, unreadable: str) -> str:
    """What to say of images that cannot be read, '' where there are none.

    Args:
      reasons: see `Scan`.
      num_images: of how many.
      unreadable: one of `UNREADABLE`.

    Raises:
      ValueError: there are some, and `unreadable` is 'fail'; or none can be read.
    """
    one_of("data.unreadable", unreadable, UNREADABLE)
    if not reasons:
        return ""
    count = f"{len(reasons)} of {num_images} images cannot be read"
    first, *others = reasons.values()
    if unreadable == "fail" or len(reasons) == num_images:
        raise ValueError(
            f"{first}; {count}; accepted: images, or, if only some are damaged, "
            "data.unreadable='skip' to leave them out"
        )
    more = len(others) + 1 - _SHOWN
    shown = "; ".join([first, *others[: _SHOWN - 1]])
    return f"{count} and are left out: {shown}" + (f"; and {more} more" if more > 0 else "")


def digest(path: str | os.PathLike) -> bytes:
    """The SHA-256 of a file, by which copies of it are known."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def copies(paths: Sequence[str | os.PathLike], num_train: int) -> raw.SharedRows | None:
    """The test images that are training images, too, byte by byte; None without any.

    A file that cannot be opened is a copy of none, and left to whoever reads it as an image.

    Args:
      paths: of the training images, then of those of the test set, if any.
      num_train: how many are of the former.
    """
    if len(paths) == num_train:
        return None
    sizes = [_size(path) for path in paths]
    again = collections.Counter(sizes)
    # A file whose size no other one has is no copy of it, and is not read; nor is an empty one.
    keys = [
        _content(path) if size and again[size] > 1 else path
        for path, size in zip(paths, sizes, strict=True)
    ]
    trained = collections.Counter(keys[:num_train])
    found = sum(key in trained for key in keys[num_train:])
    if not found:
        return None
    alike = sum(count for count in trained.values() if count > 1) / num_train
    return raw.SharedRows(found, 0, len(paths) - num_train, alike, "images")


def _size(path: str | os.PathLike) -> int:
    """Bytes of a file; 0 if it cannot be looked at."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _content(path: str | os.PathLike) -> bytes | str | os.PathLike:
    """The digest of a file, or its path if it cannot be opened."""
    try:
        return digest(path)
    except OSError:
        return path


def statistics(sums: np.ndarray, squares: np.ndarray, num_pixels: int) -> tuple[list[float], ...]:
    """Mean and deviation per channel of pixels in 0-1, in exact arithmetic up to the last step.

    A constant channel, as of a microscope that sees one colour only, gets the deviation 1.

    Args:
      sums: int64 `[n, channels]` of `Scan`, for the images that count.
      squares: likewise.
      num_pixels: of one image.

    Returns:
      `(mean, std)`, one number per channel.

    Raises:
      ValueError: all images have one and the same colour throughout.
    """
    means, stds, count = [], [], len(sums) * num_pixels
    for total, square in zip(sums.sum(0).tolist(), squares.sum(0).tolist(), strict=True):
        variance = count * square - total * total  # whole numbers of Python, which have no limit
        means.append(total / count / 255)
        stds.append(variance**0.5 / count / 255 if variance else 1.0)
    if all(std == 1.0 for std in stds):
        raise ValueError("all training images have one and the same colour; accepted: images")
    return means, stds
