"""What every metric checks: how labels are coded."""

import numpy as np
from numpy import typing as npt


def is_positive(labels: npt.ArrayLike) -> np.ndarray:
    """Boolean array of the positives among labels coded 0/1, -1/1 or False/True."""
    labels = np.asarray(labels)
    if labels.dtype == bool:
        return labels
    positive = labels == 1
    if not any(np.all(positive | (labels == negative)) for negative in (0, -1)):
        values = np.unique(labels).tolist()
        listed = ", ".join(map(str, values[:8])) + (", ..." if len(values) > 8 else "")
        raise ValueError(f"labels hold the values [{listed}], but must be 0/1 or -1/1")
    return positive


def score_matrix(scores: npt.ArrayLike) -> np.ndarray:
    """Scores `[n, classes]` in their own floating-point precision."""
    scores = np.asarray(scores)
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise ValueError(f"scores has shape {scores.shape}, but must be [n, classes], classes >= 1")
    # "V" are the small floating-point kinds that numpy itself lacks, such as bfloat16.
    return scores if scores.dtype.kind in "fV" else scores.astype(np.float64)


def matrices(scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Scores `[n, classes]` in their own precision and a boolean array of the true positives."""
    scores, labels = score_matrix(scores), np.asarray(labels)
    if scores.shape != labels.shape:
        raise ValueError(
            f"scores and labels must be of one shape, got {scores.shape} and {labels.shape}"
        )
    return scores, is_positive(labels)
