"""The distance to a convex hull by another algorithm than the library's."""

import numpy as np
from scipy import optimize


def distance_by_nnls(kernel, target):
    """The distance by non-negative least squares.

    With `B v` the difference between hull point and target, the minimum over `w >= 0` of
    `|B w|^2 + (sum(w) - 1)^2` is reached at a multiple of the nearest point's weights.
    """
    linear = kernel @ target
    gram = kernel - linear - linear[:, None] + target @ linear
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    rows = np.concatenate([root, np.ones((1, len(target)))])
    weights, _ = optimize.nnls(rows, np.eye(len(target) + 1)[-1], maxiter=9999)
    weights /= weights.sum()
    return np.sqrt(max((weights - target) @ kernel @ (weights - target), 0))
