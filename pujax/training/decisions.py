"""Which rows are called positive: by score, by probability, by a share, or by a budget."""

import numpy as np

from pujax import checks

_ACCEPTED = (
    "'score:0' (scores above 0), 'probability:P' with P from 0 to 1, 'share:S' (the share S, from "
    "0 to 1, of the rows with the highest scores) or 'top:K' (the K rows with the highest scores, "
    "K from 1)"
)


def parse(text: str, *, field: str = "run.decide") -> tuple[str, float]:
    """The rule and its number.

    Args:
      text: of `run.decide`, for example 'top:100'.
      field: what to call it in messages.

    Raises:
      ValueError: if it is no rule, or its number cannot be.
    """
    checks.require(isinstance(text, str), field, text, _ACCEPTED)
    rule, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    ranges = {
        "score": (-np.inf, np.inf),
        "probability": (0, 1),
        "share": (0, 1),
        "top": (1, np.inf),
    }
    low, high = ranges.get(rule, (np.inf, -np.inf))
    right = low <= value <= high and (rule != "top" or value.is_integer())
    checks.require(right, field, text, _ACCEPTED)
    return rule, value


def decide(text: str, scores: np.ndarray, probabilities: np.ndarray | None) -> np.ndarray:
    """Which rows are called positive.

    Args:
      text: the rule.
      scores: `[n]`.
      probabilities: `[n]`, or None where they are not known.

    Returns:
      bool `[n]`. A budget of rows is never exceeded: rows of equal scores beyond it are left out in
      their order.

    Raises:
      ValueError: for a probability where none is known.
    """
    rule, value = parse(text)
    if rule == "score":
        return scores > value
    if rule == "probability":
        known = probabilities is not None
        checks.require(known, "run.decide", text, "another rule, since no probability is known")
        return np.asarray(probabilities) >= value
    count = int(value) if rule == "top" else round(value * len(scores))
    chosen = np.zeros(len(scores), bool)
    chosen[np.argsort(-scores, kind="stable")[:count]] = True
    return chosen


def ranks(scores: np.ndarray) -> np.ndarray:
    """int `[n]`, 1 for the highest score; equal scores share the smallest rank."""
    ordered = np.sort(-scores)
    return np.searchsorted(ordered, -scores, side="left") + 1
