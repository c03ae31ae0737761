"""Primal-dual interior point for the nearest point of a simplex, dense or of low rank."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg

_MAX_ITERATIONS = 60
_PATIENCE = 5  # steps without a better certificate after which float64 allows no progress
_STEP = 0.995  # share of the step to the boundary


class Model(NamedTuple):
    """The two operations on a kernel matrix that the method needs.

    Attributes:
      product: `[n] -> [n]`, the kernel matrix times a vector.
      factor: `[n] -> ([n] -> [n])`, takes a positive diagonal and gives the function that solves
        with the kernel matrix plus that diagonal; raises `LinAlgError` where it cannot.
    """

    product: Callable[[np.ndarray], np.ndarray]
    factor: Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]


def dense(kernel: np.ndarray) -> Model:
    """A model of a kernel matrix `[n, n]`; `n^3 / 3` multiplications per factor."""

    def factor(diagonal: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        # The symmetric scaling keeps all numbers near 1 when the diagonal spans 20 decades.
        scale = 1 / np.sqrt(1 + diagonal)
        matrix = kernel * scale
        matrix *= scale[:, None]
        matrix[np.diag_indices_from(matrix)] += diagonal * scale**2
        chol = linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        return lambda x: scale * linalg.cho_solve(chol, scale * x, check_finite=False)

    return Model(lambda x: kernel @ x, factor)


def low_rank(rows: np.ndarray) -> Model:
    """A model of `rows.T @ rows` with rows `[r, n]`; `n r^2` multiplications per factor."""

    def product(x: np.ndarray) -> np.ndarray:
        return rows.T @ (rows @ x)

    def factor(diagonal: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        # Woodbury's identity around the scaled identity.
        scale = 1 / np.sqrt(diagonal)
        scaled = rows * scale
        matrix = scaled @ scaled.T
        matrix[np.diag_indices_from(matrix)] += 1
        chol = linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

        def solve(x: np.ndarray) -> np.ndarray:
            x = scale * x
            inner = linalg.cho_solve(chol, scaled @ x, check_finite=False)
            return scale * (x - scaled.T @ inner)

        def refined(x: np.ndarray) -> np.ndarray:
            # The identity cancels digits; one correction wins back a factor of 10 in the result.
            first = solve(x)
            return first + solve(x - product(first) - diagonal * first)

        return refined

    return Model(product, factor)


def pivoted_cholesky(
    kernel: np.ndarray, *, tolerance: float, max_rank: int
) -> tuple[np.ndarray, bool]:
    """Rows `[r, n]` with `rows.T @ rows` equal to the kernel up to a positive remainder.

    The next pivot is the point that the rows so far explain least. The remainder of smooth kernels
    falls more and more slowly: if the first third of the rows does not reach a sixth of the digits,
    the others will not reach the rest, and the factorisation stops.

    Args:
      kernel: positive semidefinite, `[n, n]`.
      tolerance: largest entry of the remainder at which it stops.
      max_rank: the most rows.

    Returns:
      The rows, and whether they reach the tolerance.
    """
    left = kernel.diagonal().copy()
    too_large = tolerance ** (1 / 6)
    rows = np.empty((max_rank, len(kernel)))
    for rank in range(max_rank):
        pivot = int(left.argmax())
        if left[pivot] <= tolerance:
            return rows[:rank].copy(), True
        if rank == max_rank // 3 > 0 and left[pivot] > too_large:
            return rows[:rank].copy(), False
        explained = rows[:rank, pivot] @ rows[:rank]
        rows[rank] = (kernel[pivot] - explained) / np.sqrt(left[pivot])
        left -= rows[rank] ** 2
        left[pivot] = 0
    return rows, bool(left.max() <= tolerance)


def nearest(
    model: Model, start: np.ndarray, linear: np.ndarray, *, squared: float, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """The point of the simplex with the least kernel distance to a target.

    Minimises `v'Kv / 2 - linear'v` over `v >= 0`, `sum(v) = 1` by Mehrotra's predictor and
    corrector. It stops by the certificate of `_hull_projection.certify`, or where float64 allows no
    further progress. The iterate with the best certificate is returned, not the last.

    Args:
      model: the kernel over the `n` points.
      start: `[n]`, non-negative with a positive sum; zeros are lifted off the boundary.
      linear: `K u` for the target `u`, `[n]`.
      squared: `u'Ku`, which only the certificate needs.
      tolerance: error of the distance at which it stops.

    Returns:
      `(weights [n], multipliers [n])`, the latter of `v >= 0`.
    """
    size = len(linear)
    v = np.maximum(start / start.sum(), 0.1 / size)
    v /= v.sum()
    slope = model.product(v) - linear
    z = np.full(size, 0.1 * max(np.ptp(slope), 1e-8))
    y = (slope - z).mean()
    best, best_error, stalled = (v, z), np.inf, 0
    for _ in range(_MAX_ITERATIONS):
        slope = model.product(v) - linear
        error = _error(v, slope, linear, squared)
        stalled = stalled + 1 if error > 0.9 * best_error else 0
        if error < best_error:
            best, best_error = (v / v.sum(), z), error
        if best_error <= tolerance or stalled > _PATIENCE:
            break
        try:
            with np.errstate(all="ignore"):
                v, y, z = _step(model.factor(z / v), v, y, z, slope)
        except linalg.LinAlgError:
            break
        if not (np.isfinite(v).all() and np.isfinite(z).all() and min(v.min(), z.min()) > 0):
            break
    return best


def _error(v: np.ndarray, slope: np.ndarray, linear: np.ndarray, squared: float) -> float:
    """Certified error of the distance; `v` sums to 1 up to rounding from the first step on."""
    gap = v @ slope - slope.min()
    distance = np.sqrt(max(v @ (slope - linear) + squared, gap, 1e-300))
    return float(gap / distance)


def _step(
    solve: Callable[[np.ndarray], np.ndarray],
    v: np.ndarray,
    y: float,
    z: np.ndarray,
    slope: np.ndarray,
) -> tuple[np.ndarray, float, np.ndarray]:
    """One predictor-corrector step on `K v - linear - y - z = 0`, `sum(v) = 1`, `v z = 0`."""
    dual, primal = slope - y - z, 1 - v.sum()
    ones = solve(np.ones_like(v))

    def direction(change: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        base = solve(change / v - dual)
        dy = (primal - base.sum()) / ones.sum()
        dv = base + dy * ones
        return dv, dy, (change - z * dv) / v

    dv, _, dz = direction(-v * z)
    length = _length(v, z, dv, dz)
    affine = (v + length * dv) @ (z + length * dz)
    centring = (affine / (v @ z)) ** 3 * (v @ z) / len(v)
    dv, dy, dz = direction(centring - v * z - dv * dz)
    length = _STEP * _length(v, z, dv, dz)
    return v + length * dv, y + length * dy, z + length * dz


def _length(v: np.ndarray, z: np.ndarray, dv: np.ndarray, dz: np.ndarray) -> float:
    """The longest step, at most 1, that keeps both positive."""
    return float(1 / max(1.0, (-dv / v).max(), (-dz / z).max()))
