"""The nearest point of a convex hull in a kernel's feature space, with a certified error.

A quadratic programme over the simplex, `min (v-u)'K(v-u)`, `v >= 0`, `sum(v) = 1`, is solved for
many targets `u` with one `K`. Which algorithm is fast depends on the kernel's rank, so there are
two, and their results are judged by one certificate that does not depend on the algorithm:

- Few features: `K` has a numerical rank of 20 to some hundreds whatever the number of points. An
  interior point on a factor of rank `r` costs `n r^2` a step instead of `n^3 / 3`, and takes 10 to
  25 steps.
- Many features or a narrow kernel: `K` has full rank, and block pivoting is right. It guesses which
  weights are positive, solves for them with one Cholesky of that block, and moves all wrong guesses
  at once. The first guess is the last support where the target has hardly moved, and otherwise the
  support that the interior point finds on a factor of lower rank; 1 to 10 guesses follow. Blocks
  are far smaller than `K` but for targets near the hull.

Between these cases pivoting may cycle, and the interior point runs on a working set of points, to
which those are added that the certificate finds missing. Either alone would not do: pivoting cycles
at low rank, and dense interior points cost `n^3`. First-order methods (projected gradient,
Frank-Wolfe) converge too slowly: the condition number of `K` is 1e8 and more.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from pujax.priors import _interior_point

# Added to the diagonal of a block; it moves the squared distance by at most itself.
_JITTER = 1e-12
_RANK_TOLERANCE = 1e-13
_ENOUGH = 1e-7  # error of the distance at which no other algorithm is tried
_START_ERROR = 1e-6  # of the distance, for a factor that only gives a first guess
_MAX_RANK = 1200
_SMALL_RANK = 300  # up to which the whole factor is used at once
_MAX_CHANCES = 6  # pivots that may fail to lower the number of wrong guesses
_MAX_PIVOTS = 60
_LEAST_ADDED = 100
_NEAR = 0.2  # sum of changes of a target, up to which the last support is a good guess
_MAX_ROUNDS = 20


class Projection(NamedTuple):
    """A point of the hull and how near to the nearest it is known to be.

    Attributes:
      weights: its coefficients, `[n]`, non-negative with sum 1.
      distance: its distance to the target; the least distance is between `distance - error` and
        this.
      error: bound on the error of `distance`.
      slope: `K (v - u)`, `[n]`.
    """

    weights: np.ndarray
    distance: float
    error: float
    slope: np.ndarray


def certify(kernel: np.ndarray, target: np.ndarray, weights: np.ndarray) -> Projection:
    """The distance from a point of the hull to the target, and a bound on its excess.

    The hyperplane through the point, normal to the line to the target, may cut the hull; how far
    hull points lie beyond it bounds the excess, whatever the weights came from.

    Args:
      kernel: `[n, n]`, positive semidefinite.
      target: `[n]`, coefficients of any sign.
      weights: `[n]`, non-negative, sum 1.

    Returns:
      The `Projection`.
    """
    residual = weights - target
    slope = kernel @ residual
    # Expanding the square of the difference would cancel digits.
    distance = float(np.sqrt(max(residual @ slope, 0)))
    gap = float(weights @ slope - slope.min())
    error = min(distance, gap / distance) if distance else 0.0
    return Projection(weights, distance, max(error, 0.0), slope)


def _error(projection: Projection) -> float:
    return projection.error


class Projector:
    """Projections of many targets with one kernel matrix."""

    def __init__(self, kernel: np.ndarray):
        """Finds the numerical rank, up to a limit.

        Args:
          kernel: float64 `[n, n]`, positive semidefinite; kept, not copied.
        """
        self.kernel = kernel
        self._max_rank = max(1, min(len(kernel) // 3, _MAX_RANK))
        rows, self._is_low_rank = _interior_point.pivoted_cholesky(
            kernel, tolerance=_RANK_TOLERANCE, max_rank=self._max_rank
        )
        # A factor of a third of the rank costs a ninth and is accurate enough for a first guess.
        first = rows[: max(_SMALL_RANK, self._max_rank // 3)]
        self._is_exact = self._is_low_rank and len(first) == len(rows)
        self._first_model = _interior_point.low_rank(first)
        self._model = _interior_point.low_rank(rows) if self._is_low_rank else None
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def project(self, target: np.ndarray, *, tolerance: float = 1e-9) -> Projection:
        """The nearest point of the hull of all points.

        Args:
          target: `[n]`, coefficients of any sign.
          tolerance: error of the distance at which an algorithm ends. Rounding leaves 1e-7 where
            the distance itself is below that, and up to there no other one is tried.

        Returns:
          The best `Projection` found; its `error` says how good it is.
        """
        linear = self.kernel @ target
        result = None
        if self._last is not None and not self._is_exact:
            target_before, support = self._last
            if np.abs(target - target_before).sum() < _NEAR:
                result = self._pivot(target, linear, support, tolerance)
        if result is None or not result.error <= max(tolerance, _ENOUGH):  # NaN is no answer
            result = self._from_low_rank(target, linear, tolerance)
        self._last = target, result.weights > 0
        return result

    def _from_low_rank(
        self, target: np.ndarray, linear: np.ndarray, tolerance: float
    ) -> Projection:
        """The interior point on the factor: the result where that is exact, else a first guess."""
        if self._model is not None and self._is_exact:
            return self._interior(self._model, target, tolerance)[0]
        result, support = self._interior(self._first_model, target, max(tolerance, _START_ERROR))
        if np.count_nonzero(support) > np.count_nonzero(target > 0):
            support = target > 0  # nearly all weights were positive, which is no information
        pivoted = self._pivot(target, linear, support, tolerance)
        if pivoted.error <= max(tolerance, _ENOUGH):
            return pivoted
        result = self._working_set(target, linear, result, support, tolerance)
        if self._model is not None and result.error > max(tolerance, _ENOUGH):
            whole = self._interior(self._model, target, tolerance)[0]
            result = min(result, whole, key=_error)
        return min(result, pivoted, key=_error)

    def _interior(
        self, model: _interior_point.Model, target: np.ndarray, tolerance: float
    ) -> tuple[Projection, np.ndarray]:
        """The interior point on all points with a model of the kernel, and the support it shows."""
        linear = model.product(target)
        weights, multipliers = _interior_point.nearest(
            model,
            np.maximum(target, 0),
            linear,
            squared=float(target @ linear),
            tolerance=tolerance / 2,
        )
        result = certify(self.kernel, target, weights)
        return result, weights * np.ptp(result.slope) > multipliers * weights.max()

    def _pivot(
        self, target: np.ndarray, linear: np.ndarray, support: np.ndarray, tolerance: float
    ) -> Projection:
        """Block principal pivoting from a guess of the support, `[n]` bools."""
        best: Projection | None = None
        fewest, chances = len(target) + 1, _MAX_CHANCES
        for _ in range(_MAX_PIVOTS):
            weights = self._on_support(linear, target, np.flatnonzero(support))
            if weights is None:
                break
            # The guess's own weights may be negative; the certificate needs a point of the hull.
            feasible = np.maximum(weights, 0)
            result = certify(self.kernel, target, feasible / feasible.sum())
            best = result if best is None or result.error < best.error else best
            slope = self.kernel @ weights - linear
            level = slope[support].mean()
            wrong = np.where(support, weights < 0, slope < level - 1e-15)
            count = int(np.count_nonzero(wrong))
            # A small support says little about points far from it: only the worst are added.
            most = max(_LEAST_ADDED, int(np.count_nonzero(support)))
            added = np.flatnonzero(wrong & ~support)
            if len(added) > most:
                wrong[added[np.argsort(slope[added])[most:]]] = False
            chances = _MAX_CHANCES if count < fewest else chances - 1
            fewest = min(fewest, count)
            if best.error <= tolerance or not count or not chances:
                break
            support = support ^ wrong
            if not support.any():
                break
        return best if best is not None else self._vertex(target, linear)

    def _on_support(
        self, linear: np.ndarray, target: np.ndarray, index: np.ndarray
    ) -> np.ndarray | None:
        """Weights with sum 1 on a support at which the slope is level there; of either sign.

        None where the support is empty, or its kernel matrix has no factor.
        """
        if not len(index):
            return None
        block = self.kernel[np.ix_(index, index)]
        block[np.diag_indices_from(block)] += _JITTER
        sides = np.stack([linear[index] + _JITTER * target[index], np.ones(len(index))], 1)
        try:
            chol = linalg.cho_factor(block, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return None
        free, ones = linalg.cho_solve(chol, sides, check_finite=False).T
        weights = np.zeros(len(linear))
        weights[index] = free - (free.sum() - 1) / ones.sum() * ones
        return weights

    def _vertex(self, target: np.ndarray, linear: np.ndarray) -> Projection:
        """The single point nearest to the target."""
        weights = np.zeros(len(target))
        weights[np.argmin(self.kernel.diagonal() / 2 - linear)] = 1
        return certify(self.kernel, target, weights)

    def _working_set(
        self,
        target: np.ndarray,
        linear: np.ndarray,
        best: Projection,
        support: np.ndarray,
        tolerance: float,
    ) -> Projection:
        """The interior point on a growing set of points, from a guess of the support.

        Where a factor is exact, it is cheaper than a set of more points than its rank.
        """
        chosen, slope = support.copy(), best.slope
        most = self._max_rank if self._is_low_rank else len(target)
        for _ in range(_MAX_ROUNDS):
            if np.count_nonzero(chosen) > most:
                break
            more = max(200, int(np.count_nonzero(chosen)) // 2)
            chosen[np.argsort(np.where(chosen, np.inf, slope))[:more]] = True
            index = np.flatnonzero(chosen)
            inner, _ = _interior_point.nearest(
                _interior_point.dense(self.kernel[np.ix_(index, index)]),
                np.maximum(target, 0)[index] + 1e-12,
                linear[index],
                squared=float(target @ linear),
                tolerance=tolerance / 2,
            )
            weights = np.zeros(len(target))
            weights[index] = inner
            result = certify(self.kernel, target, weights)
            slope = result.slope
            best = min(best, result, key=_error)
            if best.error <= tolerance or chosen.all():
                break
        return best
