"""Centres, width and ridge of the matching estimators, as given or chosen from the data."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pujax import checks
from pujax.priors import _moments, base

NUM_CENTERS = 200
"""Centres drawn from both samples where none are given."""
RELATIVE_SIGMAS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.5)
"""Widths to choose from, in units of the median distance."""
NUM_FOLDS = 5
NUM_TO_SELECT = 10_000
"""Rows of each sample that settings are chosen on, at most."""
_SIGMAS = (1e-150, 1e150)
"""Widths, in units of the largest coordinate, beyond which features no longer change."""


class Samples(NamedTuple):
    """Both samples and the features to choose settings for."""

    positives: np.ndarray
    unlabeled: np.ndarray
    centers: np.ndarray
    with_constant: bool


def selected(
    samples: Samples,
    sigma: float | None,
    ridges: tuple[float, ...],
    scores: Callable[[tuple, tuple], list[float]],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Width and ridge of the least mean score over the folds; given values are kept."""
    p, u = (x[rng.permutation(len(x))[:NUM_TO_SELECT]] for x in samples[:2])
    sigmas: tuple[float, ...]
    if sigma is not None:
        sigmas = (sigma,)
    else:
        median = _moments.median_distance(np.concatenate([p, u]), rng)
        sigmas = tuple(relative * median for relative in RELATIVE_SIGMAS)
    if len(sigmas) * len(ridges) == 1:
        return sigmas[0], ridges[0]
    table = []
    for width in sigmas:
        basis = _moments.Basis(samples.centers, width, samples.with_constant)
        num_groups = min(NUM_FOLDS, len(p), len(u))
        folds = [
            _moments.grouped(
                points,
                basis,
                num_groups=num_groups,
                with_products=samples.with_constant,
                rng=rng,
            ).folds()
            for points in (p, u)
        ]
        table.append(np.mean([scores(*pair) for pair in zip(*folds, strict=True)], axis=0))
    best = int(np.argmin(table))
    return sigmas[best // len(ridges)], ridges[best % len(ridges)]


def drawn(p: np.ndarray, u: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Centres from both samples."""
    both = np.concatenate([p, u])
    return both[rng.permutation(len(both))[:NUM_CENTERS]]


def checked(
    centers: npt.ArrayLike | None, sigma: float | None, ridge: float | None, num_features: int
) -> tuple[np.ndarray | None, float | None, float | None]:
    """Centres `[b, d]` in float64, width and ridge, after checking them."""
    for name, number in (("sigma", sigma), ("ridge", ridge)):
        is_fine = number is None or (checks.is_number(number) and 0 < number < np.inf)
        checks.require(is_fine, name, number, "a finite number above 0, or None")
    if centers is not None:
        accepted = f"finite numbers, [b, {num_features}]"
        array = base.real_array("centers", centers, accepted).astype(np.float64)
        shape = array.shape
        array = array.reshape(len(array), -1) if array.ndim and len(array) else array
        fits = array.ndim == 2 and len(array) > 0 and array.shape[1] == num_features
        if not fits or not np.isfinite(array).all():
            raise ValueError(
                f"centers has shape {shape}; accepted: {accepted}, with as many features as "
                "positives"
            )
        centers = array
    return centers, sigma, ridge


def scaled(
    p: np.ndarray, u: np.ndarray, centers: np.ndarray | None, sigma: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, float | None]:
    """All lengths in a unit in which their squares are finite: the features stay the same."""
    unit = base.magnitude(np.concatenate([p, u]))
    with np.errstate(over="ignore", under="ignore"):
        centers = None if centers is None else centers / unit
        sigma = None if sigma is None else float(np.clip(np.float64(sigma) / unit, *_SIGMAS))
    return p / unit, u / unit, centers, sigma
