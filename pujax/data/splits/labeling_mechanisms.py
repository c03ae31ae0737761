"""Labelling mechanisms: which positives tend to get a label.

Under SCAR every positive is equally likely to be labelled; under the others the chance e(x) depends
on the instance through an oracle's r(x) = p(y=1|x), see `posterior.fit`. Pure functions.
"""

from typing import NamedTuple

import numpy as np

SCAR = "scar"
# Those whose propensity has a free exponent, `data.labeling_power`.
WITH_POWER = ("power", "power_mixed", "gap", "gap_boundary")
TOP = "top"
NAMES = (SCAR, "pusb", TOP, "boundary", *WITH_POWER)
# Weights (2.5 - r)^10 of PU-Bench's "LBE-B".
_BOUNDARY_OFFSET, _BOUNDARY_POWER = 2.5, 10.0
# Of the weights of PU-Bench's "LBE-A": this share goes by r^10, the rest is equal for all.
_BIASED_SHARE = 0.9
# Floor of a relative propensity: a power may round it to 0, and then no draw could reach it.
_LEAST = 1e-300


class Report(NamedTuple):
    """How the labelled positives of a problem came about.

    The propensities e are relative to the largest one among the positives of the pool, those from
    which P was drawn; `c` is absolute.

    Attributes:
      mechanism: one of `NAMES`.
      power: exponent of the mechanism, or None where it has none.
      n_p: labelled positives.
      e_min: smallest propensity.
      e_median: median propensity.
      e_max: largest propensity.
      c: share of the pool's positives that are labelled; None where the class of an example of the
        pool is unknown.
      posterior_accuracy: of r on the training examples of known class; None under SCAR.
      within_class: the same number was labelled in every positive class, so that 'scar' holds
        within a class and e differs between classes of different sizes.
    """

    mechanism: str = SCAR
    power: float | None = None
    n_p: int = 0
    e_min: float = 1.0
    e_median: float = 1.0
    e_max: float = 1.0
    c: float | None = None
    posterior_accuracy: float | None = None
    within_class: bool = False


def propensity(posterior: np.ndarray, mechanism: str, *, power: float = 1.0) -> np.ndarray:
    """Chance e(x) of a positive to be labelled, relative to the largest one.

    With r the posterior and k the power: 'pusb' is r (Kato et al. 2019 as coded by its authors,
    where dividing by the mean first changes nothing), and so is 'top', in which only the order
    counts (PU-Bench's form of it); 'power' r^k, 'power_mixed' 0.9 of the chances
    by r^k and 0.1 equal for all, 'boundary' (2.5 - r)^10. The probabilistic gap r - (1 - r) gives
    'gap', ((1 + gap) / 2)^k, which labels what is easy, and 'gap_boundary', (1 - gap)^k, which
    labels what is hard.

    Args:
      posterior: r of the positives of the pool, `[n]`, in [0, 1].
      mechanism: one of `NAMES`.
      power: k, at least 0; only for the mechanisms in `WITH_POWER`.

    Returns:
      float64 `[n]` with maximum 1, and at least 1e-300 where a high power underflows.

    Raises:
      ValueError: for an unknown mechanism.
    """
    r = np.asarray(posterior, np.float64)
    gap = r - (1.0 - r)
    if mechanism == SCAR:
        base, power = np.ones_like(r), 1.0
    elif mechanism in ("pusb", TOP):
        base, power = r, 1.0
    elif mechanism in ("power", "power_mixed"):
        base = r
    elif mechanism == "boundary":
        base, power = _BOUNDARY_OFFSET - r, _BOUNDARY_POWER
    elif mechanism == "gap":
        base = (1.0 + gap) / 2.0
    elif mechanism == "gap_boundary":
        base = 1.0 - gap
    else:
        raise ValueError(f"data.labeling is {mechanism!r}; accepted: {', '.join(map(repr, NAMES))}")
    base = np.maximum(base, _LEAST)
    e = (base / base.max()) ** power
    if mechanism == "power_mixed":
        e = _BIASED_SHARE * e / e.sum() + (1.0 - _BIASED_SHARE) / len(e)
        e /= e.max()
    return np.maximum(e, _LEAST)


