"""Adult (UCI) as prepared by LIBSVM: 32,561 + 16,281 people, 123 binary features, income."""

import pathlib

from pujax.data import raw
from pujax.data.readers import svmlight

SOURCE = svmlight.SvmlightSource(
    name="a9a",
    train_files=(("a9a",),),
    test_file="a9a.t",
    num_features=123,
    train_counts=(24720, 7841),
    test_counts=(12435, 3846),
    class_names=("at most 50K", "more than 50K"),
)


def load(directory: pathlib.Path) -> raw.RawDataset:
    """Reads a9a from the files `a9a` and `a9a.t` of the LIBSVM page.

    Args:
      directory: folder with the files, or with `a9a/` or `libsvm/`.

    Returns:
      A `RawDataset` of a table.

    Raises:
      MissingDataError: a file is missing.
      ValueError: a file is damaged.
    """
    return svmlight.load(SOURCE, directory)


def without_data() -> raw.RawDataset:
    """What `load` returns, without the numbers: see `pujax.data.absent`."""
    return svmlight.without_data(SOURCE)
