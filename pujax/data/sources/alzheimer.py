"""Alzheimer MRI slices in four stages of dementia, as an image folder (Kaggle; 6,400 images)."""

import pathlib

from pujax.data import raw
from pujax.data.readers import download, image_folders

PLACES = ("alzheimer", "Alzheimer_s Dataset", "Alzheimers Dataset")
"""Sub-folders that are looked through after the data directory itself."""


def load(
    directory: pathlib.Path,
    *,
    image_size: int = 0,
    channels: int = 3,
    color_order: str = "bgr",
    streamed: bool = False,
) -> raw.RawDataset:
    """Reads the images from `train/CLASS/` and `test/CLASS/`.

    Any other image folder in that layout can be read as well. Class ids follow the alphabetical
    order of the folders: mildly, moderately, not, very mildly demented in the original. LaGAM
    resizes to 224 and reads colours in the order blue, green, red, which makes no difference for
    grey images; both its mean and its deviation are 0.5.

    Args:
      directory: folder with `train` and `test`, or with `alzheimer/`.
      image_size: side length to resize to (bilinear), or 0 for the stored size.
      channels: 3, or 1 for grey.
      color_order: 'bgr' or 'rgb'.
      streamed: leaves the images in files.

    Returns:
      A `RawDataset`.

    Raises:
      MissingDataError: there is no such folder; the set needs a Kaggle account to download.
      ValueError: a folder is missing or an image is damaged.
    """
    for root in (directory, *(directory / place for place in PLACES)):
        if root.is_dir() and image_folders.is_image_folder(root):
            break
    else:
        raise download.MissingDataError(
            f"cannot find the image folders train/CLASS/ and test/CLASS/ in {directory} or "
            f"{directory / 'alzheimer'}. The set 'Alzheimer's Dataset (4 class of Images)' is at "
            f"https://www.kaggle.com/datasets/tourist55/alzheimers-dataset-4-class-of-images "
            f"and needs an account; unpack it into {directory / 'alzheimer'}",
            reason="not found",
        )
    return image_folders.load(
        root,
        name="alzheimer",
        statistics=((0.5,) * channels, (0.5,) * channels),
        image_size=image_size,
        channels=channels,
        color_order=color_order,
        streamed=streamed,
    )
