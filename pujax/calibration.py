"""Probabilities `P(y = 1 | x)` from scores, with held-out P and U and the class prior alone.

With labels at random (SCAR) and `ratio(s) = p(s | y = 1) / p_U(s)`, Bayes' rule for a row of U is

    P(y = 1 | s) = prior ratio(s).

A calibrated classifier of the m rows of P against the n rows of U has the odds
`g(s) / (1 - g(s)) = (m / n) ratio(s)`. Elkan and Noto 2008, "Learning classifiers from only
positive and unlabeled data", lemma 1, divide `g` by one number, the label frequency, for P and U
from one sample; here odds take the place of `g`, so that P and U may be of any sizes, and `g` is
estimated as a function of the score, so that any score that ranks well can be used:

- 'isotonic': `g` is the isotonic regression of P against U, and the probability is clipped to
  [0, 1]. Nothing but the order of the scores counts for it.
- 'platt': the probability itself is Platt's sigmoid of the score (Platt 1999, "Probabilistic
  outputs for support vector machines"), so that the odds of `g` are `m / (n prior)` times a
  sigmoid, and its two parameters maximise the likelihood of P against U, with Platt's smoothed
  targets, of which the larger sample's move no more in all than the smaller one's: with one or two
  held-out positives the mean probability would be far above the prior otherwise. That is the
  likelihood of Ward et al. 2009, "Presence-only data and the EM algorithm".
  A sigmoid for `g` itself cannot be right: the odds of `g` never exceed `m / (n prior)`, while
  those of a sigmoid grow without end. Measured, it has more than twice the calibration error.

The mean probability over U is near the prior, but not forced to it. Forced, the error is smaller if
the prior is exact, and about twice as large if it is stated 1.25 times too high, as the estimators
of the prior tend to do; the bounds of a probability then correct part of that error. Both, and why
'platt' is the default, are measured in `docs/results/probabilities.md`.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl
from numpy import typing as npt
from scipy import special

from pujax import checks

KINDS = ("platt", "isotonic")
_FIRST_SLOPES = (0.5, 2.0, 8.0)
"""Per standard deviation of the scores: where the search starts, as it may have several optima."""
_LEAST_SPREAD = 1e-290
"""Of scores that count as different; a slope per smaller ones would overflow."""
_QUANTILES = (0.05, 0.95)
"""Of calibrations of resamples, for the lower and the upper end of an interval."""
_NUM_KNOTS = 200
"""Scores at which the ends of an interval are kept."""
_FEW = 8
"""Rows of P below which a resample may hold a row of U in place of one of them."""
_MAX_DRAWN = 10_000
"""Rows of P, and of U, in a resample; with so many, chance counts for little beside the prior."""


class Calibration(NamedTuple):
    """A map from scores to probabilities; lists in place of arrays serve as well.

    Attributes:
      kind: 'platt' or 'isotonic'.
      scores: float64; for 'isotonic' `[k]`, increasing, between which probabilities are linear and
        beyond which constant; for 'platt' `[1]`, the mean score.
      values: float64; for 'isotonic' `[k]`, the probabilities there; for 'platt' `[2]`, slope and
        intercept of the log-odds over the distance from the mean score.
      labeled_odds: labelled positives for each hidden positive of the population; 0 in two-sample
        data, where U alone is a sample of the population.
    """

    kind: str
    scores: np.ndarray | Sequence[float]
    values: np.ndarray | Sequence[float]
    labeled_odds: float


def fit(
    positive_scores: npt.ArrayLike,
    unlabeled_scores: npt.ArrayLike,
    *,
    prior: float,
    setting: str,
    kind: str = "platt",
    labeled_share: float | None = None,
) -> Calibration:
    """Fits a calibration to scores that the classifier was not trained on.

    'platt' is the default. Over five real sets with 16 to 101 held-out positives its mean expected
    calibration error is 0.034 and its Brier score 0.073, against 0.041 and 0.078 of 'isotonic';
    with a prior 1.25 times too large 0.045 and 0.075, against 0.047 and 0.079. With 80 to 502
    held-out positives both have 0.017 and 0.047, and on the one set whose log-odds are far from a
    line 'isotonic' is the better one (`docs/results/probabilities.md`).

    Args:
      positive_scores: `[m]`, of held-out labelled positives, at least one.
      unlabeled_scores: `[n]`, of held-out unlabeled rows, at least one.
      prior: share of positives in U, in (0, 1).
      setting: 'one_sample' or 'two_sample', how the data were collected.
      kind: 'platt' or 'isotonic'.
      labeled_share: of one-sample data, the share of labelled positives among all rows, in (0, 1);
        None is `m / (m + n)`, for the same share of P and of U held out.

    Returns:
      A `Calibration`. Scores that are all the same get the prior.

    Raises:
      ValueError: naming the argument that is not accepted, scores that are not finite among them.
    """
    p, u = (
        _scores("positive_scores", positive_scores),
        _scores("unlabeled_scores", unlabeled_scores),
    )
    for name, sample in (("positive_scores", p), ("unlabeled_scores", u)):
        checks.require(len(sample) > 0, name, sample.tolist(), "at least one score")
    checks.between("prior", prior, 0, 1, include="neither")
    checks.one_of("setting", setting, ("one_sample", "two_sample"))
    checks.one_of("kind", kind, KINDS)
    share = len(p) / (len(p) + len(u)) if labeled_share is None else labeled_share
    checks.between("labeled_share", share, 0, 1, include="neither")
    odds = len(p) / (len(u) * prior)
    with _one_thread():
        scores, values = _platt(p, u, prior, odds) if kind == "platt" else _isotonic(p, u, odds)
    labeled_odds = share / ((1 - share) * prior) if setting == "one_sample" else 0.0
    return Calibration(kind, scores, values, labeled_odds)


def probabilities(
    calibration: Calibration, scores: npt.ArrayLike, *, unlabeled_only: bool = True
) -> np.ndarray:
    """Probabilities that rows are positive; they never decrease where the score grows.

    In one-sample data U lacks the positives that were labelled, so that a new row is positive more
    often than a row of U with the same score: with `c` labelled for each hidden positive and `h`
    the probability in U, that in the population, P and U together, is `(1 + c) h / (1 + c h)`.

    Args:
      calibration: of `fit`.
      scores: `[n]`, finite.
      unlabeled_only: True for rows of U, False for new rows of the population. In two-sample data
        both are the same.

    Returns:
      float64 `[n]` in [0, 1].

    Raises:
      ValueError: if scores are not `[n]` and finite, or the kind of the calibration is unknown.
    """
    checks.one_of("calibration.kind", calibration.kind, KINDS)
    s = _scores("scores", scores)
    knots, values = np.asarray(calibration.scores), np.asarray(calibration.values)
    if calibration.kind == "platt":
        with np.errstate(over="ignore"):
            in_u = special.expit(values[0] * (s - knots[0]) + values[1])
    else:
        upper = values[np.minimum(np.searchsorted(knots, s), len(knots) - 1)]
        in_u = np.minimum(np.interp(s, knots, values), upper)  # rounding may lead past the knot
    if unlabeled_only:
        return in_u
    # (1 + c) h / (1 + c h), written so that rounding keeps the order.
    with np.errstate(divide="ignore"):
        return 1 / (1 + (1 / in_u - 1) / (1 + calibration.labeled_odds))


class Ends(NamedTuple):
    """The lower and the upper end of the interval of a probability, as calibrations each.

    Attributes:
      low: of kind 'isotonic', at the smaller prior.
      high: likewise, at the larger one.
      priors: both priors, shares of positives in U.
    """

    low: Calibration
    high: Calibration
    priors: Sequence[float]


def fit_ends(
    positive_scores: npt.ArrayLike,
    unlabeled_scores: npt.ArrayLike,
    *,
    priors: tuple[float, float],
    setting: str,
    kind: str = "platt",
    labeled_share: float | None = None,
    num_resamples: int = 40,
    seed: int = 0,
) -> Ends:
    """Fits the ends of intervals of probabilities over a range of priors and over chance.

    Chance is that of which rows were held out.

    P and U are drawn anew with replacement, each by itself (bootstrap), and calibrated at both
    priors. Fewer than eight rows of P say little of what other positives score, so that then a
    resample draws from them and one row of U, another one each time. The lower end is the 5 %
    quantile at the smaller prior, score by score, the upper end the 95 % quantile at the larger.

    Args:
      positive_scores: as in `fit`.
      unlabeled_scores: likewise.
      priors: the smallest and the largest share of positives in U that is thought possible, in
        (0, 1); twice the same where it is known.
      setting: as in `fit`.
      kind: likewise.
      labeled_share: likewise.
      num_resamples: of P and U, at least 1. A resample holds as many rows as its sample, but at
        most 10,000: of larger ones the interval is a little too wide.
      seed: of the resamples.

    Returns:
      `Ends`.

    Raises:
      ValueError: as `fit`; for priors that are not two shares in order; for another number of
        resamples or seed than a whole one.
    """
    checks.whole_number("num_resamples", num_resamples, 1)
    checks.whole_number("seed", seed, 0)
    accepted = "two shares between 0 and 1, both excluded, the smaller one first"
    checks.require(_in_order(priors), "priors", priors, accepted)
    p = _scores("positive_scores", positive_scores)
    u = _scores("unlabeled_scores", unlabeled_scores)
    bases = [
        fit(p, u, prior=prior, setting=setting, kind=kind, labeled_share=labeled_share)
        for prior in priors
    ]
    scores = np.concatenate([p, u])
    # A sigmoid goes on beyond the held-out scores, where new rows may lie.
    with np.errstate(over="ignore", invalid="ignore"):
        knots = np.quantile(scores, np.linspace(0, 1, _NUM_KNOTS))
        beyond = np.linspace(0, 1, _NUM_KNOTS // 10)[1:] * (knots[-1] - knots[0])
        knots = np.unique(np.concatenate([knots[0] - beyond, knots, knots[-1] + beyond]))
    knots = knots[np.isfinite(knots)]
    ends = []
    for base, prior, quantile in zip(bases, priors, _QUANTILES, strict=True):
        rng = np.random.default_rng(seed)  # the same resamples at both priors
        curves = np.empty([num_resamples, len(knots)])
        with _one_thread():
            for i in range(num_resamples):
                pool = np.append(p, rng.choice(u)) if len(p) < _FEW else p
                drawn_p, drawn_u = (
                    sample[rng.integers(len(sample), size=min(size, _MAX_DRAWN))]
                    for sample, size in ((pool, len(p)), (u, len(u)))
                )
                curves[i] = probabilities(_refit(base, drawn_p, drawn_u, prior), knots)
        ends.append(
            base._replace(
                kind="isotonic", scores=knots, values=np.quantile(curves, quantile, axis=0)
            )
        )
    return Ends(ends[0], ends[1], priors)


def probability_interval(
    calibration: Calibration,
    ends: Ends,
    scores: npt.ArrayLike,
    *,
    unlabeled_only: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of the probabilities that rows are positive.

    Args:
      calibration: of `fit`; its probabilities lie within the interval.
      ends: of `fit_ends`, for the same scores.
      scores: `[n]`, finite.
      unlabeled_only: as in `probabilities`.

    Returns:
      Two float64 `[n]`; neither decreases where the score grows.

    Raises:
      ValueError: if scores are not `[n]` and finite, or the ends are none of `fit_ends`.
    """
    checks.require(isinstance(ends, Ends), "ends", ends, "what fit_ends returns")
    value, low, high = (
        probabilities(x, scores, unlabeled_only=unlabeled_only)
        for x in (calibration, ends.low, ends.high)
    )
    return np.minimum(low, value), np.maximum(high, value)


