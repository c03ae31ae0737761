"""Average precision of many labels, from the order of the scores alone."""

import numpy as np
from numpy import typing as npt

from pujax import checks
from pujax.metrics import _arguments

# Added to the number of positives, as the authors of PU-MLC do: a category without positives gets 0
# by itself, and an average precision of 1 becomes 1 - 1e-8 / positives.
EPSILON = 1e-8


def mean_average_precision(
    scores: npt.ArrayLike, labels: npt.ArrayLike, *, ignore_empty: bool = False
) -> float:
    """Mean over the categories of the average precision, mAP.

    A category without a positive counts as 0, as in the code of PU-MLC, unless it is left out. See
    `average_precisions` for the definition and for ties.

    Args:
      scores: raw scores, probabilities or anything of the same order, `[n, classes]`.
      labels: true labels, `[n, classes]`.
      ignore_empty: leave categories without a positive out of the mean.

    Returns:
      The mean in [0, 1]; NaN without examples, where a score is not a number, or where no
      category is left.

    Raises:
      ValueError: if shapes do not fit, labels are coded differently or `ignore_empty` is neither
        True nor False.
    """
    checks.one_of("ignore_empty", ignore_empty, (True, False))
    values = average_precisions(scores, labels)
    if ignore_empty:
        values = values[_arguments.is_positive(labels).any(axis=0)]
    return float(np.mean(values)) if values.size else float("nan")


def average_precisions(scores: npt.ArrayLike, labels: npt.ArrayLike) -> np.ndarray:
    """Average precision of each category, not interpolated.

    With the examples in decreasing order of score, the sum over the positives of the precision at
    their rank, divided by `positives + 1e-8`. Equal scores keep the order of the examples, so ties
    make the result depend on that order: `tied_scores` counts them. scikit-learn's figure, which
    treats equal scores as one threshold, is the same without ties; the interpolated one of Pascal
    VOC is never lower. Source: the evaluation code of PU-MLC (Yuan et al., ICME 2024), whose own
    order of equal scores is arbitrary.

    Args:
      scores: raw scores, probabilities or anything of the same order, `[n, classes]`.
      labels: true labels, `[n, classes]`.

    Returns:
      One value in [0, 1] per category, `[classes]`; 0 for a category without a positive, NaN for
      a category with a score that is not a number, and for all without examples.

    Raises:
      ValueError: if shapes do not fit or labels are coded differently.
    """
    scores, positive = _arguments.matrices(scores, labels)
    examples, classes = scores.shape
    if examples == 0:
        return np.full(classes, np.nan)
    order = np.argsort(-scores, axis=0, kind="stable")
    hits = np.take_along_axis(positive, order, axis=0)
    precision = np.cumsum(hits, axis=0) / np.arange(1, examples + 1)[:, None]
    values = np.sum(precision, axis=0, where=hits) / (np.sum(positive, axis=0) + EPSILON)
    return np.where(np.isnan(scores).any(axis=0), np.nan, values)


def tied_scores(scores: npt.ArrayLike) -> int:
    """Number of scores that equal the score of another example in the same category.

    Above 0 `average_precisions` depends on the order of the examples: three equal scores in one
    category count as 3, equal scores in different categories as 0, and scores that are not a number
    equal nothing. Scores that differ may be equal after rounding, for example as probabilities:
    pass the numbers that are ranked.

    Args:
      scores: what `average_precisions` ranks, `[n, classes]`.

    Returns:
      The count, between 0 and `n * classes`.

    Raises:
      ValueError: if the scores have another shape.
    """
    scores = np.sort(_arguments.score_matrix(scores), axis=0)
    tied = np.zeros(scores.shape, dtype=bool)
    equal = scores[1:] == scores[:-1]
    tied[1:] |= equal
    tied[:-1] |= equal
    return int(np.sum(tied))
