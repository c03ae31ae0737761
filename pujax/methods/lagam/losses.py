"""LaGAM's training losses on the views of a batch (paper section 3.2 and Eq. 1)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import arrays, augment, contrastive, risks
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import calibration, mixup
from pujax.methods._common.network import Network
from pujax.methods.lagam.label_update import label_loss

NUM_KEYS = 4
"""Parts that `draw_views` splits a step's key into."""


class Views(NamedTuple):
    """Normalised views of a batch, `[batch, ...]` each, and how it was mixed.

    Attributes:
      mixed: weak views, each mixed with its partner's.
      weak: weak views.
      strong: strong views; None without the contrastive part.
      lam: share of the first example in `mixed`.
      partner: int32 `[batch]`, rows of the second.
    """

    mixed: jax.Array
    weak: jax.Array
    strong: jax.Array | None
    lam: jax.Array
    partner: jax.Array


def draw_views(
    config: ml_collections.ConfigDict, network: Network, batch: Batch, key: jax.Array
) -> Views:
    """Draws the views of a batch."""
    weak_key, strong_key, mix_key, pair_key = jax.random.split(key, NUM_KEYS)
    weak: jax.Array = batch.inputs
    strong: jax.Array = batch.inputs
    if config.augment:
        how: dict[str, Any] = {"flip": config.flip, "padding": config.padding}
        weak = augment.weak_view(weak_key, batch.inputs, **how)
        strong = augment.strong_view(strong_key, batch.inputs, **how)
    weak = network.normalize(weak)
    lam = mixup.larger_lam(mix_key, config.mixup_alpha)
    partner = jax.random.permutation(pair_key, weak.shape[0])
    mixed = mixup.mix(weak, weak[partner], lam)
    seen = network.normalize(strong) if config.use_contrast else None
    return Views(mixed, weak, seen, lam, partner)


def contrastive_losses(
    config: ml_collections.ConfigDict,
    weak_pass: Any,
    strong: jax.Array,
    clusters: jax.Array,
    epoch: jax.Array,
    *,
    in_warmup: bool,
) -> tuple[jax.Array, jax.Array]:
    """Instance and group terms (paper Eq. 4-6); the compiler computes their similarities once."""
    weak = weak_pass.embedding
    instance = contrastive.instance_discrimination(weak, strong, temperature=config.temperature)
    if in_warmup or not config.use_groups:
        return instance, jnp.zeros([])
    sides = None
    if config.use_cutoff:
        sides = jax.lax.stop_gradient(weak_pass.logits) > config.cutoff
    find: dict[str, Any] = {"clusters": clusters, "sides": sides}
    positives = contrastive.latent_group_positives(weak, strong, **find)
    if config.use_neighbors:
        near = contrastive.latent_group_positives(
            weak, strong, **find, num_neighbors=config.num_neighbors
        )
        positives = jnp.where(epoch > config.neighbors_after_epoch, near, positives)
    group = contrastive.group_contrast(weak, strong, positives, temperature=config.temperature)
    return instance, group


def classification_losses(
    config: ml_collections.ConfigDict,
    info: DataInfo,
    scores: tuple[jax.Array, jax.Array],
    batch: Batch,
    labels: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Losses of the weak and of the mixed view, whose scores and labels are pairs.

    The entropy is that of the weak view in the network's own step. In the authors' code, where it
    is off, it would be part of every classification loss, the inner and the outer one included.
    """
    if config.classification_loss == "nnpu":
        numbers: dict[str, Any] = calibration.risk_numbers(info)
        weak_loss = risks.nnpu(scores[0], batch.labeled, **numbers)
        mixed_loss = jnp.zeros([])  # a mixed example is neither labelled nor unlabeled
    else:
        weak_loss, mixed_loss = (
            label_loss(*view, form=config.classification_loss)
            for view in zip(scores, labels, strict=True)
        )
    if config.entropy_weight:
        weak_loss += config.entropy_weight * _mean_entropy(scores[0])
    return weak_loss, mixed_loss


def _mean_entropy(scores: jax.Array) -> jax.Array:
    """Mean entropy of the two-way prediction, clipped as the classification loss is."""
    p = arrays.clipped(jax.nn.sigmoid(scores), 1e-4, 1 - 1e-4)
    return -jnp.mean(p * jnp.log(p) + (1 - p) * jnp.log1p(-p))
