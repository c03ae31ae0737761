"""Class-prior estimation: the share of positives in the unlabeled sample, from P and U alone.

Every estimator returns a `PriorEstimate`; docs/priors.md says which to use when. They run on the
host, in float64, but the networks of `ted_n` and `out_of_bag`: these are trained in float32, on
JAX's device.
"""

from pujax.priors.alphamax import alphamax
from pujax.priors.base import PriorEstimate
from pujax.priors.consensus import BOUNDS, Consensus, consensus, estimates_of
from pujax.priors.conversions import (
    label_frequency_from_unlabeled_prior,
    population_prior,
    unlabeled_prior,
    unlabeled_prior_from_label_frequency,
)
from pujax.priors.estimate import NAMES, estimate
from pujax.priors.held_out import HeldOut, held_out, held_out_scores
from pujax.priors.km import distance_curve, km, km1, km2
from pujax.priors.matching import pearson, pen_l1
from pujax.priors.out_of_bag import OutOfBag, out_of_bag, out_of_bag_scores
from pujax.priors.scores import best_bin, elkan_noto
from pujax.priors.ted_n import TedN, ted_n, ted_n_fit
from pujax.priors.tice import tice, tice_label_frequency

__all__ = [
    "BOUNDS",
    "NAMES",
    "Consensus",
    "HeldOut",
    "OutOfBag",
    "PriorEstimate",
    "TedN",
    "alphamax",
    "best_bin",
    "consensus",
    "distance_curve",
    "elkan_noto",
    "estimate",
    "estimates_of",
    "held_out",
    "held_out_scores",
    "km",
    "km1",
    "km2",
    "label_frequency_from_unlabeled_prior",
    "out_of_bag",
    "out_of_bag_scores",
    "pearson",
    "pen_l1",
    "population_prior",
    "ted_n",
    "ted_n_fit",
    "tice",
    "tice_label_frequency",
    "unlabeled_prior",
    "unlabeled_prior_from_label_frequency",
]
