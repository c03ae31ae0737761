"""PURL: features that keep what P and U say, then a class prior, then nnPU on them.

Sakai, Niu and Sugiyama (2021), https://arxiv.org/abs/1710.05359. Three things happen in turn:
- a network w = g(v(x)) is fitted to the density ratio p(x | +1) / p(x), which maximises the
  squared-loss mutual information of v(x) and the class (`pujax.mutual_info`); see `ratio_stage`.
  The objective has no lower bound for a network that tells P from U by heart, so that some of P and
  of U is held out, and the network of the epoch that fits them best is kept;
- the share of positives in U is estimated on the features of P and U, by KM2 unless told otherwise;
- a perceptron on the features is trained with nnPU and that prior.
`representation` puts other features in place of the first part, and leaves the rest as it is:
'pnrl' is the same network with U taken for negatives, in the reduced form of its objective, with
the share of P in the data as the prior; 'pca' and 'fda' are linear, 'none' is the input. The same
number of examples is held out, so that all of them find the prior and classify on equally many.
The paper leaves open how long the first stage takes (as long as the held-out objective falls), the
size of batches, and the learning rate of the classifier.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from pujax import checks, models
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods import nnpu
from pujax.methods._common import classifier as classifier_lib
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Method, Stage
from pujax.methods.purl import class_prior, holdout, linear_maps, ratio_stage
from pujax.methods.purl.ratio_stage import Fit, RatioStage


class State(NamedTuple):
    """Everything that the classifier's stage changes, and what it rests on.

    Attributes:
      features: v: a `Fit`, or a `linear_maps.Linear` map.
      held: bool `[n]`, the examples held out.
      prior: share of positives in U; one half until it is estimated.
      params: parameters of the classifier.
      batch_stats: its running batch-norm statistics.
      opt_state: its optimizer state.
    """

    features: Any
    held: jax.Array
    prior: jax.Array
    params: Any
    batch_stats: Any
    opt_state: Any


def default_config() -> ml_collections.ConfigDict:
    """The paper's settings, and this package's where it states none.

    `num_epochs` is the length of both stages; a representation that is not learned has the second
    one alone, `num_epochs - representation_epochs` long. The network of the configuration is that
    of the density ratio; `classifier_hidden` are the layers of the classifier, and
    `classifier_batch_size` the size of its batches (0 is `batch_size`), of which P has its share in
    the data. `calibration` is that of `calibration.risk_numbers`, applied to the estimated prior.

    `prior_points` are the examples that the prior is estimated on: 'training' as in the paper, or
    'held_out', with as many as `validation_positives` and `validation_unlabeled` leave. Features
    fitted to the training examples set P apart from the positives in U, so that the former comes
    out too low.
    """
    config = optimizer_lib.adam_config(weight_decay=0.0)
    config.update(
        {
            "name": "purl",
            "representation": "purl",
            "num_epochs": 500,
            "batch_size": 300,
            "batching": "separate",
            "positives_per_batch": 0,
            "pca_share": 0.5,
            "fda_ridge": 1e-3,
            "prior_method": "km2",
            "prior_points": "training",
            "prior_max_points": 2000,
            "classifier_hidden": (300, 300, 300),
            "classifier_batch_size": 0,
            **ratio_stage.default_config(),
            **nnpu.risk_config(),
        }
    )
    return config


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be."""
    c = config.method
    optimizer_lib.check(c)
    checks.one_of("method.representation", c.representation, linear_maps.NAMES)
    ratio_stage.check(config)
    classifier_lib.check_batches(c)
    checks.between("method.pca_share", c.pca_share, 0, 1)
    checks.positive("method.fda_ridge", c.fda_ridge)
    class_prior.check(c, info)
    checks.require(
        c.classifier_batch_size == 0 or c.classifier_batch_size >= 2,
        "method.classifier_batch_size",
        c.classifier_batch_size,
        "0 (method.batch_size) or at least 2",
    )
    for width in c.classifier_hidden:
        checks.at_least("method.classifier_hidden", width, 1)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds PURL for a resolved configuration and a data set's numbers."""
    c = config.method
    check(config, info)
    is_learned = c.representation in linear_maps.LEARNED
    network = network_lib.build(config, info, embedding_dim=0)
    share = info.n_p / info.n if c.representation == "pnrl" else 0.0
    ratio = RatioStage(config, info, network, positive_share=share)
    head = models.build(
        "mlp",
        embedding_dim=0,
        dtype=config.model.dtype,
        hidden=tuple(c.classifier_hidden),
        batch_norm=True,
    )
    classifier = Network(head, mean=(0.0,), std=(1.0,))
    length = c.num_epochs - c.representation_epochs
    optimizer = optimizer_lib.build(c, num_epochs=length)

    def features(representation: Any, inputs: jax.Array) -> jax.Array:
        if isinstance(representation, Fit):
            return ratio.features(representation, inputs)
        return representation(network.normalize(inputs))

    def init(key: jax.Array, previous: Any, data: TrainingData) -> State:
        net_key, held_key = jax.random.split(key)
        representation: Any
        if is_learned:
            representation, held = ratio.best(previous, data), previous.held
        else:
            held = ratio_stage.hold_out(held_key, data.labeled, c, info)
            dim = math.prod(info.input_shape)
            representation = linear_maps.blank(c.representation, dim, pca_share=c.pca_share)
        params, batch_stats = classifier.init(net_key, features(representation, data.inputs[:2]))
        return State(
            features=representation,
            held=held,
            prior=jnp.float32(0.5),
            params=params,
            batch_stats=batch_stats,
            opt_state=optimizer.init(params),
        )

    compiled_features = jax.jit(features)

    def all_features(representation: Any, data: TrainingData) -> np.ndarray:
        found = batching_lib.map_batches(
            lambda inputs: compiled_features(representation, inputs),
            data.inputs,
            batch_size=config.run.eval_batch_size,
        )
        return class_prior.on_host(found, like=data.labeled)

    def prepare(state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        """Estimates the prior and, where it is not learned, fits the linear map."""
        del epoch
        labeled, held = np.asarray(data.labeled), np.asarray(state.held)
        representation = state.features
        if not is_learned:
            points = all_features(representation._replace(matrix=None), data)[~held]
            representation = linear_maps.fit(
                representation, c.representation, points, labeled[~held], ridge=c.fda_ridge
            )
        found = all_features(representation, data)
        looked_at = held if c.prior_points == "held_out" else ~held
        prior = class_prior.estimate(
            found[labeled & looked_at], found[~labeled & looked_at], config=c, info=info, key=key
        )
        return state._replace(features=representation, prior=jnp.float32(prior))

    def step(state: State, batch: Batch, key: jax.Array):
        del key
        rows = holdout.replacements(state.held[batch.ids], batch.labeled)
        points = jax.lax.stop_gradient(features(state.features, batch.inputs[rows]))
        risk = nnpu.risk(c, class_prior.believed(info, state.prior))

        def loss_of(params):
            outputs, stats = classifier.train_pass(params, state.batch_stats, points)
            return risk(outputs.logits, batch.labeled), stats

        state, loss, stats = optimizer_lib.descend(optimizer, state, loss_of, batch.stage_progress)
        return state._replace(batch_stats=stats), {"loss": loss}

    def predict(state: Any, inputs: jax.Array) -> jax.Array:
        if isinstance(state, ratio_stage.State):
            # Denser under P than under U: all that can be said before the prior is known.
            return ratio.ratio(state, inputs) - 1
        points = features(state.features, inputs)
        return classifier.infer(state.params, state.batch_stats, points).logits

    def embed(state: Any, inputs: jax.Array) -> jax.Array:
        is_ratio = isinstance(state, ratio_stage.State)
        return features(state.now if is_ratio else state.features, inputs)

    def estimates(state: Any) -> dict[str, jax.Array]:
        if isinstance(state, ratio_stage.State):
            return ratio_stage.measured(state.now)
        found = ratio.estimates(state.features, state.prior) if is_learned else {}
        return found | {"estimated_prior": state.prior}

    batches = classifier_lib.batches(_with_batch_size(c), info)
    classify = Stage("classify", length, init, step, batches, prepare, refresh_every=0)
    return Method(
        stages=(ratio.stage, classify) if is_learned else (classify,),
        predict=predict,
        embed=embed,
        estimates=estimates,
        diagnose=ratio_stage.diagnose if is_learned else None,
    )


def _with_batch_size(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """The section as the classifier's batches are drawn by."""
    if not config.classifier_batch_size:
        return config
    changed = ml_collections.ConfigDict(config.to_dict())
    changed.batch_size, changed.positives_per_batch = config.classifier_batch_size, 0
    return changed
