"""Class priors by matching the positives' density to that of the unlabeled sample.

Both estimators ask which share `theta` makes `theta p(x|+1)` closest to `p(x)`, in a divergence
that is estimated by a function linear in Gaussian features. They need only means of features and no
training: cost `O((n_p + n_u) b)` and `O((n_p + n_u) b^2)` for `b` centres, in constant memory, and
the interval costs no second pass over the data.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from jax import Array
from scipy import linalg

from pujax.priors import _moments, _settings, base
from pujax.priors.base import ANYTHING, PriorEstimate

PEARSON_RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
NUM_GROUPS = 256
"""Groups of rows for the bootstrap; see `_moments`."""


def pen_l1(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    centers: npt.ArrayLike | None = None,
    sigma: float | None = None,
    ridge: float | None = None,
    num_resamples: int = 200,
    level: float = 0.9,
    key: Array | int | None = None,
) -> PriorEstimate:
    """Class prior by penalised L1 matching, in which the match may not exceed p(x).

    Minimises `sum_l max(0, b_l) b_l / ridge - theta + 1` over `theta` in [0, 1], where
    `b = theta mean_P phi - mean_U phi`: convex, and quadratic between the points where a `b_l`
    changes sign, hence solved exactly. In a few dimensions overlap of the classes misleads it less
    than `pearson`; with many features, or too large a width, it overestimates, and by more than
    `pearson` does. Source: du Plessis, Niu, Sugiyama, "Class-prior estimation for learning from
    positive and unlabeled data", Machine Learning 106, 2017, without the constant feature.

    Features are taken as they are: standardise them first if their scales differ. The width is
    chosen by cross-validation of the dual objective at the prior fitted to the other folds. The
    ridge is not, since that objective has no optimum in it: for any share above the prior it grows
    as the ridge falls. It falls with the root of the smaller sample instead, so that the bias that
    it causes and the one that it prevents both vanish: on Gaussians of up to ten dimensions that
    has half the error of a fixed 0.1 at 5,000 examples of each sample, and the same at 200.

    Args:
      positives: labelled positives, `[m, ...]`.
      unlabeled: unlabeled examples, `[n, ...]`.
      centers: centres of the features, `[b, ...]`; None draws 200 from both samples.
      sigma: width of the features; None chooses among 0.25 to 1.5 times the median distance.
      ridge: weight of half the squared norm of the dual weights; None is one over the root of the
        smaller sample. As published, the minimised value leaves out the ridge's own term, with
        which it would be the value at twice the ridge.
      num_resamples: resamples of the bootstrap, in which centres, width and ridge stay; 0 for no
        interval.
      level: level of the interval.
      key: random key or number for centres, folds and resamples; None is 0.

    Returns:
      The share of positives in U. `[0, 1]` is the interval where both samples are the same points.

    Raises:
      ValueError: naming the argument that is out of its range.
    """
    p, u, is_blank = base.points(positives, unlabeled)
    base.check_level(num_resamples, level)
    centers, sigma, ridge = _settings.checked(centers, sigma, ridge, p.shape[1])
    if is_blank:
        return ANYTHING
    p, u, centers, sigma = _settings.scaled(p, u, centers, sigma)
    rng = base.generator(key)
    centers = _settings.drawn(p, u, rng) if centers is None else centers
    ridge = min(len(p), len(u)) ** -0.5 if ridge is None else ridge

    def prior(of_p: _moments.Moments, of_u: _moments.Moments) -> float:
        return _penalised_minimum(of_p.mean, of_u.mean, ridge)

    def score(fold_p: tuple, fold_u: tuple) -> list[float]:
        """Held-out dual objective, negated."""
        (rest_p, own_p), (rest_u, own_u) = fold_p, fold_u
        theta = prior(rest_p, rest_u)
        weights = np.maximum(theta * rest_p.mean - rest_u.mean, 0) / ridge
        return [-(weights @ (theta * own_p.mean - own_u.mean) - theta + 1)]

    sigma, _ = _settings.selected(
        _settings.Samples(p, u, centers, False), sigma, (ridge,), score, rng
    )
    basis = _moments.Basis(centers, sigma, False)
    return _with_interval(p, u, basis, prior, num_resamples, level, rng)


def pearson(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    centers: npt.ArrayLike | None = None,
    sigma: float | None = None,
    ridge: float | None = None,
    num_resamples: int = 200,
    level: float = 0.9,
    key: Array | int | None = None,
) -> PriorEstimate:
    """Class prior by matching in the Pearson divergence, known as PE.

    `mean_P' M mean_U / mean_P' M mean_P` with `M = 2 G - G H_U G`, `G = (H_U + ridge I)^(-1)` and a
    constant feature. With much data it tends to `1 / (1 + 2 (1 - pi) / pi SMI)`, which is above the
    prior `pi` wherever the classes overlap: an upper bound, and exact for separated classes.
    Source: du Plessis and Sugiyama, "Class prior estimation from positive and unlabeled data",
    IEICE Transactions E97-D(5), 2014.

    Features are taken as they are: standardise them first if their scales differ. Width and ridge
    are chosen by cross-validation of the dual objective, the same for every share.

    Args:
      positives: labelled positives, `[m, ...]`.
      unlabeled: unlabeled examples, `[n, ...]`.
      centers: centres of the features, `[b, ...]`; None draws 200 from both samples.
      sigma: width of the features; None chooses among 0.25 to 1.5 times the median distance.
      ridge: added to the diagonal of the Gram matrix; None chooses among 0.001 to 1.
      num_resamples: resamples of the bootstrap, in which centres, width and ridge stay; 0 for no
        interval.
      level: level of the interval.
      key: random key or number for centres, folds and resamples; None is 0.

    Returns:
      The share of positives in U. `[0, 1]` is the interval where both samples are the same points.

    Raises:
      ValueError: naming the argument that is out of its range.
    """
    p, u, is_blank = base.points(positives, unlabeled)
    base.check_level(num_resamples, level)
    centers, sigma, ridge = _settings.checked(centers, sigma, ridge, p.shape[1])
    if is_blank:
        return ANYTHING
    p, u, centers, sigma = _settings.scaled(p, u, centers, sigma)
    rng = base.generator(key)
    centers = _settings.drawn(p, u, rng) if centers is None else centers
    ridges = PEARSON_RIDGES if ridge is None else (ridge,)

    def scores(fold_p: tuple, fold_u: tuple) -> list[float]:
        """Held-out objective of the density ratio for each ridge."""
        (rest_p, own_p), (rest_u, own_u) = fold_p, fold_u
        weights = [_damped_solution(rest_u.gram, rest_p.mean, r) for r in ridges]
        return [w @ own_u.gram @ w / 2 - w @ own_p.mean for w in weights]

    sigma, ridge = _settings.selected(
        _settings.Samples(p, u, centers, True), sigma, ridges, scores, rng
    )

    def prior(of_p: _moments.Moments, of_u: _moments.Moments) -> float:
        means = np.stack([of_p.mean, of_u.mean], axis=1)
        solved = _damped_solution(of_u.gram, means, ridge)
        # M = G (H + 2 ridge I) G: no difference of large numbers.
        products = solved[:, 0] @ (of_u.gram @ solved + 2 * ridge * solved)
        return products[1] / products[0]

    basis = _moments.Basis(centers, sigma, True)
    return _with_interval(p, u, basis, prior, num_resamples, level, rng)


def _penalised_minimum(mean_p: np.ndarray, mean_u: np.ndarray, ridge: float) -> float:
    """Exact minimiser over [0, 1] of `sum_l max(0, b_l) b_l / ridge - theta + 1`."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        starts = np.where(mean_p > 0, mean_u / mean_p, np.inf)
    order = np.argsort(starts)
    starts, mean_p, mean_u = starts[order], mean_p[order], mean_u[order]
    squares, products = np.cumsum(mean_p**2), np.cumsum(mean_p * mean_u)
    # The slope where each feature begins to count, from those before it; it only rises. Features
    # that begin beyond 1, infinity among them, do not count at all.
    reached = np.minimum(starts, 1)
    slopes = 2 / ridge * (squares * reached - products) - 1
    num_active = np.count_nonzero((slopes < 0) & (starts < 1))
    if num_active == 0 or squares[num_active - 1] == 0:
        return 1.0
    theta = (products[num_active - 1] + ridge / 2) / squares[num_active - 1]
    return float(np.clip(theta, 0, 1))


