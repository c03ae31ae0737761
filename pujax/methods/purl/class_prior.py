"""The share of positives in U as a method estimates it on its own features, on the host."""

import math
from typing import Any

import jax
import ml_collections
import numpy as np

from pujax import checks, priors
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import calibration

GIVEN = "given"


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for an estimator that there is not, or a prior that is not given."""
    checks.one_of("method.prior_method", config.prior_method, (*priors.NAMES, GIVEN))
    checks.one_of("method.prior_points", config.prior_points, ("training", "held_out"))
    checks.at_least("method.prior_max_points", config.prior_max_points, 2)
    if config.prior_method == GIVEN:
        calibration.require_prior(info)


def believed(info: DataInfo, prior_unlabeled: jax.Array) -> DataInfo:
    """The data set's numbers with an estimated share of positives in U, for a risk."""
    prior = prior_unlabeled
    if info.setting == "one_sample":
        prior = (info.n_p + prior_unlabeled * info.n_u) / info.n
    numbers: dict[str, Any] = {"prior": prior, "prior_unlabeled": prior_unlabeled}  # traced
    return info._replace(**numbers)


def on_host(values: jax.Array, *, like: jax.Array) -> np.ndarray:
    """Values from the devices, every host the whole of them.

    Args:
      values: an array, possibly split over the devices.
      like: an array that every device holds a copy of.
    """
    return np.asarray(jax.jit(lambda x: x, out_shardings=like.sharding)(values))


def estimate(
    positives: np.ndarray,
    unlabeled: np.ndarray,
    *,
    config: ml_collections.ConfigDict,
    info: DataInfo,
    key: jax.Array,
) -> float:
    """The share of positives in U.

    KM1 and KM2 get the features as they are, as in PURL; the other estimators what
    `priors.estimate` makes of them.

    Args:
      positives: `[m, d]`.
      unlabeled: `[n, d]`.
      config: a section with `prior_method` and `prior_max_points`, how many of P, and of U, are
        looked at, at most.
      info: numbers of the data set, whose prior 'given' takes.
      key: draws those that are looked at.

    Returns:
      A number above 0 and below 1.

    Raises:
      ValueError: if the estimate is 0 or 1, which no risk accepts.
    """
    name = config.prior_method
    if name == GIVEN:
        return info.prior_unlabeled
    first, second, last = jax.random.split(key, 3)
    p = _some(first, positives, config.prior_max_points)
    u = _some(second, unlabeled, config.prior_max_points)
    if name in ("km1", "km2"):
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
