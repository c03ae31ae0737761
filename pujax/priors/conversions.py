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
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from pujax import arrays, checks

Number = TypeVar("Number", bound=float | jax.Array)
"""A float, or a scalar of JAX, traced or not, through which `jax.grad` goes."""


def label_frequency_from_unlabeled_prior(prior: Number, *, n_p: int, n_u: int) -> Number:
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
    _check_share("prior", prior)
    frequency: Any = n_p / (n_p + _precise(prior) * n_u)
    return frequency


def unlabeled_prior_from_label_frequency(label_frequency: Number, *, n_p: int, n_u: int) -> Number:
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
    _check_share("label_frequency", label_frequency, include="high")
    frequency: Any = _precise(label_frequency)
    share: Any = n_p * (1 - frequency) / (frequency * n_u)
    at_most_one: Any = jnp.minimum(share, 1) if isinstance(share, jax.Array) else min(1.0, share)
    return at_most_one


def population_prior(prior: Number, *, n_p: int, n_u: int) -> Number:
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
    _check_share("prior", prior)
    population: Any = (n_p + _precise(prior) * n_u) / (n_p + n_u)
    return population


def unlabeled_prior(population: Number, *, n_p: int, n_u: int) -> Number:
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
    if arrays.on_host(population) is not None:
        # A prior that was computed from counts may miss the least possible one by a rounding.
        is_share = checks.is_number(population) and n_p / n * (1 - 1e-9) <= population <= 1
        accepted = f"a number from {n_p / n:.6g}, the labelled share {n_p} of {n}, to 1"
        checks.require(bool(is_share), "population", population, accepted)
    share: Any = (_precise(population) * n - n_p) / n_u
    not_below: Any = jnp.maximum(share, 0) if isinstance(share, jax.Array) else max(0.0, share)
    return not_below


def _precise(value: Any) -> Any:
    """The number in at least float32: counts have more digits than the short types."""
    if isinstance(value, np.floating | np.ndarray):
        return np.asarray(value, np.float64)[()]
    return arrays.full_precision(value) if isinstance(value, jax.Array) else value


def _check_share(name: str, value: Any, *, include: str = "both") -> None:
    """Requires a number between 0 and 1 where it is known."""
    if arrays.on_host(value) is not None:
        checks.between(name, value, 0, 1, include=include)


def _check_counts(n_p: int, n_u: int) -> None:
    for name, count in (("n_p", n_p), ("n_u", n_u)):
        is_count = checks.is_number(count) and 1 <= count < math.inf
        checks.require(bool(is_count), name, count, "a number of examples, at least 1")
