"""Phishing Websites (UCI) as prepared by LIBSVM: 11,055 sites, 68 binary features, scaled."""

import pathlib

from pujax.data import raw
from pujax.data.readers import svmlight

SOURCE = svmlight.SvmlightSource(
    name="phishing",
    train_files=(("phishing",),),
    test_file="",
    num_features=68,
    train_counts=(4898, 6157),
    test_counts=(0, 0),
    class_names=("phishing", "legitimate"),
)


def load(directory: pathlib.Path, *, test_fraction: float = 0.2, seed: int = 0) -> raw.RawDataset:
    """Reads the file `phishing` of the LIBSVM page and holds a test set apart.

    Args:
      directory: folder with the file, or with `phishing/` or `libsvm/`.
      test_fraction: share of each class in the test set, rounded down per class.
      seed: chooses another test set; it does not follow the seed of a run.

    Returns:
      A `RawDataset` of a table.

    Raises:
      MissingDataError: the file is missing.
      ValueError: it is damaged, or `test_fraction` leaves a class on one side only.
    """
    return svmlight.load(SOURCE, directory, test_fraction=test_fraction, seed=seed)


def without_data(*, test_fraction: float = 0.2) -> raw.RawDataset:
    """What `load` returns, without the numbers: see `pujax.data.absent`."""
    return svmlight.without_data(SOURCE, test_fraction=test_fraction)
