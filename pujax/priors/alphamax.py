"""AlphaMax: the largest share of positives that the likelihood of the scores still allows."""

import logging

import jax
import numpy as np
import numpy.typing as npt

from pujax.priors import base
from pujax.priors.base import ANYTHING, PriorEstimate

_LOG = logging.getLogger(__name__)

SHARES = np.arange(1, 100) / 100
"""Shares of positives that the likelihood is maximised for."""
SMOOTHING = 5
"""Points of the median that smooths the curve."""
LINE = 10
"""Points that a line on either side of a candidate is fitted to."""
SHORTEST_LINE = 3
"""At the ends of the curve lines are as short as this, so that estimates reach 0.96; those of 0.01
and 0.02 have the curve's limit at the share 0 to their left."""
FEWEST_BINS, MOST_BINS = 10, 100
NUM_BISECTIONS = 60
AT_ONCE = 20
"""Resamples whose curves are computed together."""


def alphamax(
    scores_positive: npt.ArrayLike,
    scores_unlabeled: npt.ArrayLike,
    *,
    num_bins: int | None = None,
    num_resamples: int = 0,
    level: float = 0.9,
    key: jax.Array | int | None = None,
) -> PriorEstimate:
    """Class prior at the elbow of a likelihood curve over all shares of positives.

    For each share, the densities of positives and of negatives that explain both samples best are
    found among histograms. Up to the prior all shares explain them equally well, beyond it the
    likelihood falls: the estimate is where the falling curve bends most, relative to how far it has
    fallen. Finding that point is the unreliable step, above all with few examples, where classes
    overlap (the bend is then beyond the prior) and for priors near 1. Source: Jain, White,
    Radivojac, "Estimating the class prior and posterior from noisy positives and unlabeled data",
    NIPS 2016, with the elbow rule of the authors' code but plain least-squares lines.

    Scores should be on a bounded scale, such as probabilities, since bins have one width, and come
    from a classifier that was trained on other data.

    Args:
      scores_positive: scores of labelled positives, `[m]`.
      scores_unlabeled: scores of unlabeled examples, `[n]`.
      num_bins: bins of the histograms, of one width; None takes Scott's rule on the positives, and
        10 to 100 bins.
      num_resamples: resamples of the bootstrap, with the bins kept; 0 for no interval.
      level: level of the interval.
      key: random key or number for the resamples; None is 0.

    Returns:
      The share of positives in U, a multiple of 0.01. `[0, 1]` is the interval where all scores are
      the same, or those of both samples.

    Raises:
      ValueError: naming the argument that is out of its range.
    """
    p, u, is_blank = base.scores(scores_positive, scores_unlabeled)
    base.check_level(num_resamples, level)
    if num_bins is not None:
        num_bins = base.whole("num_bins", num_bins, 2, "or None")
    if is_blank:
        return ANYTHING
    counts_p, counts_u = _histograms(p, u, num_bins)
    curve = likelihood_curve(counts_p, counts_u)
    limit = likelihood_limit(counts_p, counts_u)
    if np.ptp(curve) < 1e-9:
        _LOG.warning("both samples have the same histogram: every prior is possible")
        return ANYTHING
    resampled: list[float] = []
    rng = base.generator(key)
    for start in range(0, num_resamples, AT_ONCE):
        size = min(AT_ONCE, num_resamples - start)
        counts = [rng.multinomial(x.sum(), x / x.sum(), size=size) for x in (counts_p, counts_u)]
        resampled.extend(elbow(likelihood_curve(*counts), likelihood_limit(*counts)))
    found = base.with_interval(elbow(curve[None], limit[None])[0], resampled, level=level)
    # The first and the last share at which a curve can bend stand for all that is beyond.
    low = 0.0 if found.low <= SHARES[SHORTEST_LINE - 1] else found.low
    high = 1.0 if found.high >= SHARES[-SHORTEST_LINE - 1] else found.high
    return found._replace(low=low, high=high)


def likelihood_curve(counts_p: np.ndarray, counts_u: np.ndarray) -> np.ndarray:
    """The greatest likelihood of each of `SHARES`, up to a constant that they have in common.

    With bins of shares `p_i` and `u_i` of both samples, and `c_i` the part of the share `alpha`
    that lies in bin `i`, maximises `sum_i p_i log(c_i / alpha) + u_i log(u_i - c_i + alpha p_i)`
    over `0 <= c_i <= u_i`, `sum_i c_i = alpha`. It is concave and a sum over bins, so that a
    multiplier of the one equation gives every `c_i` in closed form and bisection finds it.

    Args:
      counts_p: positives in each bin, `[..., k]`.
      counts_u: unlabeled examples in each bin, `[..., k]`.

    Returns:
      The curve, `[..., 99]`.
    """
    # One axis more, over the shares.
    p = (counts_p / counts_p.sum(-1, keepdims=True))[..., None, :]
    u = (counts_u / counts_u.sum(-1, keepdims=True))[..., None, :]
    alpha = np.broadcast_to(SHARES[:, None], (*p.shape[:-2], SHARES.size, 1))
    # Bins without unlabeled examples hold no c: they contribute the same to all shares.
    p_seen = np.where(u > 0, p, 0)
    top = u + alpha * p_seen
    low, high = -1 / (1 - alpha), 1 / alpha
    for _ in range(NUM_BISECTIONS):
        middle = (low + high) / 2
        too_much = _parts(middle, p_seen, u, top).sum(-1, keepdims=True) > alpha
        low, high = np.where(too_much, middle, low), np.where(too_much, high, middle)
    parts = _parts((low + high) / 2, p_seen, u, top)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_p = np.where(p_seen > 0, p_seen * np.log(parts / alpha), 0)
        of_u = np.where(u > 0, u * np.log(top - parts), 0)
    return (of_p + of_u).sum(-1)


