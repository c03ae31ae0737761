"""A test set cut out of a source that publishes none."""

import hashlib
import math

import numpy as np


def size(num_rows: int, fraction: float) -> int:
    """How many of some rows a share of them is, rounded down.

    A product that only float64 puts below a whole number, as that of 100 and 0.29, is that number.
    """
    return math.floor(round(num_rows * fraction, 6))


def is_test(labels: np.ndarray, *, test_fraction: float, seed: int) -> np.ndarray:
    """Holds out a share of every class, by a hash of the row number.

    The same rows are held out for every seed of a run and every version of NumPy.

    Args:
      labels: int `[n]`, class ids.
      test_fraction: share of each class to hold out, rounded down per class.
      seed: chooses another test set.

    Returns:
      bool `[n]`, True for the test set.

    Raises:
      ValueError: `test_fraction` is not between 0 and 1, or leaves a class on one side only.
    """
    order = [hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in range(len(labels))]
    mask = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = sorted(np.flatnonzero(labels == label), key=order.__getitem__)
        count = size(len(rows), test_fraction)
        if not 0 < count < len(rows):
            raise ValueError(
                f"test_fraction is {test_fraction}; accepted: a number between 0 and 1 that "
                f"leaves an example of each class on both sides"
            )
        mask[rows[:count]] = True
    return mask
