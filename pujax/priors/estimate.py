"""All estimators by name, from features, prepared as each method needs them."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from pujax import checks
from pujax.priors import base
from pujax.priors.alphamax import alphamax
from pujax.priors.base import ANYTHING, PriorEstimate
from pujax.priors.held_out import held_out_scores
from pujax.priors.km import km1, km2
from pujax.priors.matching import pearson, pen_l1
from pujax.priors.out_of_bag import out_of_bag
from pujax.priors.scores import best_bin, elkan_noto
from pujax.priors.ted_n import ted_n
from pujax.priors.tice import tice

_ON_SCORES: dict[str, tuple[Callable[..., PriorEstimate], dict[str, Any]]] = {
    "elkan_noto_e1": (elkan_noto, {"estimator": "e1"}),
    "elkan_noto_e2": (elkan_noto, {"estimator": "e2"}),
    "elkan_noto_e3": (elkan_noto, {"estimator": "e3"}),
    "ratio": (elkan_noto, {"estimator": "ratio"}),
    "best_bin": (best_bin, {}),
    "alphamax": (alphamax, {}),
}
_ON_FEATURES: dict[str, Callable[..., PriorEstimate]] = {
    "km1": km1,
    "km2": km2,
    "tice": tice,
    "pen_l1": pen_l1,
    "pearson": pearson,
    "ted_n": ted_n,
    "out_of_bag": out_of_bag,
}
NAMES = (*_ON_FEATURES, *_ON_SCORES)
"""Methods of `estimate`."""
# These compare distances between points, which features of a large scale and irrelevant dimensions
# dominate.
_ON_DISTANCES = ("km1", "km2", "pen_l1", "pearson")
_WITH_KERNEL = ("km1", "km2")
_EXPENSIVE = ("km1", "km2", "tice", "alphamax", "out_of_bag")
_PROBABILITY_LABELED = ("elkan_noto_e1", "elkan_noto_e2", "elkan_noto_e3")
WITH_PROBABILITIES = (*_PROBABILITY_LABELED, "ratio", "alphamax")
"""Methods whose scores have to be probabilities, or on their scale; 'best_bin' only ranks."""

MIN_RESAMPLES = 20
"""Fewer resamples say too little of the ends of a 90 % interval."""
MAX_DIMENSIONS = 50
MAX_KERNEL_POINTS = 2000
"""Examples of P and of U that KM gets at once."""
_MAX_SUBSAMPLES = 3
_MAX_RESAMPLED_POINTS = 1000
"""Examples of P and U together up to which a resample of KM is cheap."""


def check_name(method: str, field: str = "method") -> None:
    """Requires one of `NAMES`; the error names the field."""
    checks.one_of(field, method, NAMES)


def needs_scores(method: str) -> bool:
    """True for the methods that work on the scores of a classifier."""
    return method in _ON_SCORES


def is_balanced(method: str) -> bool:
    """False for those that ask for P(labelled | x) itself, with P and U as they are."""
    return method not in _PROBABILITY_LABELED


def affordable_resamples(method: str, num_resamples: int) -> int:
    """A fifth of a number of resamples for the methods whose every resample is expensive.

    It is not less than `MIN_RESAMPLES`, or than the number itself: an interval of one resample
    would be a point.
    """
    if method not in _EXPENSIVE:
        return num_resamples
    return max(num_resamples // 5, min(num_resamples, MIN_RESAMPLES))


def estimate(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    method: str = "best_bin",
    scorer: Any = None,
    num_resamples: int | None = None,
    level: float = 0.9,
    key: jax.Array | int | None = None,
) -> PriorEstimate:
    """Share of positives in U by one of `NAMES`, from features.

    Methods on scores get those of `held_out_scores`. KM and the matching methods get standardised
    features (over P and U together), and their first 50 principal components where there are more,
    as published comparisons do. KM also gets no more than 2,000 points of P and of U at once, and
    is averaged over up to three random subsamples; its interval beyond 1,000 points in all is that
    of 1,000 random ones, moved to the value: too wide rather than too narrow. TIcE, TED^n and
    'out_of_bag' get the features as they are; they scale them themselves.

    Args:
      positives: `[m, ...]`; trailing axes are flattened.
      unlabeled: `[n, ...]`.
      method: one of `NAMES`.
      scorer: classifier for the methods on scores, see `held_out_scores`.
      num_resamples: bootstrap resamples; None is the method's own default, which is 0 where one
        estimate is expensive, but 40 of 'out_of_bag'.
      level: of the interval.
      key: random key or seed; None is 0.

    Returns:
      The estimate.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    check_name(method)
    base.check_level(0 if num_resamples is None else num_resamples, level)
    p, u, is_blank = base.points(positives, unlabeled)
    if is_blank:
        return ANYTHING
    options: dict[str, Any] = {"level": level, "key": key}
    if num_resamples is not None:
        options["num_resamples"] = num_resamples
    if needs_scores(method):
        held = held_out_scores(p, u, scorer=scorer, balanced=is_balanced(method), key=key)
        return from_scores(held.scores_positive, held.scores_unlabeled, method=method, **options)
    if scorer is not None:
        raise ValueError(f"scorer is given; accepted: None with method={method!r}")
    if method in _ON_DISTANCES:
        p, u = reduced(p, u, key=key)
    if method in _WITH_KERNEL:
        return _on_subsamples(_ON_FEATURES[method], p, u, **options)
    return _ON_FEATURES[method](p, u, **options)


