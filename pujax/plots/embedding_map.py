"""Maps of high-dimensional points to the plane, for figures."""

import numpy as np
from sklearn import decomposition, manifold
from threadpoolctl import threadpool_limits  # comes with scikit-learn

_PERPLEXITY = 30.0
# van der Maaten and Hinton (2008) also reduce their data first: it removes noise and saves time.
_TSNE_DIMENSIONS = 30
# A third of the time of scikit-learn's defaults, and neighbourhoods are preserved as well.
_TSNE_ITERATIONS, _TSNE_ANGLE = 500, 0.8
_COLLAPSED = 1e-3
"""Deviation from the mean point, as a share of the points' size, up to which they count as one."""


def collapse(points: np.ndarray, scores: np.ndarray | None = None) -> str:
    """Why a map of the points would show structure that is not there; '' where it would not.

    t-SNE spreads points over the plane however close they are, so that a representation that has
    collapsed looks like any other.

    Args:
      points: `[n, d]`, finite.
      scores: `[n]`, of the same points, if known; positive above 0.

    Returns:
      The beginning of a sentence, without a full stop.
    """
    points = np.asarray(points, np.float64)
    if points.size and len(points) > 1:
        points = points / (np.abs(points).max() or 1.0)
        size = np.sqrt((points**2).sum(axis=1).mean())
        deviation = np.sqrt(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean())
        if deviation <= _COLLAPSED * size:
            return (
                "the representation has collapsed: all points are equal but for "
                f"{deviation / (size or 1.0):.1g} of their size"
            )
    if scores is not None and len(scores) > 1 and np.isfinite(scores).all():
        above = np.asarray(scores) > 0
        if above.all() or not above.any():
            return (
                f"every example is called {'positive' if above.all() else 'negative'}, so that "
                "groups in a map are none that the classifier tells apart"
            )
    return ""


def project(points: np.ndarray, *, method: str, seed: int = 0) -> np.ndarray:
    """Maps finite points `[n, d]` to `[n, 2]` by 'pca' or 'tsne'.

    t-SNE starts from the principal components. With fewer than four points, or where all are the
    same, there is no neighbourhood to preserve and both methods give the principal components.
    """
    points = np.asarray(points, np.float64)
    n, d = points.shape
    rank = min(n, d, _TSNE_DIMENSIONS if method == "tsne" else 2)
    spread = np.ptp(points, axis=0).max(initial=0.0) if n else 0.0
    if not rank or spread == 0:
        return np.zeros([n, 2])
    # Scaled so that squares neither overflow nor underflow.
    reduce = decomposition.PCA(rank, random_state=seed)
    components = reduce.fit_transform((points - points[0]) / spread)
    flat = np.pad(components[:, :2], ((0, 0), (0, max(0, 2 - rank))))
    if method == "pca" or n < 4:
        return flat * spread
    tsne = manifold.TSNE(
        perplexity=min(_PERPLEXITY, (n - 1) / 3),
        init=(1e-4 * flat / flat[:, 0].std()).astype(np.float32),
        max_iter=_TSNE_ITERATIONS,
        angle=_TSNE_ANGLE,
        random_state=seed,
    )
    # Its threads wait for one another in every iteration: on busy cores that takes minutes.
    with threadpool_limits(1):
        return tsne.fit_transform(components)


def sample(usable: np.ndarray, labeled: np.ndarray, seed: int, max_points: int) -> np.ndarray:
    """Sorted indices of at most `max_points` usable rows, with enough labelled ones to see."""
    rng = np.random.default_rng(seed)
    marked, others = (rng.permutation(np.flatnonzero(usable & m)) for m in (labeled, ~labeled))
    total = len(marked) + len(others)
    if total <= max_points:
        return np.flatnonzero(usable)
    share = max(round(len(marked) / total * max_points), min(len(marked), max_points // 10))
    return np.sort(np.concatenate([marked[:share], others[: max_points - share]]))
