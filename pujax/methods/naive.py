"""Naive baseline: treat every unlabeled example as negative."""

import math

import jax.numpy as jnp
import ml_collections

from pujax import checks, risks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import alignment, calibration, classifier, losses, online, sections
from pujax.methods._common import threshold as threshold_lib
from pujax.methods.base import Method

SELECTION = "proxy_accuracy_vpu"
SELECTION_WITHOUT_PRIOR = "vpu_risk"

_THRESHOLDS = ("zero", "unlabeled", "pooled", "prior", "auto")


def default_config() -> ml_collections.ConfigDict:
    """Baseline settings and which naive loss to take.

    `weighting`: 'balanced' gives P and U the weight 1 each (GradPU, section 2); 'pooled' is the
    plain mean over the batch, which collapses to all-negative where labels are few; 'prior' gives
    them the class prior and its complement. Batches are joint: on digits that is the stronger
    baseline by two points. A joint batch without P has no P term, so where P is rare in a batch
    'balanced' gives it less than the weight 1; `batching='separate'` does not.

    `threshold`: which score an example must exceed to be positive, see `threshold`; 'prior' leaves
    the share of positives of U above the cut, 'auto' is 'prior' where one is known, U holds both
    classes and images are not streamed.
    """
    return sections.baseline_config(
        "naive",
        weighting="balanced",
        threshold="zero",
        loss="logistic",
        **online.default_config(weights=True),
        **alignment.switch(),
    )


def threshold(
    name: str, *, weight_ratio: float, labeled_share: float, in_unlabeled: float
) -> float:
    """The score above which positives are the more likely class.

    The minimiser of a logistic loss of P against U is the log of their densities' ratio plus that
    of their weights' ratio. Where U has the share `a` of positives, one of U's examples is positive
    with probability `a p_P / p_U`, and one of P and U together with the share `b` of P with
    `(b + (1 - b) a) p_P / (b p_P + (1 - b) p_U)` (Elkan & Noto, KDD 2008, section 2; Garg et al.,
    NeurIPS 2021, whose code cuts the pooled sample). Each is above one half from one score on.

    Args:
      name: 'zero'; 'unlabeled', for examples like those of U; 'pooled', like P and U together,
        which is the population of one-sample data. In two-sample data that is U.
      weight_ratio: total weight of P in the loss over that of U.
      labeled_share: `b`, in (0, 1).
      in_unlabeled: `a`, in (0, 1).

    Returns:
      The score; 0 for 'zero'.

    Raises:
      ValueError: for another name.
    """
    checks.one_of("name", name, ("zero", "unlabeled", "pooled"))
    if name == "zero":
        return 0.0
    b = labeled_share if name == "pooled" else 0.0
    return math.log(weight_ratio * (1 - b) / (b + 2 * (1 - b) * in_unlabeled))


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds the naive classifier."""
    c = config.method
    checks.one_of("method.weighting", c.weighting, ("balanced", "pooled", "prior"))
    cut = c.get("threshold", "zero")  # models of earlier versions are without it
    checks.one_of("method.threshold", cut, _THRESHOLDS)
    loss = losses.surrogate(c.loss)
    if c.weighting == "pooled":
        sections.require_pooled(c)
    online.check_weights(c)
    checks.require(
        c.weighting == "pooled" or not online.has_weights(c),
        "method.weighting",
        c.weighting,
        "'pooled' while method.example_weights is not 'none', since all weights are then learned",
    )
    if c.weighting == "prior":
        calibration.require_prior(info)

    def balanced(scores, labeled):
        return risks.naive(scores, labeled, loss=loss)

    def pooled(scores, labeled, weights=None):
        return risks.weighted_bce(scores, labeled, positive_weight=1.0, weights=weights)

    def by_prior(scores, labeled):
        # The uPU parts with no positives in U: `prior E_P l(g) + (1 - prior) E_U l(-g)`.
        parts = risks.pu_parts(
            scores,
            labeled,
            prior=info.prior,
            loss=loss,
            unlabeled_prior=0.0,
            unlabeled_weight=1 - info.prior,
        )
        return parts.positive + parts.negative

    risk = {"balanced": balanced, "pooled": pooled, "prior": by_prior}[c.weighting]
    if cut in threshold_lib.RULES:
        return threshold_lib.wrap(classifier.build(config, info, risk), config, info)
    score = _threshold(c, info)
    # As an offset, which the VPU risk of held-out examples is without.
    return classifier.build(config, info, risk, offset=lambda scores, labeled: jnp.asarray(score))


def _without_positives(info: DataInfo, batch_size: int) -> float:
    """Chance of a batch, drawn without replacement, to hold nothing of P."""
    if batch_size > info.n_u:
        return 0.0
    drawn = range(batch_size)  # each is of U among what those before have left
    return math.exp(sum(math.log1p(-info.n_p / (info.n - i)) for i in drawn))


def _threshold(config: ml_collections.ConfigDict, info: DataInfo) -> float:
    """The threshold of a section, for the weights of its loss."""
    checks.require(
        config.loss == "logistic"
        and not (config.online or config.align_weight or online.has_weights(config)),
        "method.threshold",
        config.threshold,
        "'zero', unless method.loss is 'logistic', method.align_weight 0 and nothing is learned "
        "online: other scores are no log odds of P against U",
    )
    in_unlabeled = calibration.unlabeled_prior(info)
    # A batch without P has no P term, where that is not part of a mean over all of the batch.
    with_p = 1.0
    if config.weighting != "pooled" and config.batching == "joint":
        with_p = 1 - _without_positives(info, config.batch_size)
    ratio = (
        with_p
        * {
            "balanced": 1.0,
            "pooled": info.n_p / info.n_u,
            "prior": info.prior / (1 - info.prior),
        }[config.weighting]
    )
    return threshold(
        config.threshold,
        weight_ratio=ratio,
        labeled_share=info.sample_labeled / info.sample_size,
        in_unlabeled=in_unlabeled,
    )
