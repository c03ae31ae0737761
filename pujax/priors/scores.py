"""Class-prior estimates from the scores of a classifier of P against U.

The scores have to be those of examples that the classifier was not trained on; `held_out` does
that. Where some scores are reached by positives only, `best_bin` converges to the prior; where the
classes overlap at every score all estimates here converge to a value above it.
"""

import logging
import math

import jax
import numpy as np
import numpy.typing as npt

from pujax import checks
from pujax.priors import _best_bin, base
from pujax.priors.base import ANYTHING, PriorEstimate

_LOG = logging.getLogger(__name__)

ELKAN_NOTO_ESTIMATORS = ("e1", "e2", "e3", "ratio")


def best_bin(
    scores_positive: npt.ArrayLike,
    scores_unlabeled: npt.ArrayLike,
    *,
    delta: float = 0.1,
    gamma: float = 0.01,
    num_resamples: int = 200,
    level: float = 0.9,
    key: jax.Array | int | None = None,
) -> PriorEstimate:
    """Best Bin Estimation: the share of U over the share of P in the purest bin of top scores.

    With `q_u(t)` and `q_p(t)` the shares of U and P with a score of at least `t`, `q_u / q_p` is at
    least the prior (sampling aside), and equal to it where no negative scores as high as `t`. The
    threshold minimises an upper confidence bound of that ratio,

        q_u/q_p + (1 + gamma)/q_p * (sqrt(log(4/delta) / (2 n)) + sqrt(log(4/delta) / (2 m)))

    so that a pure bin is preferred, but not a tiny one. Only the order of the scores matters, not
    their calibration. Garg et al., "Mixture Proportion Estimation and PU Learning: A Modern
    Approach", NeurIPS 2021 (https://arxiv.org/abs/2111.00980).

    As in the authors' code, the thresholds are the distinct unlabeled scores except the lowest, the
    unlabeled score at the threshold itself is not counted (one of them where several are equal),
    and both counts have to be above 1. Where no threshold is left, the authors return 0; here
    that is an interval from 0 to 1 and a warning.

    It is too high where no score is free of negatives, too low for a high prior with few data, and
    needs about 200 scores of P. Its cost is that of sorting, `O(n log n)`.

    The bootstrap draws how many scores fall between thresholds: between all of them up to 2000,
    between 2000 that share P and U evenly beyond. The scorer is held fixed. The choice of the least
    bound makes estimate and interval slightly too low: on exact scores of Gaussians 3 to 5 apart
    intervals of level 0.9 held the prior 0.4 in 84 to 87 % of draws, the prior 0.7 in 72 %.

    Args:
      scores_positive: `[m]`, scores of held-out positives, higher is more positive.
      scores_unlabeled: `[n]`, scores of held-out unlabeled examples.
      delta: one minus the confidence of the bound, in (0, 1).
      gamma: relative slack of the bound, 0 or more.
      num_resamples: resamples of the bootstrap interval; 0 for none.
      level: confidence level of the interval.
      key: random key of the bootstrap, or an integer; None is 0.

    Returns:
      The share of positives in U, with its interval.

    Raises:
      ValueError: for scores or settings that are not accepted.
    """
    base.check_level(num_resamples, level)
    checks.between("delta", delta, 0, 1, include="neither")
    checks.at_least("gamma", gamma, 0)
    positive, unlabeled, is_blank = base.scores(scores_positive, scores_unlabeled)
    if is_blank:
        return ANYTHING
    m, n = len(positive), len(unlabeled)
    slack = _best_bin.slack(m, n, delta=delta, gamma=gamma)
    counts = _best_bin.thresholds(positive, unlabeled)
    value = float(_best_bin.best(counts, slack=slack))
    if math.isnan(value):
        _LOG.warning(
            "best_bin found no threshold with 2 scores of P and of U above it (%d positive, %d "
            "unlabeled scores): every prior is possible",
            m,
            n,
        )
        return ANYTHING
    resampled = _best_bin.resampled(
        _best_bin.thin(counts),
        slack=slack,
        num_resamples=num_resamples,
        rng=base.generator(key),
    )
    return base.with_interval(value, resampled, level=level)


