"""Small batches of scores with labelled positives, and the sigmoid as it is written down."""

import numpy as np

# sigmoid(-ln 3) = 1/4 and sigmoid(ln 3) = 3/4, so sigmoid losses are exact fractions.
LN3 = float(np.log(3.0))


def random_batch(seed=0, size=12):
    """Scores and labels of which a third are labelled."""
    rng = np.random.default_rng(seed)
    labeled = np.arange(size) < size // 3
    return 3 * rng.normal(size=size), rng.permutation(labeled).astype(int)


def overfitted_batch():
    """Scores that rank P and U perfectly apart, so that the negative part is below zero."""
    return np.array([LN3, LN3, -3.0, -4.0, -5.0]), np.array([1, 1, 0, 0, 0])


def sigmoid(x):
    """In double precision, the naive way."""
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))
