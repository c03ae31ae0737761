"""MNIST: 60,000 + 10,000 handwritten digits, 28 x 28, grey (LeCun, Cortes and Burges)."""

import pathlib

from pujax.data import raw
from pujax.data.readers import idx

SOURCE = idx.IdxSource(
    name="mnist",
    folders=("MNIST/raw", "raw"),
    base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    files=(
        (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    class_names=tuple("0123456789"),
    mean=0.1307,
    std=0.3081,
    train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)


def load(directory: pathlib.Path) -> raw.RawDataset:
    """Reads MNIST from its four idx files.

    Args:
      directory: folder with the files, or with `mnist/`, `MNIST/raw/` or `raw/`.

    Returns:
      A `RawDataset`.

    Raises:
      MissingDataError: files are missing and cannot be downloaded.
      ValueError: a file is damaged.
    """
    return idx.load(SOURCE, directory)


def without_data() -> raw.RawDataset:
    """What `load` returns, without the images: see `pujax.data.absent`."""
    return idx.without_data(SOURCE)
