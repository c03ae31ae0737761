"""Who gets a label: which training examples go to the support set, to P, and to U.

Pure functions of class labels and a seed. Everything here runs once per run, on the host.
"""

from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Rows of the source's training set, each array sorted and free of duplicates.

    Attributes:
      support: rows with known binary labels, kept out of training.
      labeled: rows whose positive label is revealed.
      unlabeled: all other rows.
    """

    support: np.ndarray
    labeled: np.ndarray
    unlabeled: np.ndarray


def binary_labels(class_labels: np.ndarray, positive_classes: tuple[int, ...]) -> np.ndarray:
    """Turns class ids into 1 (positive), 0 (negative) and -1 (source label unknown).

    Args:
      class_labels: int `[n]`, -1 where the source has no label.
      positive_classes: class ids that count as positive.

    Returns:
      int8 `[n]`.
    """
    positive = np.isin(class_labels, positive_classes).astype(np.int8)
    return np.where(class_labels < 0, np.int8(-1), positive)


def _take_evenly(
    pools: dict[int, np.ndarray], count: int, *, per_class: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws `per_class` rows from every pool, then tops up at random to `count` in all."""
    taken = [pool[:per_class] for pool in pools.values()]
    rest = np.concatenate([pool[per_class:] for pool in pools.values()])
    missing = count - sum(len(rows) for rows in taken)
    return np.concatenate([*taken, rng.permutation(rest)[:missing]])


def split(
    class_labels: np.ndarray,
    *,
    positive_classes: tuple[int, ...],
    num_labeled: int,
    num_support: int,
    sampling: str,
    seed: int,
) -> Split:
    """Draws support set, labelled positives and unlabeled rows (LaGAM, section 4.1).

    `stratified` draws the same number of support images per source class and of labelled positives
    per positive class and tops up at random to the exact count; `uniform` draws both without regard
    to the class, which is SCAR. Rows whose class is unknown are always unlabeled.

    Args:
      class_labels: int `[n]`, -1 where unknown.
      positive_classes: class ids that count as positive.
      num_labeled: labelled positives to draw.
      num_support: support rows to draw.
      sampling: 'stratified' or 'uniform'.
      seed: seed of the draw; another seed gives another support set and other positives.

    Returns:
      A `Split` of all `n` rows.

    Raises:
      ValueError: where a class has too few rows, or an argument is out of its range.
    """
    if sampling not in ("stratified", "uniform"):
        raise ValueError(f"data.sampling is {sampling!r}; accepted: 'stratified', 'uniform'")
    rng = np.random.default_rng([seed, 0x5057])
    known = np.unique(class_labels[class_labels >= 0])
    unknown_ids = set(positive_classes) - set(known.tolist())
    if not positive_classes or unknown_ids:
        raise ValueError(
            f"data.positive_classes is {tuple(positive_classes)}; accepted: one or more of the "
            f"class ids of the training set, {known.tolist()}"
        )
    if len(known) == len(set(positive_classes)):
        raise ValueError(
            f"data.positive_classes is {tuple(positive_classes)}, which is every class; accepted: "
            "class ids that leave at least one class negative"
        )
    pools = {int(c): rng.permutation(np.flatnonzero(class_labels == c)) for c in known}

    per_class = num_support // len(pools) if sampling == "stratified" else 0
    if num_support > sum(map(len, pools.values())):
        raise ValueError(
            f"data.num_support is {num_support}; accepted: at most the "
            f"{sum(map(len, pools.values()))} training examples whose class is known"
        )
    support = _take_evenly(pools, num_support, per_class=per_class, rng=rng)
    pools = {c: pool[~np.isin(pool, support)] for c, pool in pools.items() if c in positive_classes}

    available = sum(map(len, pools.values()))
    if not 1 <= num_labeled <= available:
        raise ValueError(
            f"data.num_labeled is {num_labeled}; accepted: 1 to {available}, the positives of the "
            "training set that are not in the support set"
        )
    per_class = num_labeled // len(pools) if sampling == "stratified" else 0
    labeled = _take_evenly(pools, num_labeled, per_class=per_class, rng=rng)

    is_unlabeled = np.ones(len(class_labels), bool)
    is_unlabeled[support] = False
    is_unlabeled[labeled] = False
    return Split(np.sort(support), np.sort(labeled), np.flatnonzero(is_unlabeled))
