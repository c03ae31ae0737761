"""Evaluation: the only place that compares with the truth."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from pujax import metrics
from pujax.data import batching
from pujax.data.dataset import PUDataset
from pujax.methods import Method
from pujax.training import sharding


class Final(NamedTuple):
    """Evaluation of the state that a run reports.

    Attributes:
      test: metrics on the test set.
      train_scores: `[n]`, scores of the training examples.
      embeddings: `[n, dim]` of the training examples, or None where the method has none.
      labels: learned labels against the hidden truth, empty where the method learns none.
    """

    test: dict[str, float]
    train_scores: np.ndarray
    embeddings: np.ndarray | None
    labels: dict[str, float]


class Evaluator:
    """Scores a method's state on the test set and its learned labels on the hidden truth.

    Args:
      method: the method.
      data: the PU problem, truth included.
      mesh: devices to run on.
      batch_size: examples per call.
    """

    def __init__(self, method: Method, data: PUDataset, mesh: Mesh, *, batch_size: int):
        self._method = method
        self._data = data
        self._mesh = mesh
        # A batch that the devices divide evenly, for a small set too.
        self._batch_size = max(batch_size - batch_size % mesh.size, mesh.size)
        self._test_inputs = sharding.replicate(data.test_inputs, mesh)
        self._predict = self._compiled(method.predict)
        self._embed = self._compiled(method.embed) if method.embed else None

    def _compiled(self, function):
        def on_mesh(state, inputs):
            return function(state, sharding.split_batch(inputs, self._mesh))

        return jax.jit(on_mesh, out_shardings=sharding.replicated(self._mesh))

    def _map(self, function, state: Any, inputs: jax.Array) -> np.ndarray:
        result = batching.map_batches(
            lambda batch: function(state, batch), inputs, batch_size=self._batch_size
        )
        return sharding.to_host(result)

    def test(self, state: Any) -> dict[str, float]:
        """Test metrics: accuracy, f1, auc, average_precision, and the share predicted positive."""
        scores = self._map(self._predict, state, self._test_inputs)
        labels = self._data.test_labels
        names = ("accuracy", "f1", "auc", "average_precision")
        result = {name: float(getattr(metrics, name)(scores, labels)) for name in names}
        return result | {"predicted_positive": float(np.mean(scores > 0))}

    def final(self, state: Any, inputs: jax.Array) -> Final:
        """What the end of a run reports; `inputs` are all training examples of the problem."""
        return Final(
            test=self.test(state),
            train_scores=self._map(self._predict, state, inputs),
            embeddings=self._map(self._embed, state, inputs) if self._embed else None,
            labels=self.label_metrics(state),
        )

    def label_metrics(self, state: Any) -> dict[str, float]:
        """Learned labels against the hidden truth; empty where the method learns none."""
        if self._method.soft_labels is None:
            return {}
        labels = sharding.to_host(self._method.soft_labels(state))
        return compare_labels(labels, self._data) | {
            "label_mse": _mean_square(labels, self._data),
        }


def _hidden(data: PUDataset) -> np.ndarray:
    """Mask of unlabeled examples whose true class is known."""
    return ~data.labeled & (data.truth >= 0)


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
