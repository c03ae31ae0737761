"""Who gets a label: which training examples go to the support and validation sets, to P, and to U.

Pure functions of class labels, a posterior and a seed. Everything here runs once per run, on the
host. Which positives get a label is up to a mechanism, see `labeling_mechanisms`.
"""

from typing import NamedTuple

import numpy as np

from pujax.console import plural
from pujax.data.splits import case_control, class_pools, labeling_mechanisms
from pujax.data.splits.class_pools import Pools
from pujax.data.splits.settings import BALANCED, BY_CLASS, FILE_ORDER, UNKNOWN_CLASS, Settings


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


def as_labelled(binary: np.ndarray, *, holdout: float, seed: int, num_support: int = 0) -> Split:
    """P is every known positive and U all else; a share of both is held out.

    Args:
      binary: int `[n]`, 1 for a labelled positive, 0 for a known negative, -1 where unknown.
      holdout: share of P and of U that is held out, rounded, and at least one of each if above 0.
      seed: of the draw.
      num_support: examples of known class in the support set. Half of them, rounded up, are taken
        out of P. The others are known negatives, which stay in U as all of these do, so that U has
        the share of positives that it had. None is held out.

    Returns:
      A `Split` of all `n` rows. What is held out does not depend on the support set.

    Raises:
      ValueError: unless P and U both keep an example in each part, and the support set has both.
    """
    rng = np.random.default_rng([seed, 0x5057, 2])
    parts = []
    for name, rows in (("positive", binary == 1), ("unlabeled", binary != 1)):
        rows = rng.permutation(np.flatnonzero(rows))
        held = max(round(holdout * len(rows)), 1) if holdout else 0
        if len(rows) <= held:
            raise ValueError(
                f"the training set has {plural(len(rows), f'{name} example')}, of which "
                f"data.holdout={holdout:g} holds out {held}; accepted: at least one more"
            )
        parts.append((np.sort(rows[held:]), np.sort(rows[:held])))
    (labeled, held_labeled), (unlabeled, held_unlabeled) = parts
    support = _known_support(labeled, unlabeled[binary[unlabeled] == 0], num_support, seed)
    labeled = np.setdiff1d(labeled, support)
    return Split(support, labeled, unlabeled, held_labeled, held_unlabeled)


