"""Scores of a classifier of P against U on rows that it was not trained on."""

import math
from typing import NamedTuple

import numpy as np

from pujax.audit.base import Problem
from pujax.priors import PriorEstimate, best_bin, held_out_scores

Z = 1.64
"""Of one-sided 95 %, for ends of intervals."""
MOST = 10_000
"""Rows of P, and of U, that classifiers see; drawn at random where there are more."""


class Scores(NamedTuple):
    """Held-out scores.

    Attributes:
      values: float64 `[m]`, balanced probabilities of being labelled.
      labeled: bool `[m]`.
    """

    values: np.ndarray
    labeled: np.ndarray


def held_out(problem: Problem, *, seed: int) -> Scores:
    """Scores of one half of P and of U by a classifier that was trained on the other half.

    Args:
      problem: at least 4 rows of P and of U.
      seed: of the halves and the classifier, which is that of `pujax.priors.held_out_scores`.
    """
    p, u = samples(problem, seed=seed)
    found = held_out_scores(p, u, key=seed)
    values = np.concatenate([found.scores_positive, found.scores_unlabeled])
    return Scores(values, np.arange(len(values)) < len(found.scores_positive))


def samples(problem: Problem, *, seed: int, most: int = MOST) -> tuple[np.ndarray, np.ndarray]:
    """P `[m, d]` and U `[n, d]`, of which at most `most` rows are drawn each."""
    rng = np.random.default_rng([seed, 2])
    parts = []
    for rows in (np.flatnonzero(problem.labeled), np.flatnonzero(~problem.labeled)):
        if len(rows) > most:
            rows = np.sort(rng.choice(rows, most, replace=False))
        parts.append(problem.features[rows])
    return parts[0], parts[1]


def auc_by_chance(labeled: np.ndarray) -> float:
    """The AUC that scores without a meaning pass with a probability of 5 % (normal approximation).

    The variance of the AUC is then `(p + u + 1) / (12 p u)` (Mann and Whitney 1947).

    Args:
      labeled: bool `[m]`, with rows of P and of U.
    """
    num_p = int(labeled.sum())
    num_u = len(labeled) - num_p
    return 0.5 + Z * math.sqrt((num_p + num_u + 1) / (12 * num_p * num_u))


def largest_prior(scores: Scores) -> float:
    """The share of positives in U by the best bin of the scores, an upper bound but for chance."""
    found: PriorEstimate = best_bin(
        scores.values[scores.labeled], scores.values[~scores.labeled], num_resamples=0
    )
    return found.value
