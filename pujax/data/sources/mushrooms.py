"""Mushroom (UCI) as prepared by LIBSVM: 8,124 mushrooms, 112 binary features, poisonous or not."""

import pathlib

from pujax.data import raw
from pujax.data.readers import svmlight

SOURCE = svmlight.SvmlightSource(
    name="mushrooms",
    train_files=(("mushrooms",),),
    test_file="",
    num_features=112,
    train_counts=(4208, 3916),
    test_counts=(0, 0),
    class_names=("edible", "poisonous"),
)


def load(directory: pathlib.Path, *, test_fraction: float = 0.2, seed: int = 0) -> raw.RawDataset:
    """Reads the file `mushrooms` of the LIBSVM page and holds a test set apart.

    Args:
      directory: folder with the file, or with `mushrooms/` or `libsvm/`.
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
