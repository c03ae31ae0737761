"""The PU data set: `build` turns a fully labelled source into a `PUDataset` on the host."""

import dataclasses
from typing import Any

import numpy as np

from pujax.checks import require
from pujax.data import pu_dataset
from pujax.data.image_files import as_array
from pujax.data.pu_dataset import REVEALS, DataInfo, PUDataset, TrainingData
from pujax.data.raw import RawDataset
from pujax.data.splits import case_control, class_pools, labeling_mechanisms, subsample
from pujax.data.splits import class_prior as class_prior_lib
from pujax.data.splits import oracle_posterior as posterior_lib
from pujax.data.splits import split as split_lib
from pujax.data.splits.settings import (
    ALL,
    BALANCED,
    POOLS,
    SAMPLINGS,
    SCALINGS,
    SETTINGS,
    Settings,
)

__all__ = [
    "AUTO",
    "POOLS",
    "REVEALS",
    "SAMPLINGS",
    "SCALINGS",
    "SETTINGS",
    "DataInfo",
    "PUDataset",
    "Settings",
    "TrainingData",
    "build",
]

AUTO = class_prior_lib.AUTO


def build(raw: RawDataset, *, seed: int, **settings: Any) -> PUDataset:
    """Makes a PU problem out of a fully labelled source.

    Args:
      raw: a loaded source with one class per example.
      seed: of the split, unless `split_seed` gives another.
      **settings: fields of `Settings`.

    Returns:
      A `PUDataset`, P first, then U.

    Raises:
      ValueError: naming the field, for a setting, class, count or prior that cannot be.
    """
    chosen = Settings(**settings)
    return _build(raw, chosen, seed if chosen.split_seed < 0 else chosen.split_seed)


def _build(raw: RawDataset, settings: Settings, seed: int) -> PUDataset:
    ids = class_pools.ids_of(settings.positive_classes, raw.class_names)
    settings = dataclasses.replace(settings, positive_classes=ids)
    raw, kept = _reduced(raw, settings, seed)
    binary = split_lib.binary_labels(raw.train_labels, settings.positive_classes)
    accepted = "0, which takes the labels as they are, with a source whose rows are prepared"
    drawn_unprepared = raw.prepare is not None and not settings.keeps_labels
    require(not drawn_unprepared, "data.num_labeled", settings.num_labeled, accepted)
    if settings.keeps_labels:
        split = split_lib.as_labelled(
            binary, holdout=settings.holdout, seed=seed, num_support=settings.num_support
        )
        posterior = None
    else:
        posterior = _posterior(raw, binary, settings, seed)
        split = split_lib.split(raw.train_labels, settings, seed=seed, posterior=posterior)
    support_labels = binary[split.support]
    positives_apart = 0
    if settings.keeps_labels:
        # Which negatives are known says how the data were collected: but for the support set they
        # count as unlabeled.
        positives_apart = int(support_labels.sum())
        binary = np.where(binary == 1, np.int8(1), np.int8(-1))
    if raw.prepare is not None:
        # Negatives of the support set are in U, too.
        apart = np.setdiff1d(split.support, split.unlabeled)
        raw = raw.prepare(np.concatenate([apart, split.labeled, split.unlabeled]))
    rows = _pu_rows(split.labeled, split.unlabeled, settings)
    held = _pu_rows(split.validation_labeled, split.validation_unlabeled, settings)
    n_p, n_u = len(split.labeled), len(rows) - len(split.labeled)
    test_inputs = raw.test_inputs
    test_labels = split_lib.binary_labels(raw.test_labels, settings.positive_classes)
    if settings.class_prior is not None:
        share = settings.class_prior
        classes = raw.test_labels if settings.sampling == BALANCED else None
        sides = case_control.Sides(test_labels, classes)
        tested = case_control.test_rows(sides, class_prior=share, seed=seed)
        test_inputs, test_labels = test_inputs[tested], test_labels[tested]

    priors = _find_priors(binary, split, settings, raw.known_at_random)
    mean, std = raw.scaled_by(settings.scaling)
    info = DataInfo(
        name=raw.name,
        setting=settings.setting,
        n_p=n_p,
        n_u=n_u,
        n_support=settings.num_support,
        support_positives=int(support_labels.sum()),
        prior=priors.population,
        prior_unlabeled=priors.unlabeled,
        prior_source=priors.source,
        input_shape=tuple(raw.train_inputs.shape[1:]),
        mean=mean,
        std=std,
        positives_apart=positives_apart,
    )
    return PUDataset(
        info=info,
        inputs=raw.train_inputs[rows],
        labeled=np.arange(len(rows)) < n_p,
        source_ids=kept[rows],
        support_inputs=as_array(raw.train_inputs[split.support]),
        support_labels=support_labels,
        test_inputs=test_inputs,
        test_labels=test_labels,
        truth=binary[rows],
        validation_inputs=raw.train_inputs[held],
        validation_labeled=np.arange(len(held)) < len(split.validation_labeled),
        validation_truth=binary[held],
        labeling=labeling_mechanisms.report(
            binary,
            split.labeled,
            split_lib.passed_over(binary, settings, split),
            mechanism=settings.labeling,
            power=settings.labeling_power,
            posterior=posterior,
            classes=None if settings.sampling == "uniform" else raw.train_labels,
        ),
        unlabeled_from=_unlabeled_from(settings),
        class_sides=_sides(raw.class_names, ids),
        validation_ids=kept[held],
        own=raw.own,
    )


