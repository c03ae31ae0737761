"""The share of positives in U as a method estimates it on its own features, on the host."""

import math
from typing import Any

import jax
import ml_collections
import numpy as np

from pujax import checks, priors
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import calibration
from pujax.priors.base import ANYTHING

GIVEN = "given"
POINTS = ("training", "fresh", "out_of_bag")
_MIN_FRESH, _MIN_OUT_OF_BAG = 2, 4
_OUT_OF_BAG_METHODS = ("km2", "best_bin", GIVEN)


def check(config: ml_collections.ConfigDict, info: DataInfo, *, held_out: tuple[int, int]) -> None:
    """Raises a ValueError for an estimator that there is not, or that has too little to look at.

    Args:
      config: a section with the fields that begin with `prior_`.
      info: numbers of the data set.
      held_out: how many of P and of U the features are not fitted to.
    """
    checks.one_of("method.prior_method", config.prior_method, (*priors.NAMES, GIVEN))
    points = config.prior_points
    renamed = "'fresh', which is the new name of 'held_out'"
    checks.require(points != "held_out", "method.prior_points", points, renamed)
    checks.one_of("method.prior_points", points, POINTS)
    if points == "out_of_bag":
        accepted = ", ".join(map(repr, _OUT_OF_BAG_METHODS))
        checks.require(
            config.prior_method in _OUT_OF_BAG_METHODS,
            "method.prior_method",
            config.prior_method,
            f"{accepted} while method.prior_points is 'out_of_bag'",
        )
    most = config.prior_max_points
    checks.at_least("method.prior_max_points", most, 2)
    if points == "out_of_bag":
        accepted = f"at least {_MIN_OUT_OF_BAG} while method.prior_points is 'out_of_bag'"
        checks.require(most >= _MIN_OUT_OF_BAG, "method.prior_max_points", most, accepted)
    if config.prior_method == GIVEN:
        calibration.require_prior(info)
        return
    for name, size, held in zip(("P", "U"), (info.n_p, info.n_u), held_out, strict=True):
        if points == "fresh" and held < _MIN_FRESH:
            accepted = f"'training', or at least {_MIN_FRESH} of {name} held out, not {held}"
            checks.require(False, "method.prior_points", points, accepted)
        if points == "out_of_bag" and size - held < _MIN_OUT_OF_BAG:
            accepted = f"'training', or at least {_MIN_OUT_OF_BAG} of {name}, not {size - held}"
            checks.require(False, "method.prior_points", points, accepted)


def believed(info: DataInfo, prior_unlabeled: jax.Array) -> DataInfo:
    """The data set's numbers with an estimated share of positives in U, for a risk."""
    prior = prior_unlabeled
    if info.setting == "one_sample":
        prior = (info.sample_labeled + prior_unlabeled * info.n_u) / info.sample_size
    numbers: dict[str, Any] = {"prior": prior, "prior_unlabeled": prior_unlabeled}  # traced
    return info._replace(**numbers)


def estimate(
    positives: np.ndarray,
    unlabeled: np.ndarray,
    *,
    config: ml_collections.ConfigDict,
    info: DataInfo,
    key: jax.Array,
) -> float:
    """The share of positives in U.

    KM1 and KM2 get the points as they are; the other estimators what `priors.estimate` makes of
    them. With `prior_points` 'out_of_bag' the points are inputs, and the estimator gets one number
    of each: the density ratio by small networks that did not see it, which minimise PURL's
    objective (`priors.out_of_bag`).

    Args:
      positives: `[m, d]`.
      unlabeled: `[n, d]`.
      config: a section with `prior_method`, `prior_points` and `prior_max_points`, how many of P,
        and of U, are looked at, at most.
      info: numbers of the data set, whose prior 'given' takes.
      key: draws those that are looked at.

    Returns:
      A number above 0 and below 1.

    Raises:
      ValueError: if the estimate is 0 or 1, which no risk accepts, or says nothing.
    """
    name = config.prior_method
    if name == GIVEN:
        return info.prior_unlabeled
    first, second, last = jax.random.split(key, 3)
    p = _some(first, positives, config.prior_max_points)
    u = _some(second, unlabeled, config.prior_max_points)
    if config.prior_points == "out_of_bag":
        found = priors.out_of_bag(p, u, estimator=name, loss="squared", num_resamples=0, key=last)
        checks.require(
            found[1:] != ANYTHING[1:],
            "method.prior_points",
            config.prior_points,
            "'training' or 'fresh' on these data, or method.prior_method='given' with data.prior: "
            "networks that did not see an example tell P from U no better than chance",
        )
        value = found.value
    elif name in ("km1", "km2"):
        value = getattr(priors, name)(p, u).value
    else:
        value = priors.estimate(p, u, method=name, key=last).value
    if not (math.isfinite(value) and 0 < value < 1):
        raise ValueError(
            f"method.prior_method is {name!r}, which estimates {value} as the share of positives "
            "in U; accepted: an estimator that finds a number between 0 and 1 on these data, or "
            "'given' with data.prior"
        )
    return float(value)


def _some(key: jax.Array, points: np.ndarray, count: int) -> np.ndarray:
    """At most `count` of the points."""
    if len(points) <= count:
        return points
    return points[np.sort(np.asarray(jax.random.permutation(key, len(points)))[:count])]
