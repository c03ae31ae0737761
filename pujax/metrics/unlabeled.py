"""What held-out scores of P and U say about a binary classifier when no negative is known.

Every number follows from the scores of the positives, those of U, and the prior. Positives are
labelled completely at random (SCAR): held-out P is a random sample of all positives. With `recall`
the share of positives above the threshold, `flagged` the share of the rows above it, and `prior`
the share of positives among the same rows,

    false positive rate = (flagged - prior recall) / (1 - prior)
    precision           = prior recall / flagged
    AUC                 = (AUC of P against U - prior / 2) / (1 - prior)

Sources: Lee and Liu 2003, "Learning with positive and unlabeled examples using weighted logistic
regression" (the criterion `recall^2 / flagged`); Menon et al. 2015, "Learning from corrupted binary
labels via class-probability estimation", and Jain, White and Radivojac 2017, "Recovering true
classifier performance in positive-unlabeled learning" (the formulas above).

The prior that functions take is that of U. In two-sample data U is a sample of the population. In
one-sample data P was taken out of it: the population is P and U together, and its prior is larger.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy import typing as npt

from pujax import checks
from pujax.metrics import _arguments, _resampling

_NUM_PRIORS = 9
"""Priors of an interval at which every number is computed, its ends among them."""

_ROUNDING = 1e-9
"""How far out of [0, 1] a number may be and not be called clipped."""

_ASSUMPTIONS = {
    "recall": "Of all positives, if the labelled ones are a random sample of them (SCAR).",
    "flagged_share": "Of the rows of U, which hold {prior} positives; a classifier without error "
    "flags just that share.",
    "auc_pu": "Of P against U, whose hidden positives count as negatives; nothing is assumed.",
    "auc": "Of positives against negatives, if SCAR holds and U holds {prior} positives.",
    "precision": "Of the flagged rows of U, if SCAR holds and U holds {prior} positives.",
    "precision_top": "Of the {top} rows of U with the highest scores, if SCAR holds and U holds "
    "{prior} positives.",
    "lee_liu": "Of {population}, if SCAR holds: recall^2 / share flagged, which orders classifiers "
    "as the product of recall and precision does and needs no prior.",
    "accuracy": "Of {population}, if SCAR holds and U holds {prior} positives.",
    "f1": "Of {population}, if SCAR holds and U holds {prior} positives.",
}
_POPULATIONS = {
    "one_sample": "the population, which is P and U together (the same share of both held out)",
    "two_sample": "the population, of which U is a sample",
}


class Estimate(NamedTuple):
    """One number, its interval, and what has to hold for it to be true.

    Attributes:
      name: short name, such as 'recall' or 'precision_top_100'.
      value: the estimate; NaN where it cannot be known.
      low: lower end of the interval; NaN where `value` is, or where no resamples were asked for.
      high: upper end.
      assumption: one sentence: which rows the number speaks of, and what it rests on.
    """

    name: str
    value: float
    low: float
    high: float
    assumption: str


def auc_from_auc_pu(auc_pu: npt.ArrayLike, prior: float) -> np.ndarray:
    """AUC of positives against negatives from that of P against U.

    `AUC_PU = (1 - prior) AUC + prior / 2`: a random row of U is a positive with probability `prior`
    and then outscores a random positive half of the time (Menon et al. 2015; Jain et al. 2017).

    Args:
      auc_pu: area under the curve of P against U, any shape.
      prior: share of positives in U, in (0, 1).

    Returns:
      The area, of the same shape, clipped to [0, 1].

    Raises:
      ValueError: if `auc_pu` is no array of real numbers or `prior` is not in (0, 1).
    """
    checks.between("prior", prior, 0, 1, include="neither")
    areas = checks.real_numbers("auc_pu", auc_pu, "numbers").astype(np.float64, copy=False)
    return np.clip(_auc(areas, prior), 0, 1)


def largest_prior(
    positive_scores: npt.ArrayLike,
    unlabeled_scores: npt.ArrayLike,
    *,
    threshold: float = 0.0,
    level: float | None = None,
    num_resamples: int = 1000,
    seed: int = 0,
) -> float:
    """Largest share of positives in U that the scores leave room for.

    The rows of U above a threshold hold its positives there, so that the share is at most their
    share divided by the recall; and `AUC_PU = (1 - prior) AUC + prior / 2` with an AUC of at most
    1 leaves `prior <= 2 (1 - AUC_PU)`. With a larger prior some estimate of `unlabeled_estimates`
    would leave [0, 1] and is clipped.

    Without a level this is the bound of the sample, which the true share exceeds often by chance
    alone where few rows are held out. With one it is an upper end: of each of the two bounds the
    quantile at `(1 + level) / 2` of the Bayesian bootstrap of `unlabeled_estimates`, and the
    smaller of the two, so that both together are exceeded by the true share in about `1 - level` of
    all samples at most (Bonferroni).

    Args:
      positive_scores: `[m]`, of held-out labelled positives.
      unlabeled_scores: `[n]`, of held-out unlabeled rows.
      threshold: rows are flagged iff their score is above it.
      level: of the upper end, in (0, 1); None is the bound of the sample.
      num_resamples: of the bootstrap, from 1; not used without a level.
      seed: of the bootstrap.

    Returns:
      A number in [0, 1]; NaN without P or U, or with scores that are not a number.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    checks.between("threshold", threshold, -math.inf, math.inf)
    if level is not None:
        checks.between("level", level, 0, 1, include="neither")
        checks.whole_number("num_resamples", num_resamples, 1)
    checks.whole_number("seed", seed, 0)
    p = _scores("positive_scores", positive_scores)
    u = _scores("unlabeled_scores", unlabeled_scores)
    if not len(p) or not len(u):
        return math.nan
    drawn = _resampling.draw(
        p,
        u,
        threshold=threshold,
        top=(),
        num_resamples=0 if level is None else num_resamples,
        rng=np.random.default_rng(seed),
    )
    by_threshold = np.full_like(drawn.recall, 1.0)  # nothing follows where no positive is found
    np.divide(drawn.flagged, drawn.recall, out=by_threshold, where=drawn.recall > 0)
    bounds = np.minimum([by_threshold, 2 * (1 - drawn.auc_pu)], 1)
    if level is None:
        return float(bounds[:, 0].min())
    return float(np.quantile(bounds[:, 1:], (1 + level) / 2, axis=1).min())


