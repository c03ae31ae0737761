"""KM1 and KM2: the class prior from distances between kernel mean embeddings.

Ramaswamy, Scott, Tewari, "Mixture proportion estimation via kernel embedding of distributions",
ICML 2016. With `lambda = 1 / (1 - prior)`, the mixture `lambda p_U + (1 - lambda) p_P` is a
density up to the true `lambda` and is not one beyond. `d(lambda)` is the distance of its
empirical embedding to the hull of all points; where its slope passes a threshold lies the
estimate.

The published procedure solves quadratic programmes for two `d` in each of 8 halvings. A third of
them suffices for the same answers: `d` is convex, so each solved `lambda` gives a line below the
whole curve and, with its neighbours, chords above it; where these already decide on which side of
the threshold the slope lies, nothing is solved. `_hull_projection` solves the programmes.

All distances are kept, 8 (m + n)^2 bytes and as much again while the width is chosen: 1.6 GB at
10,000 points. There is no cap: from 10,000 points on, take subsamples and average.
"""

import logging
import math
from collections.abc import Sequence

import jax
import numpy as np
import numpy.typing as npt
import threadpoolctl

from pujax import checks
from pujax.priors import _kernel_mean, base

_LOG = logging.getLogger(__name__)

EPSILON, LAMBDA_MAX = 0.04, 8.0
_START = 1.05  # KM2 takes the slope of the curve between 1 and this
_START_SHARE = 0.8  # weight of that slope in KM2's threshold; the rest is for the distance of P, U
_LARGE = 0.9  # share of that distance beyond which KM1 takes KM2's threshold
# Threads wait for one another at every small product: 3,000 points took 3.5 s with one of them and
# 40 s with two on a busy machine.
_MIN_THREADED = 6000
_BLANK = 1e-7  # distance of P and U below which rounding is all that is left


def km1(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    epsilon: float = EPSILON,
    lambda_max: float = LAMBDA_MAX,
    num_resamples: int = 0,
    level: float = 0.9,
    key: jax.Array | int | None = None,
) -> base.PriorEstimate:
    """The share of positives in U by KM1, whose threshold is `1 / sqrt(min(m, n))`.

    Where that exceeds 0.9 of the distance between P and U, KM2's threshold is used, as in the
    authors' code. With the defaults there are 256 possible answers between .0135 and .8748. The
    lowest stands for its whole bracket, 0 to .0266: its interval reaches at least so far, and any
    that begins at it begins at 0. For a larger prior raise `lambda_max`. Standardise features
    whose scales differ. The kernel sees equal distances everywhere in hundreds of dimensions;
    reduce them first.

    Args:
      positives: `[m]` or `[m, ...]`.
      unlabeled: `[n]` or `[n, ...]`.
      epsilon: width of the last bracket of lambda, and twice the width over which slopes are
        taken.
      lambda_max: upper end of the first bracket; the answer stays below `1 - 1 / lambda_max`.
      num_resamples: bootstrap resamples for the interval; each costs about as much as the
        estimate. 0 leaves it NaN.
      level: share of the resamples that the interval holds.
      key: JAX key or number for the resamples.

    Returns:
      The `PriorEstimate`. Resamples keep the kernel's width.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    options = (epsilon, lambda_max, num_resamples, level, key)
    return _estimates(positives, unlabeled, (True, False), *options)[0]


def km2(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    epsilon: float = EPSILON,
    lambda_max: float = LAMBDA_MAX,
    num_resamples: int = 0,
    level: float = 0.9,
    key: jax.Array | int | None = None,
) -> base.PriorEstimate:
    """The share of positives in U by KM2, whose threshold comes from the curve itself.

    It is 0.8 of the slope at `lambda = 1` plus 0.2 of the distance between P and U. All else is as
    in `km1`.

    Args:
      positives: `[m]` or `[m, ...]`.
      unlabeled: `[n]` or `[n, ...]`.
      epsilon: as in `km1`.
      lambda_max: as in `km1`.
      num_resamples: as in `km1`.
      level: as in `km1`.
      key: as in `km1`.

    Returns:
      The `PriorEstimate`.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    options = (epsilon, lambda_max, num_resamples, level, key)
    return _estimates(positives, unlabeled, (False, True), *options)[1]