def from_scores(
    scores_positive: npt.ArrayLike, scores_unlabeled: npt.ArrayLike, *, method: str, **options: Any
) -> PriorEstimate:
    """Share of positives in U by a method on scores.

    Args:
      scores_positive: `[m]`, of held-out positives. P(labelled | x) for 'elkan_noto_e1' to 'e3',
        the balanced probability for 'ratio' and 'alphamax', anything that ranks for 'best_bin'.
      scores_unlabeled: `[n]`, of held-out unlabeled examples.
      method: one of `NAMES` for which `needs_scores`.
      **options: `num_resamples`, `level`, `key`.
    """
    checks.one_of("method", method, _ON_SCORES)
    function, settings = _ON_SCORES[method]
    return function(scores_positive, scores_unlabeled, **settings, **options)


def reduced(
    positives: np.ndarray, unlabeled: np.ndarray, *, key: jax.Array | int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Both samples standardised over P and U together, on at most 50 principal components.

    Args:
      positives: `[m, d]`.
      unlabeled: `[n, d]`.
      key: random key or seed of the approximate decomposition.

    Returns:
      `(positives, unlabeled)`, of the same features; constant ones are 0.
    """
    both = base.standardised(positives, unlabeled, np.float64)
    if min(both.shape) > MAX_DIMENSIONS:
        from sklearn import decomposition  # where it is needed: it loads for a second

        seed = int(base.generator(key).integers(2**31))
        pca = decomposition.PCA(
            MAX_DIMENSIONS, copy=False, svd_solver="randomized", random_state=seed
        )
        both = pca.fit_transform(both)
    return both[: len(positives)], both[len(positives) :]


def _on_subsamples(
    function: Callable[..., PriorEstimate],
    p: np.ndarray,
    u: np.ndarray,
    *,
    level: float,
    key: jax.Array | int | None,
    num_resamples: int = 0,
) -> PriorEstimate:
    """KM's value on as many points as it can take, its interval on as many as it can resample."""
    options: dict[str, Any] = {"level": level, "num_resamples": num_resamples}
    largest, total = max(len(p), len(u)), len(p) + len(u)
    is_small = total <= _MAX_RESAMPLED_POINTS or not num_resamples
    if largest <= MAX_KERNEL_POINTS and is_small:
        return function(p, u, key=key, **options)
    rng = base.generator(key)

    def part(num_positive: int, num_unlabeled: int, **changes: int) -> PriorEstimate:
        sizes = zip((p, u), (num_positive, num_unlabeled), strict=True)
        samples = [sample[rng.permutation(len(sample))[:size]] for sample, size in sizes]
        return function(*samples, key=int(rng.integers(2**31)), **(options | changes))

    count = min(math.ceil(largest / MAX_KERNEL_POINTS), _MAX_SUBSAMPLES)
    parts = [part(MAX_KERNEL_POINTS, MAX_KERNEL_POINTS, num_resamples=0) for _ in range(count)]
    if ANYTHING in parts:
        return ANYTHING
    value = float(np.mean([estimated.value for estimated in parts]))
    if not num_resamples:
        return PriorEstimate(value)
    # P and U in the proportion in which they are given, but at least two of each.
    num_positive = round(_MAX_RESAMPLED_POINTS * len(p) / total)
    num_positive = min(max(num_positive, 2), _MAX_RESAMPLED_POINTS - 2)
    few = part(num_positive, _MAX_RESAMPLED_POINTS - num_positive)
    return base.moved(few, value)