def threshold_at(
    calibration: Calibration, probability: float, *, unlabeled_only: bool = True
) -> float:
    """The smallest score whose probability reaches a value: rows with at least it are chosen.

    Args:
      calibration: of `fit`.
      probability: in [0, 1].
      unlabeled_only: as in `probabilities`.

    Returns:
      The score; infinity where no score reaches the probability, minus infinity where all do.

    Raises:
      ValueError: if `probability` is not in [0, 1].
    """
    checks.between("probability", probability, 0, 1)

    def reaches(score: float) -> bool:
        return bool(
            probabilities(calibration, [score], unlabeled_only=unlabeled_only)[0] >= probability
        )

    largest = float(np.finfo(np.float64).max) / 4
    low, high = -largest, largest
    if calibration.kind == "isotonic":
        low, high = float(calibration.scores[0]), float(calibration.scores[-1])
    if reaches(low):
        return -math.inf
    if not reaches(high):
        return math.inf
    # Halves the interval until its ends are neighbouring numbers, or nearly so at 0.
    # Their difference may be no number.
    while low < (middle := low / 2 + high / 2) < high:
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def _in_order(priors: Any) -> bool:
    """Whether these are two numbers in (0, 1), of which the first is not the larger one."""
    try:
        low, high = map(float, priors)
    except (TypeError, ValueError):
        return False
    return 0 < low <= high < 1


