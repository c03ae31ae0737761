"""Complete estimates of the mutual information: centres, width and ridge chosen from the data."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax import arrays, checks
from pujax.mutual_info import _checks, features, fits, objectives, selection, supervised

RELATIVE_SIGMAS = (0.3, 0.6, 1.0, 2.0)
"""Widths to try, in units of the median distance; the paper names no grid."""
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
"""Ridges to try."""


class SmiEstimate(NamedTuple):
    """An estimated squared-loss mutual information.

    Attributes:
      value: the estimate, not clipped to [0, 1/2].
      mean_ratio: mean of the fitted ratio over p(x), near 1 for a good fit, see `diagnose`.
      model: the fitted ratio.
      selection: scores of all settings.
    """

    value: jax.Array
    mean_ratio: jax.Array
    model: fits.RatioModel | supervised.TwoOutputModel
    selection: selection.CrossValidation


def pu_smi(
    positives: ArrayLike,
    unlabeled: ArrayLike,
    *,
    prior: float | jax.Array,
    key: jax.Array,
    num_centers: int = 100,
    sigmas: ArrayLike | None = None,
    ridges: ArrayLike | None = None,
    num_folds: int = 5,
    short_form: bool = False,
) -> SmiEstimate:
    """Squared-loss mutual information between input and class from positive and unlabeled data.

    Gaussian features around random unlabeled points, width and ridge by cross-validation, and the
    unregularised objective of the fit to all data. The error falls with the root of the smaller
    sample. Compile it with `jax.jit` where it is called often. Source: Sakai, Niu, Sugiyama,
    Neural Computation 33(1), 2021.

    Args:
      positives: labelled positives, `[n_p, dim]`.
      unlabeled: unlabeled examples, a sample of the population, `[n_u, dim]`.
      prior: share of positives in the population.
      key: random key for the centres and the folds.
      num_centers: number of features, at most `n_u` of which are used.
      sigmas: widths to try; None means 0.3, 0.6, 1 and 2 times the median distance.
      ridges: ridges to try; None means 0.001, 0.01, 0.1 and 1.
      num_folds: folds of the cross-validation.
      short_form: whether to report the shorter form, which is too small; see `objective`.

    Returns:
      A `SmiEstimate`.

    Raises:
      ValueError: if shapes do not fit, values are not finite, all unlabeled points coincide, or a
        number is out of its range.
    """
    positives, unlabeled = _checks.matrices(positives=positives, unlabeled=unlabeled)
    _check(prior, num_centers, positives=positives, unlabeled=unlabeled)
    centers, sigmas, ridges, key = _settings(key, unlabeled, num_centers, sigmas, ridges)
    chosen = selection.cross_validate(
        positives, unlabeled, centers, sigmas=sigmas, ridges=ridges, key=key, num_folds=num_folds
    )
    model = fits.fit_gaussian_ratio(
        positives, unlabeled, centers, sigma=chosen.sigma, ridge=chosen.ridge
    )
    value = objectives.smi_from_objective(fits.objective(model, short_form=short_form), prior=prior)
    mean_u = features.mean_features(unlabeled, centers, chosen.sigma)
    return SmiEstimate(value, jnp.sum(mean_u * model.weights), model, chosen)


def pn_smi(
    positives: ArrayLike,
    negatives: ArrayLike,
    *,
    prior: float | jax.Array,
    key: jax.Array,
    num_centers: int = 100,
    sigmas: ArrayLike | None = None,
    ridges: ArrayLike | None = None,
    num_folds: int = 5,
    two_output: bool = False,
) -> SmiEstimate:
    """Squared-loss mutual information from positives and negatives, the counterpart of `pu_smi`.

    Args:
      positives: `[n_p, dim]`.
      negatives: `[n_n, dim]`.
      prior: share of positives in the population.
      key: random key for the centres, drawn from both samples, and the folds.
      num_centers: number of features, at most as many as there are points.
      sigmas: widths to try; None means 0.3, 0.6, 1 and 2 times the median distance.
      ridges: ridges to try; None means 0.001, 0.01, 0.1 and 1.
      num_folds: folds of the cross-validation.
      two_output: False fits the ratio of the positives, as PURL's counterpart does; True fits the
        ratios of both classes, the least-squares mutual information of the literature.

    Returns:
      A `SmiEstimate`; with two outputs, `mean_ratio` is that of the positives' ratio.

    Raises:
      ValueError: if shapes do not fit, values are not finite, all points coincide, or a number is
        out of its range.
    """
    positives, negatives = _checks.matrices(positives=positives, negatives=negatives)
    _check(prior, num_centers, positives=positives, negatives=negatives)
    both = jnp.concatenate([positives, negatives])
    centers, sigmas, ridges, key = _settings(key, both, num_centers, sigmas, ridges)
    chosen = selection.cross_validate_pn(
        positives,
        negatives,
        centers,
        prior=prior,
        sigmas=sigmas,
        ridges=ridges,
        key=key,
        num_folds=num_folds,
        two_output=two_output,
    )
    samples = positives, negatives, centers
    settings = {"prior": prior, "sigma": chosen.sigma, "ridge": chosen.ridge}
    model: fits.RatioModel | supervised.TwoOutputModel
    if two_output:
        model = supervised.fit_gaussian_two_output(*samples, **settings)
        value, weights = -supervised.two_output_objective(model) - 0.5, model.weights[0]
    else:
        model = supervised.fit_gaussian_pn(*samples, **settings)
        value = objectives.smi_from_objective(fits.objective(model), prior=prior)
        weights = model.weights
    means = [features.mean_features(x, centers, chosen.sigma) for x in (positives, negatives)]
    return SmiEstimate(value, jnp.sum(supervised.mixture(prior, *means) * weights), model, chosen)


def _settings(key, points, num_centers, sigmas, ridges):
    """Centres among the points, the grid, and the key of the folds."""
    arrays.check_key(key)
    center_key, median_key, fold_key = jax.random.split(key, 3)
    centers = points[jax.random.permutation(center_key, points.shape[0])[:num_centers]]
    if sigmas is None:
        median = features.median_distance(median_key, points)
        number = arrays.on_host(median)
        if number is not None and not number > 0:
            raise ValueError(
                "the points that the features are drawn from are one and the same point, but "
                "must differ"
            )
        sigmas = jnp.array(RELATIVE_SIGMAS, points.dtype) * median
    ridges = jnp.array(RIDGES, points.dtype) if ridges is None else ridges
    return centers, sigmas, ridges, fold_key


def _check(prior: float | jax.Array, num_centers: int, **samples: jax.Array) -> None:
    arrays.check_share("prior", prior)
    checks.whole_number("num_centers", num_centers, 1)
    for name, points in samples.items():
        _checks.check_finite(name, points)
