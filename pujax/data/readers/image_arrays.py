"""Single images: decoding, colour, and resizing, with Pillow."""

import contextlib
import os
from collections.abc import Iterator

import numpy as np
from PIL import ExifTags, Image, PngImagePlugin, TiffImagePlugin

from pujax import reading
from pujax.checks import require

CHANNELS = (1, 3)
COLOR_ORDERS = ("rgb", "bgr")
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What brings an image of each EXIF orientation upright."""
_PHOTOMETRIC = 262
"""The tag of TIFF files that says whether 0 is black."""
_HIGHEST = {"L;2": 3, "L;4": 15}
"""The highest level of grey PNG files of 2 and 4 bits, by Pillow's name for how they are stored."""


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
        with _opened(path) as image:
            _check_header(path, image)
            # Pillow would cut deeper pixels off at 255 instead of scaling them.
            accepted = "8 bits per channel"
            require(image.mode[0] not in "IF", "the mode of its pixels", image.mode, accepted)
            return _rgb_of_lab(image).convert("L" if channels == 1 else "RGB")
    except MemoryError:
        raise
    except Exception as error:  # A damaged file makes Pillow raise errors of many types.
        raise _unreadable(path, error) from error


def decode_any(path: str | os.PathLike[str], *, channels: int) -> Image.Image:
    """Reads an image file of any mode as `convert` says; of several pages the first.

    Args:
      path: anything that Pillow reads.
      channels: 1 for grey, 3 for RGB.

    Returns:
      The image, turned as its EXIF orientation says, in its stored size otherwise.

    Raises:
      ValueError: the file is damaged or no such image; the message names it, in one line.
    """
    try:
        with _opened(path) as image:
            _check_header(path, image)
            # Pillow turns levels round where 0 is white, but not those of 16 bits.
            is_inverted = image.mode.startswith("I;16") and _tag(image, _PHOTOMETRIC) == 0
            _scale_transparency(image)
            image.load()
            _check_levels(image)
            turned = _turned(image)
            if is_inverted:
                turned = Image.fromarray(2**16 - 1 - np.asarray(turned).astype(np.uint16))
    except MemoryError:
        raise
    except Exception as error:  # A damaged file makes Pillow raise errors of many types.
        raise _unreadable(path, error) from error
    try:
        return convert(turned, channels=channels)
    except ValueError as error:  # of its mode
        raise _unreadable(path, error) from error


def _orientation(image: Image.Image) -> int:
    """How EXIF says that an image is turned, 1 to 8; 1, not at all, where it says nothing of it."""
    try:
        value = image.getexif().get(ExifTags.Base.Orientation, 1)
    except SyntaxError:  # no EXIF at all, by its header, beside pixels that may well be good
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _turned(image: Image.Image) -> Image.Image:
    """An image that is loaded, turned as its EXIF orientation says.

    Pillow's `exif_transpose` also writes all of EXIF anew, and fails at any tag of another type
    than it should have.
    """
    method = _TURNS.get(_orientation(image))
    return image.copy() if method is None else image.transpose(method)


def _tag(image: Image.Image, number: int) -> object:
    """A tag of a TIFF file, None where there is none and in other files."""
    return image.tag_v2.get(number) if isinstance(image, TiffImagePlugin.TiffImageFile) else None


