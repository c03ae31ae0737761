"""Means of Gaussian features over samples, over folds of them and over resamples, in little memory.

Matching distributions needs only these means. Rows are put into groups at random and each group
keeps its sums, so that folds and resamples are sums over groups: with as many groups as rows that
is the ordinary bootstrap, with fewer its error bars are known to about `1 / sqrt(2 groups)`.

`pujax.mutual_info.features` computes the same features for another purpose: there JAX
differentiates them, in the precision of the data, so that a representation can be trained through
them. Here their means are taken over every fold and resample, on the host, in float64.
"""

from typing import NamedTuple

import numpy as np

from pujax.mutual_info.features import CHUNK

NUM_FOR_MEDIAN = 1000
"""Points that the median distance looks at; twice as many as where it has to run in JAX."""


class Moments(NamedTuple):
    """Means of features.

    Attributes:
      mean: `[..., b]`.
      gram: means of the features' products, `[..., b, b]`; `[..., 0, 0]` where not asked for.
    """

    mean: np.ndarray
    gram: np.ndarray


class Basis(NamedTuple):
    """Gaussian features `exp(-|x - c|^2 / (2 sigma^2))`, and maybe a constant one.

    Attributes:
      centers: `[b, d]`.
      sigma: width.
      with_constant: whether a feature 1 stands at the end.
    """

    centers: np.ndarray
    sigma: float
    with_constant: bool

    def features(self, points: np.ndarray) -> np.ndarray:
        """Features of the points, `[n, b]` or `[n, b + 1]`."""
        from scipy.spatial import distance  # where it is needed: it loads for long

        squares = distance.cdist(points, self.centers, "sqeuclidean")
        with np.errstate(over="ignore"):  # exp(-inf) is the 0 that it should be
            phi = np.exp(-squares / (2 * self.sigma**2))
        return np.pad(phi, ((0, 0), (0, 1)), constant_values=1) if self.with_constant else phi


class Grouped(NamedTuple):
    """Sums over groups of rows.

    Attributes:
      sums: of the features, `[g, b]`.
      products: of the features' products, `[g, b, b]`; `[g, 0, 0]` where not asked for.
      sizes: rows of each group, `[g]`.
    """

    sums: np.ndarray
    products: np.ndarray
    sizes: np.ndarray

    def moments(self, weights: np.ndarray) -> Moments:
        """Means with each group counted as often as `weights [..., g]` say."""
        total = (weights @ self.sizes)[..., None]
        gram = np.tensordot(weights, self.products, axes=1) / total[..., None]
        return Moments(weights @ self.sums / total, gram)

    def all_rows(self) -> Moments:
        """Means over the whole sample."""
        return self.moments(np.ones(len(self.sizes)))

    def folds(self) -> list[tuple[Moments, Moments]]:
        """Each group as a fold: means over all others, and over the fold."""
        own = np.eye(len(self.sizes))
        return [(self.moments(1 - fold), self.moments(fold)) for fold in own]

    def resampled(self, rng: np.random.Generator, num_resamples: int) -> list[Moments]:
        """Means over resamples with replacement."""
        count = len(self.sizes)
        weights = rng.multinomial(count, np.full(count, 1 / count), size=num_resamples)
        # All at once: one matrix product that reads the sums once.
        mean, gram = self.moments(weights.astype(np.float64))
        return [Moments(*moments) for moments in zip(mean, gram, strict=True)]


def grouped(
    points: np.ndarray,
    basis: Basis,
    *,
    num_groups: int,
    with_products: bool,
    rng: np.random.Generator,
) -> Grouped:
    """Sums of features over random groups of rows, of sizes that differ by one at most.

    Args:
      points: `[n, d]`.
      basis: the features.
      num_groups: number of groups; no more than rows are made.
      with_products: whether to sum the features' products as well.
      rng: random generator.

    Returns:
      A `Grouped`.
    """
    groups = np.array_split(rng.permutation(len(points)), min(num_groups, len(points)))
    sums, products = [], []
    for rows in groups:
        chunks = np.array_split(rows, -(-len(rows) // CHUNK))
        parts = [_sums(basis.features(points[chunk]), with_products) for chunk in chunks]
        sums.append(np.sum([part[0] for part in parts], axis=0))
        products.append(np.sum([part[1] for part in parts], axis=0))
    sizes = np.array([len(rows) for rows in groups], np.float64)
    return Grouped(np.array(sums), np.array(products), sizes)


def _sums(phi: np.ndarray, with_products: bool) -> tuple[np.ndarray, np.ndarray]:
    return phi.sum(axis=0), phi.T @ phi if with_products else np.zeros((0, 0))


def median_distance(points: np.ndarray, rng: np.random.Generator) -> float:
    """Median distance between pairs of at most 1,000 points; the mean where most pairs coincide."""
    from scipy.spatial import distance

    distances = distance.pdist(points[rng.permutation(len(points))[:NUM_FOR_MEDIAN]])
    # Where all chosen points coincide, any width is right.
    return float(np.median(distances)) or float(np.mean(distances)) or 1.0
