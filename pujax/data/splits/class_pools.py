"""Rows of a source by class, and how many of them there must be; for `split.split`."""

from collections.abc import Sequence

import numpy as np

from pujax import checks

Pools = dict[int, np.ndarray]

POSITIVE_NAMES = ("positive", "pos", "1", "true")
"""Class names that say which side they are, the last two where there is one other class at most."""


def ids_of(classes: Sequence[int | str], class_names: Sequence[str]) -> tuple[int, ...]:
    """Ids of the positive classes, which may be given by id or by name.

    Args:
      classes: ids or names; none at all leaves it to the names: the one class that is called like
        one of `POSITIVE_NAMES`, in upper or lower case, is positive.
      class_names: of all classes, in order of their ids.

    Raises:
      ValueError: for a name that no class has, or where the names do not tell.
    """
    known = ", ".join(f"{name!r} (id {i})" for i, name in enumerate(class_names))
    if not classes:
        told = POSITIVE_NAMES if len(class_names) <= 2 else POSITIVE_NAMES[:2]
        called = [i for i, name in enumerate(class_names) if name.lower() in told]
        if len(called) != 1:
            raise ValueError(
                f"data.positive_classes is (), and {len(called) or 'none'} of the classes "
                f"{'are' if len(called) > 1 else 'is'} called {' or '.join(told)}; "
                f"accepted: which of the classes are positive: {known}"
            )
        return (called[0],)
    ids = []
    for given in classes:
        if isinstance(given, str) and given not in class_names:
            raise ValueError(
                f"data.positive_classes holds {given!r}; accepted: names or ids of {known}"
            )
        ids.append(class_names.index(given) if isinstance(given, str) else given)
    checks.require(
        len(set(ids)) == len(ids), "data.positive_classes", tuple(classes), "each class once"
    )
    return tuple(ids)


def by_class(
    class_labels: np.ndarray, positive_classes: tuple[int, ...], rng: np.random.Generator | None
) -> Pools:
    """Rows of every known class, shuffled or in the order of the source.

    Args:
      class_labels: int `[n]`, -1 where unknown.
      positive_classes: class ids that count as positive.
      rng: random numbers; None leaves the rows in order.

    Returns:
      Rows by class id, in order of the ids.

    Raises:
      ValueError: where a positive class has no rows, or every row is known to be positive.
    """
    known = np.unique(class_labels[class_labels >= 0])
    unknown_ids = set(positive_classes) - set(known.tolist())
    if not positive_classes or unknown_ids:
        raise ValueError(
            f"data.positive_classes is {tuple(positive_classes)}; accepted: one or more of the "
            f"class ids of the training set, {known.tolist()}"
            if len(known)
            else "the training set has no example of known class; accepted: at least one positive"
        )
    if len(known) == len(set(positive_classes)) and class_labels.min() >= 0:
        raise ValueError(
            f"data.positive_classes is {tuple(positive_classes)}, which is every class; accepted: "
            "class ids that leave at least one class negative, or examples of unknown class"
        )
    pools = {int(c): np.flatnonzero(class_labels == c) for c in known}
    return pools if rng is None else {c: rng.permutation(pool) for c, pool in pools.items()}


def of(pools: Pools, classes: tuple[int, ...]) -> Pools:
    """The pools of some classes, in their order."""
    return {c: pool for c, pool in pools.items() if c in classes}


def without(pools: Pools, rows: np.ndarray) -> Pools:
    """The pools without some rows."""
    return {c: pool[~np.isin(pool, rows)] for c, pool in pools.items()}


def take(pools: Pools, count: int, *, per_class: list[int], rng: np.random.Generator) -> np.ndarray:
    """Draws the given number of rows from every pool, then tops up at random to `count` in all."""
    taken = [pool[:number] for pool, number in zip(pools.values(), per_class, strict=True)]
    rest = np.concatenate(
        [pool[number:] for pool, number in zip(pools.values(), per_class, strict=True)]
    )
    missing = count - sum(len(rows) for rows in taken)
    return np.concatenate([*taken, rng.permutation(rest)[:missing]])


def equal_shares(field: str, count: int, pools: Pools) -> list[int]:
    """How many of `count` rows each pool gives: all the same, the first ones one more to fill up.

    Raises:
      ValueError: where a pool has fewer than its share.
    """
    share, more = divmod(count, len(pools))
    shares = [share + (i < more) for i in range(len(pools))]
    for (class_id, pool), wanted in zip(pools.items(), shares, strict=True):
        if len(pool) < wanted:
            raise ValueError(
                f"{field} is {count}, which is {wanted} of class {class_id}; accepted with "
                f"data.sampling='file_order': a number of which {len(pools)} classes give equal "
                f"parts, and that class has {len(pool)} training examples"
            )
    return shares


def validation_labeled(given: int, positive: Pools, num_validation: int) -> int:
    """How many validation positives to label; at least one, and one item stays unlabeled.

    Args:
      given: `data.validation_labeled`; 0 is half of them.
      positive: validation positives by class.
      num_validation: validation rows in all.

    Raises:
      ValueError: naming the field that cannot be.
    """
    available = sum(map(len, positive.values()))
    if available == 0 or num_validation < 2:
        raise ValueError(
            f"data.num_validation is {num_validation}, with {available} positives among them; "
            "accepted: a larger number, of at least 2 examples with a positive among them"
        )
    most = min(available, num_validation - 1)
    if given > most:
        raise ValueError(
            f"data.validation_labeled is {given}; accepted: 0 (half of the validation positives) "
            f"to {most}, of {available} positives in a validation set of {num_validation}"
        )
    return given or max(available // 2, 1)


def require_both_sides(
    num_validation: int, pools: Pools, positive_classes: tuple[int, ...]
) -> None:
    """Raises a ValueError for a validation set that could hold no negative."""
    if num_validation and not any(len(pools[c]) for c in pools if c not in positive_classes):
        raise ValueError(
            f"data.num_validation is {num_validation}; accepted: 0, since no example outside the "
            "support set is known to be negative"
        )


def require_positives(field: str, count: int, positive: Pools) -> None:
    """Raises a ValueError unless so many positives can be labelled."""
    available = sum(map(len, positive.values()))
    if not 1 <= count <= available:
        raise ValueError(
            f"{field} is {count}; accepted: 1 to {available}, the positives of the training set "
            "that everything drawn before leaves for it"
            if available
            else f"{field} is {count}, but no positive is left in the training set; accepted: "
            "at least one positive that is not held out"
        )


def require_all(drawn: np.ndarray, count: int, field: str, labeling: str) -> None:
    """Raises a ValueError where a mechanism kept fewer rows than asked."""
    if len(drawn) < count:
        raise ValueError(
            f"{field} is {count}; accepted: at most {len(drawn)}, the positives that "
            f"data.labeling={labeling!r} keeps with this seed"
        )
