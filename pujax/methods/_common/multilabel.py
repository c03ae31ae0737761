"""A classifier of several labels per example, trained on an objective of its scores.

A method that is a risk of scores and labels is `build(config, info, from_risk(risk))`; one that
needs further passes through the network, such as mixup, gives its own objective.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax

from pujax import checks, models
from pujax.data.batching import Batch, Batching
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.data.pu_dataset import TrainingData
from pujax.methods._common import freezing, multilabel_network
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods.base import Method, Stage
from pujax.models import encoder as encoder_lib
from pujax.models import multilabel as nets

_PUBLISHED_FROZEN = 3
_MUCH = 0.02  # of the first weights in the average that is reported

# (batch_stats, images) -> (scores [batch, classes], batch_stats)
Forward = Callable[[Any, jax.Array], tuple[jax.Array, Any]]
# (forward, batch_stats, images, batch, key) -> (loss, (batch_stats, metrics))
Objective = Callable[..., tuple[jax.Array, tuple[Any, dict[str, jax.Array]]]]


class State(NamedTuple):
    """Everything that training changes, and what it holds fixed.

    Attributes:
      params: parameters that train.
      frozen: the others.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state.
      average: moving average of `params`.
      average_stats: moving average of `batch_stats`.
      constants: of the semantic-graph head, or None.
    """

    params: Any
    frozen: Any
    batch_stats: Any
    opt_state: Any
    average: Any
    average_stats: Any
    constants: nets.GraphConstants | None


def default_config(name: str, **changes: Any) -> ml_collections.ConfigDict:
    """Settings that every multi-label method has.

    Args:
      name: of the method.
      **changes: fields to set or add.

    Returns:
      A new `ConfigDict`.
    """
    config = optimizer_lib.adam_config()
    config.update(
        {
            "name": name,
            "num_epochs": 100,
            "batch_size": 64,
            "average_decay": 0.99,  # of the weights that are reported; 0 reports the raw ones
            "head": "gap",  # or 'semantic_graph', that of PU-MLC's code
            "word_vectors": "",  # of that head: an .npy file [classes, width], or 'random'
            "reduced_width": 1024,  # of that head, as the next two
            "attention_width": 512,
            "graph_steps": 3,
            # Stages of a residual network that do not train, from the stem on; -1 is 3 for a
            # network that starts from other weights, 0 for a fresh one.
            "frozen_stages": 0,
            "freeze_norm": "off",  # or 'on', running statistics in training too; 'auto' as above
            "augment": True,  # crops, where there are sizes, and flips
            "flip": True,
            "crop_sizes": (),  # sides of random crops in pixels of the loaded image
        }
    )
    config.update(changes)
    return config


def check(config: ml_collections.ConfigDict, info: MultilabelInfo) -> None:
    """Raises a ValueError for settings that cannot be."""
    optimizer_lib.check(config)
    checks.between("method.average_decay", config.average_decay, 0, 1, include="low")
    checks.one_of("method.head", config.head, nets.HEADS)
    checks.at_least("method.frozen_stages", config.frozen_stages, -1)
    checks.one_of("method.freeze_norm", config.freeze_norm, ("off", "on", "auto"))
    if config.crop_sizes and config.augment:
        side = info.load_side or min(info.input_shape[:2])
        for size in config.crop_sizes:
            accepted = f"whole numbers from 1 to {side}, the side of the loaded images"
            checks.require(1 <= size <= side, "method.crop_sizes", config.crop_sizes, accepted)


def from_risk(risk: Callable[[jax.Array, jax.Array], jax.Array]) -> Objective:
    """The objective of a risk of `[batch, classes]` scores and labels in {1, 0, -1}."""

    def objective(forward, batch_stats, images, batch, key):
        del key
        scores, batch_stats = forward(batch_stats, images)
        return risk(scores, batch.labeled), (batch_stats, {})

    return objective


def build(
    config: ml_collections.ConfigDict,
    info: MultilabelInfo,
    objective: Objective,
    *,
    reveals: str = "",
) -> Method:
    """A one-stage method that minimises an objective and reports averaged weights.

    Args:
      config: the whole configuration.
      info: numbers of the data set.
      objective: see `Objective`; its metrics are reported beside `loss`.
      reveals: as in `Method`.

    Returns:
      A `Method` on `State`.

    Raises:
      ValueError: for a setting that cannot be.
    """
    c = config.method
    check(c, info)
    network = multilabel_network.build(config, info)
    words = multilabel_network.word_vectors(c, info.num_classes)
    optimizer = optimizer_lib.build(
        c, num_epochs=c.num_epochs, steps_per_epoch=max(info.n // c.batch_size, 1)
    )
    is_fresh = config.model.init == models.RANDOM and not config.init_from
    frozen_stages = c.frozen_stages
    if frozen_stages < 0:
        frozen_stages = 0 if is_fresh else _PUBLISHED_FROZEN
    freezes_norm = c.freeze_norm == "on" or (c.freeze_norm == "auto" and not is_fresh)
    trains = freezing.trainable_path(frozen_stages)

    def init(key: jax.Array, previous: None, data: TrainingData) -> State:
        del previous
        constants = None
        if words is not None:
            constants = nets.GraphConstants(jnp.asarray(words), nets.adjacency(data.labeled == 1))
        inputs = network.normalize(data.inputs[:2])
        variables = network.module.init(key, inputs, False, constants=constants)
        params, batch_stats = variables["params"], variables.get("batch_stats", {})
        if data.encoder is not None:
            params, batch_stats = encoder_lib.put(data.encoder, params, batch_stats)
        freezing.check_stages(params, frozen_stages)
        params, frozen = freezing.split(params, trains)
        opt_state = optimizer.init(params)
        return State(params, frozen, batch_stats, opt_state, params, batch_stats, constants)

    def forward_of(params: Any, state: State) -> Forward:
        variables = {"params": freezing.merge(params, state.frozen)}

        def forward(batch_stats, images):
            outputs, updated = network.module.apply(
                variables | {"batch_stats": batch_stats},
                images,
                not freezes_norm,
                constants=state.constants,
                mutable=["batch_stats"],
            )
            return outputs.logits, updated.get("batch_stats", {})

        return forward

    def step(state: State, batch: Batch, key: jax.Array):
        view_key, objective_key = jax.random.split(key)
        images = multilabel_network.view(c, info, network, batch.inputs, view_key)

        def loss_of(params):
            forward = forward_of(params, state)
            return objective(forward, state.batch_stats, images, batch, objective_key)

        state, loss, (batch_stats, metrics) = optimizer_lib.descend(
            optimizer, state, loss_of, batch.progress
        )
        share = 1 - c.average_decay
        state = state._replace(
            batch_stats=batch_stats,
            average=optax.incremental_update(state.params, state.average, share),
            average_stats=optax.incremental_update(batch_stats, state.average_stats, share),
        )
        return state, metrics | {"loss": loss}

    def infer(params: Any, batch_stats: Any, state: State, inputs: jax.Array) -> jax.Array:
        variables = {"params": freezing.merge(params, state.frozen), "batch_stats": batch_stats}
        images = network.normalize(inputs)
        return network.module.apply(variables, images, False, constants=state.constants).logits

    def predict(state: State, inputs: jax.Array) -> jax.Array:
        return infer(state.average, state.average_stats, state, inputs)

    def predict_raw(state: State, inputs: jax.Array) -> jax.Array:
        return infer(state.params, state.batch_stats, state, inputs)

    batching = Batching(c.batch_size, crop_sizes=c.crop_sizes if c.augment else ())
    steps = c.num_epochs * batching.steps_per_epoch(info.n)
    share = c.average_decay**steps

    def diagnose(estimates: dict[str, float]) -> list[str]:
        del estimates
        if share < _MUCH:
            return []
        return [
            f"after {steps} steps at method.average_decay={c.average_decay:g} the averaged weights "
            f"still are {100 * share:.0f} % those before training; a smaller one suits short runs"
        ]

    return Method(
        stages=(Stage("train", c.num_epochs, init, step, batching),),
        predict=predict,
        alternatives={"raw": predict_raw} if c.average_decay else None,
        diagnose=diagnose,
        encoder=lambda state: encoder_lib.of(
            freezing.merge(state.average, state.frozen), state.average_stats
        ),
        reveals=reveals,
    )
