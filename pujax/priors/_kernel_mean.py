"""The kernel matrix of two samples and the curve of distances that KM1 and KM2 read."""

import numpy as np

from pujax.priors import _hull_projection

_WIDTHS = 10.0 ** np.array([-1, -0.5, 0, 0.5, 1])  # times the root of the median squared distance
_BLOCK = 1 << 22  # kernel entries that are formed at a time
_TOLERANCE = 5e-9  # of a distance


def gaussian_kernel(unlabeled: np.ndarray, positives: np.ndarray) -> np.ndarray:
    """The Gaussian kernel of both samples, of the width that separates them best.

    Of five widths around the median distance it takes the one with the largest distance between
    the two empirical means in feature space. The median runs over all pairs, a point with itself
    included, as published; where more than half of all pairs coincide, over the others.

    Args:
      unlabeled: float64 `[n, d]`.
      positives: float64 `[m, d]`, not all the same as `unlabeled`.

    Returns:
      float64 `[n + m, n + m]`, U first.
    """
    size = len(unlabeled) + len(positives)
    weights = _means(len(unlabeled), len(positives))
    squares = _squared_distances(np.concatenate([unlabeled, positives]))
    # Overwriting a copy halves the memory that the median of a large matrix takes.
    base = np.median(squares.ravel().copy(), overwrite_input=True)
    if base == 0:
        base = np.median(squares[squares > 0])
    rows = max(1, _BLOCK // size)
    gaps = []
    for width in _WIDTHS:
        products = [
            np.exp(squares[i : i + rows] / (-2 * base * width**2)) @ (weights[1] - weights[0])
            for i in range(0, size, rows)
        ]
        gaps.append((weights[1] - weights[0]) @ np.concatenate(products))
    squares /= -2 * base * _WIDTHS[int(np.argmax(gaps))] ** 2
    return np.exp(squares, out=squares)


def _squared_distances(points: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs, in units in which the expanded squares cannot overflow."""
    points = points / np.abs(points).max()
    points = points - points.mean(0)
    points /= np.abs(points).max()
    norms = (points**2).sum(1)
    squares = points @ points.T
    squares *= -2
    squares += norms
    squares += norms[:, None]
    np.maximum(squares, 0, out=squares)
    np.fill_diagonal(squares, 0)
    return squares


def _means(num_unlabeled: int, num_positives: int) -> np.ndarray:
    """The coefficients of both empirical means, `[2, n + m]`: P's and then U's."""
    is_unlabeled = np.arange(num_unlabeled + num_positives) < num_unlabeled
    return np.stack([~is_unlabeled / num_positives, is_unlabeled / num_unlabeled])


class Curve:
    """The distance `d(lambda)` of `lambda p_U + (1 - lambda) p_P` to the hull of all points.

    `d` is convex with `d(1) = 0`, and its slope is at most `gap`. Each solved point therefore
    bounds the whole curve: from below by a tangent plane that its certificate gives, from above by
    chords.

    Attributes:
      gap: distance between the means of U and P.
    """

    def __init__(self, kernel: np.ndarray, positive: np.ndarray, unlabeled: np.ndarray):
        """Solves nothing yet.

        Args:
          kernel: `[k, k]` over all points.
          positive: `[k]`, coefficients of P's empirical mean, with sum 1.
          unlabeled: `[k]`, the same of U's.
        """
        self._positive, self._towards = positive, unlabeled - positive
        self.gap = float(np.sqrt(max(self._towards @ (kernel @ self._towards), 0)))
        self._projector = _hull_projection.Projector(kernel)
        self._solved = {1.0: 0.0}
        self._tangents = [(0.0, 0.0)]

    @classmethod
    def of(cls, kernel: np.ndarray, num_unlabeled: int) -> "Curve":
        """The curve of two samples.

        Args:
          kernel: `[n + m, n + m]`, U first.
          num_unlabeled: `n`.

        Returns:
          The `Curve`.
        """
        return cls(kernel, *_means(num_unlabeled, len(kernel) - num_unlabeled))

    @classmethod
    def of_resample(
        cls, kernel: np.ndarray, num_unlabeled: int, rng: np.random.Generator
    ) -> "Curve":
        """The curve of resamples of both with replacement; the kernel's entries stay.

        Args:
          kernel: `[n + m, n + m]`, U first.
          num_unlabeled: `n`.
          rng: random generator.

        Returns:
          The `Curve`, whose hull is that of the points drawn.
        """
        num_positives = len(kernel) - num_unlabeled
        counts = [
            np.bincount(rng.integers(size, size=size), minlength=size) / size
            for size in (num_unlabeled, num_positives)
        ]
        unlabeled = np.concatenate([counts[0], np.zeros(num_positives)])
        positive = np.concatenate([np.zeros(num_unlabeled), counts[1]])
        drawn = np.flatnonzero(unlabeled + positive)
        return cls(kernel[np.ix_(drawn, drawn)], positive[drawn], unlabeled[drawn])

    def solve(self, value: float) -> float:
        """`d` at a lambda of at least 1; solved values are stored."""
        value = float(value)
        if value not in self._solved:
            projection = self._projector.project(
                self._positive + value * self._towards, tolerance=_TOLERANCE
            )
            self._solved[value] = projection.distance
            if projection.distance > 0:
                start = projection.slope.min() - projection.slope @ self._positive
                rise = -(projection.slope @ self._towards)
                self._tangents.append((start / projection.distance, rise / projection.distance))
        return self._solved[value]

    def is_steeper(self, value: float, *, width: float, than: float) -> bool:
        """Whether the slope from a lambda over a width exceeds a threshold.

        Args:
          value: the lambda.
          width: over which the slope is taken.
          than: the threshold.

        Returns:
          `(d(value + width) - d(value)) / width > than`.
        """
        ends = (value + width, value)
        for end in ends:
            (low, high), (low_start, high_start) = (self._bounds(point) for point in ends)
            if low - high_start > than * width:
                return True
            if high - low_start < than * width:
                return False
            self.solve(end)
        return self.solve(ends[0]) - self.solve(ends[1]) > than * width

    def _bounds(self, value: float) -> tuple[float, float]:
        """A lower and an upper bound of `d` at a lambda, from all points solved so far."""
        low = max(start + rise * value for start, rise in self._tangents)
        before = max(solved for solved in self._solved if solved <= value)
        high = self._solved[before] + self.gap * (value - before)
        after = min((solved for solved in self._solved if solved > value), default=None)
        if after is not None:
            share = (value - before) / (after - before)
            chord = (1 - share) * self._solved[before] + share * self._solved[after]
            high = min(high, chord)
        return low, high
