"""Bi-level updates: derivatives through inner training steps, and LaGAM's label rules.

A bi-level problem has an inner loss that trains parameters and depends on meta-parameters (soft
labels, example weights, a temperature, ...), and an outer loss that judges the trained parameters
on clean data. `virtual_step` is one differentiable gradient step of the inner loss, an ordinary
function of a parameter tree, and `meta_gradient` the derivative of the outer loss through one or
many steps of any optimizer, by an estimator of one's choice: exact, truncated, implicit or by
evolution strategies. Nothing here is specific to labels; `balanced_bce`, `project_labels` and
`ema_labels` are the pieces that LaGAM puts around it.
"""

from pujax.meta.evolution import Particles
from pujax.meta.interface import ESTIMATORS, GradientInfo, meta_gradient
from pujax.meta.labels import balanced_bce, ema_labels, project_labels
from pujax.meta.leaves import KeyPath
from pujax.meta.virtual_step import virtual_step

__all__ = [
    "ESTIMATORS",
    "GradientInfo",
    "KeyPath",
    "Particles",
    "balanced_bce",
    "ema_labels",
    "meta_gradient",
    "project_labels",
    "virtual_step",
]
