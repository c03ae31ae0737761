"""The PU data set: `build` turns a named source and a split into a `PUDataset` on the host."""

from collections.abc import Sequence

import numpy as np

from pujax.data import pu_dataset
from pujax.data.pu_dataset import REVEALS, DataInfo, PUDataset, TrainingData
from pujax.data.sources import RawDataset
from pujax.data.splits import case_control, labeling_mechanisms, subsample
from pujax.data.splits import class_prior as class_prior_lib
from pujax.data.splits import oracle_posterior as posterior_lib
from pujax.data.splits import split as split_lib

__all__ = [
    "AUTO",
    "REVEALS",
    "SAMPLINGS",
    "SCALINGS",
    "SETTINGS",
    "DataInfo",
    "PUDataset",
    "TrainingData",
    "build",
]

AUTO = class_prior_lib.AUTO
SETTINGS = ("one_sample", "two_sample")
SAMPLINGS = split_lib.SAMPLINGS
SCALINGS = ("standard", "unit")


def build(
    raw: RawDataset,
    *,
    positive_classes: tuple[int, ...],
    num_labeled: int,
    num_support: int,
    setting: str,
    sampling: str,
    seed: int,
    prior: float | str | None = None,
    mechanism: str = labeling_mechanisms.SCAR,
    power: float = 1.0,
    num_validation: int = 0,
    validation_labeled: int = 0,
    scaling: str = "standard",
    num_unlabeled: int = 0,
    class_prior: float | None = None,
    num_positives: int = 0,
    num_negatives: int = 0,
) -> PUDataset:
    """Makes a PU problem out of a fully labelled source.

    In `one_sample` data the labelled positives are taken out of the pool, so U holds fewer
    positives than the population; in `two_sample` (case-control) data U is a sample of the
    population, made as the literature does by leaving a copy of every labelled positive in U.

    With `num_unlabeled` or `class_prior`, U is drawn from what is left instead of being all of it,
    and two-sample data are what their name says: P and U are two independent samples that share no
    example, and so are P_val and U_val. `class_prior` is the share of positives in U, in U_val and
    in the test set, of which the largest part with that share is kept. In one-sample data the
    population is then P and U together, which has more positives than that.

    With `num_positives` or `num_negatives`, only so many positives and negatives of the source stay
    in its training set before anything else is drawn; the others are nowhere, and the test set is
    what it was. The population is what stays.

    Args:
      raw: a loaded source.
      positive_classes: class ids that count as positive.
      num_labeled: labelled positives.
      num_support: clean support examples, taken out of training.
      setting: 'one_sample' or 'two_sample'.
      sampling: of labelled positives and support set, one of `SAMPLINGS`, see `labeling.split`.
      seed: seed of the split.
      prior: share of positives in the population; None counts it in the source's training labels
        and leaves it NaN where they do not tell it, see `_priors.counted`; `AUTO` leaves it NaN for
        `pujax.training.prior_estimation` to estimate.
      mechanism: which positives get a label, one of `mechanisms.NAMES`; config `data.labeling`.
      power: its exponent, see `mechanisms.propensity`; config `data.labeling_power`.
      num_validation: examples held out of training to select an epoch with; 0 for none.
      validation_labeled: labelled positives among them; 0 is half of their positives.
      scaling: 'standard' normalises by the source's mean and standard deviation (of its training
        images or rows), 'unit' leaves pixels in [0, 1] and tables as they are.
      num_unlabeled: size of U; 0 for all that is left.
      class_prior: share of positives to draw; None for that of the source.
      num_positives: positives of the training set that stay, P among them, as many of every
        positive class; 0 for all. See `_subset.rows`.
      num_negatives: negatives that stay, as many of every negative class; 0 for all.

    Returns:
      A `PUDataset`, P first, then U.

    Raises:
      ValueError: naming the field, for a setting, class, count or prior that cannot be.
    """
    check_word("data.setting", setting, SETTINGS)
    check_word("data.scaling", scaling, SCALINGS)
    check_word("data.labeling", mechanism, labeling_mechanisms.NAMES)
    request = _request(setting, num_unlabeled, class_prior)
    raw, kept = _reduced(
        raw,
        positive_classes=positive_classes,
        num_positives=num_positives,
        num_negatives=num_negatives,
        sampling=sampling,
        seed=seed,
    )
    binary = split_lib.binary_labels(raw.train_labels, positive_classes)
    posterior = None
    if mechanism != labeling_mechanisms.SCAR:
        posterior = posterior_lib.fit(raw.train_inputs, binary, seed=seed)
    split = split_lib.split(
        raw.train_labels,
        positive_classes=positive_classes,
        num_labeled=num_labeled,
        num_support=num_support,
        sampling=sampling,
        seed=seed,
        mechanism=mechanism,
        power=power,
        posterior=posterior,
        num_validation=num_validation,
        validation_labeled=validation_labeled,
        request=request,
    )
    rows = _pu_rows(split.labeled, split.unlabeled, request)
    held = _pu_rows(split.validation_labeled, split.validation_unlabeled, request)
    n_p, n_u = len(split.labeled), len(rows) - len(split.labeled)
    test_labels = split_lib.binary_labels(raw.test_labels, positive_classes)
    tested = slice(None)
    if class_prior is not None:
        tested = case_control.test_rows(test_labels, class_prior=class_prior, seed=seed)

    priors = _find_priors(binary, split, request=request, given=prior)
    channels, standard = len(raw.mean), scaling == "standard"
    info = DataInfo(
        name=raw.name,
        setting=setting,
        n_p=n_p,
        n_u=n_u,
        n_support=num_support,
        support_positives=int(binary[split.support].sum()),
        prior=priors.population,
        prior_unlabeled=priors.unlabeled,
        prior_source=priors.source,
        input_shape=tuple(raw.train_inputs.shape[1:]),
        mean=raw.mean if standard else (0.0,) * channels,
        std=raw.std if standard else (1.0,) * channels,
    )
    return PUDataset(
        info=info,
        inputs=raw.train_inputs[rows],
        labeled=np.arange(len(rows)) < n_p,
        source_ids=kept[rows],
        support_inputs=raw.train_inputs[split.support],
        support_labels=binary[split.support],
        test_inputs=raw.test_inputs[tested],
        test_labels=test_labels[tested],
        truth=binary[rows],
        validation_inputs=raw.train_inputs[held],
        validation_labeled=np.arange(len(held)) < len(split.validation_labeled),
        validation_truth=binary[held],
        labeling=labeling_mechanisms.report(
            binary,
            split.labeled,
            split.unlabeled,
            mechanism=mechanism,
            power=power,
            posterior=posterior,
            classes=None if sampling == "uniform" else raw.train_labels,
        ),
        unlabeled_from=_unlabeled_from(request),
    )


