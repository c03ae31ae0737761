"""Supervised counterparts: the same mutual information from positives and negatives."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax import arrays
from pujax.mutual_info import _checks, features, fits


class TwoOutputModel(NamedTuple):
    """Ratios `p(x, y) / (p(x) p(y)) = weights_y . phi(x)` of both classes.

    Attributes:
      weights: `[2, b]`, of positives and of negatives.
      gram: mean of `phi phi'` over p(x), without the ridge, `[b, b]`.
      means: mean of `phi` over either class, `[2, b]`.
      shares: prior of either class, `[2]`.
      centers: centres of the Gaussian features, `[b, dim]`.
      sigma: their width.
      ridge: the ridge.
    """

    weights: jax.Array
    gram: jax.Array
    means: jax.Array
    shares: jax.Array
    centers: jax.Array
    sigma: float | jax.Array
    ridge: float | jax.Array


def fit_gaussian_pn(
    positives: ArrayLike,
    negatives: ArrayLike,
    centers: ArrayLike,
    *,
    prior: float | jax.Array,
    sigma: float | jax.Array,
    ridge: float | jax.Array,
) -> fits.RatioModel:
    """Supervised counterpart of `fit_gaussian_ratio`, minimising `pn_objective` with the ridge.

    Args:
      positives: `[n_p, dim]`.
      negatives: `[n_n, dim]`.
      centers: centres of the features, `[b, dim]`.
      prior: share of positives in the population.
      sigma: width of the features, above 0.
      ridge: added to the diagonal of the Gram matrix, 0 or more.

    Returns:
      The `RatioModel`; its `objective` is a `pn_objective`.

    Raises:
      ValueError: if shapes do not fit or a number is out of its range.
    """
    means, gram, centers = _class_moments(positives, negatives, centers, prior, sigma, ridge)
    mean = means[0]
    return fits.RatioModel(fits.solve(gram, mean, ridge), gram, mean, centers, sigma, ridge)


def fit_gaussian_two_output(
    positives: ArrayLike,
    negatives: ArrayLike,
    centers: ArrayLike,
    *,
    prior: float | jax.Array,
    sigma: float | jax.Array,
    ridge: float | jax.Array,
) -> TwoOutputModel:
    """Least-squares mutual information with one ratio per class.

    `weights_y = (p(y) gram + ridge I)^(-1) p(y) mean_y`. It estimates the same SMI as
    `fit_gaussian_pn`, whose one ratio fixes the other through `t r_+ + (1 - t) r_- = 1`.

    Args:
      positives: `[n_p, dim]`.
      negatives: `[n_n, dim]`.
      centers: centres of the features, `[b, dim]`.
      prior: share of positives in the population.
      sigma: width of the features, above 0.
      ridge: added to the diagonal, 0 or more.

    Returns:
      The `TwoOutputModel`, whose SMI is `-two_output_objective(model) - 1/2`.

    Raises:
      ValueError: if shapes do not fit or a number is out of its range.
    """
    means, gram, centers = _class_moments(positives, negatives, centers, prior, sigma, ridge)
    shares = class_shares(prior, gram.dtype)
    weights = solve_two_output(gram, means, shares, ridge)
    return TwoOutputModel(weights, gram, means, shares, centers, sigma, ridge)


def two_output_objective(model: TwoOutputModel) -> jax.Array:
    """The unregularised objective of a two-output model on its own data; SMI is `-J - 1/2`.

    `sum_y p(y) (weights_y' gram weights_y / 2 - weights_y . mean_y)`.

    Args:
      model: fitted ratios.

    Returns:
      The scalar objective.
    """
    linear = jnp.sum(model.weights * model.means, axis=1)
    return jnp.sum(model.shares * (fits.quadratic(model.weights, model.gram) / 2 - linear))


def solve_two_output(
    gram: jax.Array, means: jax.Array, shares: jax.Array, ridge: float | jax.Array
) -> jax.Array:
    """Weights `[2, b]` of both classes."""
    return jax.vmap(lambda mean, share: fits.solve(share * gram, share * mean, ridge))(
        means, shares
    )


def mixture(prior: float | jax.Array, positive: jax.Array, negative: jax.Array) -> jax.Array:
    """Moment of the population from the moments of its classes."""
    prior = jnp.asarray(prior, positive.dtype)
    return prior * positive + (1 - prior) * negative


def class_shares(prior: float | jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Priors of positives and of negatives, `[2]`."""
    prior = jnp.asarray(prior, dtype)
    return jnp.stack([prior, 1 - prior])


def _class_moments(
    positives: ArrayLike,
    negatives: ArrayLike,
    centers: ArrayLike,
    prior: float | jax.Array,
    sigma: float | jax.Array,
    ridge: float | jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Feature means of both classes `[2, b]`, the Gram matrix of their mixture, and the centres."""
    positives, negatives, centers = _checks.matrices(
        positives=positives, negatives=negatives, centers=centers
    )
    arrays.check_share("prior", prior)
    fits.check_settings(sigma, ridge)
    mean_p, gram_p = features.mean_and_gram(positives, centers, sigma)
    mean_n, gram_n = features.mean_and_gram(negatives, centers, sigma)
    return jnp.stack([mean_p, mean_n]), mixture(prior, gram_p, gram_n), centers
