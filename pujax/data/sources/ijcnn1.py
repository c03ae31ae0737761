"""IJCNN 2001 challenge as prepared by LIBSVM: 49,990 + 91,701 rows, 22 features, 10 % positive."""

import pathlib

from pujax.data import raw
from pujax.data.readers import svmlight

SOURCE = svmlight.SvmlightSource(
    name="ijcnn1",
    train_files=(("ijcnn1",), ("ijcnn1.tr", "ijcnn1.val")),
    test_file="ijcnn1.t",
    num_features=22,
    train_counts=(45137, 4853),
    test_counts=(82989, 8712),
    class_names=("negative", "positive"),
)


def load(directory: pathlib.Path) -> raw.RawDataset:
    """Reads ijcnn1 from the files `ijcnn1` and `ijcnn1.t` of the LIBSVM page.

    The page's two parts of the training set, `ijcnn1.tr` and `ijcnn1.val`, are accepted as well.

    Args:
      directory: folder with the files, or with `ijcnn1/` or `libsvm/`.

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
