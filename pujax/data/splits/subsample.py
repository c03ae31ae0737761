"""A training set of chosen counts: which positives and negatives of a source stay in it.

The rows that do not stay are in no part of the problem. Pure functions of class labels and a seed.
"""

import numpy as np

from pujax.data.splits import class_pools
from pujax.data.splits.settings import FILE_ORDER, Settings


def rows(class_labels: np.ndarray, settings: Settings, *, seed: int) -> np.ndarray | None:
    """Chooses the rows of the training set that stay, the same number of every class of a side.

    They are drawn at random, topped up at random to the exact count; under 'file_order' they are
    the first of each class, and where the count does not divide, classes of lower id keep one more.
    With one seed a smaller training set is part of a larger one where both counts divide.

    Args:
      class_labels: int `[n]`, -1 where unknown.
      settings: how many positives and negatives stay, 0 for all.
      seed: seed of the draw.

    Returns:
      Sorted rows, or None where all stay.

    Raises:
      ValueError: where a side or a class has too few rows, or rows have no known class.
    """
    counts = {
        f"data.{name}": getattr(settings, name) for name in ("num_positives", "num_negatives")
    }
    if not any(counts.values()):
        return None
    unknown = int((class_labels < 0).sum())
    rng = np.random.default_rng([seed, 0x5057, 3])
    by_order, positive_classes = settings.sampling == FILE_ORDER, settings.positive_classes
    pools = class_pools.by_class(class_labels, positive_classes, None if by_order else rng)
    kept: list[np.ndarray] = []
    for (field, count), is_positive in zip(counts.items(), (True, False), strict=True):
        side = {c: pool for c, pool in pools.items() if (c in positive_classes) == is_positive}
        available = sum(map(len, side.values()))
        # Every positive class stays a class of the training set.
        least = len(side) if is_positive else 1
        if count and unknown:
            raise ValueError(
                f"{field} is {count}; accepted: 0 with this source, of which {unknown} of "
                f"{len(class_labels)} training examples are of unknown class"
            )
        if count and not least <= count <= available:
            raise ValueError(
                f"{field} is {count}; accepted: 0 (all), or {least} to {available}, what the "
                f"{len(side)} {'positive' if is_positive else 'negative'} classes of the training "
                "set have"
            )
        if not count:
            kept += side.values()
        elif by_order:
            shares = class_pools.equal_shares(field, count, side)
            kept += [pool[:share] for pool, share in zip(side.values(), shares, strict=True)]
        else:
            per_class = [count // len(side)] * len(side)
            kept.append(class_pools.take(side, count, per_class=per_class, rng=rng))
    return np.sort(np.concatenate(kept))
