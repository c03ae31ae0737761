"""Which priors a risk gets, by data setting (case-control or one sample)."""

import math
from typing import Any

import jax

from pujax import checks
from pujax.data.pu_dataset import DataInfo

MODES = ("auto", "none", "unlabeled")


def risk_numbers(info: DataInfo, mode: str = "auto") -> dict[str, float]:
    """Priors and weight for `risks.upu`, `risks.nnpu` and `risks.pu_parts`.

    Labelled positives that were taken out of a single sample leave U with fewer positives than the
    population. `auto` corrects for that: the mean over U becomes the mean over P and U of the data
    set. `none` is the literal risk with the population's prior, as papers run it on such data.
    `unlabeled` is the literal risk for the population that U is a sample of.

    Args:
      info: numbers of the data set.
      mode: one of `MODES`; on two-sample data all three are the same.

    Returns:
      Keyword arguments `prior`, `unlabeled_prior`, `unlabeled_weight`.

    Raises:
      ValueError: for another mode.
    """
    checks.one_of("method.calibration", mode, MODES)
    require_prior(info)
    if mode == "unlabeled":
        _require_both_classes(info.prior_unlabeled)
        priors = info.prior_unlabeled, info.prior_unlabeled
    elif mode == "none":
        priors = info.prior, info.prior
    else:
        priors = info.prior, info.prior_unlabeled
    weighted = mode == "auto" and info.setting == "one_sample"
    return {
        "prior": priors[0],
        "unlabeled_prior": priors[1],
        "unlabeled_weight": info.n_u / info.sample_size if weighted else 1.0,
    }


def at_prior(info: DataInfo, prior: jax.Array) -> DataInfo:
    """The numbers of a data set at another share of positives in its population; may be traced."""
    in_unlabeled = prior
    if info.setting == "one_sample":
        in_unlabeled = (prior * info.sample_size - info.sample_labeled) / info.n_u
    numbers: dict[str, Any] = {"prior": prior, "prior_unlabeled": in_unlabeled}
    return info._replace(**numbers)


def require_prior(info: DataInfo) -> None:
    """Raises a ValueError where the class prior is neither given nor to be counted."""
    # The priors of a part of the data may be traced; those were known before.
    numbers = [p for p in (info.prior, info.prior_unlabeled) if isinstance(p, float)]
    known = all(map(math.isfinite, numbers))
    accepted = (
        "a number between 0 and 1, or 'auto' to estimate it, since the true classes of these data "
        "do not tell it"
    )
    checks.require(known, "data.prior", None, accepted)


def unlabeled_prior(info: DataInfo, mode: str = "auto") -> float:
    """Share of positives in U for the methods that need only that; `none` takes the population's.

    Raises:
      ValueError: for a mode that is not one of `MODES`, or where U holds one class only.
    """
    checks.one_of("method.calibration", mode, MODES)
    require_prior(info)
    prior = info.prior if mode == "none" else info.prior_unlabeled
    _require_both_classes(prior)
    return prior


def _require_both_classes(prior: float) -> None:
    """Raises a ValueError where a prior that a risk divides by is 0 or 1, unless it is traced."""
    if isinstance(prior, float):
        accepted = "a number strictly between 0 and 1 (data.prior; label fewer: data.num_labeled)"
        checks.require(0 < prior < 1, "the share of positives in U", prior, accepted)