def _posterior(
    raw: RawDataset, binary: np.ndarray, settings: Settings, seed: int
) -> np.ndarray | None:
    """r of every training row, which all labelling mechanisms but SCAR go by."""
    if settings.labeling == labeling_mechanisms.SCAR:
        return None
    return posterior_lib.fit(raw.train_inputs, binary, seed=seed)


def _sides(names: tuple[str, ...], positive: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
    """Names of the positive and of the negative classes."""
    is_positive = [i in positive for i in range(len(names))]
    return tuple(
        tuple(name for name, side in zip(names, is_positive, strict=True) if side == wanted)
        for wanted in (True, False)
    )


def _reduced(raw: RawDataset, settings: Settings, seed: int) -> tuple[RawDataset, np.ndarray]:
    """The source with the training rows that stay, and which rows of its own those are.

    Mean and deviation stay those of all of its training rows, as its published results have them.
    """
    kept = subsample.rows(raw.train_labels, settings, seed=seed)
    if kept is None:
        return raw, np.arange(len(raw.train_labels))
    inputs, labels = raw.train_inputs[kept], raw.train_labels[kept]
    return raw._replace(train_inputs=inputs, train_labels=labels), kept


def _unlabeled_from(settings: Settings) -> str:
    if settings.class_prior is not None:
        return pu_dataset.AT_PRIOR
    if settings.keeps_labels:
        return pu_dataset.AS_LABELED
    is_sample = settings.draws_unlabeled or settings.unlabeled_pool != ALL
    return pu_dataset.SAMPLE if is_sample else pu_dataset.REST


def _pu_rows(labeled: np.ndarray, unlabeled: np.ndarray, settings: Settings) -> np.ndarray:
    """P first, then U, which in two-sample data holds P's items too unless U was drawn."""
    if settings.repeats_labeled:
        unlabeled = np.sort(np.concatenate([labeled, unlabeled]))
    return np.concatenate([labeled, unlabeled])


def _find_priors(
    binary: np.ndarray, split: split_lib.Split, settings: Settings, known_at_random: bool
) -> class_prior_lib.Priors:
    """Priors of the training set, fit for the validation set too."""
    setting, repeats, given = settings.setting, settings.repeats_labeled, settings.prior
    n_p, n = len(split.labeled), len(split.labeled) + len(split.unlabeled)
    v_p = len(split.validation_labeled)
    v = v_p + len(split.validation_unlabeled)
    if given == AUTO:
        return class_prior_lib.UNKNOWN
    if given is not None:

        def fits(n_p: int, n: int, where: str) -> class_prior_lib.Priors:
            return class_prior_lib.given(
                float(given), n_p=n_p, n=n, where=where, setting=setting, repeats_labeled=repeats
            )

        if settings.keeps_labels:
            # It is given for all rows. Of few labels the parts have other shares, by rounding; U is
            # a random part of the U of all rows, and has its share of positives.
            apart = len(np.setdiff1d(split.support, split.unlabeled))
            return fits(n_p + v_p + apart, n + v + apart, "training")
        # At a class prior, validation has a population of its own: `PUDataset.validation_prior`.
        if v and settings.class_prior is None:
            fits(v_p, v, "validation")
        return fits(n_p, n, "training")
    truth = binary[np.concatenate([split.labeled, split.unlabeled])]
    if settings.class_prior is not None:
        return class_prior_lib.drawn(truth, np.arange(n) < n_p, setting=setting)
    if setting == "two_sample" and not repeats:
        truth, n_p = truth[n_p:], 0  # U alone is a sample of the population
    priors = class_prior_lib.UNKNOWN
    if known_at_random or (truth >= 0).all():  # of one's own data only where all is known
        priors = class_prior_lib.counted(truth, n_p=n_p, setting=setting)
    if v and priors is class_prior_lib.UNKNOWN and not settings.keeps_labels:
        raise ValueError(
            "data.prior is None; accepted: a number between 0 and 1 while data.num_validation is "
            f"{v}, since the true classes of these data do not tell it"
        )
    return priors
