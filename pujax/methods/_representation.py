"""Fixed linear maps that PURL's learned features are compared with: PCA, Fisher's, and none."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

LEARNED = ("purl", "pnrl")
FIXED = ("pca", "fda", "none")
NAMES = (*LEARNED, *FIXED)


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
        points = inputs.reshape(inputs.shape[0], -1)
        return points if self.matrix is None else (points - self.mean) @ self.matrix


def principal_components(points: jax.Array, weights: jax.Array, *, share: float) -> Linear:
    """Projection on the first `floor(share * d)` principal components, at least one.

    Args:
      points: `[n, d]`.
      weights: `[n]`, how much each counts.
      share: of the dimensions to keep, in (0, 1].
    """
    mean, covariance = _moments(points, weights)
    count = max(int(share * points.shape[1]), 1)
    _, vectors = jnp.linalg.eigh(covariance)  # ascending
    return Linear(mean, vectors[:, ::-1][:, :count])


def fisher_direction(
    points: jax.Array, labeled: jax.Array, weights: jax.Array, *, ridge: float
) -> Linear:
    """Fisher's linear discriminant between P and U, one dimension of unit length.

    Args:
      points: `[n, d]`.
      labeled: bool `[n]`, P.
      weights: `[n]`, how much each counts.
      ridge: added to the within-class covariance, times its mean diagonal.
    """
    _, (mean_p, cov_p), (mean_u, cov_u) = (
        _moments(points, weights * group) for group in (1.0, labeled, ~labeled)
    )
    share = jnp.sum(weights * labeled) / jnp.sum(weights)
    within = share * cov_p + (1 - share) * cov_u
    size = jnp.maximum(jnp.trace(within) / points.shape[1], jnp.finfo(points.dtype).tiny)
    direction = jnp.linalg.solve(within + ridge * size * jnp.eye(points.shape[1]), mean_p - mean_u)
    direction /= jnp.maximum(jnp.linalg.norm(direction), jnp.finfo(points.dtype).tiny)
    return Linear((mean_p + mean_u) / 2, direction[:, None])


def _moments(points: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weighted mean and covariance."""
    weights = weights / jnp.sum(weights)
    mean = weights @ points
    centered = points - mean
    return mean, centered.T @ (centered * weights[:, None])


def identity(points: jax.Array) -> Linear:
    """The input itself, flattened."""
    return Linear(jnp.zeros(points.shape[1]), None)
