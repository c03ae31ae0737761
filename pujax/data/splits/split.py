"""Who gets a label: which training examples go to the support and validation sets, to P, and to U.

Pure functions of class labels, a posterior and a seed. Everything here runs once per run, on the
host. Which positives get a label is up to a mechanism, see `mechanisms`.
"""

from typing import NamedTuple

import numpy as np

from pujax.data.splits import case_control, class_pools, labeling_mechanisms, subsample

_ALL_LEFT = case_control.Request()
SAMPLINGS = ("stratified", "uniform", subsample.FILE_ORDER)


class Split(NamedTuple):
    """Rows of the source's training set, each array sorted and free of duplicates.

    Attributes:
      support: rows with known binary labels, kept out of training.
      labeled: rows whose positive label is revealed.
      unlabeled: all other rows of the training set, or those drawn from them.
      validation_labeled: held-out rows whose positive label is revealed.
      validation_unlabeled: all other held-out rows.
    """

    support: np.ndarray
    labeled: np.ndarray
    unlabeled: np.ndarray
    validation_labeled: np.ndarray
    validation_unlabeled: np.ndarray


def binary_labels(class_labels: np.ndarray, positive_classes: tuple[int, ...]) -> np.ndarray:
    """Turns class ids into 1 (positive), 0 (negative) and -1 (source label unknown).

    Args:
      class_labels: int `[n]`, -1 where the source has no label.
      positive_classes: class ids that count as positive.

    Returns:
      int8 `[n]`.
    """
    positive = np.isin(class_labels, positive_classes).astype(np.int8)
    return np.where(class_labels < 0, np.int8(-1), positive)


def check_sampling(sampling: str, **draws: object) -> None:
    """Checks `data.sampling` against the fields that ask for a draw at random.

    Args:
      sampling: one of `SAMPLINGS`.
      **draws: values of such fields of `data`, by name; 0, '' and None ask for nothing.

    Raises:
      ValueError: for another word, or a draw under 'file_order'.
    """
    if sampling not in SAMPLINGS:
        accepted = ", ".join(map(repr, SAMPLINGS))
        raise ValueError(f"data.sampling is {sampling!r}; accepted: {accepted}")
    for name, value in draws.items():
        if sampling == subsample.FILE_ORDER and value:
            raise ValueError(
                f"data.sampling is {sampling!r}; accepted: 'stratified' or 'uniform' with "
                f"data.{name}={value!r}, which is a draw at random"
            )


