"""A plain classifier trained on an objective: what most baselines are.

A baseline that is a risk of scores and labels is `build(config, info, risk)`; one with its own
objective (a penalty, mixup) gives that; one whose scores need an offset known only after training
(a threshold, a largest probability) gives `offset`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import augment, checks
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Method, Stage
from pujax.models import encoder as encoder_lib

# (params, batch_stats, images, batch, key) -> (loss, (batch_stats, metrics))
Objective = Callable[..., tuple[jax.Array, tuple[Any, dict[str, jax.Array]]]]


class State(NamedTuple):
    """Everything that training a plain classifier changes.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state.
      offset: what `predict` subtracts from the scores; set by `calibrate`, 0 during training.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    offset: jax.Array


def default_config(name: str, **changes: Any) -> ml_collections.ConfigDict:
    """Settings that every plain classifier has: by default those of LaGAM's comparison.

    Args:
      name: of the method.
      **changes: fields to set or add.

    Returns:
      A new `ConfigDict`.
    """
    config = optimizer_lib.default_config()
    config.update(
        {
            "name": name,
            "num_epochs": 100,
            "batch_size": 64,
            # 'joint' shuffles P and U together; 'separate' puts a fixed number of P in each batch.
            "batching": "joint",
            "positives_per_batch": 0,  # of separate batches; 0 is the share of P in the data
            "augment": True,
            "flip": True,
            "padding": 4,
        }
    )
    config.update(changes)
    return config


def baseline_config(name: str, **changes: Any) -> ml_collections.ConfigDict:
    """Settings of the PU baselines: Adam, batches of 256, no augmentation."""
    settings = dict(optimizer_lib.adam_config())
    settings |= {"batch_size": 256, "augment": False, "weight_decay": 5e-3}
    return default_config(name, **(settings | changes))


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    optimizer_lib.check(config)
    checks.at_least("method.padding", config.padding, 0)
    check_batches(config)