def unlabeled_estimates(
    positive_scores: npt.ArrayLike,
    unlabeled_scores: npt.ArrayLike,
    *,
    prior: float | None,
    setting: str,
    prior_interval: tuple[float, float] | None = None,
    labeled_share: float | None = None,
    threshold: float = 0.0,
    top: Sequence[int] = (100,),
    num_resamples: int = 1000,
    level: float = 0.9,
    seed: int = 0,
) -> tuple[Estimate, ...]:
    """All that can be known about a classifier without a negative, with intervals.

    In this order: `recall`; `flagged_share`, of U; `auc_pu` and `auc`; `precision` of the flagged
    rows of U and `precision_top_K` for each K of `top`; `lee_liu`, `accuracy` and `f1` of the
    population. Rates that noise, or a wrong prior, carries out of [0, 1] are clipped to it, and
    the sentence of such an estimate says so. Where several rows of U have the score of the K-th,
    those of them that are among the top K are drawn at random.

    Intervals are percentiles of a Bayesian bootstrap (Rubin 1981), stratified over P and U: random
    weights instead of counts, and to each sample half an example added below all scores and half an
    example above them. The share above a threshold then has Jeffreys' interval. The ordinary
    bootstrap is sure of a recall of 1 as soon as all of ten positives are found, and covered less
    than it states (measured in `docs/results/probabilities.md`). All intervals are of the
    distribution that rows are drawn from, but that of the top K rows: it is of those K rows, and
    holds the chance of their labels as well.

    With `prior_interval` an interval is the union of those at nine evenly spaced priors from one
    end to the other, and at `prior`.

    Args:
      positive_scores: `[m]`, of held-out labelled positives; infinite scores are allowed.
      unlabeled_scores: `[n]`, of held-out unlabeled rows.
      prior: share of positives in U, in (0, 1); None or NaN if it is not known.
      setting: 'one_sample' or 'two_sample', how the data were collected.
      prior_interval: two numbers in (0, 1) with `prior` between them; NaN ends are no interval.
      labeled_share: of one-sample data, the share of labelled positives among all rows, in [0, 1);
        None is `m / (m + n)`, for the same share of P and of U held out.
      threshold: rows are flagged iff their score is above it.
      top: numbers of rows, each from 1.
      num_resamples: of the bootstrap; 0 gives no intervals.
      level: share of the resamples between the ends of an interval.
      seed: of the bootstrap.

    Returns:
      A tuple of `Estimate`. Value and ends are NaN where a number cannot be known: without a prior,
      without P or U, with scores that are not a number, without a flagged row (precision, Lee and
      Liu), or where U has fewer than K rows.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    p = _scores("positive_scores", positive_scores)
    u = _scores("unlabeled_scores", unlabeled_scores)
    priors = _priors(prior, prior_interval)
    checks.one_of("setting", setting, _POPULATIONS)
    checks.between("threshold", threshold, -math.inf, math.inf)
    checks.whole_number("num_resamples", num_resamples, 0)
    checks.between("level", level, 0, 1, include="neither")
    checks.whole_number("seed", seed, 0)
    if labeled_share is not None:
        checks.between("labeled_share", labeled_share, 0, 1, include="low")
    checks.require(isinstance(top, Sequence | np.ndarray), "top", top, "numbers of rows, from 1")
    for k in top:
        checks.whole_number("top", k, 1)

    drawn = _resampling.draw(
        p,
        u,
        threshold=threshold,
        top=top,
        num_resamples=num_resamples,
        rng=np.random.default_rng(seed),
    )
    labeled = 0.0
    if setting == "one_sample":
        held = len(p) / max(len(p) + len(u), 1)
        labeled = held if labeled_share is None else labeled_share
    formulas = _Formulas(drawn, labeled, tuple(top))
    numbers = _numbers(formulas, priors, level, num_rows=len(u), seed=seed)
    unclipped = formulas.unclipped(priors[0])
    return tuple(
        Estimate(
            name,
            *found,
            _assumption(name, priors, setting) + _clipped(name, unclipped.get(name, math.nan)),
        )
        for name, found in numbers.items()
    )


class _Formulas(NamedTuple):
    """What follows from shares of P and U, and from a prior of U, for the sample and resamples.

    Attributes:
      drawn: the shares.
      labeled: share of labelled positives in the population.
      top: numbers of rows.
    """

    drawn: _resampling.Draws
    labeled: float
    top: tuple[int, ...]

    @property
    def flagged(self) -> np.ndarray:
        """Share of the population that is flagged."""
        return self.labeled * self.drawn.recall + (1 - self.labeled) * self.drawn.flagged

    def population(self, prior: float) -> float:
        """Share of positives in the population."""
        return self.labeled + (1 - self.labeled) * prior

    def precision(self, prior: float) -> np.ndarray:
        """Of the flagged rows of U."""
        return _ratio(prior * self.drawn.recall, self.drawn.flagged)

    def precision_top(self, prior: float, i: int) -> np.ndarray:
        """Of as many rows of U as entry `i` of `top` says."""
        return _ratio(prior * self.drawn.top_recall[i], self.drawn.top_share[i])

    def unclipped(self, prior: float) -> dict[str, float]:
        """Of the sample, what the formulas of estimates that are clipped give before that."""
        rate = _false_positive_rate(self.population(prior), self.drawn.recall, self.flagged)
        found = {"auc": _auc(self.drawn.auc_pu, prior), "precision": self.precision(prior)}
        for i, k in enumerate(self.top):
            found[f"precision_top_{k}"] = self.precision_top(prior, i)
        found |= {"accuracy": rate, "f1": rate}
        return {name: values[0] for name, values in found.items()}


def _numbers(
    formulas: _Formulas, priors: Sequence[float], level: float, *, num_rows: int, seed: int
) -> dict[str, tuple[float, float, float]]:
    """Value and ends of every estimate by name, in the order of `unlabeled_estimates`.

    Args:
      formulas: by which they are computed.
      priors: as from `_priors`.
      level: share of the resamples between the ends of an interval.
      num_rows: of U.
      seed: of the labels that the top rows of a resample have.
    """
    drawn, flagged = formulas.drawn, formulas.flagged

    def known(values: np.ndarray) -> tuple[float, float, float]:
        return _interval(values, level)

    def by_prior(number: Callable[[float], np.ndarray]) -> tuple[float, float, float]:
        if math.isnan(priors[0]):
            return math.nan, math.nan, math.nan
        value, low, high = np.array([_interval(number(prior), level) for prior in priors]).T
        return float(value[0]), float(low.min()), float(high.max())

    def top_precision(i: int, k: int, prior: float) -> np.ndarray:
        precision = np.clip(formulas.precision_top(prior, i), 0, 1)
        if k <= num_rows and not np.isnan(precision).any():
            # The same numbers for every prior, and whatever else was asked for.
            precision[1:] = np.random.default_rng([seed, k]).binomial(k, precision[1:]) / k
        return precision

    def in_population(number: Callable[..., np.ndarray]) -> tuple[float, float, float]:
        return by_prior(lambda prior: number(formulas.population(prior), drawn.recall, flagged))

    named = {
        "recall": known(drawn.recall),
        "flagged_share": known(drawn.flagged),
        "auc_pu": known(drawn.auc_pu),
        "auc": by_prior(lambda prior: auc_from_auc_pu(drawn.auc_pu, prior)),
        "precision": by_prior(lambda prior: np.clip(formulas.precision(prior), 0, 1)),
    }
    for i, k in enumerate(formulas.top):
        named[f"precision_top_{k}"] = by_prior(functools.partial(top_precision, i, k))
    named["lee_liu"] = known(_ratio(drawn.recall**2, flagged))
    named["accuracy"] = in_population(_accuracy)
    named["f1"] = in_population(_f1)
    return named


def _clipped(name: str, value: float) -> str:
    """What is added to the sentence of an estimate that its formula carries out of [0, 1]."""
    if math.isnan(value) or -_ROUNDING <= value <= 1 + _ROUNDING:
        return ""
    what = "the false positive rate" if name in ("accuracy", "f1") else "this"
    return f" Clipped: with that prior {what} would be {value:.3g}."


def _auc(auc_pu: np.ndarray, prior: float) -> np.ndarray:
    return (auc_pu - prior / 2) / (1 - prior)


def _accuracy(prior: float, recall: np.ndarray, flagged: np.ndarray) -> np.ndarray:
    """Share of right predictions among rows with this prior and share flagged."""
    wrong = np.clip(_false_positive_rate(prior, recall, flagged), 0, 1)
    return prior * recall + (1 - prior) * (1 - wrong)


def _f1(prior: float, recall: np.ndarray, flagged: np.ndarray) -> np.ndarray:
    """F1 among rows with this prior and share flagged."""
    wrong = np.clip(_false_positive_rate(prior, recall, flagged), 0, 1)
    return 2 * prior * recall / (prior + prior * recall + (1 - prior) * wrong)


def _false_positive_rate(prior: float, recall: np.ndarray, flagged: np.ndarray) -> np.ndarray:
    return (flagged - prior * recall) / (1 - prior)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """A quotient that is NaN where the denominator is 0."""
    unknown = np.full_like(numerator, np.nan)
    return np.divide(numerator, denominator, out=unknown, where=denominator > 0)


def _interval(values: np.ndarray, level: float) -> tuple[float, float, float]:
    """The first number and the percentile interval of the others, which holds it."""
    value = float(values[0])
    if math.isnan(value) or len(values) == 1:
        return value, math.nan, math.nan
    low, high = np.quantile(values[1:], [(1 - level) / 2, (1 + level) / 2])
    return value, float(min(low, value)), float(max(high, value))


def _assumption(name: str, priors: Sequence[float], setting: str) -> str:
    """The sentence of one estimate, with the numbers of this call."""
    kind, _, top = name.partition("_top_")
    share = "an unknown share of" if math.isnan(priors[0]) else f"{100 * priors[0]:.3g} %"
    if len(priors) > 1:
        share += f" ({100 * min(priors):.3g} to {100 * max(priors):.3g} %)"
    return _ASSUMPTIONS[f"{kind}_top" if top else name].format(
        prior=share, population=_POPULATIONS[setting], top=top
    )


def _scores(name: str, values: npt.ArrayLike) -> np.ndarray:
    """Scores `[n]` in double precision; none if one of them is not a number."""
    array = _arguments.score_list(name, values)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; accepted: [n], one score each")
    return array[:0] if np.isnan(array).any() else array


def _priors(prior: float | None, interval: tuple[float, float] | None) -> list[float]:
    """The prior, and behind it those of its interval; NaN alone if it is not known."""
    accepted = "two numbers, or None"
    given = [0.0, 1.0] if interval is None else interval
    pair = checks.real_numbers("prior_interval", given, accepted)
    checks.require(pair.shape == (2,), "prior_interval", interval, accepted)
    ends = [] if interval is None else [float(end) for end in interval]
    if prior is None or (checks.is_number(prior) and prior != prior):  # NaN
        return [math.nan]
    checks.between("prior", prior, 0, 1, include="neither")
    if not ends or any(map(math.isnan, ends)):
        return [float(prior)]
    low, high = ends
    checks.require(
        0 < low <= prior <= high < 1,
        "prior_interval",
        interval,
        f"two numbers in (0, 1) with the prior, {prior:g}, between them",
    )
    return [float(prior), *np.linspace(low, high, _NUM_PRIORS).tolist()]
