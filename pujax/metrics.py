"""Metrics of a binary classifier, computed on the host.

All are called as `(scores, labels)`: raw scores, which predict positive iff above 0, and labels
0/1, False/True or -1/1. Results are fractions. Scores that are not a number make every metric NaN;
infinite scores are ordinary.
"""

import numpy as np
from numpy import typing as npt
from sklearn import metrics as sklearn_metrics


def accuracy(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Share of examples whose predicted sign is right.

    Args:
        scores: raw scores, `[n]`.
        labels: true labels, `[n]`.

    Returns:
        The accuracy in [0, 1]; NaN without examples.

    Raises:
        ValueError: if shapes do not fit or labels are coded differently.
    """
    scores, positive = _checked(scores, labels)
    if scores.size == 0 or np.isnan(scores).any():
        return float("nan")
    return float(np.mean((scores > 0) == positive))


def f1(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Harmonic mean of precision and recall of the positive class.

    Args:
        scores: raw scores, `[n]`.
        labels: true labels, `[n]`.

    Returns:
        F1 in [0, 1]; 0 where no positives are predicted or present.

    Raises:
        ValueError: if shapes do not fit or labels are coded differently.
    """
    scores, positive = _checked(scores, labels)
    if np.isnan(scores).any():
        return float("nan")
    predicted = scores > 0
    hits = np.sum(predicted & positive)
    return float(2 * hits / max(np.sum(predicted) + np.sum(positive), 1))


def auc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Area under the ROC curve.

    The probability that a random positive outscores a random negative, ties counting half.

    Args:
        scores: raw scores, `[n]`.
        labels: true labels, `[n]`.

    Returns:
        The area in [0, 1]; NaN where only one class, or nothing, is present.

    Raises:
        ValueError: if shapes do not fit or labels are coded differently.
    """
    scores, positive = _checked(scores, labels)
    if np.isnan(scores).any() or positive.all() or not positive.any():
        return float("nan")
    return float(sklearn_metrics.roc_auc_score(positive, _ranks(scores)))


def average_precision(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Average precision: the sum over thresholds of precision times gain in recall.

    Args:
        scores: raw scores, `[n]`.
        labels: true labels, `[n]`.

    Returns:
        The average precision in [0, 1]; NaN where no positive is present.

    Raises:
        ValueError: if shapes do not fit or labels are coded differently.
    """
    scores, positive = _checked(scores, labels)
    if np.isnan(scores).any() or not positive.any():
        return float("nan")
    return float(sklearn_metrics.average_precision_score(positive, _ranks(scores)))


def _checked(scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Scores in double precision and a boolean array of the true positives."""
    scores = np.asarray(scores, dtype=np.float64)
    labels = np.asarray(labels)
    if scores.ndim != 1 or scores.shape != labels.shape:
        raise ValueError(
            f"scores and labels must be [n] and of one shape, got {scores.shape} and {labels.shape}"
        )
    values = set(np.unique(labels).tolist())
    if not (values <= {0, 1} or values <= {-1, 1}):
        raise ValueError(f"labels hold the values {sorted(values)}, but must be 0/1 or -1/1")
    return scores, labels > 0


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Position of each score among the distinct ones: same order and ties, no infinities."""
    return np.unique(scores, return_inverse=True)[1]
