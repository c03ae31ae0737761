"""Gaussian features, and their moments over samples of any length in little memory."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax import arrays
from pujax.mutual_info import _checks

CHUNK = 8192
"""Rows whose features are held at a time."""
NUM_FOR_MEDIAN = 500
"""Points that the median distance looks at, for 125,000 pairs."""


def gaussian_features(
    points: ArrayLike, centers: ArrayLike, *, sigma: float | jax.Array
) -> jax.Array:
    """`exp(-|x - c|^2 / (2 sigma^2))` of each point and centre, without a constant feature.

    Args:
      points: `[n, dim]`.
      centers: `[b, dim]`.
      sigma: width, above 0.

    Returns:
      The features, `[n, b]`.

    Raises:
      ValueError: if the arrays are not matrices with one second axis, or `sigma` is not above 0.
    """
    points, centers = _checks.matrices(points=points, centers=centers)
    _checks.check_width("sigma", sigma)
    return _gaussian(points, centers, sigma)


def median_distance(key: jax.Array, points: ArrayLike) -> jax.Array:
    """Median distance between distinct points, over at most 500 of them.

    Where most pairs coincide, the mean distance takes its place, so that it is 0 only if all do.

    Args:
      key: random key that chooses the points.
      points: `[n, dim]`, at least two.

    Returns:
      The scalar distance.

    Raises:
      ValueError: if `points` is not a matrix with two rows or more, or `key` is none.
    """
    (points,) = _checks.matrices(points=points)
    arrays.check_key(key)
    if points.shape[0] < 2:
        raise ValueError(f"points has shape {points.shape}, but must have at least two rows")
    chosen = points[jax.random.permutation(key, points.shape[0])[:NUM_FOR_MEDIAN]]
    # Differences row by row, unlike expanded squares, are exactly 0 where points coincide.
    squares = jax.lax.map(lambda point: jnp.sum((chosen - point) ** 2, axis=1), chosen)
    num_pairs = len(chosen) * (len(chosen) - 1) // 2
    # With the diagonal at the end, each pair stands twice in the order.
    ordered = jnp.sort(jnp.where(jnp.eye(len(chosen), dtype=bool), jnp.inf, squares).ravel())
    median = jnp.mean(_root(ordered[num_pairs - 1 : num_pairs + 1]))
    return jnp.where(median > 0, median, jnp.sum(_root(squares)) / (2 * num_pairs))


def _root(squares: jax.Array) -> jax.Array:
    """Square roots with the derivative 0 at 0, where points coincide, in place of infinity."""
    is_zero = squares == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, squares)))


def mean_and_gram(
    points: jax.Array, centers: jax.Array, sigma: float | jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Means of the features, `[b]`, and of their products, `[b, b]`, over the points."""

    def sums(chunk: jax.Array) -> tuple[jax.Array, jax.Array]:
        phi = _gaussian(chunk, centers, sigma)
        return jnp.sum(phi, 0), _dot(phi.T, phi)

    return _mean_over_chunks(sums, points)


def mean_features(points: jax.Array, centers: jax.Array, sigma: float | jax.Array) -> jax.Array:
    """Means of the features over the points, `[b]`."""
    return _mean_over_chunks(lambda chunk: jnp.sum(_gaussian(chunk, centers, sigma), 0), points)


def weighted_features(
    points: jax.Array, centers: jax.Array, sigma: float | jax.Array, weights: jax.Array
) -> jax.Array:
    """The weighted sum of the features at each point, `[n]`."""

    def value(point: jax.Array) -> jax.Array:
        return _dot(_gaussian(point[None], centers, sigma), weights)[0]

    if points.shape[0] <= CHUNK:
        return _dot(_gaussian(points, centers, sigma), weights)
    return jax.lax.map(jax.checkpoint(value), points, batch_size=CHUNK)


def _gaussian(points: jax.Array, centers: jax.Array, sigma: float | jax.Array) -> jax.Array:
    sigma = jnp.asarray(sigma, points.dtype)
    return jnp.exp(-_squared_distances(points, centers) / (2 * sigma**2))


def _squared_distances(points: jax.Array, centers: jax.Array) -> jax.Array:
    # The expanded square needs one matrix product and no array [n, b, dim]; from a near origin its
    # cancellation stays within rounding of the data.
    origin = jax.lax.stop_gradient(jnp.mean(centers, axis=0))
    points, centers = points - origin, centers - origin
    squares = jnp.sum(points**2, 1)[:, None] + jnp.sum(centers**2, 1) - 2 * _dot(points, centers.T)
    # The bound is one of the value alone: at a point that is a centre it would halve the second
    # derivative, or take it away where rounding goes below 0.
    return squares + jax.lax.stop_gradient(jnp.where(squares < 0, -squares, 0))


def _mean_over_chunks(sums: Callable, points: jax.Array):
    """`sums(rows) / n` accumulated over chunks of rows, with gradients in the same memory."""
    n = points.shape[0]
    if n <= CHUNK:
        return jax.tree.map(lambda total: total / n, sums(points))
    whole = n // CHUNK * CHUNK
    chunks = points[:whole].reshape(-1, CHUNK, points.shape[1])
    sums = jax.checkpoint(sums)

    def add(total, chunk):
        return jax.tree.map(jnp.add, total, sums(chunk)), None

    # The remainder starts the sum; of no rows it is 0.
    total, _ = jax.lax.scan(add, sums(points[whole:]), chunks)
    return jax.tree.map(lambda total: total / n, total)


def _dot(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