def _reduced(raw, *, num_positives, num_negatives, **how):
    """The source with the training rows that stay, and which rows of its own those are."""
    for name, count in (("num_positives", num_positives), ("num_negatives", num_negatives)):
        if count < 0:
            raise ValueError(f"data.{name} is {count}; accepted: 0 (all) or more")
    split_lib.check_sampling(how["sampling"])
    kept = subsample.rows(
        raw.train_labels, num_positives=num_positives, num_negatives=num_negatives, **how
    )
    if kept is None:
        return raw, np.arange(len(raw.train_labels))
    inputs, labels = raw.train_inputs[kept], raw.train_labels[kept]
    return raw._replace(train_inputs=inputs, train_labels=labels), kept


def _request(setting, num_unlabeled, class_prior):
    """How U is to be drawn, checked."""
    if num_unlabeled < 0:
        raise ValueError(f"data.num_unlabeled is {num_unlabeled}; accepted: 0 or more")
    if class_prior is not None and not 0 < class_prior < 1:
        raise ValueError(
            f"data.class_prior is {class_prior}; accepted: None, or a number strictly between 0 "
            "and 1"
        )
    return case_control.Request(setting, num_unlabeled, class_prior)


def _unlabeled_from(request):
    if request.class_prior is not None:
        return pu_dataset.AT_PRIOR
    return pu_dataset.SAMPLE if request.is_made else pu_dataset.REST


def check_word(field: str, value: str, accepted: Sequence[str]) -> None:
    """Raises a ValueError unless `value` is one of `accepted`."""
    if value not in accepted:
        raise ValueError(f"{field} is {value!r}; accepted: {', '.join(map(repr, accepted))}")


def _pu_rows(labeled, unlabeled, request):
    """P first, then U, which in two-sample data holds P's items too unless U was drawn."""
    if request.repeats_labeled:
        unlabeled = np.sort(np.concatenate([labeled, unlabeled]))
    return np.concatenate([labeled, unlabeled])


def _find_priors(binary, split, *, request, given):
    """Priors of the training set, fit for the validation set too."""
    setting, repeats = request.setting, request.repeats_labeled
    n_p, n = len(split.labeled), len(split.labeled) + len(split.unlabeled)
    v_p = len(split.validation_labeled)
    v = v_p + len(split.validation_unlabeled)
    if given == AUTO:
        return class_prior_lib.UNKNOWN
    if given is not None:
        how = {"setting": setting, "repeats_labeled": repeats}
        # At a class prior, validation has a population of its own: `PUDataset.validation_prior`.
        if v and request.class_prior is None:
            class_prior_lib.given(given, n_p=v_p, n=v, where="validation", **how)
        return class_prior_lib.given(given, n_p=n_p, n=n, **how)
    truth = binary[np.concatenate([split.labeled, split.unlabeled])]
    if request.class_prior is not None:
        return class_prior_lib.drawn(truth, np.arange(n) < n_p, setting=setting)
    if setting == "two_sample" and not repeats:
        truth, n_p = truth[n_p:], 0  # U alone is a sample of the population
    priors = class_prior_lib.counted(truth, n_p=n_p, setting=setting)
    if v and priors is class_prior_lib.UNKNOWN:
        raise ValueError(
            "data.prior is None; accepted: a number between 0 and 1 while data.num_validation is "
            f"{v}, since the true classes of these data do not tell it"
        )
    return priors
