"""PURL's second stage: a class prior, then nnPU on features that stay as they are."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from pujax import models
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods import nnpu
from pujax.methods._common import holdout, host, sections
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Stage
from pujax.methods.purl import class_prior, linear_maps, ratio_stage
from pujax.methods.purl.ratio_stage import RatioStage


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


class ClassifierStage:
    """Builds the stage and what prediction needs of it.

    Args:
      config: the whole configuration.
      info: numbers of the data set.
      network: what normalises inputs for linear features.
      ratio: the stage before, whose network gives the features; None for linear ones.
    """

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        info: DataInfo,
        network: Network,
        ratio: RatioStage | None,
    ):
        c = config.method
        self._config = c
        self._info = info
        self._network = network
        self._ratio = ratio
        self._batch_size = config.run.eval_batch_size
        head = models.build(
            "mlp",
            embedding_dim=0,
            dtype=config.model.dtype,
            hidden=tuple(c.classifier_hidden),
            batch_norm=True,
        )
        self._classifier = Network(head, mean=(0.0,), std=(1.0,))
        length = c.num_epochs - c.representation_epochs
        self._optimizer = optimizer_lib.build(c, num_epochs=length)
        self._compiled_features = jax.jit(self.features)
        self._compiled_rows = jax.jit(lambda inputs: linear_maps.flat(network.normalize(inputs)))
        self.stage = Stage(
            "classify",
            length,
            self._init,
            self._step,
            sections.batches(_with_batch_size(c), info),
            self._prepare,
            refresh_every=0,
            encode=lambda state, inputs: self.features(state.features, inputs),
        )

    def features(self, representation: Any, inputs: jax.Array) -> jax.Array:
        """v `[batch, m]` of raw inputs."""
        if self._ratio is not None:
            return self._ratio.features(representation, inputs)
        return representation(self._network.normalize(inputs))

    def predict(self, state: State, inputs: jax.Array) -> jax.Array:
        """Scores `[batch]` of raw inputs."""
        points = self.features(state.features, inputs)
        return self._classifier.infer(state.params, state.batch_stats, points).logits

    def _init(self, key: jax.Array, previous: Any, data: TrainingData) -> State:
        c = self._config
        net_key, held_key = jax.random.split(key)
        representation: Any
        if self._ratio is not None:
            representation, held = self._ratio.best(previous, data), previous.held
        else:
            held = ratio_stage.hold_out(held_key, data, c, self._info)
            dim = math.prod(self._info.input_shape)
            representation = linear_maps.blank(c.representation, dim, pca_share=c.pca_share)
        points = self.features(representation, data.inputs[:2])
        params, batch_stats = self._classifier.init(net_key, points)
        return State(
            features=representation,
            held=held,
            prior=jnp.float32(0.5),
            params=params,
            batch_stats=batch_stats,
            opt_state=self._optimizer.init(params),
        )

    def _all_features(self, representation: Any, data: TrainingData) -> np.ndarray:
        points = batching_lib.map_batches(
            self._compiled_features,
            data.inputs,
            batch_size=self._batch_size,
            args=(representation,),
        )
        return host.on_host(points, like=data.labeled)

    def _all_rows(self, data: TrainingData) -> np.ndarray:
        """Normalised inputs `[n, d]`."""
        points = batching_lib.map_batches(
            self._compiled_rows, data.inputs, batch_size=self._batch_size
        )
        return host.on_host(points, like=data.labeled)

    def _prior_points(
        self, representation: Any, data: TrainingData, fitted: np.ndarray
    ) -> np.ndarray:
        """What the prior is estimated on `[n, m]`.

        Args:
          representation: v.
          data: the training set.
          fitted: bool `[n]`, the examples that v was fitted to.
        """
        c = self._config
        if c.prior_method == class_prior.GIVEN:  # nothing is looked at
            return np.zeros([len(fitted), 1], np.float32)
        if c.prior_points == "out_of_bag":
            return self._all_rows(data)
        if not (c.standardize_rows and c.representation in linear_maps.OF_ROWS):
            return self._all_features(representation, data)
        # Distances between rows as they are, or between components of these, are those of the
        # features with the largest scale.
        rows = linear_maps.standardized(self._all_rows(data), fitted)
        labeled = np.asarray(data.labeled)[fitted]
        of_rows = linear_maps.fit(
            linear_maps.blank(c.representation, rows.shape[1], pca_share=c.pca_share),
            c.representation,
            rows[fitted],
            labeled,
            ridge=c.fda_ridge,
        )
        return np.asarray(of_rows(rows))

    def _prepare(self, state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        """Estimates the prior and, where it is not learned, fits the linear map."""
        del epoch
        c, representation = self._config, state.features
        labeled, held = np.asarray(data.labeled), np.asarray(state.held)
        if self._ratio is None:
            points = self._all_features(representation._replace(matrix=None), data)[~held]
            representation = linear_maps.fit(
                representation, c.representation, points, labeled[~held], ridge=c.fda_ridge
            )
        points = self._prior_points(representation, data, ~held)
        used = held if c.prior_points == "fresh" else ~held
        hidden, share = _without_copies(data, used)
        prior = class_prior.estimate(
            points[labeled & used], points[hidden], config=c, info=self._info, key=key
        )
        if c.prior_method != class_prior.GIVEN:
            prior = share + (1 - share) * prior
        return state._replace(features=representation, prior=jnp.float32(prior))

    def _step(self, state: State, batch: Batch, key: jax.Array):
        """One step; `batch.inputs` are v already, which the stage leaves as it is."""
        del key
        points = batch.inputs[holdout.replacements(state.held[batch.ids], batch.labeled)]
        risk = nnpu.risk(self._config, class_prior.believed(self._info, state.prior))

        def loss_of(params):
            outputs, stats = self._classifier.train_pass(params, state.batch_stats, points)
            return risk(outputs.logits, batch.labeled), stats

        state, loss, stats = optimizer_lib.descend(
            self._optimizer, state, loss_of, batch.stage_progress
        )
        return state._replace(batch_stats=stats), {"loss": loss}


def _without_copies(data: TrainingData, used: np.ndarray) -> tuple[np.ndarray, float]:
    """The examples of U that the prior is estimated on, and the share of U that is known.

    Where two-sample data repeat P in U these copies are left out, as in any estimate of the prior:
    their label is known, and half of them would be scored by networks that saw them as P.

    Args:
      data: the training set.
      used: bool `[n]`, the examples that may be looked at.
    """
    unlabeled = ~np.asarray(data.labeled)
    if data.copies is None:
        return unlabeled & used, 0.0
    copied = np.asarray(data.copies) != np.arange(len(used))
    share = float((unlabeled & copied).sum() / unlabeled.sum())
    return unlabeled & used & ~copied, share


def _with_batch_size(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """The section as the classifier's batches are drawn by."""
    if not config.classifier_batch_size:
        return config
    changed = ml_collections.ConfigDict(config.to_dict())
    changed.batch_size, changed.positives_per_batch = config.classifier_batch_size, 0
    return changed
