"""Risks for positive-unlabeled classification.

Every risk takes a batch of raw scores `g(x)` and a mask that says which examples are labelled
positives; the rest of the batch is unlabeled. Sums run over the two groups separately, each divided
by its own count, and the mean over an empty group is 0. The mask may be coded 0/1, -1/1 or
False/True; other codes raise a ValueError unless the values are traced.

Two ways of collecting data need two calibrations. With `two_sample` (case-control) data the
unlabeled examples are drawn from the whole population and the class prior is all a risk needs.
With `one_sample` data the labelled positives were taken out of the pool, so U holds fewer
positives than the population: pass `unlabeled_prior`, the share of positives in U, and
`unlabeled_weight = n_u / (n_p + n_u)`, counted on the data set and not on the batch. Risks without
these arguments say in their documentation what one-sample data needs.

The losses of many labels take `[batch, classes]`. Besides those of PU-MLC there are the losses it
is compared with, which also learn from known negatives or treat every unknown label as negative.
"""

from pujax.risks.alignment import (
    MovingMean,
    label_alignment,
    softplus_distance,
    two_way_margin,
    two_way_sigmoid_loss,
)
from pujax.risks.biased import cvir, cvir_of_samples, naive, weighted_bce
from pujax.risks.distribution import ENTROPY_CLIP, dist_pu, prediction_entropy
from pujax.risks.labeling_bias import lbe_classifier, lbe_posterior, lbe_propensity
from pujax.risks.multilabel import (
    multilabel_gamma,
    multilabel_known,
    multilabel_mixup_consistency,
    multilabel_vpu,
)
from pujax.risks.multilabel_supervised import assume_negative_bce, asymmetric, partial_bce
from pujax.risks.penalized import gradient_penalty, gradpu
from pujax.risks.self_paced import (
    HARDNESS_LOSSES,
    SELF_PACED_SCHEMES,
    hardness,
    self_paced_weights,
    weighted_cross_entropy,
)
from pujax.risks.surrogates import Loss, logistic_loss, sigmoid_loss
from pujax.risks.unbiased import PUParts, imbalanced_nnpu, nnpu, pu_parts, upu
from pujax.risks.variational import vpu, vpu_mixup

__all__ = [
    "ENTROPY_CLIP",
    "HARDNESS_LOSSES",
    "Loss",
    "MovingMean",
    "PUParts",
    "SELF_PACED_SCHEMES",
    "assume_negative_bce",
    "asymmetric",
    "cvir",
    "cvir_of_samples",
    "dist_pu",
    "gradient_penalty",
    "gradpu",
    "hardness",
    "imbalanced_nnpu",
    "label_alignment",
    "lbe_classifier",
    "lbe_posterior",
    "lbe_propensity",
    "logistic_loss",
    "multilabel_gamma",
    "multilabel_known",
    "multilabel_mixup_consistency",
    "multilabel_vpu",
    "naive",
    "nnpu",
    "partial_bce",
    "prediction_entropy",
    "pu_parts",
    "self_paced_weights",
    "sigmoid_loss",
    "softplus_distance",
    "two_way_margin",
    "two_way_sigmoid_loss",
    "upu",
    "vpu",
    "vpu_mixup",
    "weighted_bce",
    "weighted_cross_entropy",
]
