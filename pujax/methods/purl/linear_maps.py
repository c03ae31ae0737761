"""Fixed linear maps that PURL's learned features are compared with: PCA, Fisher's, and none."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn import decomposition

LEARNED = ("purl", "pnrl")
FIXED = ("pca", "fda", "none")
NAMES = (*LEARNED, *FIXED)
OF_ROWS = ("pca", "none")
"""Those that know nothing of P and U, and depend on the units of the inputs."""


class Linear(NamedTuple):
    """A linear map of a flattened input.

    Attributes:
      mean: `[d]`, subtracted first.
      matrix: `[d, m]`; None keeps the input as it is.
    """

    mean: jax.Array
    matrix: jax.Array | None

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Features `[batch, m]` of normalised inputs `[batch, ...]`."""
        points = flat(inputs)
        return points if self.matrix is None else (points - self.mean) @ self.matrix


def flat(inputs: jax.Array) -> jax.Array:
    """Inputs `[batch, ...]` as rows `[batch, d]`."""
    return inputs.reshape(inputs.shape[0], -1)


def standardized(rows: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Rows less the mean, over the standard deviation, of those that count.

    Args:
      rows: float32 `[n, d]`.
      counted: bool `[n]`.

    Returns:
      float32 `[n, d]`; a feature that is constant where it counts is 0 everywhere.
    """
    mean = rows[counted].mean(0, dtype=np.float64)
    scale = rows[counted].std(0, dtype=np.float64)
    constant = np.ptp(rows[counted], axis=0) == 0
    return np.where(constant, 0, (rows - mean) / np.where(constant, 1, scale)).astype(np.float32)


def blank(name: str, dim: int, *, pca_share: float) -> Linear:
    """A map of the right shapes, before it is fitted.

    Args:
      name: one of `FIXED`.
      dim: of the inputs.
      pca_share: of the dimensions that PCA keeps, rounded down; at least one is kept.
    """
    width = {"pca": max(int(pca_share * dim), 1), "fda": 1, "none": None}[name]
    return Linear(jnp.zeros(dim), None if width is None else jnp.zeros([dim, width]))


def fit(like: Linear, name: str, points: np.ndarray, labeled: np.ndarray, *, ridge: float):
    """Fits a map on the host: linear algebra of one program would run once on every device.

    Args:
      like: a map of the same shapes.
      name: one of `FIXED`. PCA looks at P and U together; 'fda' is Fisher's linear discriminant
        between them.
      points: `[n, d]`, P and U.
      labeled: bool `[n]`, P.
      ridge: of Fisher's discriminant: added to the within-class covariance, times its mean
        diagonal.

    Returns:
      A `Linear`.
    """
    if name == "none":
        return like
    points = points.astype(np.float64)
    mean = points.mean(0)
    if name == "pca":
        assert like.matrix is not None  # as `blank` makes it
        width = like.matrix.shape[1]
        solver = "full" if width > len(points) else "covariance_eigh"
        matrix = decomposition.PCA(width, svd_solver=solver).fit(points).components_.T
    else:
        matrix = fisher_direction(points, labeled, ridge=ridge)[:, None]
    return Linear(jnp.asarray(mean, jnp.float32), jnp.asarray(matrix, jnp.float32))


def fisher_direction(points: np.ndarray, labeled: np.ndarray, *, ridge: float) -> np.ndarray:
    """Fisher's linear discriminant between P and U, of unit length; see `fit`.

    Args:
      points: float64 `[n, d]`.
      labeled: bool `[n]`, P.
      ridge: added to the within-class covariance, times its mean diagonal.

    Returns:
      float64 `[d]`.
    """
    dim = points.shape[1]
    means = [points[group].mean(0) for group in (labeled, ~labeled)]
    centered = points - np.where(labeled[:, None], *means)
    within = centered.T @ centered / len(points)
    scale = max(np.trace(within) / dim, np.finfo(float).tiny)
    direction = np.linalg.solve(within + ridge * scale * np.eye(dim), means[0] - means[1])
    return direction / max(np.linalg.norm(direction), np.finfo(float).tiny)
