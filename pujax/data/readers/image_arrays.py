"""Single images: decoding, colour, and resizing, with Pillow."""

import pathlib

import numpy as np
from PIL import Image

COLOR_ORDERS = ("rgb", "bgr")


def check_options(*, image_size: int, channels: int = 3, color_order: str = "rgb") -> None:
    """Raises a `ValueError` that names the option if one of them is not acceptable."""
    if isinstance(image_size, bool) or not isinstance(image_size, int) or image_size < 0:
        raise ValueError(f"image_size is {image_size!r}, accepted: 0 (as stored) or a side length")
    if channels not in (1, 3):
        raise ValueError(f"channels is {channels!r}, accepted: 1 or 3")
    if color_order not in COLOR_ORDERS:
        raise ValueError(f"color_order is {color_order!r}, accepted: {' or '.join(COLOR_ORDERS)}")


def read(
    path: pathlib.Path, *, image_size: int, channels: int, color_order: str = "rgb"
) -> np.ndarray:
    """Reads an image file.

    Args:
      path: anything that Pillow reads, of at most 8 bits per channel.
      image_size: side length to resize to (bilinear), or 0 for the stored size.
      channels: 1 for grey, 3 for colour; converted where the file has the other.
      color_order: 'rgb', or 'bgr' as OpenCV reads images.

    Returns:
      uint8 `[height, width, channels]`.

    Raises:
      ValueError: the file is damaged or no such image; the message names it.
    """
    try:
        with Image.open(path) as image:
            if image.mode[0] in "IF":
                raise ValueError(f"it has pixels of mode {image.mode}, accepted: 8 bits")
            pixels = resize(image.convert("L" if channels == 1 else "RGB"), image_size)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be read as an image: {error}") from error
    if channels == 1:
        return pixels[..., None]
    return pixels[..., ::-1] if color_order == "bgr" else pixels


def resize(image: Image.Image, image_size: int) -> np.ndarray:
    """The pixels of an image, resized to a square of that side (bilinear) unless it is 0."""
    if image_size and image.size != (image_size, image_size):
        image = image.resize((image_size, image_size), Image.Resampling.BILINEAR)
    return np.asarray(image)
