"""Your own images: `train/CLASS/IMAGE` and `test/CLASS/IMAGE`, with `train/unlabeled/` for U."""

import pathlib

from pujax.data import raw
from pujax.data.readers import download, image_folders


def load(
    directory: pathlib.Path, *, image_size: int = 0, channels: int = 3, streamed: bool = False
) -> raw.RawDataset:
    """Reads a folder of images in any format that Pillow reads.

    Photographs are turned as their EXIF orientation says, and what is transparent is laid on white.
    Class ids follow the alphabetical order of the class folders of `train`. Images in
    `train/unlabeled/` have no class: they go to U in every split. Mean and deviation are those
    of the training images.

    Args:
      directory: folder with `train` and `test`, or with `image_folder/`.
      image_size: side length to resize to (bilinear), or 0 for the stored size.
      channels: 3, or 1 for grey.
      streamed: leaves the images in files; they are then read once for mean and deviation.

    Returns:
      A `RawDataset`.

    Raises:
      MissingDataError: there is no such folder.
      ValueError: a folder is missing, an image is damaged, or images lie beside the class folders.
    """
    for root in (directory, directory / "image_folder"):
        if root.is_dir() and image_folders.is_image_folder(root):
            break
    else:
        raise download.MissingDataError(
            f"cannot find the image folders train/CLASS/ and test/CLASS/ in {directory}; put your "
            "images there, or pass the folder that holds them as --config.data.dir",
            reason="not found",
        )
    image_folders.check_beside(root)
    data = image_folders.load(
        root,
        name="image_folder",
        image_size=image_size,
        channels=channels,
        streamed=streamed,
        any_mode=True,
    )
    return data._replace(known_at_random=False)
