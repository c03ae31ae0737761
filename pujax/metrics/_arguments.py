"""What every metric checks: that scores are numbers, and how labels are coded."""

import reprlib

import numpy as np
from numpy import typing as npt

from pujax import checks


def score_list(name: str, scores: npt.ArrayLike) -> np.ndarray:
    """Scores in double precision, of a shape that is yet to be checked."""
    return checks.real_numbers(name, scores, "[n], one number each").astype(np.float64, copy=False)


def label_array(labels: npt.ArrayLike, name: str = "labels") -> np.ndarray:
    """Labels of whatever kind, as an array; `name` is what the metric says to them."""
    checks.unmasked(name, labels)
    try:
        return np.asarray(labels)
    except ValueError as error:  # rows of several lengths
        shown = reprlib.repr(labels)
        raise ValueError(f"{name} is {shown}; accepted: an array, one label each") from error
    except TypeError as error:
        if not checks.is_of_traced(error):
            raise
        accepted = f"an array, one label each, {checks.ON_THE_HOST}"
        raise ValueError(f"{name} is {labels!r}; accepted: {accepted}") from error


def is_positive(labels: npt.ArrayLike, name: str = "labels") -> np.ndarray:
    """Boolean array of the positives among labels coded 0/1, -1/1 or False/True."""
    labels = label_array(labels, name)
    if labels.dtype == bool:
        return labels
    positive = labels == 1
    if not any(np.all(positive | (labels == negative)) for negative in (0, -1)):
        try:
            values = np.unique(labels).tolist()
        except TypeError:  # such as None beside numbers, which have no order
            values = sorted(set(labels.ravel().tolist()), key=repr)
        listed = ", ".join(map(repr, values[:8])) + (", ..." if len(values) > 8 else "")
        raise ValueError(f"{name} holds the values [{listed}], but must be 0/1 or -1/1")
    return positive


def score_matrix(scores: npt.ArrayLike) -> np.ndarray:
    """Scores `[n, classes]` in their own floating-point precision."""
    scores = checks.real_numbers("scores", scores, "[n, classes], one number each")
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise ValueError(f"scores has shape {scores.shape}, but must be [n, classes], classes >= 1")
    return scores


def matrices(scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Scores `[n, classes]` in their own precision and a boolean array of the true positives."""
    scores, labels = score_matrix(scores), label_array(labels)
    if scores.shape != labels.shape:
        raise ValueError(
            f"scores and labels must be of one shape, got {scores.shape} and {labels.shape}"
        )
    return scores, is_positive(labels)
