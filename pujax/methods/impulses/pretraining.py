"""Contrastive pretraining: an encoder and a projection that find two views of one example."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks, contrastive
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common import views as views_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Stage
from pujax.models import heads


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
        **views_lib.default_config(),
    }


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be."""
    c = config.method
    checks.at_least("method.num_views", c.num_views, 2)
    checks.positive("method.temperature", c.temperature)
    checks.between("method.tau_plus", c.tau_plus, 0, 1, include="low")
    checks.at_least("method.block_size", c.block_size, 0)
    checks.at_least("method.embedding_dim", c.embedding_dim, 1)
    checks.one_of("method.projection", c.projection, heads.PROJECTIONS)
    views_lib.check(c)
    if c.pretrain_epochs:
        accepted = "True while method.pretrain_epochs is not 0: two equal views teach nothing"
        views_lib.require_two(c, info, accepted)


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
        views = jax.vmap(lambda k: views_lib.random_view(k, batch.inputs, c, size=size))(view_keys)

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