def _damped_solution(gram: np.ndarray, right: np.ndarray, ridge: float) -> np.ndarray:
    """`(gram + ridge I)^(-1) right`."""
    try:
        return linalg.solve(gram + ridge * np.eye(len(gram)), right, assume_a="pos")
    except linalg.LinAlgError:
        raise ValueError(
            f"ridge is {ridge!r}; accepted: a larger number, with this one the features' Gram "
            "matrix is singular to rounding"
        ) from None


def _with_interval(
    p: np.ndarray,
    u: np.ndarray,
    basis: _moments.Basis,
    prior: Callable[[_moments.Moments, _moments.Moments], float],
    num_resamples: int,
    level: float,
    rng: np.random.Generator,
) -> PriorEstimate:
    num_groups = NUM_GROUPS if num_resamples else 1  # groups are only needed for resamples
    of_p = _moments.grouped(p, basis, num_groups=num_groups, with_products=False, rng=rng)
    of_u = _moments.grouped(
        u, basis, num_groups=num_groups, with_products=basis.with_constant, rng=rng
    )
    pairs = zip(*(x.resampled(rng, num_resamples) for x in (of_p, of_u)), strict=True)
    resampled = [prior(*pair) for pair in pairs]
    return base.with_interval(prior(of_p.all_rows(), of_u.all_rows()), resampled, level=level)
