"""Letter recognition (UCI): 20,000 distorted printed capitals, 16 measurements of each."""

import pathlib

from pujax.data import raw
from pujax.data.readers import uci_tables

_LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
SOURCE = uci_tables.UciSource(
    name="letter",
    file="letter-recognition.data",
    page="https://archive.ics.uci.edu/dataset/59/letter+recognition",
    num_features=16,
    class_column=0,
    codes=_LETTERS,
    counts=(
        *(789, 766, 736, 805, 768, 775, 773, 734, 755, 747, 739, 761, 792),
        *(783, 753, 803, 783, 758, 748, 796, 813, 764, 752, 787, 786, 734),
    ),
    class_names=_LETTERS,
)


def load(directory: pathlib.Path, *, test_fraction: float = 0.1, seed: int = 0) -> raw.RawDataset:
    """Reads `letter-recognition.data` and holds a test set apart.

    Args:
      directory: folder with the file, or with `letter/`.
      test_fraction: share of each letter in the test set, rounded down per letter.
      seed: chooses another test set; it does not follow the seed of a run.

    Returns:
      A `RawDataset` of a table; the classes are the letters, 0 is A.

    Raises:
      MissingDataError: the file is missing.
      ValueError: it is damaged, or `test_fraction` leaves a class on one side only.
    """
    return uci_tables.load(SOURCE, directory, test_fraction=test_fraction, seed=seed)


def without_data(*, test_fraction: float = 0.1) -> raw.RawDataset:
    """What `load` returns, without the numbers: see `pujax.data.absent`."""
    return uci_tables.without_data(SOURCE, test_fraction=test_fraction)
