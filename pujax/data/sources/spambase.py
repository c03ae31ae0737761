"""Spambase (UCI): 4,601 e-mails, 57 frequencies of words, signs and capitals, spam or not."""

import pathlib

from pujax.data import raw
from pujax.data.readers import uci_tables

SOURCE = uci_tables.UciSource(
    name="spambase",
    file="spambase.data",
    page="https://archive.ics.uci.edu/dataset/94/spambase",
    num_features=57,
    class_column=-1,
    codes=("0", "1"),
    counts=(2788, 1813),
    class_names=("no spam", "spam"),
)


def load(directory: pathlib.Path, *, test_fraction: float = 0.2, seed: int = 0) -> raw.RawDataset:
    """Reads `spambase.data` and holds a test set apart.

    Args:
      directory: folder with the file, or with `spambase/`.
      test_fraction: share of each class in the test set, rounded down per class.
      seed: chooses another test set; it does not follow the seed of a run.

    Returns:
      A `RawDataset` of a table; spam is class 1.

    Raises:
      MissingDataError: the file is missing.
      ValueError: it is damaged, or `test_fraction` leaves a class on one side only.
    """
    return uci_tables.load(SOURCE, directory, test_fraction=test_fraction, seed=seed)


def without_data(*, test_fraction: float = 0.2) -> raw.RawDataset:
    """What `load` returns, without the numbers: see `pujax.data.absent`."""
    return uci_tables.without_data(SOURCE, test_fraction=test_fraction)