def km(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    epsilon: float = EPSILON,
    lambda_max: float = LAMBDA_MAX,
    num_resamples: int = 0,
    level: float = 0.9,
    key: jax.Array | int | None = None,
) -> tuple[base.PriorEstimate, base.PriorEstimate]:
    """Both estimates from one kernel and one curve, for little more than the price of one.

    Args:
      positives: `[m]` or `[m, ...]`.
      unlabeled: `[n]` or `[n, ...]`.
      epsilon: as in `km1`.
      lambda_max: as in `km1`.
      num_resamples: as in `km1`.
      level: as in `km1`.
      key: as in `km1`.

    Returns:
      `(km1, km2)`.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    options = (epsilon, lambda_max, num_resamples, level, key)
    return _estimates(positives, unlabeled, (True, True), *options)


def distance_curve(
    positives: npt.ArrayLike, unlabeled: npt.ArrayLike, lambdas: Sequence[float] | np.ndarray
) -> np.ndarray:
    """The distance `d(lambda)` that KM1 and KM2 take slopes of.

    Args:
      positives: `[m]` or `[m, ...]`.
      unlabeled: `[n]` or `[n, ...]`.
      lambdas: `[k]`, each from 1.

    Returns:
      float64 `[k]`, exact to 1e-6 and mostly to 1e-9; 0 at `lambda = 1`.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    accepted = "a vector of finite numbers from 1"
    lambdas = base.real_array("lambdas", lambdas, accepted).astype(np.float64)
    if lambdas.ndim != 1 or not (np.isfinite(lambdas) & (lambdas >= 1)).all():
        raise ValueError(f"lambdas is {lambdas}; accepted: {accepted}")
    p, u, _ = base.points(positives, unlabeled)
    with _threads(len(p) + len(u)):
        curve = _kernel_mean.Curve.of(_kernel_mean.gaussian_kernel(u, p), len(u))
        return np.array([curve.solve(value) for value in lambdas])


def _estimates(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    wanted: tuple[bool, bool],
    epsilon: float,
    lambda_max: float,
    num_resamples: int,
    level: float,
    key: jax.Array | int | None,
) -> tuple[base.PriorEstimate, base.PriorEstimate]:
    """KM1 and KM2, each NaN where it is not wanted."""
    _check_bracket(epsilon, lambda_max)
    base.check_level(num_resamples, level)
    p, u, is_blank = base.points(positives, unlabeled)
    if is_blank:
        return base.ANYTHING, base.ANYTHING
    sizes = (len(p), len(u))
    with _threads(sum(sizes)):
        kernel = _kernel_mean.gaussian_kernel(u, p)
        curve = _kernel_mean.Curve.of(kernel, len(u))
        if curve.gap < _BLANK:
            _LOG.warning("positives and unlabeled have the same mean embedding: any prior fits")
            return base.ANYTHING, base.ANYTHING
        values = _bisections(curve, sizes, wanted, epsilon, lambda_max)
        rng, resampled_of = base.generator(key), _kernel_mean.Curve.of_resample
        resampled = [
            _bisections(resampled_of(kernel, len(u), rng), sizes, wanted, epsilon, lambda_max)
            for _ in range(num_resamples)
        ]
    first, second = (
        base.with_brackets(
            base.with_interval(value, [estimates[i] for estimates in resampled], level=level),
            half_bracket(epsilon, lambda_max),
            lambda_max,
        )
        if is_wanted
        else base.PriorEstimate(math.nan)
        for i, (value, is_wanted) in enumerate(zip(values, wanted, strict=True))
    )
    return first, second


def _bisections(
    curve: _kernel_mean.Curve,
    sizes: tuple[int, int],
    wanted: tuple[bool, bool],
    epsilon: float,
    lambda_max: float,
) -> list[float]:
    """The two estimates from a curve; NaN for one that is not wanted."""
    thresholds = [1 / math.sqrt(min(sizes)), math.nan]
    is_large = thresholds[0] > _LARGE * curve.gap
    if wanted[1] or is_large:
        slope = curve.solve(_START) / (_START - 1)
        thresholds[1] = _START_SHARE * slope + (1 - _START_SHARE) * curve.gap
    if is_large:
        thresholds[0] = thresholds[1]
    return [
        _bisect(curve, threshold, epsilon, lambda_max) if is_wanted else math.nan
        for threshold, is_wanted in zip(thresholds, wanted, strict=True)
    ]


def _bisect(
    curve: _kernel_mean.Curve, threshold: float, epsilon: float, lambda_max: float
) -> float:
    """The prior at which the curve's slope passes the threshold."""
    left, right = 1.0, lambda_max
    while right - left > epsilon:
        middle = (left + right) / 2
        if curve.is_steeper(middle, width=epsilon / 2, than=threshold):
            right = middle
        else:
            left = middle
    middle = (left + right) / 2
    return (middle - 1) / middle


def half_bracket(epsilon: float = EPSILON, lambda_max: float = LAMBDA_MAX) -> float:
    """Half of the width of the bracket, in lambda, that an answer of the bisection stands for."""
    width = lambda_max - 1
    while width > epsilon:
        width /= 2
    return width / 2


def least_share(epsilon: float = EPSILON, lambda_max: float = LAMBDA_MAX) -> tuple[float, float]:
    """The smallest answer that the bisection has, and the end of the bracket that it stands for."""
    half = half_bracket(epsilon, lambda_max)
    return half / (1 + half), 2 * half / (1 + 2 * half)


def _threads(num_points: int) -> threadpoolctl.threadpool_limits:
    """One thread of linear algebra where the matrices are small."""
    return threadpoolctl.threadpool_limits(1 if num_points < _MIN_THREADED else None)


def _check_bracket(epsilon: float, lambda_max: float) -> None:
    checks.between("lambda_max", lambda_max, 1, math.inf, include="neither")
    if not (checks.is_number(epsilon) and 1e-4 <= epsilon < lambda_max - 1):
        raise ValueError(
            f"epsilon is {epsilon!r}; accepted: a number from 1e-4, below which slopes are lost in "
            f"rounding, and below lambda_max - 1, {lambda_max - 1}"
        )
