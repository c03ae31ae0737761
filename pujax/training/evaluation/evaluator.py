"""Evaluation: the only place that compares with the truth."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from pujax import metrics
from pujax.data import batching
from pujax.data.pu_dataset import PUDataset, TrainingData
from pujax.methods.base import Method
from pujax.training import sharding
from pujax.training.evaluation import model_selection


class Final(NamedTuple):
    """Evaluation of the state that a run reports.

    Attributes:
      test: metrics on the test set.
      test_scores: `[t]`, scores of the test examples.
      train_scores: `[n]`, scores of the training examples.
      embeddings: `[n, dim]` of the training examples, or None where the method has none.
      labels: learned labels against the hidden truth, empty where the method learns none.
      estimates: what the method found out itself, and its error where the truth is known.
    """

    test: dict[str, float]
    test_scores: np.ndarray
    train_scores: np.ndarray
    embeddings: np.ndarray | None
    labels: dict[str, float]
    estimates: dict[str, float]


class Evaluator:
    """Scores a method's state on the test set and its learned labels on the hidden truth.

    Args:
      method: the method.
      data: the PU problem, truth included.
      training: what the method trains on, on the devices; `calibrate` looks at it.
      mesh: devices to run on.
      batch_size: examples per call.
    """

    def __init__(
        self,
        method: Method,
        data: PUDataset,
        training: TrainingData,
        mesh: Mesh,
        *,
        batch_size: int,
    ):
        self._method = method
        self._data = data
        self._training = training
        self._mesh = mesh
        # A batch that the devices divide evenly, for a small set too.
        self._batch_size = max(batch_size - batch_size % mesh.size, mesh.size)
        self._test_inputs = sharding.replicate(data.test_inputs, mesh)
        self._has_validation = len(data.validation_inputs) > 0
        if self._has_validation:
            self._validation_inputs = sharding.replicate(data.validation_inputs, mesh)
        self._predict = compiled(method.predict, mesh)
        self._embed = compiled(method.embed, mesh) if method.embed else None

    def _map(self, function, state: Any, inputs: jax.Array) -> np.ndarray:
        result = batching.map_batches(
            lambda batch: function(state, batch), inputs, batch_size=self._batch_size
        )
        return sharding.to_host(result)

    def _scores(
        self, state: Any, inputs: jax.Array, population: np.ndarray | None = None
    ) -> np.ndarray:
        """Scores of a whole set of examples; `population` masks a sample of the population."""
        scores = self._map(self._predict, state, inputs)
        if self._method.adjust is None:
            return scores
        population = np.ones(len(scores), bool) if population is None else population
        return np.asarray(self._method.adjust(scores, population))

    def _population(self, labeled: np.ndarray) -> np.ndarray:
        """Mask of the rows that are a sample of the population: not the repeated P of two-sample
        data."""
        one_sample = self._data.info.setting == "one_sample"
        return np.ones(len(labeled), bool) if one_sample else ~labeled

    def _calibrated(self, state: Any) -> Any:
        """The state as the method wants it evaluated; training never sees it."""
        if self._method.calibrate is None:
            return state
        return sharding.gather(self._method.calibrate(state, self._training), self._mesh)

    def row(self, state: Any) -> dict[str, float]:
        """What an evaluated epoch adds to its row: `test_*`, `val_*` and learned labels."""
        trained, state = state, self._calibrated(state)
        moves_scores = self._method.calibrate is not None or self._method.adjust is not None
        labels = self._data.test_labels
        test = test_metrics(self._scores(state, self._test_inputs), labels)
        if moves_scores:
            plain = self._map(self._predict, trained, self._test_inputs)
            test["uncalibrated_accuracy"] = float(metrics.accuracy(plain, labels))
        result = {f"test_{name}": value for name, value in test.items()}
        if self._has_validation:
            inputs = self._validation_inputs
            scores = self._scores(state, inputs, self._population(self._data.validation_labeled))
            plain = self._map(self._predict, trained, inputs) if moves_scores else scores
            result |= validation_metrics(scores, self._data, plain_scores=plain)
        return result | self._label_metrics(state) | self._estimates(state)

    def final(self, state: Any, inputs: jax.Array) -> Final:
        """What the end of a run reports; `inputs` are all training examples of the problem."""
        state = self._calibrated(state)
        test_scores = self._scores(state, self._test_inputs)
        return Final(
            test=test_metrics(test_scores, self._data.test_labels),
            test_scores=test_scores,
            train_scores=self._scores(state, inputs, self._population(self._data.labeled)),
            embeddings=self._map(self._embed, state, inputs) if self._embed else None,
            labels=self._label_metrics(state),
            estimates=self._estimates(state),
        )

    def _label_metrics(self, state: Any) -> dict[str, float]:
        """Learned labels against the hidden truth; empty where the method learns none."""
        if self._method.soft_labels is None:
            return {}
        labels = sharding.to_host(self._method.soft_labels(state))
        return compare_labels(labels, self._data) | {
            "label_mse": _mean_square(labels, self._data),
        }

    def _estimates(self, state: Any) -> dict[str, float]:
        """What the method found out itself; empty where it estimates nothing."""
        if self._method.estimates is None:
            return {}
        found = self._method.estimates(state)
        return with_prior_error(
            {k: float(sharding.to_host(v)) for k, v in found.items()}, self._data
        )


@functools.lru_cache(maxsize=16)
def compiled(function, mesh: Mesh):
    """A function of state and inputs over the mesh.

    The seeds of a group share it, so that it compiles once.
    """

    def on_mesh(state, inputs):
        return function(state, sharding.split_batch(inputs, mesh))

    return jax.jit(on_mesh, out_shardings=sharding.replicated(mesh))


def test_metrics(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Metrics on a test set.

    Args:
      scores: `[t]`, raw scores.
      labels: `[t]`, true labels.

    Returns:
      `accuracy`, `f1`, `auc`, `average_precision`, and the share `predicted_positive`.
    """
    names = ("accuracy", "f1", "auc", "average_precision")
    result = {name: float(getattr(metrics, name)(scores, labels)) for name in names}
    return result | {"predicted_positive": float(np.mean(scores > 0))}