def split(
    class_labels: np.ndarray,
    *,
    positive_classes: tuple[int, ...],
    num_labeled: int,
    num_support: int,
    sampling: str,
    seed: int,
    mechanism: str = labeling_mechanisms.SCAR,
    power: float = 1.0,
    posterior: np.ndarray | None = None,
    num_validation: int = 0,
    validation_labeled: int = 0,
    request: case_control.Request = _ALL_LEFT,
) -> Split:
    """Draws support set, validation set, labelled positives and unlabeled rows.

    `stratified` draws the same number of support images per source class and of labelled positives
    per positive class and tops up at random to the exact count; `uniform` draws both without regard
    to the class, which is SCAR (LaGAM, section 4.1). The validation set stands for the population
    under both: `stratified` draws from every class in proportion to what the support set leaves of
    it, rounded down and topped up at random. The mechanism that labels positives labels those of
    the validation set too. Rows whose class is unknown are always unlabeled and never held out.

    `file_order` draws nothing and depends on no seed: of every positive class the last rows are
    labelled, and where the number does not divide, classes of lower id give one more. It knows no
    support set, no validation set, no mechanism but 'scar' and no `request`.

    U is all that is left; a `request` for less, or for another share of positives, leaves the
    other rows unused, see `_drawn`.

    Args:
      class_labels: int `[n]`, -1 where unknown.
      positive_classes: class ids that count as positive.
      num_labeled: labelled positives to draw.
      num_support: support rows to draw.
      sampling: one of `SAMPLINGS`; for labelled positives under 'scar' only.
      seed: seed of the draw; another seed gives another support set and other positives.
      mechanism: one of `mechanisms.NAMES`.
      power: exponent of the mechanism, see `mechanisms.propensity`.
      posterior: r of every row, `[n]`; needed by all mechanisms but 'scar'.
      num_validation: validation rows to draw.
      validation_labeled: positives among them to label; 0 is half of them, rounded down, or as many
        as the mechanism 'pusb' keeps; where U_val is drawn for itself, as many as it has positives.
      request: how U is drawn; by default it is all that is left.

    Returns:
      A `Split` of all `n` rows, or of those that were drawn.

    Raises:
      ValueError: where a class has too few rows, or an argument is out of its range.
    """
    check_sampling(
        sampling,
        num_support=num_support,
        num_validation=num_validation,
        num_unlabeled=request.num_unlabeled,
        class_prior=request.class_prior,
        labeling="" if mechanism == labeling_mechanisms.SCAR else mechanism,
    )
    if sampling == subsample.FILE_ORDER:
        return _in_file_order(class_labels, positive_classes, num_labeled)
    rng = np.random.default_rng([seed, 0x5057])
    pools = class_pools.by_class(class_labels, positive_classes, rng)
    evenly = sampling == "stratified"

    def equal_numbers(count, pools):
        return [count // len(pools) if evenly else 0] * len(pools)

    def hold_out(field, count, pools, rng, numbers=equal_numbers):
        available = sum(map(len, pools.values()))
        if count > available:
            raise ValueError(
                f"{field} is {count}; accepted: at most the {available} training examples whose "
                "class is known and that are not held out otherwise"
            )
        taken = class_pools.take(pools, count, per_class=numbers(count, pools), rng=rng)
        return taken, {c: pool[~np.isin(pool, taken)] for c, pool in pools.items()}

    def proportional_numbers(count, pools):
        sizes = [len(pool) for pool in pools.values()]
        return [count * size // sum(sizes) if evenly else 0 for size in sizes]

    def label(count, pools, rng):
        if mechanism == labeling_mechanisms.SCAR:
            return class_pools.take(pools, count, per_class=equal_numbers(count, pools), rng=rng)
        rows = np.sort(np.concatenate(list(pools.values())))
        e = labeling_mechanisms.propensity(posterior[rows], mechanism, power=power)
        return rows[labeling_mechanisms.draw(e, count, mechanism=mechanism, rng=rng)]

    def label_among(field):
        def label_rows(count, rows, rng):
            rows = rng.permutation(rows)
            pools = {c: rows[class_labels[rows] == c] for c in sorted(set(positive_classes))}
            class_pools.require_positives(field, count, sum(map(len, pools.values())))
            labeled = label(count, pools, rng)
            class_pools.require_all(labeled, count, field, mechanism)
            return labeled

        return label_rows

    support, pools = hold_out("data.num_support", num_support, pools, rng)
    class_pools.require_both_sides(num_validation, pools, positive_classes)
    # A stream of its own: the training positives do not depend on how validation is labelled.
    held_rng = np.random.default_rng([seed, 0x5057, 1])
    held = revealed = np.zeros(0, np.int64)
    binary = binary_labels(class_labels, positive_classes)
    # One sample of the source as it is holds its validation set like one that is not drawn.
    in_parts = request.setting == "two_sample" or request.class_prior is not None
    if num_validation and request.is_made and in_parts:
        revealed, hidden = case_control.validation(
            np.sort(np.concatenate(list(pools.values()))),
            binary,
            label_among("data.validation_labeled"),
            num_validation=num_validation,
            num_labeled=validation_labeled,
            request=request,
            rng=held_rng,
        )
        held = np.concatenate([revealed, hidden])
        pools = {c: pool[~np.isin(pool, held)] for c, pool in pools.items()}
    elif num_validation:
        held, pools = hold_out(
            "data.num_validation", num_validation, pools, held_rng, proportional_numbers
        )
        positive = {c: held[class_labels[held] == c] for c in pools if c in positive_classes}
        count = class_pools.validation_labeled(validation_labeled, positive, num_validation)
        revealed = label(count, positive, held_rng)
        # Half of them is a wish that 'pusb' may not grant; a number is an order.
        least = validation_labeled or 1
        class_pools.require_all(revealed, least, "data.validation_labeled", mechanism)

    pools = {c: pool for c, pool in pools.items() if c in positive_classes}
    class_pools.require_positives("data.num_labeled", num_labeled, sum(map(len, pools.values())))
    is_unlabeled = np.ones(len(class_labels), bool)
    is_unlabeled[support] = is_unlabeled[held] = False
    if request.is_made:
        labeled, unlabeled = case_control.training(
            np.flatnonzero(is_unlabeled),
            binary,
            label_among("data.num_labeled"),
            num_labeled=num_labeled,
            request=request,
            rng=rng,
        )
        is_unlabeled[:] = False
        is_unlabeled[unlabeled] = True
    else:
        labeled = label(num_labeled, pools, rng)
        class_pools.require_all(labeled, num_labeled, "data.num_labeled", mechanism)
        is_unlabeled[labeled] = False
    if not is_unlabeled.any():
        raise ValueError(
            f"data.num_labeled is {num_labeled}; accepted: fewer, since with {num_support} support "
            f"and {num_validation} validation examples none stays unlabeled"
        )
    return Split(
        support=np.sort(support),
        labeled=np.sort(labeled),
        unlabeled=np.flatnonzero(is_unlabeled),
        validation_labeled=np.sort(revealed),
        validation_unlabeled=np.setdiff1d(held, revealed),
    )


def _in_file_order(class_labels, positive_classes, num_labeled):
    """The split whose labelled positives are the last of each positive class."""
    pools = class_pools.by_class(class_labels, positive_classes, None)
    pools = {c: pool for c, pool in pools.items() if c in positive_classes}
    class_pools.require_positives("data.num_labeled", num_labeled, sum(map(len, pools.values())))
    shares = class_pools.equal_shares("data.num_labeled", num_labeled, pools)
    parts = zip(pools.values(), shares, strict=True)
    labeled = np.sort(np.concatenate([pool[len(pool) - share :] for pool, share in parts]))
    none = np.zeros(0, np.int64)
    unlabeled = np.setdiff1d(np.arange(len(class_labels)), labeled)
    return Split(none, labeled, unlabeled, none, none)
