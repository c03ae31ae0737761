"""Connect-4 (UCI) as prepared by LIBSVM: 67,557 positions, 126 binary features, how they end."""

import pathlib

from pujax.data import raw
from pujax.data.readers import svmlight

SOURCE = svmlight.SvmlightSource(
    name="connect4",
    train_files=(("connect-4",),),
    test_file="",
    num_features=126,
    train_counts=(16_635, 6449, 44_473),
    test_counts=(0, 0, 0),
    class_names=("loss", "draw", "win"),
    codes=((-1, 0, 1),),
    page=svmlight.MULTICLASS_PAGE,
)


def load(directory: pathlib.Path, *, test_fraction: float = 0.2, seed: int = 0) -> raw.RawDataset:
    """Reads the file `connect-4` of the LIBSVM page and holds a test set apart.

    Args:
      directory: folder with the file, or with `connect4/` or `libsvm/`.
      test_fraction: share of each class in the test set, rounded down per class.
      seed: chooses another test set; it does not follow the seed of a run.

    Returns:
      A `RawDataset` of a table, by the result for the first player.

    Raises:
      MissingDataError: the file is missing.
      ValueError: it is damaged, or `test_fraction` leaves a class on one side only.
    """
    return svmlight.load(SOURCE, directory, test_fraction=test_fraction, seed=seed)


def without_data(*, test_fraction: float = 0.2) -> raw.RawDataset:
    """What `load` returns, without the numbers: see `pujax.data.absent`."""
    return svmlight.without_data(SOURCE, test_fraction=test_fraction)
