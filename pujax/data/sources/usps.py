"""USPS as prepared by LIBSVM: 7,291 + 2,007 scanned digits of 16 x 16 pixels, as rows."""

import pathlib

from pujax.data import raw
from pujax.data.readers import svmlight

SOURCE = svmlight.SvmlightSource(
    name="usps",
    train_files=(("usps",),),
    test_file="usps.t",
    num_features=256,
    train_counts=(1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644),
    test_counts=(359, 264, 198, 166, 200, 160, 170, 147, 166, 177),
    class_names=tuple("0123456789"),
    codes=(tuple(range(1, 11)),),  # a digit and one
    page=svmlight.MULTICLASS_PAGE,
)


def load(directory: pathlib.Path) -> raw.RawDataset:
    """Reads the files `usps` and `usps.t` of the LIBSVM page.

    Args:
      directory: folder with the files, or with `usps/` or `libsvm/`.

    Returns:
      A `RawDataset` of a table; the classes are the digits.

    Raises:
      MissingDataError: a file is missing.
      ValueError: a file is damaged.
    """
    return svmlight.load(SOURCE, directory)


def without_data() -> raw.RawDataset:
    """What `load` returns, without the numbers: see `pujax.data.absent`."""
    return svmlight.without_data(SOURCE)