def check_batches(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for batches that cannot be."""
    checks.one_of("method.batching", config.batching, ("joint", "separate"))
    checks.between("method.positives_per_batch", config.positives_per_batch, 0, config.batch_size)
    checks.require(
        config.batching == "separate" or not config.positives_per_batch,
        "method.positives_per_batch",
        config.positives_per_batch,
        "0 while method.batching is 'joint'",
    )


def require_joint(config: ml_collections.ConfigDict) -> None:
    """Requires batches in which P and U are as in the data, for weights that count on it."""
    accepted = "'joint', since the loss is a mean over the whole batch"
    checks.require(config.batching == "joint", "method.batching", config.batching, accepted)


def require_pooled(config: ml_collections.ConfigDict) -> None:
    """Requires what the pooled cross-entropy is: joint batches and the logistic loss."""
    require_joint(config)
    accepted = "'logistic' while method.weighting is 'pooled'"
    checks.require(config.loss == "logistic", "method.loss", config.loss, accepted)


def batches(config: ml_collections.ConfigDict, info: DataInfo, **changes: Any) -> Batching:
    """The batches that `config.batching` asks for.

    Separate ones hold `positives_per_batch` labelled positives, or as many as P's share in the data
    (at least one), and the rest from U.

    Args:
      config: the method's section.
      info: numbers of the data set.
      **changes: fields of `Batching` to set.

    Returns:
      A `Batching`.
    """
    size, count = config.batch_size, 0
    if config.batching == "separate":
        count = config.positives_per_batch or max(1, round(size * info.n_p / info.n))
        most = size - 1
        checks.between("method.positives_per_batch", count, 1, most)
    return Batching(**({"batch_size": size, "num_positives": count} | changes))


def from_risk(network: Network, risk: Callable[[jax.Array, jax.Array], jax.Array]) -> Objective:
    """The objective of a risk of `[batch]` scores and `[batch]` labels."""

    def objective(params, batch_stats, images, batch, key):
        del key
        outputs, batch_stats = network.train_pass(params, batch_stats, images)
        return risk(outputs.logits, batch.labeled), (batch_stats, {})

    return objective


def stage(
    config: ml_collections.ConfigDict,
    network: Network,
    objective: Objective,
    *,
    batching: Batching,
    name: str = "train",
    num_epochs: int | None = None,
) -> Stage:
    """A stage that minimises an objective, starting from the previous stage's network if any.

    Args:
      config: the method's section; a stage with an optimizer of its own passes a changed copy.
      network: what is trained.
      objective: see `Objective`; its metrics are reported beside `loss`.
      batching: which examples a batch holds.
      name: of the stage.
      num_epochs: length; None is `config.num_epochs`.

    Returns:
      A `Stage` on `State`.
    """
    num_epochs = config.num_epochs if num_epochs is None else num_epochs
    optimizer = optimizer_lib.build(config, num_epochs=num_epochs)

    def init(key: jax.Array, previous: State | None, data: TrainingData) -> State:
        if previous is None:
            params, batch_stats = network.init(key, data.inputs[:2], data.encoder)
        else:
            params, batch_stats = previous.params, previous.batch_stats
        return State(params, batch_stats, optimizer.init(params), jnp.zeros([]))

    def step(state: State, batch: Batch, key: jax.Array):
        view_key, objective_key = jax.random.split(key)
        images = view(config, network, batch.inputs, view_key)

        def loss_of(params):
            return objective(params, state.batch_stats, images, batch, objective_key)

        state, loss, (batch_stats, metrics) = optimizer_lib.descend(
            optimizer, state, loss_of, batch.stage_progress
        )
        return state._replace(batch_stats=batch_stats), metrics | {"loss": loss}

    return Stage(name, num_epochs, init, step, batching)


def view(
    config: ml_collections.ConfigDict, network: Network, inputs: jax.Array, key: jax.Array
) -> jax.Array:
    """Normalised images, randomly flipped and shifted where `config.augment` says so."""
    if config.augment:
        inputs = augment.weak_view(key, inputs, flip=config.flip, padding=config.padding)
    return network.normalize(inputs)


def method(
    network: Network,
    stages: tuple[Stage, ...],
    *,
    offset: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
    batch_size: int = 512,
    reveals: str = "",
) -> Method:
    """A method whose state is a `State`.

    Args:
      network: what is trained.
      stages: its stages.
      offset: `(scores of all training examples, labeled) -> scalar`, the score above which an
        example is positive; None is 0.
      batch_size: examples per call when all training examples are scored.
      reveals: as in `Method`.

    Returns:
      A `Method`.
    """

    def raw(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs).logits

    compiled = jax.jit(raw)

    def predict(state: State, inputs: jax.Array) -> jax.Array:
        return raw(state, inputs) - state.offset

    def embed(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs).features

    def calibrate(state: State, data: TrainingData) -> State:
        scores = batching_lib.map_batches(
            lambda inputs: compiled(state, inputs), data.inputs, batch_size=batch_size
        )
        return state._replace(offset=offset(scores, data.labeled))

    return Method(
        stages=stages,
        predict=predict,
        embed=embed,
        calibrate=None if offset is None else calibrate,
        encoder=lambda state: encoder_lib.of(state.params, state.batch_stats),
        reveals=reveals,
    )


def build(
    config: ml_collections.ConfigDict,
    info: DataInfo,
    risk: Callable[[jax.Array, jax.Array], jax.Array],
    **options: Any,
) -> Method:
    """A one-stage method that minimises `risk(scores, labeled)` over batches.

    Args:
      config: the whole configuration.
      info: numbers of the data set.
      risk: maps `[batch]` scores and `[batch]` labels to a scalar.
      **options: of `method`.

    Returns:
      A `Method`.
    """
    c = config.method
    check(c)
    network = network_lib.build(config, info, embedding_dim=0)
    training = stage(c, network, from_risk(network, risk), batching=batches(c, info))
    return method(network, (training,), batch_size=config.run.eval_batch_size, **options)