def elkan_noto(
    scores_positive: npt.ArrayLike,
    scores_unlabeled: npt.ArrayLike,
    *,
    estimator: str = "e1",
    num_resamples: int = 200,
    level: float = 0.9,
    key: jax.Array | int | None = None,
) -> PriorEstimate:
    """Elkan and Noto's label frequency from probabilities of being labelled, as a prior.

    Where the classes do not overlap, `g(x) = P(labelled | x)` is the label frequency `c` at every
    positive. Three estimates of it are turned into the share of positives in U,
    `m (1 - c) / (c n)`:

    - 'e1': the mean of `g` over P. Exact for separable classes and a calibrated `g`, else too
      small, and the prior too large.
    - 'e2': the sum of `g` over P, divided by that over P and U.
    - 'e3': the largest `g`. Exact for an exact `g`; the noise of a fitted one drives the prior far
      down, and the bootstrap, whose largest `g` is nearly always the same, does not show it.
    Elkan and Noto, "Learning Classifiers from Only Positive and Unlabeled Data", KDD 2008. And

    - 'ratio': the mean of `f` over U divided by that over P, for the balanced `f = a / (a + b)`,
      with `a` the density of P and `b` that of U. An upper bound of the prior, sampling aside.

    A `c` of exactly 0 or 1, a saturated classifier, carries no information, and neither does one
    that gives more than 1 on every resample: the interval is then from 0 to 1 and a warning is
    given. Other shares above 1 count as 1.

    Args:
      scores_positive: `[m]`, probabilities of held-out positives: `g`, for 'ratio' `f`.
      scores_unlabeled: `[n]`, those of held-out unlabeled examples. For `g`, P and U have to be in
        the proportion in which the classifier saw them.
      estimator: 'e1', 'e2', 'e3' or 'ratio'.
      num_resamples: resamples of the bootstrap interval; 0 for none. The classifier is held fixed.
      level: confidence level of the interval.
      key: random key of the bootstrap, or an integer; None is 0.

    Returns:
      The share of positives in U, with its interval.

    Raises:
      ValueError: for scores outside of [0, 1] or settings that are not accepted.
    """
    base.check_level(num_resamples, level)
    checks.one_of("estimator", estimator, ELKAN_NOTO_ESTIMATORS)
    positive, unlabeled, is_blank = base.scores(scores_positive, scores_unlabeled)
    for name, values in (("scores_positive", positive), ("scores_unlabeled", unlabeled)):
        low, high = values.min(), values.max()
        if low < 0 or high > 1:
            raise ValueError(
                f"{name} has values from {low:g} to {high:g}; accepted: probabilities, from 0 to 1"
            )
    if is_blank:
        return ANYTHING
    largest = np.maximum(positive.max(), unlabeled.max())
    m, n = len(positive), len(unlabeled)
    value = float(_elkan_noto(estimator, positive.mean(), unlabeled.mean(), largest, m=m, n=n))
    if not 0 < value < math.inf:
        _LOG.warning(
            "elkan_noto by %r gives %g, as it does when a classifier is saturated: every prior is "
            "possible",
            estimator,
            value,
        )
        return PriorEstimate(min(max(value, 0.0), 1.0), 0.0, 1.0)
    rng = base.generator(key)
    mean_p, largest_p = _drawn(positive, num_resamples, rng)
    mean_u, largest_u = _drawn(unlabeled, num_resamples, rng)
    largest = np.maximum(largest_p, largest_u)
    resampled = _elkan_noto(estimator, mean_p, mean_u, largest, m=m, n=n)
    if num_resamples and (resampled > 1).all():
        _LOG.warning(
            "elkan_noto by %r gives %g, and more than 1 on every resample, which no share is: the "
            "probabilities are not those of being labelled, and every prior is possible",
            estimator,
            value,
        )
        return ANYTHING
    return base.with_interval(value, resampled, level=level)


def _elkan_noto(
    estimator: str, mean_p: np.ndarray, mean_u: np.ndarray, largest: np.ndarray, *, m: int, n: int
) -> np.ndarray:
    """The prior in U, not clipped, from the means of both samples and the largest score.

    Infinite where no labelled score is left above 0, and NaN where no score at all is.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if estimator == "ratio":
            return np.divide(mean_u, mean_p)
        if estimator == "e1":
            frequency = mean_p
        elif estimator == "e2":
            frequency = np.divide(m * mean_p, m * mean_p + n * mean_u)
        else:
            frequency = largest
        return np.divide(m * (1 - frequency), frequency * n)


def _drawn(
    values: np.ndarray, num_resamples: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Means and maxima of resamples, `[num_resamples]` each.

    Beyond 2000 scores, neighbours in order share a bin and are replaced by its mean and maximum.
    """
    bins = np.array_split(np.sort(values), min(len(values), _best_bin.MAX_BINS))
    sizes = np.array([len(members) for members in bins])
    drawn = rng.multinomial(len(values), sizes / len(values), size=num_resamples)
    means = drawn @ np.array([members.mean() for members in bins]) / len(values)
    last = drawn.shape[1] - 1 - (drawn[:, ::-1] > 0).argmax(1)
    return means, np.array([members[-1] for members in bins])[last]