def draw(e: np.ndarray, count: int, *, mechanism: str, rng: np.random.Generator) -> np.ndarray:
    """Draws exactly `count` of the positives according to their propensities.

    'pusb' keeps each with probability e, shuffles, and takes the first. 'top' takes the largest,
    of equal ones the first. 'gap' and 'gap_boundary'
    scale e to probabilities that add up to `count` and draw so that these are exactly the chances
    of inclusion, which is what p(s=1|x, y=1) = kappa e(x) says (see `inclusion`). The others draw
    one after the other without replacement, each time with chances proportional to e.

    Args:
      e: `[n]`, in (0, 1], see `propensity`.
      count: how many.
      mechanism: one of `NAMES`.
      rng: random numbers.

    Returns:
      int `[count]`, distinct positions in `e`; fewer where 'pusb' kept fewer.
    """
    if mechanism == "pusb":
        return rng.permutation(np.flatnonzero(rng.uniform(size=len(e)) < e))[:count]
    if mechanism == TOP:
        return np.argsort(-e, kind="stable")[:count]
    if mechanism in ("gap", "gap_boundary"):
        # Systematic sampling in random order: points one apart on the cumulated chances.
        order = rng.permutation(len(e))
        ends = np.cumsum(inclusion(e, count)[order])
        points = rng.uniform() + np.arange(count)
        return order[np.minimum(np.searchsorted(ends, points, side="right"), len(e) - 1)]
    # The largest of log e plus Gumbel noise are a successive draw without replacement.
    return np.argsort(-(np.log(e) + rng.gumbel(size=len(e))), kind="stable")[:count]


def inclusion(e: np.ndarray, count: int) -> np.ndarray:
    """Scales propensities to `min(1, kappa e)` with kappa such that they add up to `count`.

    Args:
      e: `[n]`, positive.
      count: at most `n`.

    Returns:
      float64 `[n]`, probabilities of being labelled.
    """
    ordered = np.sort(e)[::-1]
    rest = np.cumsum(ordered[::-1])[::-1]  # sum of an element and all smaller ones
    # The fewest certain ones that leave the largest other with a chance of at most 1.
    left = count - np.arange(count)
    sure = int(np.argmax(left * ordered[:count] <= rest[:count]))
    return np.minimum(left[sure] / rest[sure] * e, 1.0)


def report(
    binary: np.ndarray,
    labeled: np.ndarray,
    passed_over: np.ndarray,
    *,
    mechanism: str,
    power: float,
    posterior: np.ndarray | None,
    classes: np.ndarray | None = None,
) -> Report:
    """What a run says about its labelling.

    Args:
      binary: int `[n]`, true classes, -1 where unknown.
      labeled: rows of P.
      passed_over: the other rows that P was drawn from, mostly U without copies of P.
      mechanism: that drew them.
      power: of the mechanism.
      posterior: r of every row, `[n]`; None under 'scar'.
      classes: int `[n]`, class ids, where 'scar' drew the same number from every positive class;
        None where it did not look at the class.

    Returns:
      A `Report`.
    """
    pool = np.concatenate([labeled, passed_over])
    is_known = bool((binary[pool] >= 0).all())
    pool = pool[binary[pool] == 1]
    n_p = len(labeled)
    result = Report(mechanism=mechanism, n_p=n_p, c=n_p / len(pool) if is_known else None)
    if mechanism == SCAR:
        if classes is None or len(np.unique(classes[pool])) == 1:
            return result
        _, which, sizes = np.unique(classes[pool], return_inverse=True, return_counts=True)
        shares = np.bincount(which[np.isin(pool, labeled)], minlength=len(sizes)) / sizes
        return _with_propensities(result, shares[which])._replace(within_class=True)
    assert posterior is not None  # every other mechanism goes by it
    e = propensity(posterior[pool], mechanism, power=power)
    if mechanism == TOP:  # nothing is left to chance
        e = np.isin(pool, labeled).astype(np.float64)
    known = binary >= 0
    return _with_propensities(result, e)._replace(
        power=power if mechanism in WITH_POWER else None,
        posterior_accuracy=float(np.mean((posterior[known] > 0.5) == (binary[known] == 1))),
    )


def _with_propensities(result: Report, e: np.ndarray) -> Report:
    """The report with the smallest, median and largest e, relative to the largest."""
    e = e / e.max()
    return result._replace(e_min=float(e.min()), e_median=float(np.median(e)), e_max=float(e.max()))