def validation_metrics(
    scores: np.ndarray, data: PUDataset, *, plain_scores: np.ndarray | None = None
) -> dict[str, float]:
    """The criteria of every selection rule on a problem's validation set, see `selection`.

    Args:
      scores: `[v]`, raw scores of `data.validation_inputs`.
      data: the PU problem.
      plain_scores: `[v]`, scores before the method calibrates them; None if it does not.

    Returns:
      The columns `selection.COLUMNS`.
    """
    return model_selection.criteria(
        scores,
        data.validation_labeled,
        data.validation_truth,
        prior=data.validation_prior(),
        setting=data.info.setting,
        plain_scores=plain_scores,
    )


def with_prior_error(estimates: dict[str, float], data: PUDataset) -> dict[str, float]:
    """Adds how far an estimated share of positives in U is from the true one.

    Args:
      estimates: what a method found out; nothing is added without an `estimated_prior`.
      data: the PU problem.

    Returns:
      The estimates, with `prior_error`, the absolute difference, where the truth of all of U is
      known.
    """
    truth = data.truth[~data.labeled]
    if "estimated_prior" not in estimates or not len(truth) or (truth < 0).any():
        return estimates
    return estimates | {"prior_error": abs(estimates["estimated_prior"] - float(truth.mean()))}


def _hidden(data: PUDataset) -> np.ndarray:
    """Mask of examples with a hidden label whose true class is known."""
    return data.hidden() & (data.truth >= 0)


def _mean_square(labels: np.ndarray, data: PUDataset) -> float:
    """Mean squared error of soft labels of U against the truth (LaGAM Fig. 4)."""
    rows = _hidden(data)
    return float(np.mean((labels[rows] - data.truth[rows]) ** 2)) if rows.any() else float("nan")


def compare_labels(labels: np.ndarray, data: PUDataset) -> dict[str, float]:
    """How well labels of U (positive iff above one half) match the hidden truth.

    Args:
      labels: `[n]`, positive mass or probability.
      data: the PU problem.

    Returns:
      `label_accuracy` over the unlabeled examples of known class, `recovered_positives` and
      `hidden_positives` (counts), `label_precision` of the examples called positive.
    """
    rows = _hidden(data)
    called, true = labels[rows] > 0.5, data.truth[rows] == 1
    recovered = float(np.sum(called & true))
    return {
        "label_accuracy": float(np.mean(called == true)) if rows.any() else float("nan"),
        "label_precision": recovered / float(called.sum()) if called.any() else float("nan"),
        "recovered_positives": recovered,
        "hidden_positives": float(true.sum()),
    }
