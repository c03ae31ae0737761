"""k-means clustering: compiled, the same for one key, and in memory of the order `[n, k]`."""

import functools
import numbers
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax import checks
from pujax.arrays import check_key, full_precision


class KMeans(NamedTuple):
    """A clustering of `n` points into `k` clusters.

    Attributes:
      centers: `[k, dim]`.
      assignments: index of the nearest centre of each point, int32 `[n]`.
      inertia: sum over the points of the squared distance to that centre.
    """

    centers: jax.Array
    assignments: jax.Array
    inertia: jax.Array


def kmeans(
    key: jax.Array,
    points: ArrayLike,
    *,
    num_clusters: int,
    num_iterations: int = 20,
    num_restarts: int = 5,
) -> KMeans:
    """Cluster points with Lloyd's algorithm, the best of several random starts.

    Each start takes distinct random points as centres. A cluster that loses all its points is
    refilled: a cluster with large scatter is split by moving two copies of its centre slightly
    apart, towards and away from its farthest point, which lowers the inertia. As many clusters can
    be refilled per iteration as there are clusters to split. Source: the Euclidean k-means of the
    code of LaGAM (Long et al., CVPR 2024), with its 20 iterations and 5 starts.

    Args:
      key: random key for the starts.
      points: `[n, dim]`.
      num_clusters: number of clusters, from 1 to `n`.
      num_iterations: updates of the centres per start, 0 or more.
      num_restarts: number of starts, 1 or more. More starts never give a larger inertia.

    Returns:
      The `KMeans` of the start with the least inertia.

    Raises:
      ValueError: if `points` is not a matrix or a number is out of its range.
    """
    points = _checked_points("points", points)
    num_points = points.shape[0]
    check_key(key)
    is_count = isinstance(num_clusters, numbers.Integral) and not isinstance(num_clusters, bool)
    if not is_count or not 1 <= num_clusters <= num_points:
        raise ValueError(
            f"num_clusters is {num_clusters!r}, but must be a whole number from 1 to that of "
            f"points, {num_points}"
        )
    checks.whole_number("num_iterations", num_iterations, 0)
    checks.whole_number("num_restarts", num_restarts, 1)
    return _kmeans(
        key,
        points,
        num_clusters=int(num_clusters),
        num_iterations=int(num_iterations),
        num_restarts=int(num_restarts),
    )


