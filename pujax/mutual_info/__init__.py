"""Squared-loss mutual information between inputs and class, from positive and unlabeled data.

With the class prior `t` and the density ratio `r(x) = p(x|+1) / p(x)`,

    SMI = t / (2 (1 - t)) E_U[(r - 1)^2] = -t / (1 - t) (min_w J_PU(w) + 1/2),
    J_PU(w) = E_U[w^2] / 2 - E_P[w],

and the least `J_PU` is reached by `w = r`. The prior is only a factor: a ratio model, or a
representation beneath it, is trained by minimising `pu_objective` and never needs it. SMI lies
between 0 (class and input are independent) and 1/2 (no overlap of the classes). Source: Sakai, Niu,
Sugiyama, "Information-theoretic representation learning for positive-unlabeled classification",
Neural Computation 33(1), 2021.

`pu_smi` is the complete estimate with Gaussian features; `fit_gaussian_ratio` and
`fit_linear_ratio` are its closed forms at given settings, differentiable in the points. The
supervised counterparts have `pn` in their names.
"""

from pujax.mutual_info.estimates import SmiEstimate, pn_smi, pu_smi
from pujax.mutual_info.features import gaussian_features, median_distance
from pujax.mutual_info.fits import (
    RatioModel,
    fit_gaussian_ratio,
    fit_linear_ratio,
    objective,
    ratio,
)
from pujax.mutual_info.objectives import diagnose, pn_objective, pu_objective, smi_from_objective
from pujax.mutual_info.selection import CrossValidation, cross_validate, cross_validate_pn
from pujax.mutual_info.supervised import (
    TwoOutputModel,
    fit_gaussian_pn,
    fit_gaussian_two_output,
    two_output_objective,
)

__all__ = [
    "CrossValidation",
    "RatioModel",
    "SmiEstimate",
    "TwoOutputModel",
    "cross_validate",
    "cross_validate_pn",
    "diagnose",
    "fit_gaussian_pn",
    "fit_gaussian_ratio",
    "fit_gaussian_two_output",
    "fit_linear_ratio",
    "gaussian_features",
    "median_distance",
    "objective",
    "pn_objective",
    "pn_smi",
    "pu_objective",
    "pu_smi",
    "ratio",
    "smi_from_objective",
    "two_output_objective",
]
