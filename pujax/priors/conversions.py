"""Class prior of the unlabeled sample, class prior of the pool, and label frequency.

The three say the same thing about `n_p` labelled positives beside `n_u` unlabeled examples of which
a share `prior` is positive:
- the label frequency `c = n_p / (n_p + prior * n_u)`, the share of all positives of the pool, P and
  U together, that carry a label;
- the prior of the pool `(n_p + prior * n_u) / (n_p + n_u) = n_p / (c * (n_p + n_u))`, which is that
  of the population where P was taken out of one sample from it (one-sample data). In two-sample
  data U alone represents the population and the prior of the pool is not needed.
"""

import math

from pujax import checks


def label_frequency_from_unlabeled_prior(prior: float, *, n_p: int, n_u: int) -> float:
    """Label frequency from the share of positives in U: `n_p / (n_p + prior * n_u)`.

    Args:
      prior: share of positives in U, in [0, 1].
      n_p: labelled positives, at least 1.
      n_u: unlabeled examples, at least 1.

    Returns:
      The share of the positives of P and U together that are labelled, in (0, 1].

    Raises:
      ValueError: naming the argument that is out of its range.
    """
    _check_counts(n_p, n_u)
    checks.between("prior", prior, 0, 1)
    return n_p / (n_p + prior * n_u)


def unlabeled_prior_from_label_frequency(label_frequency: float, *, n_p: int, n_u: int) -> float:
    """Share of positives in U from the label frequency: `n_p (1 - c) / (c n_u)`, at most 1.

    An estimated label frequency can be so small that U would have to hold more positives than
    examples; everything below `n_p / (n_p + n_u)` gives 1.

    Args:
      label_frequency: share `c` of the positives of P and U together that are labelled, in (0, 1].
      n_p: labelled positives, at least 1.
      n_u: unlabeled examples, at least 1.

    Returns:
      A share in [0, 1].

    Raises:
      ValueError: naming the argument that is out of its range.
    """
    _check_counts(n_p, n_u)
    checks.between("label_frequency", label_frequency, 0, 1, include="high")
    return min(1.0, n_p * (1 - label_frequency) / (label_frequency * n_u))


def population_prior(prior: float, *, n_p: int, n_u: int) -> float:
    """Prior of the pool from the share of positives in U, for one-sample data.

    `(n_p + prior * n_u) / (n_p + n_u)`: the labelled positives were part of the sample before they
    were taken out of it.

    Args:
      prior: share of positives in U, in [0, 1].
      n_p: labelled positives, at least 1.
      n_u: unlabeled examples, at least 1.

    Returns:
      The share of positives among all `n_p + n_u` examples, in (0, 1].

    Raises:
      ValueError: naming the argument that is out of its range.
    """
    _check_counts(n_p, n_u)
    checks.between("prior", prior, 0, 1)
    return (n_p + prior * n_u) / (n_p + n_u)


def unlabeled_prior(population: float, *, n_p: int, n_u: int) -> float:
    """Share of positives in U from the prior of the pool, for one-sample data.

    `(population * (n_p + n_u) - n_p) / n_u`, the inverse of `population_prior`.

    Args:
      population: share of positives among all `n_p + n_u` examples.
      n_p: labelled positives, at least 1.
      n_u: unlabeled examples, at least 1.

    Returns:
      A share in [0, 1].

    Raises:
      ValueError: naming the argument that is out of its range, also where the prior leaves fewer
        positives in the pool than are labelled.
    """
    _check_counts(n_p, n_u)
    n = n_p + n_u
    # A prior that was computed from counts may miss the least possible one by a rounding.
    is_share = checks.is_number(population) and n_p / n * (1 - 1e-9) <= population <= 1
    accepted = f"a number from {n_p / n:.6g}, the labelled share {n_p} of {n}, to 1"
    checks.require(bool(is_share), "population", population, accepted)
    return max(0.0, (population * n - n_p) / n_u)


def _check_counts(n_p: int, n_u: int) -> None:
    for name, count in (("n_p", n_p), ("n_u", n_u)):
        is_count = checks.is_number(count) and 1 <= count < math.inf
        checks.require(bool(is_count), name, count, "a number of examples, at least 1")
