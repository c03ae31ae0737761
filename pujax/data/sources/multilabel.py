"""Your own examples with several labels each: an NPZ archive, a CSV of image names, or folders."""

import pathlib
from typing import Any

from pujax.data.raw import RawDataset
from pujax.data.readers import (
    download,
    image_lists,
    multilabel_csv,
    multilabel_folder,
    multilabel_npz,
)

MULTILABEL = True
_READERS = {
    ".npz": multilabel_npz.load,
    ".csv": multilabel_csv.load,
    ".tsv": multilabel_csv.load,
    ".tab": multilabel_csv.load,
}
_ACCEPTED = (
    "an archive NAME.npz with X_train, Y_train, X_test and Y_test; a table NAME.csv (or .tsv) "
    "beside the images, whose first column is an image's file name and whose others are labels; "
    "or image folders CLASS/IMAGE, within train/ and test/ or without"
)


def load(
    directory: pathlib.Path, *, image_size: int = 0, load_size: int = 0, missing: str = "fail"
) -> RawDataset:
    """Reads an archive, a table of file names and labels, or image folders.

    A label is 1, 0, or -1 for unknown; the test set has no -1. The readers
    `multilabel_npz`, `multilabel_csv` and `multilabel_folder` describe the three layouts.

    Args:
      directory: an `.npz`, `.csv` or `.tsv` file, or a folder with exactly one of them, or a folder
        of image folders; `multilabel/` in it will do too.
      image_size: side length that a network sees; 0 is 224, or the stored size of an archive.
      load_size: side length before the random crop; 0 is 8/7 of `image_size`.
      missing: 'fail', or 'skip' to leave out images of a table whose file is missing.

    Returns:
      A `RawDataset`: arrays from an archive, else image files.

    Raises:
      MissingDataError: there is no such file or folder, or images are missing.
      ValueError: a file cannot be read, or something in it is not accepted.
    """
    options: dict[str, Any] = {"image_size": image_size, "load_size": load_size, "missing": missing}
    if directory.is_file():
        if directory.suffix.lower() not in _READERS:
            raise ValueError(f"{directory} is a file; accepted: {_ACCEPTED}")
        return _READERS[directory.suffix.lower()](directory, **options)
    roots = (directory, directory / "multilabel")
    # Tables before folders: images beside `multilabel/labels.csv` are of no class `multilabel`.
    for root in roots:
        files = sorted(
            root / name
            for name in image_lists.names_in(root)
            if pathlib.PurePath(name).suffix.lower() in _READERS and not name.startswith(".")
        )
        if len(files) > 1:
            raise ValueError(
                f"{root} holds {image_lists.first_few([path.name for path in files])}; "
                "accepted: one archive or table, or the path of one as --config.data.dir"
            )
        if files:
            return _READERS[files[0].suffix.lower()](files[0], **options)
    for root in roots:
        if multilabel_folder.is_one(root):
            return multilabel_folder.load(root, **options)
    raise download.MissingDataError(
        f"cannot find data with several labels per example in "
        f"{' or '.join(map(str, roots))}; accepted: {_ACCEPTED}; pass the file or folder as "
        "--config.data.dir",
        reason="not found",
    )
