"""From which score of a trained network on an example is called positive.

The classification loss weighs the two labels, and so the network learns the posterior of a
population with these weights, not of the one that it is asked about. The published classifier cuts
at a score of 0 all the same, which is right where positives are as frequent as their weight.
"""

import math

import ml_collections

from pujax import checks
from pujax.data.pu_dataset import DataInfo
from pujax.methods import naive
from pujax.methods._common import calibration

THRESHOLDS = ("auto", "zero", "prior")


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for an unknown rule, and for 'prior' where no prior is known."""
    rule = _rule(config)
    checks.one_of("method.threshold", rule, THRESHOLDS)
    if rule == "prior":
        calibration.require_prior(info)


def threshold(form: str, *, prior: float, training_share: float) -> float:
    """The score above which positives are the more likely class, of labels that are right.

    A score that minimises the cross entropy with the total weight `w` of positive labels and
    `1 - w` of negative ones is `log(w p_+ / ((1 - w) p_-))`. In a population with the share `prior`
    of positives they are the more likely class where `prior p_+ > (1 - prior) p_-`, that is above
    `logit(w) - logit(prior)`. No source: LaGAM's paper cuts at 0.

    Args:
      form: of the classification loss. 'balanced' has w = 1/2, 'mean' the share of positives among
        the training examples; 'nnpu' estimates the risk of the population, whose threshold is 0.
      prior: share of positives in the population, in (0, 1).
      training_share: share of positives among P and U together, in (0, 1).

    Returns:
      The score.
    """
    if form == "nnpu":
        return 0.0
    weight = 0.5 if form == "balanced" else training_share
    return _logit(weight) - _logit(prior)


def offset(config: ml_collections.ConfigDict, info: DataInfo) -> float:
    """What is subtracted from the scores of a network; 0 where no prior is known, or asked for."""
    prior = info.prior
    if _rule(config) == "zero" or not (math.isfinite(prior) and 0 < prior < 1):
        return 0.0
    form = config.classification_loss
    if not config.use_meta and form != "nnpu":
        # U stays negative: the scores are those of P against U.
        return naive.threshold(
            "pooled" if info.setting == "one_sample" else "unlabeled",
            weight_ratio=1.0 if form == "balanced" else info.n_p / info.n_u,
            labeled_share=info.sample_labeled / info.sample_size,
            in_unlabeled=info.prior_unlabeled,
        )
    share = (info.n_p + info.n_u * info.prior_unlabeled) / info.n
    return threshold(form, prior=prior, training_share=share)


def _rule(config: ml_collections.ConfigDict) -> str:
    return str(config.get("threshold", "zero"))  # models of earlier versions are without it


def _logit(share: float) -> float:
    return math.log(share) - math.log1p(-share)
