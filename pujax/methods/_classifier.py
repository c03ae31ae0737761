"""A plain classifier trained on a risk of (scores, labeled): what most baselines are."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import ml_collections

from pujax import augment
from pujax.data.batching import Batch, Batching
from pujax.data.dataset import DataInfo, TrainingData
from pujax.methods import Method, Stage, _checks, _network, _optimizer


class State(NamedTuple):
    """Everything that training a plain classifier changes.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      momentum: optimizer state.
    """

    params: Any
    batch_stats: Any
    momentum: Any


def default_config(name: str) -> ml_collections.ConfigDict:
    """Settings that every plain classifier has."""
    config = _optimizer.default_config()
    config.update(
        {
            "name": name,
            "num_epochs": 100,
            "batch_size": 64,
            "augment": True,
            "flip": True,
            "padding": 4,
        }
    )
    return config


def build(
    config: ml_collections.ConfigDict,
    info: DataInfo,
    risk: Callable[[jax.Array, jax.Array], jax.Array],
    *,
    needs_truth: bool = False,
) -> Method:
    """A one-stage method that minimises `risk(scores, labeled)` over batches.

    Args:
      config: the whole configuration.
      info: numbers of the data set.
      risk: maps `[batch]` scores and `[batch]` labels to a scalar.
      needs_truth: as in `Method`.

    Returns:
      A `Method`.
    """
    c = config.method
    _optimizer.check(c)
    _checks.at_least("method.padding", c.padding, 0)
    network = _network.build(config, info, embedding_dim=0)
    optimizer = _optimizer.transformation(c)

    def init(key: jax.Array, previous: Any, data: TrainingData) -> State:
        del previous
        params, batch_stats = network.init(key, data.inputs[:2])
        return State(params, batch_stats, optimizer.init(params))

    def step(state: State, batch: Batch, key: jax.Array):
        images = batch.inputs
        if c.augment:
            images = augment.weak_view(key, images, flip=c.flip, padding=c.padding)
        images = network.normalize(images)

        def loss_of(params):
            outputs, batch_stats = network.train_pass(params, state.batch_stats, images)
            return risk(outputs.logits, batch.labeled), batch_stats

        (loss, batch_stats), gradient = jax.value_and_grad(loss_of, has_aux=True)(state.params)
        direction, momentum = optimizer.update(gradient, state.momentum, state.params)
        rate = _optimizer.learning_rate(c, batch.epoch)
        params = _optimizer.apply(state.params, direction, rate)
        return State(params, batch_stats, momentum), {"loss": loss}

    def predict(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs).logits

    def embed(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs).features

    stage = Stage("train", c.num_epochs, init, step, Batching(batch_size=c.batch_size))
    return Method(stages=(stage,), predict=predict, embed=embed, needs_truth=needs_truth)