def _isotonic(p: np.ndarray, u: np.ndarray, odds: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores and the probabilities there, from the isotonic regression of P against U."""
    from sklearn import isotonic  # where it is needed: it loads for a second

    labeled = np.repeat([1.0, 0.0], [len(p), len(u)])
    # Fitted to their ranks: of scores that are nearer than 1e-15 scikit-learn makes one.
    scores, ranks = np.unique(np.concatenate([p, u]), return_inverse=True)
    found = isotonic.IsotonicRegression().fit(ranks.astype(np.float64), labeled)
    shares = np.asarray(found.y_thresholds_, np.float64)
    # odds * h = g / (1 - g), so that h >= 1 from g = odds / (1 + odds) on, where g may be 1.
    below = shares * (1 + odds) < odds
    values = np.ones(len(shares))
    values[below] = shares[below] / (odds * (1 - shares[below]))
    knots = scores[np.asarray(found.X_thresholds_).astype(int)]
    return np.asarray(knots, np.float64), np.minimum(values, 1)


def _one_thread() -> threadpoolctl.threadpool_limits:
    """One thread for linear algebra: on busy cores those of a small search wait for one another.

    Entering it looks through all libraries of the process, for about as long as one search takes,
    so that it is entered once for many of them.
    """
    return threadpoolctl.threadpool_limits(1)


def _refit(base: Calibration, p: np.ndarray, u: np.ndarray, prior: float) -> Calibration:
    """The calibration of resampled scores; the search starts from that of all."""
    odds = len(p) / (len(u) * prior)
    if base.kind == "isotonic":
        scores, values = _isotonic(p, u, odds)
    else:
        scores, values = _platt(p, u, prior, odds, start=base)
    return base._replace(scores=scores, values=values)


def _platt(
    p: np.ndarray, u: np.ndarray, prior: float, odds: float, *, start: Calibration | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The mean score, and slope and intercept of the log-odds of being positive."""
    from scipy import optimize  # where it is needed: it loads for long

    scores, m, n = np.concatenate([p, u]), len(p), len(u)
    if scores.max() / 2 - scores.min() / 2 < _LEAST_SPREAD / 2:  # halves: no difference overflows
        return scores[:1], np.array([0.0, special.logit(prior)])
    unit = np.ldexp(1.0, np.frexp(np.abs(scores).max())[1] - 1)  # so that squares are finite
    center, scale = (scores / unit).mean() * unit, (scores / unit).std() * unit
    x = (scores - center) / scale
    # Platt's targets are (m + 1) / (m + 2) and 1 / (n + 2); what P loses, U gets.
    moved = min(m / (m + 2), n / (n + 2))
    targets = np.repeat([1 - moved / m, moved / n], [m, n])

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        z = parameters[0] * x + parameters[1]
        log_odds = math.log(odds) - np.logaddexp(0, -z)  # of P against U: odds * sigmoid(z)
        slopes = (special.expit(log_odds) - targets) * special.expit(-z)
        value = np.mean(np.logaddexp(0, log_odds) - targets * log_odds)
        return float(value), np.array([np.mean(slopes * x), np.mean(slopes)])

    # Each start puts probability one half at the score that a share `prior` of U exceeds.
    middle = (np.quantile(u, 1 - prior) - center) / scale
    starts = [[slope, -slope * middle] for slope in _FIRST_SLOPES]
    if start is not None:
        slope, intercept = start.values
        starts = [[slope * scale, intercept + slope * (center - start.scores[0])]]
    found = [
        optimize.minimize(
            loss,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None), (None, None)],
            options={"ftol": 1e-12, "gtol": 1e-8},
        )
        for first in starts
    ]
    slope, intercept = min(found, key=lambda result: result.fun).x
    return np.array([center]), np.array([slope / scale, intercept])


def _scores(name: str, values: npt.ArrayLike) -> np.ndarray:
    """Finite scores `[n]` in double precision."""
    array = checks.real_numbers(name, values, "[n], one number each").astype(np.float64, copy=False)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; accepted: [n], one score each")
    bad = ~np.isfinite(array)
    if bad.any():
        raise ValueError(
            f"{name} has {bad.sum()} values that are not finite, the first at {bad.argmax()}; "
            "accepted: finite numbers"
        )
    return array
