"""Class priors of a PU problem: counted where the truth allows it, checked where they are given."""

import math
from typing import NamedTuple

import numpy as np


class Priors(NamedTuple):
    """Shares of positives and where they come from.

    Attributes:
      population: in the population; NaN where it is unknown.
      unlabeled: in U.
      source: words for a report.
    """

    population: float
    unlabeled: float
    source: str


AUTO = "auto"
"""Value of `data.prior` that leaves the prior to be estimated before training."""

UNKNOWN = Priors(math.nan, math.nan, "unknown")


def counted(truth: np.ndarray, *, n_p: int, setting: str) -> Priors:
    """Counts the priors in the true classes.

    Where some classes are unknown, those of known class have to stand for all, and P is subtracted
    from the count that follows for all. That needs positives and negatives of known class in U:
    where every known positive is labelled, or no negative is known, which classes are known says
    how the data were collected and nothing about the population.

    Args:
      truth: int `[n]`, true classes of the distinct training examples, 1, 0 or -1 (unknown).
      n_p: how many of them are labelled positives.
      setting: 'one_sample' or 'two_sample'.

    Returns:
      `Priors`, or `UNKNOWN`.
    """
    n, known, positives = len(truth), int((truth >= 0).sum()), int((truth == 1).sum())
    if known < n and not n_p < positives < known:
        return UNKNOWN
    source = "counted in the source" if known == n else "counted among the known classes"
    in_all = positives * n / known
    shifted = (in_all - n_p) / (n - n_p) if setting == "one_sample" else positives / known
    return Priors(positives / known, shifted, source)


def drawn(truth: np.ndarray, labeled: np.ndarray, *, setting: str) -> Priors:
    """The priors of a U that was drawn with a share of positives chosen in advance.

    Args:
      truth: int `[n]`, true classes of P and U, which share no example, 1 or 0.
      labeled: bool `[n]`, True in P.
      setting: 'one_sample', where the population is P and U together, or 'two_sample', where it is
        U alone.

    Returns:
      `Priors`.
    """
    in_u, in_all = float(np.mean(truth[~labeled])), float(np.mean(truth))
    population = in_all if setting == "one_sample" else in_u
    return Priors(population, in_u, "drawn with data.class_prior")


def given(
    prior: float,
    *,
    n_p: int,
    n: int,
    setting: str,
    repeats_labeled: bool = True,
    where: str = "training",
) -> Priors:
    """Checks a given prior against the counts of a sample.

    Args:
      prior: share of positives in the population, in (0, 1).
      n_p: labelled positives of the sample.
      n: its distinct examples, P among them.
      setting: 'one_sample' or 'two_sample'.
      repeats_labeled: whether U of two-sample data holds P too, and so at least its positives.
      where: name of the sample in the message.

    Returns:
      `Priors`.

    Raises:
      ValueError: if it leaves fewer positives than are labelled.
    """
    one_sample = setting == "one_sample"
    if not one_sample and not repeats_labeled:
        return Priors(prior, prior, "given")
    # U, which in two-sample data holds P too, may have no other positives there; rounding aside.
    enough = prior * n > n_p if one_sample else prior * n >= n_p * (1 - 1e-9)
    if not enough:
        raise ValueError(
            f"data.prior is {prior}, which is {prior * n:.4g} positives among the {n} {where} "
            f"examples, where {n_p} positives are labelled; accepted: a number "
            f"{'above' if one_sample else 'of at least'} {n_p / n:.4f} and below 1, or fewer "
            f"labels ({setting} data)"
        )
    return Priors(prior, (prior * n - n_p) / (n - n_p) if one_sample else prior, "given")