@functools.partial(jax.jit, static_argnames=("num_clusters", "num_iterations", "num_restarts"))
def _kmeans(
    key: jax.Array,
    points: jax.Array,
    *,
    num_clusters: int,
    num_iterations: int,
    num_restarts: int,
) -> KMeans:
    """`kmeans` of arguments that have been checked."""
    num_points = points.shape[0]
    # Far from the origin the expanded squares of the distances would cancel; a shift changes no
    # distance.
    origin = jnp.mean(points, axis=0)
    points = points - origin

    def one_start(start_key: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = jax.random.choice(start_key, num_points, (num_clusters,), replace=False)
        centers = jax.lax.fori_loop(
            0, num_iterations, lambda _, centers: _update_centers(points, centers), points[first]
        )
        return centers, jnp.sum(_assign(points, centers)[1])

    start_keys = jax.vmap(lambda start: jax.random.fold_in(key, start))(jnp.arange(num_restarts))
    all_centers, all_inertias = jax.lax.map(one_start, start_keys)
    centers = all_centers[jnp.argmin(all_inertias)]
    assignments, distances = _assign(points, centers)
    return KMeans(centers + origin, assignments, jnp.sum(distances))


def assign_clusters(points: ArrayLike, centers: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Assign each point to its nearest centre.

    Args:
      points: `[n, dim]`.
      centers: `[k, dim]`.

    Returns:
      The index of the nearest centre of each point (the first of equally near ones), int32
      `[n]`, and the inertia, the sum of the squared distances to it.

    Raises:
      ValueError: if the arrays are not matrices with the same second axis, or there is no centre.
    """
    points, centers = _checked_points("points", points), _checked_points("centers", centers)
    if points.shape[1] != centers.shape[1]:
        raise ValueError(
            f"centers has shape {centers.shape}, but its second axis must be that of points, "
            f"{points.shape}"
        )
    if not len(centers):
        raise ValueError(f"centers has shape {centers.shape}, but must have one row or more")
    return _assign_clusters(points, centers)


@jax.jit
def _assign_clusters(points: jax.Array, centers: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`assign_clusters` of arguments that have been checked."""
    origin = jnp.mean(points, axis=0)
    assignments, distances = _assign(points - origin, centers - origin)
    return assignments, jnp.sum(distances)


def _assign(points: jax.Array, centers: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Nearest centre of each point and the squared distance to it, `[n]` and `[n]`."""
    products = jnp.matmul(points, centers.T, precision=jax.lax.Precision.HIGHEST)
    # The points' own squares are the same for all centres and do not change which is nearest.
    assignments = jnp.argmin(jnp.sum(centers**2, axis=1) - 2 * products, axis=1).astype(jnp.int32)
    return assignments, jnp.sum((points - centers[assignments]) ** 2, axis=1)


def _update_centers(points: jax.Array, centers: jax.Array) -> jax.Array:
    """One Lloyd iteration: centres of mass of the assigned points, empty clusters refilled."""
    num_clusters = centers.shape[0]
    assignments, _ = _assign(points, centers)
    # Sums as a matrix product, and not as a scatter, are the same in every run on a GPU too.
    members = assignments[:, None] == jnp.arange(num_clusters)
    sizes = jnp.sum(members, axis=0)
    sums = jnp.matmul(members.astype(points.dtype).T, points, precision=jax.lax.Precision.HIGHEST)
    means = jnp.where((sizes > 0)[:, None], sums / jnp.maximum(sizes, 1)[:, None], centers)

    def refill() -> jax.Array:
        return _refill_empty(points, means, members, assignments)

    # On a CPU looking for the farthest points takes as long as all the rest, so that it is done
    # only where a cluster is empty. A GPU would wait for the host to read that condition.
    return jax.lax.platform_dependent(
        cpu=lambda: jax.lax.cond(jnp.any(sizes == 0), refill, lambda: means), default=refill
    )


def _refill_empty(
    points: jax.Array, centers: jax.Array, members: jax.Array, assignments: jax.Array
) -> jax.Array:
    """Give each empty cluster one half of a cluster with large scatter, while such clusters remain.

    With `r` the offset of the farthest of a donor's `m` points, the centres `c +- r / m` lower the
    inertia by at least `3 |r|^2 / m`: the farthest point and, `c` being the mean, those on the
    other side gain `4 |r|^2 / m` together, and the shift costs `|r|^2 / m`.
    """
    distances = jnp.sum((points - centers[assignments]) ** 2, axis=1)
    sizes = jnp.sum(members, axis=0)
    member_distances = jnp.where(members, distances[:, None], 0)
    scatter = jnp.sum(member_distances, axis=0)
    farthest = points[jnp.argmax(member_distances, axis=0)]
    # Without scatter all distances are 0, and the row found need not be a member.
    offsets = jnp.where((scatter > 0)[:, None], farthest - centers, 0)
    shifts = offsets / jnp.maximum(sizes, 1)[:, None]

    # The i-th empty cluster is paired with the i-th largest scatter; where that is 0, both halves
    # coincide and nothing changes.
    recipients = jnp.argsort(sizes > 0)
    donors = jnp.argsort(-scatter)
    paired = sizes[recipients] == 0
    halves = jnp.where(paired[:, None], (centers - shifts)[donors], centers[recipients])
    moves = jnp.where(paired[:, None], shifts[donors], 0)
    return centers.at[recipients].set(halves).at[donors].add(moves)


def _checked_points(name: str, points: ArrayLike) -> jax.Array:
    """A matrix in at least float32."""
    points = full_precision(points, name)
    if points.ndim != 2:
        raise ValueError(f"{name} has shape {points.shape}, but must be a matrix [n, dim]")
    return points
