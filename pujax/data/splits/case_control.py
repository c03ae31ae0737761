"""Samples of their own: P and U of chosen sizes, at a chosen share of positives.

Without them U is all that a split leaves of the source's training set, see `split.split`. Pure
functions of true classes and a generator of random numbers.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pujax.data.splits.settings import Settings

# (how many, among which rows, random numbers) -> rows of labelled positives
Label = Callable[[int, np.ndarray, np.random.Generator], np.ndarray]


class Sides(NamedTuple):
    """What a draw goes by.

    Attributes:
      binary: int `[n]`, true sides of all rows, 1, 0 or -1 (unknown); a row of unknown class is
        drawn only where no share of positives is given.
      classes: int `[n]`, class ids, of which each side gives the same number as far as it has them;
        None draws from a side without a look at the class.
    """

    binary: np.ndarray
    classes: np.ndarray | None = None


def largest(share: float, *, positives: int, negatives: int) -> int:
    """Size of the largest set with exactly `round(share * size)` positives.

    Args:
      share: in (0, 1).
      positives: how many there are.
      negatives: how many there are.
    """
    # `round` may ask for half an example less of either class.
    size = int(min((positives + 0.5) / share, (negatives + 0.5) / (1 - share))) + 1
    while size and not (
        round(share * size) <= positives and size - round(share * size) <= negatives
    ):
        size -= 1
    return size


def training(
    left: np.ndarray,
    sides: Sides,
    label: Label,
    *,
    settings: Settings,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws P and U, which share no row.

    In two-sample data U is drawn first, a sample of the population, and P from the positives left.
    In one-sample data P and U are drawn together, then P is labelled among the positives; where
    `class_prior` is given, so many are drawn that U, without P, has that share.

    Args:
      left: rows that may be drawn.
      sides: of all rows.
      label: chooses labelled positives.
      settings: sizes of P and U, and the share of positives in U.
      rng: random numbers.

    Returns:
      `(labeled, unlabeled)`, rows.

    Raises:
      ValueError: naming the field that asks for more rows than there are.
    """
    size, share, num_labeled = settings.num_unlabeled, settings.class_prior, settings.num_labeled
    hidden = None
    if share is None:
        most = len(left) - num_labeled
        if size > most:
            raise ValueError(
                f"data.num_unlabeled is {size}; accepted: at most {max(most, 0)}, what "
                f"{num_labeled} labelled positives, the support and the validation set leave of "
                "the training set"
            )
    else:
        positives, negatives = (int((sides.binary[left] == c).sum()) for c in (1, 0))
        most = largest(share, positives=max(positives - num_labeled, 0), negatives=negatives)
        size = size or most
        if size > most:
            raise ValueError(
                f"data.num_unlabeled is {size}; accepted: at most {most} with data.class_prior="
                f"{share:g} and data.num_labeled={num_labeled}, since the training set has "
                f"{positives} positives and {negatives} negatives outside the support and "
                "validation set"
            )
        hidden = _exact(share, size, "data.class_prior")
    return _parts(left, sides, label, num_labeled, size, hidden, settings.setting, rng)


def validation(
    left: np.ndarray,
    sides: Sides,
    label: Label,
    *,
    settings: Settings,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws P_val and U_val the way `training` draws P and U, from rows of known class.

    Args:
      left: as in `training`.
      sides: as in `training`.
      label: as in `training`.
      settings: `num_validation` rows of both, `validation_labeled` of them in P_val; 0 for as many
        as there are positives in U_val. Without a `class_prior`, U_val has the share of the rows
        `left`.
      rng: random numbers.

    Returns:
      `(labeled, unlabeled)`, rows.

    Raises:
      ValueError: naming the field that asks for more rows than there are.
    """
    positives, negatives = (int((sides.binary[left] == c).sum()) for c in (1, 0))
    share, num_validation = settings.class_prior, settings.num_validation
    if share is None:
        share = positives / max(positives + negatives, 1)
    num_labeled = settings.validation_labeled or max(1, round(share * num_validation / (1 + share)))
    size = num_validation - num_labeled
    hidden = _exact(share, size, "data.num_validation", value=num_validation)
    if num_labeled + hidden > positives or size - hidden > negatives:
        raise ValueError(
            f"data.num_validation is {num_validation}; accepted: fewer, since {num_labeled} "
            f"labelled and {hidden} hidden positives and {size - hidden} negatives are drawn from "
            f"{positives} positives and {negatives} negatives"
        )
    return _parts(left, sides, label, num_labeled, size, hidden, settings.setting, rng)


def test_rows(sides: Sides, *, class_prior: float, seed: int) -> np.ndarray:
    """The largest part of a test set with a given share of positives, drawn by the seed.

    Args:
      sides: of its `t` examples.
      class_prior: share of positives.
      seed: of the draw.

    Returns:
      Sorted rows.

    Raises:
      ValueError: where the test set lacks one of the classes.
    """
    positives, negatives = (int((sides.binary == c).sum()) for c in (1, 0))
    size = largest(class_prior, positives=positives, negatives=negatives)
    hidden = _exact(class_prior, size, "data.class_prior")
    rng = np.random.default_rng([seed, 0x5057, 2])
    return np.sort(_draw(np.arange(len(sides.binary)), sides, size, hidden, rng))


def _exact(share, size, field, value=None):
    """How many of `size` are positive; both classes must be there."""
    count = round(share * size)
    if not 0 < count < size:
        raise ValueError(
            f"{field} is {share if value is None else value}, which is {count} positives among "
            f"{size} examples (data.class_prior {share:.4g}); accepted: a size and a share that "
            "leave at least one positive and one negative"
        )
    return count


def _parts(left, sides, label, num_labeled, size, hidden, setting, rng):
    """P and U; `hidden` positives in U, or as many as come by chance where it is None."""
    if setting == "two_sample":
        unlabeled = _draw(left, sides, size, hidden, rng)
        labeled = label(num_labeled, np.setdiff1d(left, unlabeled), rng)
        return labeled, unlabeled
    positives = None if hidden is None else num_labeled + hidden
    together = _draw(left, sides, num_labeled + size, positives, rng)
    labeled = label(num_labeled, together, rng)
    return labeled, np.setdiff1d(together, labeled)


def _draw(rows, sides, size, positives, rng):
    """`size` of the rows at random, exactly `positives` of them positive unless that is None."""
    rows = rng.permutation(rows)
    if positives is None:
        return rows[:size]
    of_side = [rows[sides.binary[rows] == c] for c in (1, 0)]
    if sides.classes is not None:
        of_side = [_by_turns(side, sides.classes[side], rng) for side in of_side]
    return np.concatenate([of_side[0][:positives], of_side[1][: size - positives]])


def _by_turns(rows, classes, rng):
    """The rows in an order in which the classes alternate; each round of them is in random order.

    So the first k rows hold the same number of every class, but for a remainder drawn at random.
    """
    turn = np.empty(len(rows), np.int64)
    for c in np.unique(classes):
        turn[classes == c] = np.arange((classes == c).sum())
    # Sorted by round alone, a large class would come first in every round, since its rows stand
    # closer together, and would always get the remainder.
    return rows[np.lexsort((rng.random(len(rows)), turn))]
