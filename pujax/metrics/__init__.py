"""Metrics of binary and of multi-label classifiers, computed on the host.

All are called as `(scores, labels)`, with labels 0/1, False/True or -1/1. Results are fractions,
not percent. Scores that are not a number make every metric NaN; infinite scores are allowed.

The metrics of many labels take `[n, classes]`. Categories without a positive among the labels are
undefined for some of them: each documents its value then, and `ignore_empty=True` leaves such
categories out of every average over categories.

`unlabeled_estimates` needs no negatives: it takes held-out scores of P and U and the class prior.
"""

from pujax.metrics.binary import (
    accuracy,
    auc,
    average_precision,
    f1,
    predicts_one_class,
    proxy_accuracy,
    proxy_auc,
)
from pujax.metrics.multilabel import (
    MultilabelReport,
    OracleF1,
    multilabel_f1,
    multilabel_report,
    oracle_multilabel_f1,
)
from pujax.metrics.multilabel_ranking import average_precisions, mean_average_precision, tied_scores
from pujax.metrics.unlabeled import (
    Estimate,
    auc_from_auc_pu,
    largest_prior,
    unlabeled_estimates,
)

__all__ = [
    "Estimate",
    "MultilabelReport",
    "OracleF1",
    "accuracy",
    "auc",
    "auc_from_auc_pu",
    "average_precision",
    "average_precisions",
    "f1",
    "largest_prior",
    "mean_average_precision",
    "multilabel_f1",
    "multilabel_report",
    "oracle_multilabel_f1",
    "predicts_one_class",
    "proxy_accuracy",
    "proxy_auc",
    "tied_scores",
    "unlabeled_estimates",
]
