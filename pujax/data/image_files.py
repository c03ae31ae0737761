"""Images in files, decoded when a batch needs them: `ImageFiles`.

Only what needs the file happens on the host: decoding, resizing, and the random crop, whose size in
pixels varies. Flips, colours and normalisation run on the device, on whole batches.
"""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from concurrent import futures

import numpy as np
from PIL import Image

from pujax.checks import one_of, require, whole_number
from pujax.data.readers import image_arrays


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """Images in files, as an array `[n, height, width, channels]` would be but for the memory.

    Attributes:
      paths: one file per image, of any kind that Pillow reads with at most 8 bits per channel. Grey
        images, palettes and CMYK become RGB; an alpha channel is dropped. See also `any_mode`.
      side: pixels of the square that a network sees; or `(height, width)`, which all files have,
        for images that are not resized.
      load_side: pixels of the square that training images are resized to before they are cropped;
        0 where they are not.
      channels: 3, or 1 for grey images.
      color_order: 'rgb', or 'bgr' as OpenCV reads images.
      resample: filter that resizes, one of `image_arrays.FILTERS`.
      any_mode: reads files of more bits too, turns them as EXIF says, and lays what is transparent
        on white, see `image_arrays.decode_any`.
    """

    paths: tuple[str, ...]
    side: int | tuple[int, int]
    load_side: int = 0
    channels: int = 3
    color_order: str = "rgb"
    resample: str = "bicubic"
    any_mode: bool = False

    def __post_init__(self):
        kind = type(self.paths)
        require(kind is tuple, "the type of paths", kind.__name__, "tuple")
        for side in self.side if isinstance(self.side, tuple) else (self.side,):
            whole_number("side", side, 1)
        whole_number("load_side", self.load_side, 0)
        one_of("channels", self.channels, image_arrays.CHANNELS)
        one_of("color_order", self.color_order, image_arrays.COLOR_ORDERS)
        one_of("resample", self.resample, image_arrays.FILTERS)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """That of the decoded images."""
        size = self.side if isinstance(self.side, tuple) else (self.side, self.side)
        return len(self.paths), *size, self.channels

    @property
    def dtype(self) -> np.dtype:
        """That of the decoded images, uint8."""
        return np.dtype(np.uint8)

    @property
    def nbytes(self) -> int:
        """0: unlike an array, it keeps no pixels in memory."""
        return 0

    def __getitem__(self, rows: np.ndarray | slice) -> "ImageFiles":
        """The images of some rows, in their order.

        Args:
          rows: integers `[m]`, each from 0 to `n - 1`, of which one may come twice; or bool `[n]`,
            or a slice.

        Returns:
          `ImageFiles` of `m` images.

        Raises:
          ValueError: `rows` is no list of rows or has one that is not there.
        """
        if isinstance(rows, slice):
            return dataclasses.replace(self, paths=self.paths[rows])
        rows = np.asarray(rows)
        if rows.dtype == bool and rows.shape == (len(self),):
            rows = np.flatnonzero(rows)
        rows = check_rows("rows", rows, len(self))
        require(rows.ndim == 1, "the shape of rows", rows.shape, "one dimension")
        return dataclasses.replace(self, paths=tuple(self.paths[row] for row in rows.tolist()))

    def array(self) -> np.ndarray:
        """All images, decoded by several threads.

        Returns:
          uint8 `[n, height, width, channels]`.

        Raises:
          ValueError: a file cannot be read; the message names it.
        """
        images = np.empty(self.shape, np.uint8)

        def fill(row: int) -> None:
            images[row] = self.read(row)

        with futures.ThreadPoolExecutor() as threads:
            for _ in threads.map(fill, range(len(self))):
                pass
        return images

    def read(self, index: int) -> np.ndarray:
        """One image as it is tested: resized to `side` x `side`, its aspect ratio not kept.

        Args:
          index: row of the image, from 0 to `n - 1`.

        Returns:
          uint8 `[height, width, channels]`.

        Raises:
          ValueError: the file cannot be read, or is not resized and of another size than the
            others; the message names it.
        """
        pixels = self._pixels(self._load(index, self.side if isinstance(self.side, int) else 0))
        if pixels.shape != self.shape[1:]:
            raise self._other_size(index, pixels.shape)
        return pixels

    def read_crop(
        self, index: int, rng: np.random.Generator, crop_sizes: Sequence[int]
    ) -> np.ndarray:
        """One image as it is trained on: resized to `load_side`, cropped at random, to `side`.

        The crop is a square; its size is drawn uniformly from `crop_sizes`, then its place
        uniformly from all that lie inside the image. The aspect ratio is not kept. Source: the
        training transform of PU-MLC (512 pixels, crops of 512 to 256, 448 pixels, bicubic), without
        the flip and the normalisation.

        Args:
          index: row of the image, from 0 to `n - 1`.
          rng: where the size and the place of the crop come from.
          crop_sizes: sides of the crop in pixels of the resized image, at most `load_side`.

        Returns:
          uint8 `[side, side, channels]`.

        Raises:
          ValueError: a size is not acceptable, or the file cannot be read; the message names it.
        """
        self.check_crop_sizes(crop_sizes)
        size = int(crop_sizes[int(rng.integers(len(crop_sizes)))])
        left, top = (int(x) for x in rng.integers(self.load_side - size, size=2, endpoint=True))
        # Cropped first: `resize(box=...)` would let the filter see pixels outside the crop.
        crop = self._load(index, self.load_side).crop((left, top, left + size, top + size))
        _, height, width, _ = self.shape
        return self._pixels(crop.resize((width, height), image_arrays.FILTERS[self.resample]))

    def check_crop_sizes(self, crop_sizes: Sequence[int]) -> None:
        """Raises a `ValueError` unless `crop_sizes` are sides of crops of the resized images."""
        wrong = [s for s in crop_sizes if s != int(s) or not 1 <= s <= self.load_side]
        require(
            not wrong and len(crop_sizes) > 0,
            "crop_sizes",
            tuple(crop_sizes),
            f"one or more sizes from 1 to the side that images are loaded with, {self.load_side}",
        )

    def check_sizes(self) -> None:
        """Raises a `ValueError` that names the first image of another size than `side` says.

        For images that are not resized; it reads the headers of all files.
        """
        for index, path in enumerate(self.paths):
            shape = (*image_arrays.stored_size(path, turned=self.any_mode), self.channels)
            if shape != self.shape[1:]:
                raise self._other_size(index, shape)

    def _other_size(self, index: int, shape: tuple[int, ...]) -> ValueError:
        return ValueError(
            f"{self.paths[index]} has the shape {shape}, others have {self.shape[1:]}; "
            "set image_size to bring all to one size"
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
        """The image, resized to a square of that side unless it is 0."""
        if not 0 <= index < len(self):
            raise ValueError(f"index is {index}; accepted: 0 to {len(self) - 1}")
        decode = image_arrays.decode_any if self.any_mode else image_arrays.decode
        image = decode(self.paths[index], channels=self.channels)
        return image_arrays.resize(image, side, resample=self.resample)

    def _pixels(self, image: Image.Image) -> np.ndarray:
        return image_arrays.pixels(image, color_order=self.color_order)


def as_array(inputs: np.ndarray | ImageFiles) -> np.ndarray:
    """The inputs in memory: decoded where they are files."""
    return inputs.array() if isinstance(inputs, ImageFiles) else inputs


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
    require(rows.dtype.kind in "iu", f"the dtype of {name}", rows.dtype.name, "integers")
    low, high = int(rows.min()), int(rows.max())
    is_inside = low >= 0 and high < num_rows
    require(is_inside, f"the range of {name}", (low, high), f"0 to {num_rows - 1}")
    return rows
