"""Turns images of any size and mode into pixels for a network, in training and afterwards alike.

Nothing is learned here; the mean and deviation of the channels belong to the network's own numbers
(`DataInfo`). A saved preparation is one file, `preparation.json`.
"""

import dataclasses
import os
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import numpy as np
from PIL import Image

from pujax import files, reading
from pujax.checks import require
from pujax.data.image_files import ImageFiles
from pujax.data.readers import image_arrays

_JSON = "preparation.json"
_FORMAT = 1
_CHANNELS = (1, 3, 4)


@dataclasses.dataclass(frozen=True)
class ImagePreparation:
    """How images become pixels.

    Attributes:
      side: of the square that they are resized to, or `(height, width)`; their aspect ratio is not
        kept.
      channels: 3, or 1 for grey.
      resample: filter that resizes, one of `image_arrays.FILTERS`.
    """

    side: int | tuple[int, int]
    channels: int
    resample: str = "bilinear"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of what a network sees."""
        height, width = self.side if isinstance(self.side, tuple) else (self.side, self.side)
        return height, width, self.channels

    @property
    def takes(self) -> str:
        """What it accepts, for a person."""
        kind = "grey" if self.channels == 1 else "RGB"
        height, width, _ = self.shape
        arrays = "[n, height, width, channels]"
        arrays += " or [n, height, width]" if self.channels == 1 else ""
        return (
            "images of any size and mode that Pillow reads, in a folder, a list of paths, or uint8 "
            f"{arrays} (in a file: .npy); they become {kind}, {height} x {width} pixels "
            f"({self.resample}, aspect ratio not kept)"
        )

    def files(self, paths: Sequence[str]) -> ImageFiles:
        """The images of some files, as a network sees them once they are decoded.

        With a `(height, width)` the files must have it, see `ImageFiles`; `read` resizes.
        """
        return ImageFiles(
            tuple(paths),
            self.side,
            channels=self.channels,
            resample=self.resample,
            any_mode=True,
        )

    def read(self, path: str) -> np.ndarray:
        """The pixels of one file.

        Returns:
          uint8 `[height, width, channels]`, as `shape` says.

        Raises:
          ValueError: the file cannot be read; the message names it.
        """
        return self._pixels(image_arrays.decode_any(path, channels=self.channels))

    def transform(self, rows: np.ndarray | Sequence[str]) -> np.ndarray:
        """The pixels of images, in their order.

        Args:
          rows: paths of files, or an array as `with_channels` takes it.

        Returns:
          uint8 `[n, height, width, channels]`, as `shape` says.

        Raises:
          ValueError: naming the file that cannot be read, or what the array is.
        """
        pixels = np.empty([len(rows), *self.shape], np.uint8)
        if not isinstance(rows, np.ndarray):
            with futures.ThreadPoolExecutor() as threads:
                for row, image in enumerate(threads.map(self.read, rows)):
                    pixels[row] = image
            return pixels
        for row, image in enumerate(self.with_channels(rows)):
            squeezed = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
            pixels[row] = self._pixels(image_arrays.convert(squeezed, channels=self.channels))
        return pixels

    def with_channels(self, rows: np.ndarray, field: str = "the array of images") -> np.ndarray:
        """Images `[n, height, width, channels]` of an array.

        Args:
          rows: uint8 `[n, height, width, channels]` of grey (1), RGB (3) or RGBA (4) images; where
            they become grey, `[n, height, width]` as well, unless the width is such a number, as of
            a single image `[height, width, channels]`.
          field: what the message calls it.

        Raises:
          ValueError: for any other array, or one without an image.
        """
        accepted = "uint8 [n, height, width, channels] with 1, 3 or 4 channels"
        images = rows
        if self.channels == 1:
            accepted += " or [n, height, width], whose width is none of these"
            if rows.ndim == 3 and rows.shape[-1] not in _CHANNELS:
                images = rows[..., None]
        right = rows.dtype == np.uint8 and images.ndim == 4 and images.shape[-1] in _CHANNELS
        right = right and min(rows.shape) > 0
        require(right, field, f"{rows.dtype} {rows.shape}", f"{accepted}, and at least one image")
        return images

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the preparation into an existing folder; the file is replaced atomically."""
        document = {"format": _FORMAT, "kind": "images"} | dataclasses.asdict(self)
        files.write_json(os.path.join(folder, _JSON), document)

    def _pixels(self, image: Image.Image) -> np.ndarray:
        return image_arrays.pixels(image_arrays.resize(image, self.side, resample=self.resample))


def load(folder: str | os.PathLike) -> ImagePreparation:
    """Reads what `ImagePreparation.save` wrote.

    Raises:
      ValueError: naming the file that is missing or damaged.
    """
    path = os.path.join(os.fspath(folder), _JSON)
    try:
        document: dict[str, Any] = reading.read_json(path)
        if (document.pop("format"), document.pop("kind")) != (_FORMAT, "images"):
            raise ValueError(f"it is no preparation of images of format {_FORMAT}")
        if isinstance(document["side"], list):
            height, width = document["side"]
            document["side"] = height, width
        learned = ImagePreparation(**document)
        learned.files(())  # which checks the numbers
        height, width, _ = learned.shape
        if 4 * height * width > reading.ROOM:
            raise ValueError(f"images of {height} x {width} pixels are too large")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); accepted: a saved one") from error
    return learned
