"""Contrastive pretraining: an encoder and a projection that find two views of one example."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import augment, checks, contrastive
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Stage

_PROBABILITIES = (
    *("jitter_probability", "grayscale_probability"),
    *("blur_probability", "solarize_probability"),
)


class State(NamedTuple):
    """Everything that training changes.

    Attributes:
      params: network parameters, with the projection.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state of what is trained.
    """

    params: Any
    batch_stats: Any
    opt_state: Any


def default_config() -> dict[str, Any]:
    """Fields of the loss and of the random views: those of ImPULSeS' released code."""
    return {
        "num_views": 2,
        "temperature": 0.5,
        "tau_plus": 0.1,
        "block_size": 0,  # anchors per block of the similarity matrix; 0 computes it at once
        "projection": "impulses",  # or 'dcl', 'lagam': see `models.heads`
        "embedding_dim": 128,
        "augment": True,
        "flip": True,
        "crop_area": 0.08,  # smallest share of an image that a crop shows
        "brightness": 0.8,
        "contrast": 0.8,
        "saturation": 0.8,
        "hue": 0.2,
        "jitter_probability": 0.8,
        "grayscale_probability": 0.2,
        "blur_probability": 0.0,
        "solarize_probability": 0.0,
        "corruption": 0.6,  # of tables: the share of features taken from another row
    }


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be."""
    c = config.method
    checks.at_least("method.num_views", c.num_views, 2)
    checks.positive("method.temperature", c.temperature)
    checks.between("method.tau_plus", c.tau_plus, 0, 1, include="low")
    checks.at_least("method.block_size", c.block_size, 0)
    checks.at_least("method.embedding_dim", c.embedding_dim, 1)
    checks.between("method.crop_area", c.crop_area, 0, 1)
    checks.positive("method.crop_area", c.crop_area)
    for name in ("brightness", "contrast", "saturation"):
        checks.between(f"method.{name}", c[name], 0, 1)
    checks.between("method.hue", c.hue, 0, 0.5)
    for name in _PROBABILITIES:
        checks.between(f"method.{name}", c[name], 0, 1)
    checks.between("method.corruption", c.corruption, 0, 1, include="neither")
    checks.require(
        info.is_table or c.augment or not c.pretrain_epochs,
        "method.augment",
        c.augment,
        "True while method.pretrain_epochs is not 0: two equal views teach nothing",
    )


def random_view(
    key: jax.Array, inputs: jax.Array, config: ml_collections.ConfigDict, *, size: int = 0
) -> jax.Array:
    """One random view of every example, raw like the inputs.

    Args:
      key: random key.
      inputs: uint8 images `[batch, height, width, channels]` or a table `[batch, features]`.
      config: the method's section.
      size: side of the views of images; 0 keeps the side.
    """
    if inputs.dtype != jnp.uint8:
        return corrupted(key, inputs, share=config.corruption)
    names = ("flip", "brightness", "contrast", "saturation", "hue", *_PROBABILITIES)
    return augment.contrastive_view(
        key,
        inputs,
        size=size,
        area=(config.crop_area, 1.0),
        **{name: config[name] for name in names},
    )


def corrupted(key: jax.Array, rows: jax.Array, *, share: float) -> jax.Array:
    """Rows in which some features are those of other rows (Bahri and others, 2022, "SCARF").

    Args:
      key: random key.
      rows: `[batch, features]`.
      share: probability that a feature is replaced by that of a random row of the batch.
    """
    which_key, row_key = jax.random.split(key)
    replaced = jax.random.bernoulli(which_key, share, rows.shape)
    others = jax.random.randint(row_key, rows.shape, 0, rows.shape[0])
    return jnp.where(replaced, jnp.take_along_axis(rows, others, axis=0), rows)


def linear(classifier: Any, features: jax.Array) -> jax.Array:
    """Scores `[batch]` of a `PUNet`'s classifier on features `[batch, d]`."""
    highest = jax.lax.Precision.HIGHEST
    scores = jnp.matmul(features, classifier["kernel"], precision=highest)
    return (scores + classifier["bias"])[:, 0]


def build(config: ml_collections.ConfigDict, network: Network, risk: Any) -> Stage:
    """The stage that pretrains an encoder on all examples.

    The classifier meanwhile is a probe: it follows `risk` on the features of the first view, whose
    gradient stops there.

    Args:
      config: the whole configuration.
      network: with a projection.
      risk: `(scores, labels) -> scalar`, for the probe.

    Returns:
      A `Stage` on `State`.
    """
    c, size = config.method, config.model.image_size
    optimizer = optimizer_lib.build(c, num_epochs=max(c.pretrain_epochs, 1))

    def init(key: jax.Array, previous: None, data: TrainingData) -> State:
        del previous
        params, batch_stats = network.init(key, data.inputs[:2], data.encoder)
        return State(params, batch_stats, optimizer.init(params))

    def step(state: State, batch: Batch, key: jax.Array):
        view_keys = jax.random.split(key, c.num_views)
        views = jax.vmap(lambda k: random_view(k, batch.inputs, c, size=size))(view_keys)

        def loss_of(params):
            outputs, batch_stats = network.train_passes(
                params,
                state.batch_stats,
                [network.normalize(view) for view in views],
                with_embedding=True,
            )
            loss = contrastive.multiview_debiased(
                jnp.stack([each.embedding for each in outputs]),
                temperature=c.temperature,
                tau_plus=c.tau_plus,
                block_size=c.block_size,
            )
            seen = jax.lax.stop_gradient(outputs[0].features)
            probe = risk(linear(params["classifier"], seen), batch.labeled)
            return loss + probe, (batch_stats, {"loss": loss, "probe_loss": probe})

        state, _, (batch_stats, metrics) = optimizer_lib.descend(
            optimizer, state, loss_of, batch.progress
        )
        return state._replace(batch_stats=batch_stats), metrics

    return Stage("pretrain", c.pretrain_epochs, init, step, Batching(c.batch_size))
