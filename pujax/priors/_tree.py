"""The tree of TIcE: subsets of the data in which to bound the label frequency from below."""

import heapq
import math
from typing import NamedTuple

import numpy as np

_MIN_SIZE = 10
"""Smaller subsets give no bound, and only larger ones are split."""
_SHRINKAGE = 5
"""What a cell's size is raised by when splits are compared: `k` of max-bepp in the paper."""


class Table(NamedTuple):
    """Data in the form that the tree uses.

    Attributes:
      cells: uint8 `[d, n]`, which interval between the cuts each feature of a row falls in.
      labeled: bool `[n]`.
      num_cells: intervals per feature.
    """

    cells: np.ndarray
    labeled: np.ndarray
    num_cells: int


class _Node(NamedTuple):
    """A subset that may be split, with what decides when: the smallest comes first.

    Attributes:
      minus_bound: minus the bound in the tree set.
      minus_labeled: minus the number of labelled rows of the tree set.
      order: the rows of the tree set as bytes that sort as in the authors' queue of bit sets, so
        that ties are decided as there: first comes the set whose rows are later.
      tree: int `[t]`, rows of the tree set, ascending.
      estimation: int `[e]`, rows of the estimation set.
      features: numbers of the features that it may be split by.
    """

    minus_bound: float
    minus_labeled: int
    order: bytes
    tree: np.ndarray
    estimation: np.ndarray
    features: set[int]


def best_bound(
    table: Table, tree: np.ndarray, estimation: np.ndarray, *, variance: float, max_splits: int
) -> float:
    """Greatest lower bound of the label frequency over the subsets that one tree tries.

    Args:
      table: the data.
      tree: int `[t]`, the rows that choose splits, ascending.
      estimation: int `[e]`, the rows that give the bounds, ascending.
      variance: `c (1 - c) (1 - delta) / delta`.
      max_splits: subsets to split at most.

    Returns:
      A number in [0, 1].
    """
    best = table.labeled[estimation].mean() if len(estimation) >= _MIN_SIZE else 0.0
    queue = [_node(table, tree, estimation, set(range(len(table.cells))), variance)]
    min_labeled = 1.0
    for _ in range(max_splits):
        if not queue:
            break
        node = heapq.heappop(queue)
        split, retired = _best_split(table, node, min_labeled)
        if split is None:
            continue
        tree_parts = _parts(table, split, node.tree)
        estimation_parts = _parts(table, split, node.estimation)
        if sum(len(part) > 0 for part in estimation_parts) == 1:
            continue
        num_labeled = [int(table.labeled[part].sum()) for part in estimation_parts]
        for part, count in zip(estimation_parts, num_labeled, strict=True):
            if len(part) >= _MIN_SIZE:
                best = max(best, _bound(count, len(part), variance))
        # With fewer labelled rows a subset's bound cannot exceed the best one, whatever its size.
        min_labeled = variance / (1 - best) ** 2 if best < 1 else math.inf
        features = node.features - {split} - retired
        for tree_part, part, count in zip(tree_parts, estimation_parts, num_labeled, strict=True):
            if count <= min_labeled or len(tree_part) <= _MIN_SIZE:
                continue
            # A test of purity; that it looks at the parent's count follows the authors' code.
            if -node.minus_labeled not in (0, len(tree_part)):
                heapq.heappush(queue, _node(table, tree_part, part, features, variance))
    return float(best)


def _bound(num_labeled: int, size: int, variance: float) -> float:
    return num_labeled / size - math.sqrt(variance / size)


def _node(
    table: Table, tree: np.ndarray, estimation: np.ndarray, features: set[int], variance: float
) -> _Node:
    num_labeled = int(table.labeled[tree].sum())
    order = (table.labeled.size - tree).astype(">u4").tobytes()
    bound = _bound(num_labeled, len(tree), variance)
    return _Node(-bound, -num_labeled, order, tree, estimation, features)


def _best_split(table: Table, node: _Node, min_labeled: float) -> tuple[int | None, set[int]]:
    """The feature with the cell that is richest in labelled rows, and features to retire."""
    if not node.features:
        return None, set()
    features = np.fromiter(node.features, np.intp)
    labeled_rows = node.estimation[table.labeled[node.estimation]]
    is_useless = _counts(table, features, labeled_rows).max(1) < min_labeled
    kept, retired = features[~is_useless], set(features[is_useless].tolist())
    if not len(kept):
        return None, retired
    sizes = _counts(table, kept, node.tree)
    labeled = _counts(table, kept, node.tree[table.labeled[node.tree]])
    scores = (labeled / (sizes + _SHRINKAGE)).max(1)
    best = scores.argmax()
    return (int(kept[best]) if scores[best] > 0 else None), retired


def _counts(table: Table, features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows in each cell of each feature, int `[features, num_cells]`."""
    block = table.cells[np.ix_(features, rows)]
    cells = [np.count_nonzero(block == cell, axis=1) for cell in range(table.num_cells)]
    return np.stack(cells, 1)


def _parts(table: Table, feature: int, rows: np.ndarray) -> list[np.ndarray]:
    """The rows in each cell of a feature."""
    cells = table.cells[feature, rows]
    return [rows[cells == cell] for cell in range(table.num_cells)]
