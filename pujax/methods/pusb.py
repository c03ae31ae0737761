"""nnPUSB: nnPU with a repaired threshold, for selection bias (Kato, Teshima, Honda, ICLR 2019).

If positives are labelled with a probability that grows with their posterior, the scores of the
nnPU log-loss minimiser are still in the right order and only the threshold is wrong. It is put
where the class prior says: the quantile of the scores that leaves the share of positives above it.
The authors sort the scores of the test set (`threshold_on='test'`); here those of U are the
default, so that one example is classified without the others.
"""

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks
from pujax.data.pu_dataset import DataInfo
from pujax.methods import nnpu
from pujax.methods._common import classifier, online, sections
from pujax.methods._common import threshold as threshold_lib
from pujax.methods.base import Method

SELECTION = "vpu_risk"


def default_config() -> ml_collections.ConfigDict:
    """Baseline settings with nnPU's risk in its logistic form."""
    return sections.baseline_config(
        "pusb",
        batching="separate",
        threshold_on="unlabeled",
        **nnpu.risk_config(loss="logistic"),
        **online.default_config(weights=True),
    )


def threshold(scores: jax.Array, prior: float, *, keep: jax.Array, count: int) -> jax.Array:
    """The score that leaves the share `prior` of the examples above it.

    Args:
      scores: `[n]`.
      prior: share of positives among the examples kept.
      keep: bool `[n]`, which examples count.
      count: `m`, how many they are.

    Returns:
      `sort(scores)[floor(m (1 - prior))]` over the `m` examples kept, the authors' order statistic.
    """
    return threshold_lib.at_share(scores, prior, keep=keep, count=count)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds nnPU and its threshold."""
    c = config.method
    checks.one_of("method.threshold_on", c.threshold_on, ("unlabeled", "test"))
    transductive = c.threshold_on == "test"
    draws_u = config.data.class_prior is not None or config.data.num_unlabeled > 0
    checks.require(
        not (transductive and draws_u and info.setting == "one_sample"),
        "method.threshold_on",
        c.threshold_on,
        "'unlabeled' where U is drawn (data.class_prior, data.num_unlabeled) in one-sample data, "
        "whose test set has another share of positives than P and U together",
    )

    def offset(scores: jax.Array, labeled: jax.Array) -> jax.Array:
        # U with the share of positives in U: the same quantile that P and U together would give.
        return threshold(scores, info.prior_unlabeled, keep=~labeled, count=info.n_u)

    method = classifier.build(
        config, info, nnpu.risk(c, info), groups=True, offset=None if transductive else offset
    )
    if not transductive:
        return method

    def adjust(scores: jax.Array, population: jax.Array) -> jax.Array:
        keep, count = jnp.asarray(population), int(population.sum())
        return scores - threshold(scores, info.prior, keep=keep, count=count)

    return method._replace(adjust=adjust)
