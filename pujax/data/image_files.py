"""Images in files, decoded when a batch needs them: `ImageFiles`.

Only what needs the file happens on the host: decoding, resizing, and the random crop, whose size in
pixels varies. Flips, colours and normalisation run on the device, on whole batches.
"""

import dataclasses
import hashlib
import os
from collections.abc import Sequence

import numpy as np
from PIL import Image

_BICUBIC = Image.Resampling.BICUBIC


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """Images in files, as an array `[n, side, side, 3]` would be but for the memory.

    Attributes:
      paths: one file per image, of any kind that Pillow reads with at most 8 bits per channel. Grey
        images, palettes and CMYK become RGB; an alpha channel is dropped.
      side: pixels of the square that a network sees.
      load_side: pixels of the square that training images are resized to before they are cropped.
    """

    paths: tuple[str, ...]
    side: int
    load_side: int

    def __post_init__(self):
        if not isinstance(self.paths, tuple):
            raise ValueError(f"paths is a {type(self.paths).__name__}, accepted: a tuple of paths")
        for name in ("side", "load_side"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}, accepted: a number of pixels from 1")

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """That of the decoded images."""
        return len(self.paths), self.side, self.side, 3

    @property
    def dtype(self) -> np.dtype:
        """That of the decoded images, uint8."""
        return np.dtype(np.uint8)

    @property
    def nbytes(self) -> int:
        """0: unlike an array, it keeps no pixels in memory."""
        return 0

    def take(self, rows: np.ndarray) -> "ImageFiles":
        """The images of these rows, in this order.

        Args:
          rows: integer `[m]`, each from 0 to `n - 1`; one may come twice.

        Returns:
          `ImageFiles` of `m` images.

        Raises:
          ValueError: `rows` is no list of rows or has one that is not there.
        """
        rows = check_rows("rows", rows, len(self))
        if rows.ndim != 1:
            raise ValueError(f"rows has the shape {rows.shape}, accepted: one dimension")
        return dataclasses.replace(self, paths=tuple(self.paths[row] for row in rows))

    def read(self, index: int) -> np.ndarray:
        """One image as it is tested: resized to `side` x `side`, its aspect ratio not kept.

        Args:
          index: row of the image, from 0 to `n - 1`.

        Returns:
          uint8 `[side, side, 3]`, RGB.

        Raises:
          ValueError: the file cannot be read; the message names it.
        """
        return np.asarray(self._load(index, self.side))

    def read_crop(
        self, index: int, rng: np.random.Generator, crop_sizes: Sequence[int]
    ) -> np.ndarray:
        """One image as it is trained on: resized to `load_side`, cropped at random, to `side`.

        The crop is a square; its size is drawn uniformly from `crop_sizes`, then its place
        uniformly from all that lie inside the image. All resizing is bicubic, and the aspect ratio
        is not kept. Source: the training transform of PU-MLC (512 pixels, crops of 512 to 256, 448
        pixels), without the flip and the normalisation.

        Args:
          index: row of the image, from 0 to `n - 1`.
          rng: where the size and the place of the crop come from.
          crop_sizes: sides of the crop in pixels of the resized image, at most `load_side`.

        Returns:
          uint8 `[side, side, 3]`, RGB.

        Raises:
          ValueError: a size is not acceptable, or the file cannot be read; the message names it.
        """
        self.check_crop_sizes(crop_sizes)
        size = crop_sizes[rng.integers(len(crop_sizes))]
        left, top = (int(x) for x in rng.integers(self.load_side - size, size=2, endpoint=True))
        # Cropped first: `resize(box=...)` would let the filter see pixels outside the crop.
        crop = self._load(index, self.load_side).crop((left, top, left + size, top + size))
        return np.asarray(crop.resize((self.side, self.side), _BICUBIC))

    def check_crop_sizes(self, crop_sizes: Sequence[int]) -> None:
        """Raises a `ValueError` unless `crop_sizes` are sides of crops of the resized images."""
        wrong = [s for s in crop_sizes if s != int(s) or not 1 <= s <= self.load_side]
        if wrong or not len(crop_sizes):
            raise ValueError(
                f"crop_sizes is {tuple(crop_sizes)}, accepted: one or more sizes from 1 to the "
                f"side that images are loaded with, {self.load_side}"
            )

    def digest(self) -> str:
        """A hash of the names and sizes of the files, in their order; no file is opened.

        Folders do not count, so that a set that was moved as a whole stays the same set.

        Raises:
          ValueError: a file is missing; the message names it.
        """
        digest = hashlib.blake2b(digest_size=16)
        for path in self.paths:
            try:
                size = os.stat(path).st_size
            except OSError as error:
                raise ValueError(f"{path} cannot be read: {error.strerror}") from error
            digest.update(f"{os.path.basename(path)}\0{size}\0".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def _load(self, index: int, side: int) -> Image.Image:
        """The image as RGB, resized to a square of that side."""
        if not 0 <= index < len(self):
            raise ValueError(f"index is {index}, accepted: 0 to {len(self) - 1}")
        path = self.paths[index]
        try:
            # Pillow's faster decoding of JPEG to a fraction of its size gives other pixels.
            with Image.open(path) as image:
                # Pillow would cut deeper pixels off at 255 instead of scaling them.
                if image.mode[0] in "IF":
                    raise ValueError(f"it has pixels of mode {image.mode}, accepted: 8 bits")
                return image.convert("RGB").resize((side, side), _BICUBIC)
        except MemoryError:
            raise
        except Exception as error:  # Pillow's decoders raise whatever a damaged file leads them to.
            raise ValueError(f"{path} cannot be read as an image: {error}") from error


def check_rows(name: str, rows: np.ndarray, num_rows: int) -> np.ndarray:
    """`rows` as an integer array, if all of them are from 0 to `num_rows - 1`.

    Args:
      name: what the array is called in the message of an error.
      rows: integers of any shape.
      num_rows: how many rows there are.

    Returns:
      The array.

    Raises:
      ValueError: it holds something else.
    """
    rows = np.asarray(rows)
    if rows.size == 0:
        return rows.astype(np.int32)
    if rows.dtype.kind not in "iu":
        raise ValueError(f"{name} is of dtype {rows.dtype}, accepted: integers")
    if rows.min() < 0 or rows.max() >= num_rows:
        raise ValueError(
            f"{name} goes from {rows.min()} to {rows.max()}, accepted: 0 to {num_rows - 1}"
        )
    return rows