def _scale_transparency(image: Image.Image) -> None:
    """Scales the transparent level of a PNG file to 8 bits, as Pillow scales its pixels alone.

    Of 16 bits per colour the lower 8 of the pixels are lost, so that the upper ones decide.

    Args:
      image: not loaded, since loading forgets how it is stored.
    """
    clear = image.info.get("transparency")
    if clear is None or not isinstance(image, PngImagePlugin.PngImageFile) or not image.tile:
        return
    stored = image.tile[0][3]
    if stored in _HIGHEST:
        highest = _HIGHEST[stored]
        image.info["transparency"] = (clear & highest) * (255 // highest)
    elif stored == "RGB;16B":
        image.info["transparency"] = tuple(level >> 8 for level in clear)


def _check_levels(image: Image.Image) -> None:
    """Raises for levels of 8 bits in a type of 32, of which the upper 8 of 16 bits are black.

    Other files say of how many bits their levels are, so that a dark one is dark.
    """
    if image.mode == "I" and image.format == "TIFF":
        highest = int(np.asarray(image).max())
        accepted = "levels of at most 255 as 8 bits per channel, others up to 65535"
        require(not 0 < highest < 2**8, "the highest of its levels of 32 bits", highest, accepted)


def convert(image: Image.Image, *, channels: int) -> Image.Image:
    """A grey or RGB image of one of any mode.

    Of 16 bits per channel the upper 8 are kept. What is transparent is laid on white, as viewers
    show it, since the colours below mean nothing.

    Args:
      image: of any mode but floating-point numbers, whose range nobody knows.
      channels: 1 for grey, 3 for RGB.

    Raises:
      ValueError: the pixels are floating-point, or integers of more than 16 bits.
    """
    if image.mode[0] in "IF":
        levels = np.asarray(image)
        fits = levels.dtype.kind in "iu" and levels.min() >= 0 and levels.max() < 2**16
        require(bool(fits), "the mode of its pixels", image.mode, "integers of at most 16 bits")
        upper = (levels.astype(np.uint16) >> 8).astype(np.uint8)
        clear = image.info.get("transparency")  # of PNG one level
        upper = np.where(levels == clear, 255, upper) if isinstance(clear, int) else upper
        image = Image.fromarray(upper.astype(np.uint8))
    elif image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return _rgb_of_lab(image).convert("L" if channels == 1 else "RGB")


def _rgb_of_lab(image: Image.Image) -> Image.Image:
    """The image, in RGB where it is in CIELAB: Pillow knows no way from there to grey."""
    return image.convert("RGB") if image.mode == "LAB" else image


def stored_size(path: str | os.PathLike[str], *, turned: bool = False) -> tuple[int, int]:
    """Height and width of the image in a file, of which only the header is read.

    Args:
      path: anything that Pillow reads.
      turned: the size once it is turned as its EXIF orientation says, as by `decode_any`.

    Raises:
      ValueError: the file is no image; the message names it.
    """
    try:
        with _opened(path) as image:
            _check_header(path, image)
            # From 5 on the orientations exchange rows and columns; Pillow says so of TIFF itself.
            if turned and _orientation(image) >= 5 and image.format != "TIFF":
                return image.width, image.height
            return image.height, image.width
    except Exception as error:
        raise _unreadable(path, error) from error


def resize(
    image: Image.Image, side: int | tuple[int, int], *, resample: str = "bilinear"
) -> Image.Image:
    """An image resized; its aspect ratio is not kept.

    Args:
      image: of any size.
      side: of a square, or `(height, width)`; 0 leaves the image as it is.
      resample: one of `FILTERS`.
    """
    height, width = side if isinstance(side, tuple) else (side, side)
    if side and image.size != (width, height):
        return image.resize((width, height), FILTERS[resample])
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


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Image.Image]:
    """An image file that Pillow reads; given a path it would map what is not packed into memory.

    Of a TIFF file in grey that is to be turned by a quarter it then (Pillow 13.0) takes rows of
    another length, and a file that is cut short meanwhile ends the process.
    """
    with open(path, "rb") as file, Image.open(file) as image:
        yield image


def _check_header(path: str | os.PathLike[str], image: Image.Image) -> None:
    """Raises a ValueError for an image that only another program decodes, or of absurd size.

    Args:
      path: of the file.
      image: what its header says; no pixel is decoded yet.
    """
    # Pillow hands PostScript to Ghostscript, which would run what the file says.
    require(image.format != "EPS", "the format of the image", image.format, "PNG, JPEG, TIFF, ...")
    what = f"{image.width} x {image.height} pixels"
    remedy = "make it smaller, or save it without packing it"
    reading.check_size(path, 4 * image.width * image.height, what, remedy=remedy)


def _unreadable(path: str | os.PathLike[str], error: Exception) -> ValueError:
    """The error for a file that is no image, or none that is taken; its path is named once."""
    place = os.fspath(path)
    reason = str(error)
    for name in (f"<_io.BufferedReader name={place!r}>", repr(place), place):
        reason = reason.replace(f" {name}", "")
    text = reading.one_line(reason or error)
    if isinstance(error, OSError) and error.strerror:  # of the system, such as that it is not there
        text = error.strerror
    # The checks of this module, and Pillow of an image that is too large, say what is wrong.
    elif "; accepted: " not in text and not isinstance(error, Image.DecompressionBombError):
        text = f"the file is no image, or is cut off or damaged ({text})"
    return ValueError(f"{path} cannot be read as an image: {text}")
