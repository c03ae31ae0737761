"""What a PU problem with one label per example is made with, and the checks that need no data."""

import dataclasses
import numbers
from typing import Any

from pujax.checks import at_least, between, one_of, require, whole_number
from pujax.data.splits import class_prior as class_prior_lib
from pujax.data.splits import labeling_mechanisms

SETTINGS = ("one_sample", "two_sample")
FILE_ORDER = "file_order"
BALANCED = "balanced"
SAMPLINGS = ("stratified", BALANCED, "uniform", FILE_ORDER)
BY_CLASS = ("stratified", BALANCED)
"""Samplings that look at the class: P and support set hold the same number of each class, the
validation set holds the classes in their proportions."""
SCALINGS = ("standard", "unit")
ALL, UNKNOWN_CLASS = "all", "unknown_class"
POOLS = (ALL, UNKNOWN_CLASS)
# Counts that may be 0, and fields that ask for a draw at random.
_COUNTS = (
    *("num_support", "num_validation", "validation_labeled"),
    *("num_unlabeled", "num_positives", "num_negatives"),
)
_COUNTS_KEPT = ("num_positives", "num_negatives")
_DRAWS = ("num_support", "num_validation", "num_unlabeled", "class_prior", "labeling")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How a source becomes a PU problem; a config's `data` section has all fields by these names.

    In `one_sample` data the labelled positives are taken out of the pool, so U holds fewer
    positives than the population; in `two_sample` (case-control) data U is a sample of the
    population, made as the literature does by leaving a copy of every labelled positive in U.

    With `num_unlabeled` or `class_prior`, U is drawn from what is left instead of being all of it,
    and two-sample data are what their name says: P and U are two independent samples that share no
    example, and so are P_val and U_val. `class_prior` is the share of positives in U, in U_val and
    in the test set, of which the largest part with that share is kept. In one-sample data the
    population is then P and U together, which has more positives than that.

    With `num_positives` or `num_negatives`, only so many positives and negatives of the source stay
    in its training set before anything else is drawn; the others are in no part of the problem, and
    the test set is what it was. The population is what stays.

    Attributes:
      positive_classes: ids or names of the classes that count as positive; `dataset.build` turns
        names into ids, and an empty tuple leaves it to the names, see `class_pools.ids_of`.
      num_labeled: labelled positives; 0 leaves the labels as they are: every example of known
        positive class is in P, all others are in U, and `holdout` of both are held out.
      num_support: clean support examples, taken out of training; where labels are as they are, half
        of them labelled positives and half known negatives, which stay in U, see
        `split.as_labelled`.
      setting: one of `SETTINGS`.
      sampling: of labelled positives and support set, one of `SAMPLINGS`, see `split.split`;
        'balanced' draws U, U_val and the test set at a `class_prior` by class, too.
      prior: share of positives in the population; None counts it in the source's training labels
        and leaves it NaN where they do not tell it, see `class_prior.counted`; `class_prior.AUTO`
        leaves it NaN for `pujax.training.prior_estimation` to estimate.
      labeling: which positives get a label, one of `labeling_mechanisms.NAMES`.
      labeling_power: its exponent, see `labeling_mechanisms.propensity`.
      num_validation: examples held out of training to select an epoch with; 0 for none.
      validation_labeled: labelled positives among them; 0 is half of their positives.
      scaling: 'standard' normalises by the source's mean and standard deviation (of all of its
        training images or rows, those that `num_positives` and `num_negatives` leave out among
        them), 'unit' leaves pixels in [0, 1] and tables as they are.
      num_unlabeled: size of U; 0 for all that is left.
      class_prior: share of positives to draw; None for that of the source.
      unlabeled_pool: 'all' takes U from everything that is left; 'unknown_class' from examples of
        unknown class alone (STL-10's unlabeled images), so that those of known class which are
        neither labelled nor held out are in no part of the problem. What is held out is of known
        class, so that its U may have another share of positives than the one that is trained on.
      num_positives: positives of the training set that stay, P among them, as many of every
        positive class; 0 for all. See `subsample.rows`. Mean and deviation stay the source's.
      num_negatives: negatives that stay, as many of every negative class; 0 for all.
      holdout: share of P and of U that is held out of training as the validation set, where
        `num_labeled` is 0.
      split_seed: of every draw of examples; -1 takes the run's seed. With one split, runs of
        several seeds differ in what training draws: first weights, batches and views.

    Raises:
      ValueError: naming the field, its value and what is accepted.
    """

    positive_classes: tuple[Any, ...]
    num_labeled: int
    num_support: int
    setting: str
    sampling: str
    prior: float | str | None = None
    labeling: str = labeling_mechanisms.SCAR
    labeling_power: float = 1.0
    num_validation: int = 0
    validation_labeled: int = 0
    scaling: str = "standard"
    num_unlabeled: int = 0
    class_prior: float | None = None
    unlabeled_pool: str = ALL
    num_positives: int = 0
    num_negatives: int = 0
    holdout: float = 0.0
    split_seed: int = -1

    def __post_init__(self) -> None:
        one_of("data.setting", self.setting, SETTINGS)
        one_of("data.sampling", self.sampling, SAMPLINGS)
        one_of("data.scaling", self.scaling, SCALINGS)
        one_of("data.unlabeled_pool", self.unlabeled_pool, POOLS)
        whole_number("data.split_seed", self.split_seed, -1)
        between("data.split_seed", self.split_seed, -1, 2**31 - 1)
        self._check_counts()
        self._check_labeling()
        if self.class_prior is not None:
            between("data.class_prior", self.class_prior, 0, 1, include="neither")
        if self.prior is not None and self.prior != class_prior_lib.AUTO:
            number = isinstance(self.prior, numbers.Real)
            require(number, "data.prior", self.prior, "a share such as 0.3, or 'auto'")
            between("data.prior", float(self.prior), 0, 1, include="neither")
        if self.sampling == BALANCED:
            accepted = "'stratified', or a data.class_prior, at which U is drawn by class"
            require(self.class_prior is not None, "data.sampling", self.sampling, accepted)
        if self.unlabeled_pool != ALL:
            self._check_pool()
        for name in _DRAWS if self.sampling == FILE_ORDER else ():
            value = getattr(self, name)
            require(
                not value or value == labeling_mechanisms.SCAR,
                "data.sampling",
                self.sampling,
                f"'stratified' or 'uniform' with data.{name}={value!r}, which is a draw at random",
            )

    @property
    def keeps_labels(self) -> bool:
        """Whether P is what is labelled in the data, instead of a draw from known positives."""
        return self.num_labeled == 0

    @property
    def draws_unlabeled(self) -> bool:
        """Whether U is drawn at all; otherwise it is all that is left."""
        return self.num_unlabeled > 0 or self.class_prior is not None

    @property
    def repeats_labeled(self) -> bool:
        """Whether U holds a copy of P: two-sample data do where U is all that is left of a draw.

        Where labels are as they are, U is a sample of the population already.
        """
        drawn = self.draws_unlabeled or self.keeps_labels or self.unlabeled_pool != ALL
        return self.setting == "two_sample" and not drawn

    def _check_counts(self) -> None:
        at_least("data.num_labeled", self.num_labeled, 0)
        between("data.holdout", self.holdout, 0, 1, include="low")
        if self.keeps_labels:
            self._check_kept_labels()
        else:
            accepted = f"0 with data.num_labeled={self.num_labeled}, which draws P and holds out "
            accepted += "data.num_validation; or data.num_labeled=0, the labels as they are"
            require(not self.holdout, "data.holdout", self.holdout, accepted)
        for name in _COUNTS:
            at_least(f"data.{name}", getattr(self, name), 0)
        require(
            not self.num_positives or self.num_labeled <= self.num_positives,
            "data.num_labeled",
            self.num_labeled,
            f"at most {self.num_positives}, which is data.num_positives",
        )
        require(
            self.validation_labeled <= self.num_validation,
            "data.validation_labeled",
            self.validation_labeled,
            f"at most {self.num_validation}, which is data.num_validation",
        )

    def _check_kept_labels(self) -> None:
        # A support set is of examples of known class: their labels stay as they are, too.
        drawn = {"num_validation", *_COUNTS_KEPT, *_DRAWS} - {"num_support"}
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in sorted(drawn):
            value = getattr(self, name)
            unset = not value or value == defaults[name]
            accepted = (
                f"{defaults[name]!r} with data.num_labeled=0, which takes the labels as they "
            )
            accepted += "are"
            require(unset, f"data.{name}", value, accepted)

    def _check_pool(self) -> None:
        for name, value, is_set in (
            ("num_labeled", 0, self.keeps_labels),
            ("class_prior", self.class_prior, self.class_prior is not None),
            ("sampling", self.sampling, self.sampling == FILE_ORDER),
        ):
            accepted = f"'all' with data.{name}={value!r}"
            require(not is_set, "data.unlabeled_pool", self.unlabeled_pool, accepted)

    def _check_labeling(self) -> None:
        one_of("data.labeling", self.labeling, labeling_mechanisms.NAMES)
        at_least("data.labeling_power", self.labeling_power, 0)
        require(
            self.labeling_power == 1.0 or self.labeling in labeling_mechanisms.WITH_POWER,
            "data.labeling_power",
            self.labeling_power,
            f"1.0 with data.labeling={self.labeling!r}, which has no exponent to choose",
        )
