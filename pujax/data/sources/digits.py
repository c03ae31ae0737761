"""The UCI handwritten digits that ship inside scikit-learn: 1797 grey images of 8 x 8."""

import pathlib

import numpy as np

from pujax.data import raw
from pujax.data.readers import holdout


def load(
    directory: pathlib.Path | None = None, *, test_fraction: float = 0.2, seed: int = 0
) -> raw.RawDataset:
    """Reads the digits and holds a test set apart.

    scikit-learn publishes no test set, so one is cut out here. It is stratified by class and
    depends on `seed` alone, through a hash of the image's number: the same images are held out
    for every seed of a run and every version of NumPy.

    The grey values 0..16 become 0..255: `(255 * value + 8) // 16`, which is the nearest integer.

    Args:
      directory: not used, the images come with scikit-learn.
      test_fraction: share of each class in the test set, rounded down per class.
      seed: chooses another test set.

    Returns:
      A `RawDataset`; mean and deviation are those of its training images.

    Raises:
      ValueError: `test_fraction` is not between 0 and 1, or leaves a class without an image.
    """
    from sklearn import datasets  # where it is needed: it loads for a second

    del directory
    images, labels = datasets.load_digits(return_X_y=True)
    levels = images.reshape(-1, 8, 8, 1).astype(np.int32)
    inputs = ((255 * levels + 8) // 16).astype(np.uint8)
    is_test = holdout.is_test(labels, test_fraction=test_fraction, seed=seed)
    mean, std = raw.channel_statistics(inputs[~is_test])
    return raw.RawDataset(
        name="digits",
        train_inputs=inputs[~is_test],
        train_labels=labels[~is_test].astype(np.int32),
        test_inputs=inputs[is_test],
        test_labels=labels[is_test].astype(np.int32),
        class_names=tuple("0123456789"),
        mean=mean,
        std=std,
    )


def without_data(*, test_fraction: float = 0.2, seed: int = 0) -> raw.RawDataset:
    """The digits themselves, which need no file: see `pujax.data.absent` for other sources."""
    return load(test_fraction=test_fraction, seed=seed)
