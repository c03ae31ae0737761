"""Width and ridge by cross-validation on the unregularised objective."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import arrays, checks
from pujax.mutual_info import _checks, features, fits, supervised


class CrossValidation(NamedTuple):
    """The settings of least held-out objective, and all scores.

    Attributes:
      sigma: best width, a scalar.
      ridge: best ridge, a scalar.
      scores: held-out objective, the mean over the folds, `[num_sigmas, num_ridges]`; NaN where
        a fit failed.
    """

    sigma: jax.Array
    ridge: jax.Array
    scores: jax.Array


class _Moments(NamedTuple):
    """Means over each fold: features `[k, b]`, their products `[k, b, b]`, and rows `[k]`."""

    mean: jax.Array
    gram: jax.Array
    sizes: jax.Array


def cross_validate(
    positives: ArrayLike,
    unlabeled: ArrayLike,
    centers: ArrayLike,
    *,
    sigmas: ArrayLike,
    ridges: ArrayLike,
    key: jax.Array,
    num_folds: int = 5,
) -> CrossValidation:
    """Choose the settings of `fit_gaussian_ratio` by cross-validation.

    Positives and unlabeled examples are split into folds apart. For each fold, weights fitted to
    the others are scored by `weights' gram weights / 2 - weights . mean` on the fold. Features are
    computed once per width, in the memory of `fit_gaussian_ratio`.

    Args:
      positives: labelled positives, `[n_p, dim]`.
      unlabeled: unlabeled examples, `[n_u, dim]`.
      centers: centres of the features, `[b, dim]`.
      sigmas: widths to try, `[num_sigmas]`.
      ridges: ridges to try, `[num_ridges]`.
      key: random key of the folds.
      num_folds: number of folds, from 2 to the size of the smaller sample.

    Returns:
      A `CrossValidation`; the first of equally good settings.

    Raises:
      ValueError: if shapes do not fit or a number is out of its range.
    """
    positives, unlabeled, centers = _checks.matrices(
        positives=positives, unlabeled=unlabeled, centers=centers
    )
    sigmas, ridges = _checked_grid(sigmas, ridges, positives.dtype)
    folds_p, folds_u = _folds(key, num_folds, positives=positives, unlabeled=unlabeled)

    def score(sigma: jax.Array) -> jax.Array:
        """Held-out objectives of the ridges, `[num_ridges]`."""
        of_p = _moments(positives, centers, sigma, folds_p)
        of_u = _moments(unlabeled, centers, sigma, folds_u)
        return _reduced_scores(of_p.mean, of_u.gram, _others(of_p).mean, _others(of_u).gram, ridges)

    return _best(sigmas, ridges, jax.lax.map(score, sigmas))


def cross_validate_pn(
    positives: ArrayLike,
    negatives: ArrayLike,
    centers: ArrayLike,
    *,
    prior: float | jax.Array,
    sigmas: ArrayLike,
    ridges: ArrayLike,
    key: jax.Array,
    num_folds: int = 5,
    two_output: bool = False,
) -> CrossValidation:
    """Choose the settings of `fit_gaussian_pn` or `fit_gaussian_two_output` by cross-validation.

    Args:
      positives: `[n_p, dim]`.
      negatives: `[n_n, dim]`.
      centers: centres of the features, `[b, dim]`.
      prior: share of positives in the population.
      sigmas: widths to try, `[num_sigmas]`.
      ridges: ridges to try, `[num_ridges]`.
      key: random key of the folds.
      num_folds: number of folds, from 2 to the size of the smaller sample.
      two_output: whether to score the two-output objective instead of the reduced one.

    Returns:
      A `CrossValidation`; the first of equally good settings.

    Raises:
      ValueError: if shapes do not fit or a number is out of its range.
    """
    positives, negatives, centers = _checks.matrices(
        positives=positives, negatives=negatives, centers=centers
    )
    arrays.check_share("prior", prior)
    sigmas, ridges = _checked_grid(sigmas, ridges, positives.dtype)
    folds_p, folds_n = _folds(key, num_folds, positives=positives, negatives=negatives)

    def score(sigma: jax.Array) -> jax.Array:
        """Held-out objectives of the ridges, `[num_ridges]`."""
        of_p = _moments(positives, centers, sigma, folds_p)
        of_n = _moments(negatives, centers, sigma, folds_n)
        rest_p, rest_n = _others(of_p), _others(of_n)
        gram = supervised.mixture(prior, of_p.gram, of_n.gram)
        rest_gram = supervised.mixture(prior, rest_p.gram, rest_n.gram)
        if not two_output:
            return _reduced_scores(of_p.mean, gram, rest_p.mean, rest_gram, ridges)
        shares = supervised.class_shares(prior, gram.dtype)
        means = jnp.stack([of_p.mean, of_n.mean], axis=1)
        rest_means = jnp.stack([rest_p.mean, rest_n.mean], axis=1)

        def one(means, gram, rest_means, rest_gram, ridge):
            weights = supervised.solve_two_output(rest_gram, rest_means, shares, ridge)
            linear = jnp.sum(weights * means, axis=1)
            return jnp.sum(shares * (fits.quadratic(weights, gram) / 2 - linear))

        return _over_folds_and_ridges(one, (means, gram, rest_means, rest_gram), ridges)

    return _best(sigmas, ridges, jax.lax.map(score, sigmas))


def _reduced_scores(mean, gram, rest_mean, rest_gram, ridges: jax.Array) -> jax.Array:
    """Held-out objective of weights fitted to the rest, for each ridge, `[num_ridges]`."""

    def one(mean, gram, rest_mean, rest_gram, ridge):
        weights = fits.solve(rest_gram, rest_mean, ridge)
        linear = jnp.dot(weights, mean, precision=jax.lax.Precision.HIGHEST)
        return fits.quadratic(weights, gram) / 2 - linear

    return _over_folds_and_ridges(one, (mean, gram, rest_mean, rest_gram), ridges)


def _over_folds_and_ridges(score, moments: tuple, ridges: jax.Array) -> jax.Array:
    """Means over the folds, `[num_ridges]`."""
    over_folds = jax.vmap(score, in_axes=(*(0 for _ in moments), None))
    scores = jax.vmap(lambda ridge: over_folds(*moments, ridge))(ridges)
    return jnp.mean(scores, axis=1)


def _best(sigmas: jax.Array, ridges: jax.Array, scores: jax.Array) -> CrossValidation:
    # A fit that became NaN by rounding is never chosen, unless all are.
    best = jnp.argmin(jnp.where(jnp.isnan(scores), jnp.inf, scores))
    return CrossValidation(sigmas[best // ridges.size], ridges[best % ridges.size], scores)


def _moments(
    points: jax.Array, centers: jax.Array, sigma: jax.Array, folds: list[jax.Array]
) -> _Moments:
    over_folds = jax.vmap(features.mean_and_gram, in_axes=(0, None, None))
    parts = [over_folds(points[rows], centers, sigma) for rows in folds]
    means, grams = (jnp.concatenate(parts) for parts in zip(*parts, strict=True))
    sizes = np.concatenate([np.full(rows.shape[0], rows.shape[1]) for rows in folds])
    return _Moments(means, grams, jnp.asarray(sizes, points.dtype))


def _others(moments: _Moments) -> _Moments:
    """For each fold, the means over all other folds."""

    def others(means: jax.Array) -> jax.Array:
        weights = (1 - jnp.eye(len(means), dtype=means.dtype)) * moments.sizes
        weights /= jnp.sum(weights, axis=1, keepdims=True)
        return jnp.tensordot(weights, means, axes=1, precision=jax.lax.Precision.HIGHEST)

    sizes = jnp.sum(moments.sizes) - moments.sizes
    return _Moments(others(moments.mean), others(moments.gram), sizes)


def _folds(key: jax.Array, num_folds: int, **samples: jax.Array) -> list[list[jax.Array]]:
    """Rows of the folds of each sample: the larger `[i, size]`, then those of one row less."""
    arrays.check_key(key)
    checks.whole_number("num_folds", num_folds, 2)
    folds = []
    for index, (name, points) in enumerate(samples.items()):
        n = points.shape[0]
        if num_folds > n:
            raise ValueError(
                f"num_folds is {num_folds}, but must be from 2 to the number of {name}, {n}"
            )
        order = jax.random.permutation(jax.random.fold_in(key, index), n)
        size, num_larger = divmod(n, num_folds)
        larger = order[: num_larger * (size + 1)].reshape(num_larger, size + 1)
        smaller = order[num_larger * (size + 1) :].reshape(-1, size)
        folds.append([larger, smaller] if num_larger else [smaller])
    return folds


def _checked_grid(
    sigmas: ArrayLike, ridges: ArrayLike, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    grids = []
    for name, values, check in (
        ("sigmas", sigmas, _checks.check_width),
        ("ridges", ridges, _checks.check_ridge),
    ):
        grid = arrays.real(name, values)
        if grid.ndim != 1 or grid.size == 0:
            raise ValueError(f"{name} has shape {grid.shape}, but must be [n] with n above 0")
        check(name, grid, (grid.shape,))
        grids.append(grid.astype(dtype))
    return grids[0], grids[1]
