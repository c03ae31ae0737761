"""The objective of a density-ratio model, the SMI of its minimum, and warnings."""

import math
from typing import overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import arrays


def pu_objective(ratio_positive: ArrayLike, ratio_unlabeled: ArrayLike) -> jax.Array:
    """`J_PU = E_U[w^2] / 2 - E_P[w]`, least for `w(x) = p(x|+1) / p(x)`.

    The mean over an empty sample is 0. On a finite sample a flexible model can take it to minus
    infinity, by growing on the labelled positives alone; the true objective is never below
    `-1 / (2 prior)`. Watch it on held-out data, see `diagnose`. Source: Sakai, Niu, Sugiyama,
    Neural Computation 33(1), 2021.

    Args:
      ratio_positive: outputs `w` of the model for labelled positives, `[n_p]`.
      ratio_unlabeled: its outputs for unlabeled examples, `[n_u]`.

    Returns:
      The scalar objective.
    """
    ratio_positive = arrays.full_precision(ratio_positive, "ratio_positive")
    ratio_unlabeled = arrays.full_precision(ratio_unlabeled, "ratio_unlabeled")
    return _mean(ratio_unlabeled**2) / 2 - _mean(ratio_positive)


def pn_objective(
    ratio_positive: ArrayLike, ratio_negative: ArrayLike, *, prior: float | jax.Array
) -> jax.Array:
    """Supervised counterpart of `pu_objective`: `E[w^2]` over both classes instead of over U.

    `(t E_P[w^2] + (1 - t) E_N[w^2]) / 2 - E_P[w]` with prior `t`. It has the expectation of
    `pu_objective`, and `smi_from_objective` turns it into SMI in the same way.

    Args:
      ratio_positive: outputs `w` of the model for positives, `[n_p]`.
      ratio_negative: its outputs for negatives, `[n_n]`.
      prior: share of positives in the population.

    Returns:
      The scalar objective.

    Raises:
      ValueError: if `prior` is not between 0 and 1.
    """
    arrays.check_share("prior", prior)
    ratio_positive = arrays.full_precision(ratio_positive, "ratio_positive")
    ratio_negative = arrays.full_precision(ratio_negative, "ratio_negative")
    prior = jnp.asarray(prior, jnp.result_type(ratio_positive, ratio_negative))
    square = prior * _mean(ratio_positive**2) + (1 - prior) * _mean(ratio_negative**2)
    return square / 2 - _mean(ratio_positive)


@overload
def smi_from_objective(objective: float, *, prior: float) -> float: ...
@overload
def smi_from_objective(objective: jax.Array, *, prior: float | jax.Array) -> jax.Array: ...
@overload
def smi_from_objective(objective: float, *, prior: jax.Array) -> jax.Array: ...


def smi_from_objective(
    objective: float | jax.Array, *, prior: float | jax.Array
) -> float | jax.Array:
    """Squared-loss mutual information `-t / (1 - t) (J + 1/2)` of an objective `J`.

    The SMI itself in expectation for the true ratio, and a lower bound of it for every other model
    that was not fitted to the same data; on the data that it was fitted to, a model's value is too
    large. Not clipped: on finite samples estimates fall below 0 and rise above 1/2.

    Args:
      objective: value of `pu_objective` or `pn_objective`, a scalar or an array of them.
      prior: share `t` of positives in the population that U is drawn from.

    Returns:
      The SMI: a float where both are floats, else an array like `objective`.

    Raises:
      ValueError: if `prior` is not between 0 and 1.
    """
    arrays.check_share("prior", prior, ((), np.shape(objective)))
    if not (isinstance(objective, float) and isinstance(prior, float)):
        objective = arrays.full_precision(objective, "objective")
        prior = jnp.asarray(prior, objective.dtype)
    return -prior / (1 - prior) * (objective + 0.5)


def diagnose(
    smi: float | jax.Array,
    mean_ratio: float | jax.Array,
    *,
    smi_slack: float = 0.2,
    ratio_tolerance: float = 0.25,
) -> list[str]:
    """Says in sentences what is implausible about an estimated SMI.

    To be called with numbers from held-out data. The default slacks are about two standard errors
    of the true ratio on 50 held-out positives and 200 unlabeled examples, at priors from 0.3 to 0.7
    and with classes that overlap little: 0.14 to 0.24 for the SMI, 0.07 to 0.22 for the mean ratio.

    Args:
      smi: estimated SMI.
      mean_ratio: mean of the model's ratio over unlabeled examples, which is 1 for the truth.
      smi_slack: how far below 0 or above 1/2 an SMI may be by chance.
      ratio_tolerance: how far from 1 the mean ratio may be by chance.

    Returns:
      One sentence per finding; empty if there is none.
    """
    smi, mean_ratio = float(smi), float(mean_ratio)
    if not (math.isfinite(smi) and math.isfinite(mean_ratio)):
        return [
            f"The mutual information is {smi:g} and the mean ratio {mean_ratio:g}: the ratio model "
            "has diverged; lower the learning rate or raise the ridge."
        ]
    findings = []
    if smi > 0.5 + smi_slack:
        findings.append(
            f"The mutual information is {smi:.3f}, but cannot exceed 0.5: the ratio model overfits "
            "the positives, or the prior is too high; stop earlier or regularise more."
        )
    if smi < -smi_slack:
        findings.append(
            f"The mutual information is {smi:.3f}, but cannot be negative: on this data the ratio "
            "model does worse than the constant 1; train longer, or regularise differently."
        )
    if abs(mean_ratio - 1) > ratio_tolerance:
        findings.append(
            f"The density ratio averages {mean_ratio:.3f} over unlabeled examples, where a true "
            "ratio averages 1: the estimated mutual information is not to be trusted."
        )
    return findings


def _mean(values: jax.Array) -> jax.Array:
    return jnp.sum(values) / max(values.size, 1)
