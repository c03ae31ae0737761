"""Single images: decoding, colour, and resizing, with Pillow."""

import os

import numpy as np
from PIL import Image

from pujax.checks import require

CHANNELS = (1, 3)
COLOR_ORDERS = ("rgb", "bgr")
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def decode(path: str | os.PathLike[str], *, channels: int) -> Image.Image:
    """Reads an image file.

    Args:
      path: anything that Pillow reads, of at most 8 bits per channel.
      channels: 1 for grey, 3 for RGB; converted where the file has the other. Palettes and CMYK are
        converted too; an alpha channel is dropped.

    Returns:
      The image in its stored size.

    Raises:
      ValueError: the file is damaged or no such image; the message names it.
    """
    try:
        # Pillow's faster decoding of JPEG to a fraction of its size gives other pixels.
        with Image.open(path) as image:
            # Pillow would cut deeper pixels off at 255 instead of scaling them.
            accepted = "8 bits per channel"
            require(image.mode[0] not in "IF", "the mode of its pixels", image.mode, accepted)
            return image.convert("L" if channels == 1 else "RGB")
    except MemoryError:
        raise
    except Exception as error:  # A damaged file makes Pillow raise errors of many types.
        raise _unreadable(path, error) from error


def stored_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Height and width of the image in a file, of which only the header is read.

    Raises:
      ValueError: the file is no image; the message names it.
    """
    try:
        with Image.open(path) as image:
            return image.height, image.width
    except Exception as error:
        raise _unreadable(path, error) from error


def resize(image: Image.Image, side: int, *, resample: str = "bilinear") -> Image.Image:
    """An image resized to a square; its aspect ratio is not kept.

    Args:
      image: of any size.
      side: of the square; 0 leaves the image as it is.
      resample: one of `FILTERS`.
    """
    if side and image.size != (side, side):
        return image.resize((side, side), FILTERS[resample])
    return image


def pixels(image: Image.Image, *, color_order: str = "rgb") -> np.ndarray:
    """The pixels of a grey or RGB image as uint8 `[height, width, channels]`.

    Args:
      image: of mode 'L' or 'RGB'.
      color_order: 'rgb', or 'bgr' as OpenCV reads images.
    """
    array = np.asarray(image)
    if array.ndim == 2:
        return array[..., None]
    return array[..., ::-1] if color_order == "bgr" else array


def _unreadable(path: str | os.PathLike[str], error: Exception) -> ValueError:
    return ValueError(f"{path} cannot be read as an image: {error}")