def _known_support(positive: np.ndarray, negative: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Rows of a support set out of those of known class that train; none where `count` is 0."""
    if not count:
        return np.zeros(0, np.int64)
    num_negative = count // 2
    most = 2 * min(len(negative), max(len(positive) - 1, 0))
    if not 2 <= count <= most:
        known = f"{plural(len(positive), 'labelled positive')} and "
        known += plural(len(negative), "known negative")
        accepted = (
            "0, with a method that needs no clean examples; or two labelled positives and one "
        )
        accepted += "known negative at least: zeros beside empty labels, data.zero_is=negative, or "
        accepted += "images in negative/"
        if most:
            accepted = f"2 to {most}, half of them known negatives"
        raise ValueError(
            f"data.num_support is {count}, and what is not held out has {known}; accepted: "
            f"{accepted}"
        )
    rng = np.random.default_rng([seed, 0x5057, 3])
    drawn = rng.permutation(positive)[: count - num_negative], rng.permutation(negative)
    return np.sort(np.concatenate([drawn[0], drawn[1][:num_negative]]))


def split(
    class_labels: np.ndarray,
    settings: Settings,
    *,
    seed: int,
    posterior: np.ndarray | None = None,
) -> Split:
    """Draws support set, validation set, labelled positives and unlabeled rows.

    `stratified` draws the same number of support images per source class and of labelled positives
    per positive class and tops up at random to the exact count; `uniform` draws both without regard
    to the class, which is SCAR (LaGAM, section 4.1). The validation set stands for the population
    under both: `stratified` draws from every class in proportion to what the support set leaves of
    it, rounded down and topped up at random. The mechanism that labels positives labels those of
    the validation set too. Rows whose class is unknown are always unlabeled and never held out.

    `balanced` is `stratified` with a U and a U_val, drawn at a class prior, that hold the same
    number of every class of a side.

    `file_order` draws nothing and depends on no seed: of every positive class the last rows are
    labelled, and where the number does not divide, classes of lower id give one more.

    U is all that is left; settings that ask for less, or for another share of positives, leave the
    other rows unused, see `case_control`.

    Args:
      class_labels: int `[n]`, -1 where unknown.
      settings: what to draw. Without `validation_labeled`, half of the validation positives are
        labelled, rounded down, or as many as the mechanism 'pusb' keeps; where U_val is a sample of
        its own, as many as it has positives.
      seed: seed of the draw; another seed gives another support set and other positives.
      posterior: r of every row, `[n]`; needed by all mechanisms but 'scar'.

    Returns:
      A `Split` of all `n` rows, or of those that were drawn.

    Raises:
      ValueError: where a class has too few rows.
    """
    if settings.sampling == FILE_ORDER:
        return _in_file_order(class_labels, settings)
    rng = np.random.default_rng([seed, 0x5057])
    # A stream of its own: the training positives do not depend on how validation is labelled.
    held_rng = np.random.default_rng([seed, 0x5057, 1])
    drawer = _Drawer(class_labels, settings, posterior)
    pools = class_pools.by_class(class_labels, settings.positive_classes, rng)
    equally = drawer.equal_numbers(settings.num_support, pools)
    support = drawer.hold_out("data.num_support", settings.num_support, pools, equally, rng)
    pools = class_pools.without(pools, support)
    class_pools.require_both_sides(settings.num_validation, pools, settings.positive_classes)
    revealed, hidden = drawer.validation(pools, held_rng)
    pools = class_pools.without(pools, np.concatenate([revealed, hidden]))
    labeled, unlabeled = drawer.training(pools, np.concatenate([support, revealed, hidden]), rng)
    if not len(unlabeled):
        raise ValueError(
            f"data.num_labeled is {settings.num_labeled}; accepted: fewer, since with "
            f"{settings.num_support} support and {settings.num_validation} validation examples "
            "none stays unlabeled"
        )
    return Split(*map(np.sort, (support, labeled, unlabeled, revealed, hidden)))


def passed_over(binary: np.ndarray, settings: Settings, drawn: Split) -> np.ndarray:
    """Rows that P was drawn from and that are not in it: mostly U.

    Where U is a sample of its own, or of rows of unknown class, P was drawn from rows that are
    neither in U nor held out, most of which are in no part of the problem; the class of these is
    known if U is of those whose class is not.

    Args:
      binary: int `[n]`, true classes, -1 where unknown.
      settings: what was drawn.
      drawn: the result.
    """
    is_apart = settings.setting == "two_sample" and settings.draws_unlabeled
    if settings.keeps_labels or not (is_apart or settings.unlabeled_pool == UNKNOWN_CLASS):
        return drawn.unlabeled
    rows = np.arange(len(binary))
    rows = rows[binary >= 0] if settings.unlabeled_pool == UNKNOWN_CLASS else rows
    return np.setdiff1d(rows, np.concatenate(drawn))


class _Drawer(NamedTuple):
    """The draws of a split, each from rows that are left and a stream of random numbers."""

    class_labels: np.ndarray
    settings: Settings
    posterior: np.ndarray | None

    def equal_numbers(self, count: int, pools: Pools) -> list[int]:
        """How many rows each pool gives for certain: as many as the others."""
        return [count // len(pools) if self.settings.sampling in BY_CLASS else 0] * len(pools)

    def hold_out(
        self, field: str, count: int, pools: Pools, numbers: list[int], rng: np.random.Generator
    ) -> np.ndarray:
        """Rows of known class, `numbers` of them by pool and the rest at random."""
        available = sum(map(len, pools.values()))
        if count > available:
            raise ValueError(
                f"{field} is {count}; accepted: at most the {available} training examples whose "
                "class is known and that are not held out otherwise"
            )
        return class_pools.take(pools, count, per_class=numbers, rng=rng)

    def label(
        self, field: str, count: int, least: int, positive: Pools, rng: np.random.Generator
    ) -> np.ndarray:
        """Positives that the mechanism labels: `count`, or at least `least` where it keeps less."""
        name, power = self.settings.labeling, self.settings.labeling_power
        if name == labeling_mechanisms.SCAR:
            numbers = self.equal_numbers(count, positive)
            return class_pools.take(positive, count, per_class=numbers, rng=rng)
        assert self.posterior is not None
        rows = np.sort(np.concatenate(list(positive.values())))
        e = labeling_mechanisms.propensity(self.posterior[rows], name, power=power)
        labeled = rows[labeling_mechanisms.draw(e, count, mechanism=name, rng=rng)]
        class_pools.require_all(labeled, least, field, name)
        return labeled

    def sides(self) -> case_control.Sides:
        """The true sides of all rows, with their classes where these are drawn evenly."""
        binary = binary_labels(self.class_labels, self.settings.positive_classes)
        is_balanced = self.settings.sampling == BALANCED
        return case_control.Sides(binary, self.class_labels if is_balanced else None)

    def label_among(self, field: str) -> case_control.Label:
        """Labels positives among rows that are given."""

        def label_rows(count: int, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            rows = rng.permutation(rows)
            classes = sorted(set(self.settings.positive_classes))
            positive = {c: rows[self.class_labels[rows] == c] for c in classes}
            class_pools.require_positives(field, count, positive)
            return self.label(field, count, count, positive, rng)

        return label_rows

    def validation(self, pools: Pools, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """P_val and U_val."""
        settings, size = self.settings, self.settings.num_validation
        field, given = "data.validation_labeled", settings.validation_labeled
        if not size:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        # U_val is drawn apart from P_val in two samples and at a given class prior only: elsewhere
        # both are one part of the source, of which positives are labelled, even where U is drawn.
        in_parts = settings.setting == "two_sample" or settings.class_prior is not None
        draws = settings.draws_unlabeled or settings.unlabeled_pool == UNKNOWN_CLASS
        if draws and in_parts:
            left = np.sort(np.concatenate(list(pools.values())))
            return case_control.validation(
                left, self.sides(), self.label_among(field), settings=settings, rng=rng
            )
        sizes = [len(pool) for pool in pools.values()]
        evenly = settings.sampling in BY_CLASS
        numbers = [size * n // sum(sizes) if evenly else 0 for n in sizes]
        held = self.hold_out("data.num_validation", size, pools, numbers, rng)
        positive = {
            c: held[self.class_labels[held] == c] for c in pools if c in settings.positive_classes
        }
        count = class_pools.validation_labeled(given, positive, size)
        # The default, half of them, may be more than 'pusb' keeps; a given number may not.
        revealed = self.label(field, count, given or 1, positive, rng)
        return revealed, np.setdiff1d(held, revealed)

    def training(
        self, pools: Pools, held: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """P and U; `held` are the rows of the support and the validation set."""
        field, count = "data.num_labeled", self.settings.num_labeled
        positive = class_pools.of(pools, self.settings.positive_classes)
        class_pools.require_positives(field, count, positive)
        if self.settings.unlabeled_pool == UNKNOWN_CLASS:
            labeled = self.label(field, count, count, positive, rng)
            return labeled, self.of_unknown_class(rng)
        left = np.setdiff1d(np.arange(len(self.class_labels)), held)
        if self.settings.draws_unlabeled:
            return case_control.training(
                left, self.sides(), self.label_among(field), settings=self.settings, rng=rng
            )
        labeled = self.label(field, count, count, positive, rng)
        return labeled, np.setdiff1d(left, labeled)

    def of_unknown_class(self, rng: np.random.Generator) -> np.ndarray:
        """U of rows whose class is unknown: all of them, or as many as are asked for."""
        rows = np.flatnonzero(self.class_labels < 0)
        if not len(rows):
            raise ValueError(
                f"data.unlabeled_pool is {UNKNOWN_CLASS!r}; accepted: 'all', since the class of "
                "every training example is known"
            )
        size = self.settings.num_unlabeled or len(rows)
        if size > len(rows):
            raise ValueError(
                f"data.num_unlabeled is {size}; accepted: at most {len(rows)}, the training "
                f"examples of unknown class, with data.unlabeled_pool={UNKNOWN_CLASS!r}"
            )
        return rng.permutation(rows)[:size]


def _in_file_order(class_labels: np.ndarray, settings: Settings) -> Split:
    """The split whose labelled positives are the last of each positive class."""
    field, count = "data.num_labeled", settings.num_labeled
    pools = class_pools.by_class(class_labels, settings.positive_classes, None)
    positive = class_pools.of(pools, settings.positive_classes)
    class_pools.require_positives(field, count, positive)
    shares = class_pools.equal_shares(field, count, positive)
    parts = zip(positive.values(), shares, strict=True)
    labeled = np.sort(np.concatenate([pool[len(pool) - share :] for pool, share in parts]))
    none = np.zeros(0, np.int64)
    unlabeled = np.setdiff1d(np.arange(len(class_labels)), labeled)
    return Split(none, labeled, unlabeled, none, none)
