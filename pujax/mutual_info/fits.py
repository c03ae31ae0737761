"""Density ratios that are linear in their features, fitted in closed form."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax.mutual_info import _checks, features


class RatioModel(NamedTuple):
    """A ratio `w(x) = weights . phi(x)` and the moments that it was fitted to.

    Attributes:
      weights: `[b]`, the solution of `(gram + ridge I) weights = mean`.
      gram: mean of `phi phi'` over p(x), without the ridge, `[b, b]`.
      mean: mean of `phi` over the positives, `[b]`.
      centers: centres of the Gaussian features, `[b, dim]`; None where the points are the
        features.
      sigma: width of the Gaussian features; None where the points are the features.
      ridge: the ridge.
    """

    weights: jax.Array
    gram: jax.Array
    mean: jax.Array
    centers: jax.Array | None
    sigma: float | jax.Array | None
    ridge: float | jax.Array


def fit_gaussian_ratio(
    positives: ArrayLike,
    unlabeled: ArrayLike,
    centers: ArrayLike,
    *,
    sigma: float | jax.Array,
    ridge: float | jax.Array,
) -> RatioModel:
    """Fit `p(x|+1) / p(x)` by Gaussian features, minimising `J_PU + ridge / 2 |weights|^2`.

    A Cholesky solve; cost `O(n b^2 + b^3)`, in memory of the order `[8192, b]` however many rows
    there are. Differentiable in all arguments, so a representation that makes the points can be
    trained through it. In float32 the ridge should not be below about `1e-6 b`, or the solve loses
    its digits and ends in NaN. Source: Sakai, Niu, Sugiyama, Neural Computation 33(1), 2021.

    Args:
      positives: labelled positives, `[n_p, dim]`.
      unlabeled: unlabeled examples, `[n_u, dim]`.
      centers: centres of the features, usually some of the unlabeled points, `[b, dim]`.
      sigma: width of the features, above 0.
      ridge: added to the diagonal of the Gram matrix, 0 or more.

    Returns:
      The `RatioModel`.

    Raises:
      ValueError: if shapes do not fit or a number is out of its range.
    """
    positives, unlabeled, centers = _checks.matrices(
        positives=positives, unlabeled=unlabeled, centers=centers
    )
    check_settings(sigma, ridge)
    mean = features.mean_features(positives, centers, sigma)
    _, gram = features.mean_and_gram(unlabeled, centers, sigma)
    return RatioModel(solve(gram, mean, ridge), gram, mean, centers, sigma, ridge)


def fit_linear_ratio(
    positives: ArrayLike, unlabeled: ArrayLike, *, ridge: float | jax.Array
) -> RatioModel:
    """`fit_gaussian_ratio` with the points themselves as features, such as a network's last layer.

    Append a column of ones where a constant is wanted.

    Args:
      positives: features of labelled positives, `[n_p, b]`.
      unlabeled: features of unlabeled examples, `[n_u, b]`.
      ridge: added to the diagonal of the Gram matrix, 0 or more.

    Returns:
      The `RatioModel`, whose `centers` and `sigma` are None.

    Raises:
      ValueError: if shapes do not fit or `ridge` is negative.
    """
    positives, unlabeled = _checks.matrices(positives=positives, unlabeled=unlabeled)
    _checks.check_ridge("ridge", ridge)
    mean = jnp.mean(positives, axis=0)
    product = jnp.matmul(unlabeled.T, unlabeled, precision=jax.lax.Precision.HIGHEST)
    gram = product / unlabeled.shape[0]
    return RatioModel(solve(gram, mean, ridge), gram, mean, None, None, ridge)


def ratio(model: RatioModel, points: ArrayLike) -> jax.Array:
    """The model's density ratio, which may be negative where data are few.

    Args:
      model: fitted ratio.
      points: `[n, dim]`, or features `[n, b]` for a model of `fit_linear_ratio`.

    Returns:
      The ratio at each point, `[n]`.

    Raises:
      ValueError: if `points` is not a matrix of the model's width.
    """
    if model.centers is None or model.sigma is None:
        points, weights = _checks.matrices(points=points, weights=model.weights[None])
        return jnp.matmul(points, weights[0], precision=jax.lax.Precision.HIGHEST)
    points, centers = _checks.matrices(points=points, centers=model.centers)
    return features.weighted_features(points, centers, model.sigma, model.weights)


def objective(model: RatioModel, *, short_form: bool = False) -> jax.Array:
    """The unregularised objective of a fitted model on the data that it was fitted to.

    `weights' gram weights / 2 - weights . mean`. The shorter `-weights . mean / 2` equals it only
    without a ridge; otherwise it is larger, by `ridge / 2 |weights|^2`, and the SMI too small.

    Args:
      model: fitted ratio.
      short_form: whether to use that shorter form, for comparison with code that does.

    Returns:
      The scalar objective, for `smi_from_objective`.
    """
    linear = jnp.dot(model.weights, model.mean, precision=jax.lax.Precision.HIGHEST)
    return -linear / 2 if short_form else quadratic(model.weights, model.gram) / 2 - linear


def solve(gram: jax.Array, mean: jax.Array, ridge: float | jax.Array) -> jax.Array:
    """`(gram + ridge I)^(-1) mean`, by Cholesky."""
    damped = gram + jnp.asarray(ridge, gram.dtype) * jnp.eye(gram.shape[0], dtype=gram.dtype)
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(damped), mean)


def quadratic(weights: jax.Array, gram: jax.Array) -> jax.Array:
    """`weights' gram weights` over the last axis of `weights`."""
    product = jnp.matmul(weights, gram, precision=jax.lax.Precision.HIGHEST)
    return jnp.sum(weights * product, axis=-1)


def check_settings(sigma: float | jax.Array, ridge: float | jax.Array) -> None:
    """Requires known numbers to be a width and a ridge."""
    _checks.check_width("sigma", sigma)
    _checks.check_ridge("ridge", ridge)