def likelihood_limit(counts_p: np.ndarray, counts_u: np.ndarray) -> np.ndarray:
    """What `likelihood_curve` comes to as the share goes to 0, with the same constant.

    The part of the share then has the shape of P, as far as U has examples there.

    Args:
      counts_p: positives in each bin, `[..., k]`.
      counts_u: unlabeled examples in each bin, `[..., k]`.

    Returns:
      The limit, `[...]`.
    """
    p = counts_p / counts_p.sum(-1, keepdims=True)
    u = counts_u / counts_u.sum(-1, keepdims=True)
    p_seen = np.where(u > 0, p, 0)
    total = p_seen.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_p = np.where(p_seen > 0, p_seen * np.log(p_seen / total), 0)
        of_u = np.where(u > 0, u * np.log(u), 0)
    return (of_p + of_u).sum(-1)


def _parts(multiplier: np.ndarray, p: np.ndarray, u: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Solutions in `[0, u]` of `p / c - u / (top - c) = multiplier`."""
    slope = multiplier * top + p + u
    root = np.sqrt((multiplier * top + u - p) ** 2 + 4 * p * u)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Of the two forms of the quadratic's root the one without cancellation.
        parts = np.where(slope > 0, 2 * p * top / (slope + root), (slope - root) / (2 * multiplier))
    return np.clip(np.nan_to_num(parts), 0, u)


def elbow(curves: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The share where each curve bends most.

    The curve is made non-increasing, turned over, smoothed and scaled to [0, 1]. Lines are fitted
    to the points up to each share and to those after it; the difference of their slopes counts
    relative to the median of the points up to it, plus 0.01. A curve that falls from the first
    shares on bends there: to their left it is continued by its limit at 0, which the authors' code
    does not do, so that it finds the steep end near 1 instead.

    Args:
      curves: likelihoods of `SHARES`, `[r, 99]`.
      limits: their limits at the share 0, `[r]`.

    Returns:
      Shares, `[r]`; 1 for a curve that is flat.
    """
    from scipy import ndimage  # where it is needed: it loads for long

    fallen = -np.maximum.accumulate(curves[:, ::-1], axis=1)[:, ::-1]
    fallen = ndimage.median_filter(fallen, size=(1, SMOOTHING), mode="nearest")
    spread = np.ptp(fallen, axis=1, keepdims=True)
    # Below its value at the first share, and so below 0 where the curve falls before it.
    before = np.minimum(-limits[:, None], fallen.min(axis=1, keepdims=True))
    scale = np.where(spread > 0, spread, 1)
    fallen = np.concatenate([np.repeat(before, LINE, axis=1), fallen], axis=1)
    fallen = (fallen - before) / scale
    shares = np.arange(1 - LINE, 100) / 100
    bends = np.full((len(curves), len(SHARES)), -np.inf)
    for at in range(len(SHARES) - SHORTEST_LINE):
        here = at + LINE
        # Lines do not reach below the first share, but where they would be too short.
        first = max(here + 1 - LINE, LINE) if at >= SHORTEST_LINE - 1 else here + 1 - LINE
        left, right = slice(first, here + 1), slice(here + 1, here + 1 + LINE)
        slopes = [np.polyfit(shares[side], fallen[:, side].T, 1)[0] for side in (left, right)]
        bends[:, at] = (slopes[1] - slopes[0]) / (np.median(fallen[:, left], axis=1) + 0.01)
    return np.where(spread[:, 0] > 0, SHARES[bends.argmax(axis=1)], 1.0)


def _histograms(
    p: np.ndarray, u: np.ndarray, num_bins: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of both samples in shared bins of one width, `[k]` and `[k]`."""
    scale = max(np.abs(p).max(), np.abs(u).max())
    p, u = p / scale, u / scale  # Their range is then finite.
    low, high = min(p.min(), u.min()), max(p.max(), u.max())
    if num_bins is None:
        width = p.std() * (24 * np.sqrt(np.pi) / len(p)) ** (1 / 3)
        wanted = (high - low) / max(width, (high - low) / MOST_BINS)
        num_bins = max(FEWEST_BINS, int(np.ceil(wanted)))
    edges = np.linspace(low, high, num_bins + 1)
    return np.histogram(p, edges)[0], np.histogram(u, edges)[0]
