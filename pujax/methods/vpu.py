"""VPU: a variational bound that needs no class prior (Chen et al., NeurIPS 2020).

The classifier models `log Phi(x) = log sigmoid(g(x))` up to a constant. Training compares the mean
of Phi over a sample X of the population with log Phi on P, and asks for consistency under mixup. A
score is normalised by the largest Phi over the training examples before it is compared with 1/2.
In one-sample data X is P and U together, in two-sample data U.

The authors' networks have two logits, whose difference takes steps twice as long as the one here.
"""

import math

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks, risks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import alignment, classifier, mixup, online, sections
from pujax.methods.base import Method

SELECTION = "vpu_risk"


def default_config() -> ml_collections.ConfigDict:
    """The authors' settings for Fashion-MNIST; 30 steps of 500 and 500 are their epoch.

    `mixup_target_stop_gradient` False lets gradients flow through the mixed target, as the authors'
    code does. The rate is halved after epochs 20 and 40; that code does so one epoch earlier.
    `normalization_quantile` 1 is the largest Phi, as published; a single outlier sets
    it, and a quantile just below 1 does not follow one.
    """
    return sections.default_config(
        "vpu",
        optimizer="adam",
        learning_rate=3e-4,
        beta1=0.5,
        beta2=0.99,
        weight_decay=0.0,
        lr_schedule="step",
        lr_factor=0.5,
        lr_every=20,
        lr_resets=True,
        num_epochs=50,
        steps_per_epoch=30,
        batch_size=1000,
        batching="separate",
        augment=False,
        mixup_alpha=0.3,
        mixup_weight=0.3,
        mixup_target_stop_gradient=False,
        normalization_quantile=1.0,
        **online.default_config(),
        **alignment.switch(),
    )


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds VPU; half of every batch are labelled positives, half a sample of the population."""
    c = config.method
    sections.check(c)
    checks.at_least("method.steps_per_epoch", c.steps_per_epoch, 0)
    checks.positive("method.mixup_alpha", c.mixup_alpha)
    checks.at_least("method.mixup_weight", c.mixup_weight, 0)
    checks.between("method.normalization_quantile", c.normalization_quantile, 0, 1)
    checks.require(c.batch_size % 2 == 0, "method.batch_size", c.batch_size, "an even number")
    checks.one_of("method.batching", c.batching, ("separate",))
    checks.one_of("method.positives_per_batch", c.positives_per_batch, (0, c.batch_size // 2))
    half = c.batch_size // 2
    batching = sections.batches(
        c,
        info,
        num_positives=half,
        pool="all" if info.setting == "one_sample" else "unlabeled",
        steps=c.steps_per_epoch,
    )

    def objective(forward, batch_stats, images, batch, key, scalars=None):
        lam_key, pair_key = jax.random.split(key)
        outputs, batch_stats = forward(batch_stats, images)
        variational = risks.vpu(outputs.logits, batch.labeled)
        weight = (scalars or {}).get("mixup_weight", c.mixup_weight)
        if not scalars and not c.mixup_weight:
            return variational, (batch_stats, {})
        lam = jax.random.beta(lam_key, c.mixup_alpha, c.mixup_alpha)
        partners = jax.random.permutation(pair_key, images[:half])
        mixed = mixup.mix(images[half:], partners, lam)
        targets = mixup.mix(jax.nn.sigmoid(outputs.logits[half:]), jnp.ones([half]), lam)
        if c.mixup_target_stop_gradient:
            targets = jax.lax.stop_gradient(targets)
        mixed_pass, batch_stats = forward(batch_stats, mixed)
        consistency = risks.vpu_mixup(mixed_pass.logits, targets)
        metrics = {"loss_variational": variational, "loss_mixup": consistency}
        return variational + weight * consistency, (batch_stats, metrics)

    def offset(scores, labeled):
        # Phi / max Phi > 1/2, as a threshold on the score: the logit of half the largest Phi, which
        # is that of X: of two samples, U.
        if info.setting == "two_sample":
            scores = jnp.where(labeled, jnp.nan, scores)
        largest = jnp.nanquantile(scores, c.normalization_quantile)
        half = jax.nn.log_sigmoid(largest) - math.log(2)
        return half - jnp.log1p(-jnp.exp(half))

    learnable = {"mixup_weight": online.weight(c.mixup_weight)}
    return classifier.minimize(
        config, info, objective, batching=batching, scalars=learnable, offset=offset
    )
