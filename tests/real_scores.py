"""Scores on real data sets of a classifier of labelled positives against the rest, held out."""

import functools
from typing import NamedTuple

import numpy as np
import pytest
from sklearn import linear_model

from pujax.data import sources
from tests.conftest import real_data_folder

_SETS = [
    *((name, "libsvm") for name in ("a9a", "mushrooms", "phishing", "ijcnn1")),
    ("fashion_mnist", "fashion_mnist"),
]
on_real_sets = pytest.mark.parametrize(("name", "folder"), _SETS)


class Scored(NamedTuple):
    """One split of one data set, with row numbers.

    Attributes:
      scores: `[n]`, of every row.
      is_positive: bool `[n]`.
      unlabeled: rows of U, held out or not.
      held_positive: rows of P that the classifier did not see.
      held_unlabeled: likewise of U.
      rest: rows of neither, a sample of the population.
    """

    scores: np.ndarray
    is_positive: np.ndarray
    unlabeled: np.ndarray
    held_positive: np.ndarray
    held_unlabeled: np.ndarray
    rest: np.ndarray


@functools.cache
def _rows(name: str, folder: str) -> tuple[np.ndarray, np.ndarray]:
    data = sources.load(name, directory=real_data_folder(folder))
    rows = data.train_inputs.reshape(len(data.train_inputs), -1)[:20000].astype(np.float32)
    labels = data.train_labels[: len(rows)]
    return rows / max(1, rows.max()), labels == 1 if len(data.class_names) == 2 else labels % 2 == 0


def scored(name: str, folder: str, seed: int) -> Scored:
    """Labels 15 % of the positives, holds out a fifth of P and U and scores all rows."""
    rows, is_positive = _rows(name, folder)
    rng = np.random.default_rng(seed)
    chosen, rest = np.split(rng.permutation(len(rows)), [min(8000, len(rows) // 2)])
    is_labeled = is_positive[chosen] & (rng.random(len(chosen)) < 0.15)
    p, u = chosen[is_labeled], chosen[~is_labeled]
    i, j = len(p) // 5, len(u) // 5
    model = linear_model.LogisticRegression(class_weight="balanced", max_iter=30, tol=0.01)
    model.fit(rows[np.r_[p[i:], u[j:]]], np.arange(len(chosen) - i - j) < len(p) - i)
    return Scored(model.decision_function(rows), is_positive, u, p[:i], u[:j], rest)
