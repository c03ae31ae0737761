"""Metrics of a binary classifier.

Scores are raw: they predict positive iff above 0.

The proxy metrics need no true labels, only which held-out examples are labelled positives: they
choose between models when no negatives are known.
"""

import numpy as np
from numpy import typing as npt

from pujax import checks
from pujax.metrics import _arguments


def accuracy(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Share of examples whose predicted sign is right.

    Args:
      scores: raw scores, `[n]`.
      labels: true labels, `[n]`.

    Returns:
      The accuracy in [0, 1]; NaN without examples.

    Raises:
      ValueError: if shapes do not fit, scores are no real numbers or labels are coded
        differently.
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
      ValueError: if shapes do not fit, scores are no real numbers or labels are coded
        differently.
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
      ValueError: if shapes do not fit, scores are no real numbers or labels are coded
        differently.
    """
    return _area(*_checked(scores, labels))


def average_precision(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Average precision: the sum over thresholds of precision times gain in recall.

    Args:
      scores: raw scores, `[n]`.
      labels: true labels, `[n]`.

    Returns:
      The average precision in [0, 1]; NaN where no positive is present.

    Raises:
      ValueError: if shapes do not fit, scores are no real numbers or labels are coded
        differently.
    """
    from sklearn import metrics  # where it is needed: it loads for a second

    scores, positive = _checked(scores, labels)
    if np.isnan(scores).any() or not positive.any():
        return float("nan")
    return float(metrics.average_precision_score(positive, _ranks(scores)))


def proxy_accuracy(
    scores: npt.ArrayLike, labeled: npt.ArrayLike, *, prior: float, setting: str
) -> float:
    """Accuracy up to a constant, from held-out labelled positives and unlabeled examples.

    `2 prior TPR + mean_X 1[score <= 0]`, `TPR` being the share of labelled positives that are
    predicted positive. In expectation it is the accuracy plus `prior`, if X follows the population:
    U for `two_sample` data, P and U together for `one_sample` data. Source: the proxy criteria of
    the benchmarks of PU learning; in one of them the one-sample term counts P predicted *positive*,
    which rewards recall too much and is not followed.

    Args:
      scores: raw scores, `[n]`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, `[n]`.
      prior: share of positives in the population, in (0, 1).
      setting: 'one_sample' or 'two_sample', how the data were collected.

    Returns:
      The proxy in [0, 1 + 2 prior]; NaN without labelled positives, or without unlabeled examples
      where X is U.

    Raises:
      ValueError: if shapes do not fit, scores are no real numbers, labels are coded differently,
        or `prior` or `setting` is not accepted.
    """
    scores, positive = _checked(scores, labeled, name="labeled")
    checks.between("prior", prior, 0, 1, include="neither")
    checks.one_of("setting", setting, ("one_sample", "two_sample"))
    population = np.ones_like(positive) if setting == "one_sample" else ~positive
    if np.isnan(scores).any() or not positive.any() or not population.any():
        return float("nan")
    recall = np.mean(scores[positive] > 0)
    return float(2 * prior * recall + np.mean(scores[population] <= 0))


def proxy_auc(scores: npt.ArrayLike, labeled: npt.ArrayLike) -> float:
    """Area under the ROC curve of labelled positives against unlabeled examples.

    It ranks models as the true area does: in expectation it is
    `unlabeled_prior / 2 + (1 - unlabeled_prior) auc`, if labels are given at random.

    Args:
      scores: raw scores, `[n]`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, `[n]`.

    Returns:
      The area in [0, 1]; NaN where only one group, or nothing, is present.

    Raises:
      ValueError: if shapes do not fit, scores are no real numbers or labels are coded
        differently.
    """
    return _area(*_checked(scores, labeled, name="labeled"))


def predicts_one_class(scores: npt.ArrayLike) -> bool:
    """Whether all scores predict the same class, the usual sign that training has collapsed.

    Args:
      scores: raw scores, `[n]`; one that is not a number predicts negative.

    Returns:
      True if at least one score is given and all, or none, are above 0.

    Raises:
      ValueError: if scores are no real numbers.
    """
    predicted = _arguments.score_list("scores", scores) > 0
    return bool(predicted.size and (predicted.all() or not predicted.any()))


def _area(scores: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve; NaN without either class, or with a score that is no number."""
    if np.isnan(scores).any() or positive.all() or not positive.any():
        return float("nan")
    # Of every distinct score the pairs that it wins: an audit asks a thousand times, and
    # scikit-learn checks its input each time.
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    positives = np.bincount(place, positive, len(counts))
    negatives = counts - positives
    won = positives @ (np.cumsum(negatives) - negatives / 2)
    return float(won / (positives.sum() * negatives.sum()))


def _checked(
    scores: npt.ArrayLike, labels: npt.ArrayLike, *, name: str = "labels"
) -> tuple[np.ndarray, np.ndarray]:
    """Scores in double precision and a boolean array of the positives.

    `name` is what the function that is called says to the labels.
    """
    scores = _arguments.score_list("scores", scores)
    labels = _arguments.label_array(labels, name)
    if scores.ndim != 1 or scores.shape != labels.shape:
        raise ValueError(
            f"scores and {name} must be [n] and of one shape, got {scores.shape} and {labels.shape}"
        )
    return scores, _arguments.is_positive(labels, name)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Position of each score among the distinct ones: same order and ties, no infinities."""
    return np.unique(scores, return_inverse=True)[1]
