"""Evaluation of multi-label problems: the only place that compares them with the truth."""

import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from scipy import special

from pujax import metrics
from pujax.data import batching, streaming
from pujax.data.image_files import ImageFiles
from pujax.data.multilabel_dataset import MultilabelDataset
from pujax.methods.base import Method
from pujax.training import sharding
from pujax.training.evaluation import evaluator, model_selection
from pujax.training.evaluation.evaluator import Final

MAIN = model_selection.MULTILABEL_METRICS[0]


class Evaluator:
    """Scores a method's state, and the alternatives that it offers, on the test set.

    Args:
      method: the method.
      data: the problem, truth included.
      mesh: devices to run on.
      batch_size: examples per call.
      threshold: probability from which on a label is predicted.
    """

    def __init__(
        self,
        method: Method,
        data: MultilabelDataset,
        mesh: Mesh,
        *,
        batch_size: int,
        threshold: float,
    ):
        self._data = data
        self._mesh = mesh
        self._threshold = threshold
        self._batch_size = max(batch_size - batch_size % mesh.size, mesh.size)
        self._test_inputs = self._put(data.test_inputs)
        self._predict = evaluator.compiled(method.predict, mesh)
        every = tuple((method.alternatives or {}).items())
        self._predict_all = evaluator.compiled(_side_by_side(method.predict, every), mesh)

    def _put(self, inputs: np.ndarray | ImageFiles) -> jax.Array | ImageFiles:
        """Arrays on the devices; files stay where they are."""
        return inputs if isinstance(inputs, ImageFiles) else sharding.replicate(inputs, self._mesh)

    def _scores(self, predict, state: Any, inputs: jax.Array | ImageFiles) -> Any:
        if isinstance(inputs, ImageFiles):
            return streaming.map_files(
                lambda images: jax.tree.map(sharding.to_host, predict(state, images)),
                inputs,
                batch_size=self._batch_size,
                sharding=sharding.of_batch(self._batch_size, self._mesh),
            )
        result = batching.map_batches(
            lambda batch: predict(state, batch), inputs, batch_size=self._batch_size
        )
        return jax.tree.map(sharding.to_host, result)

    def row(self, state: Any) -> dict[str, float]:
        """What an evaluated epoch adds to its row: `test_*`, `test_raw_*` for an alternative."""
        scores = self._scores(self._predict_all, state, self._test_inputs)
        return {
            f"test_{prefix}{name}": value
            for prefix, each in scores.items()
            for name, value in self._metrics(each).items()
        }

    def final(self, state: Any, inputs: np.ndarray | jax.Array | ImageFiles) -> Final:
        """What the end of a run reports; `inputs` are all training examples of the problem."""
        scores = self._scores(self._predict, state, self._test_inputs)
        files = isinstance(inputs, (ImageFiles, jax.Array))
        return Final(
            test=self._metrics(scores),
            test_scores=scores,
            train_scores=self._scores(self._predict, state, inputs if files else self._put(inputs)),
            embeddings=None,
            labels={},
            estimates={},
        )

    def _metrics(self, scores: np.ndarray) -> dict[str, float]:
        return test_metrics(scores, self._data.test_labels, threshold=self._threshold)


@functools.lru_cache(maxsize=16)
def _side_by_side(predict, alternatives):
    """All of them as one function, so that images are decoded and copied once."""

    def predict_all(state, inputs):
        others = {f"{name}_": other(state, inputs) for name, other in alternatives}
        return {"": predict(state, inputs)} | others

    return predict_all


def test_metrics(
    scores: np.ndarray, labels: np.ndarray, *, threshold: float = 0.5
) -> dict[str, float]:
    """Metrics on a test set.

    Args:
      scores: `[t, classes]`, raw scores.
      labels: `[t, classes]`, true labels.
      threshold: probability from which on a label is predicted.

    Returns:
      `mean_average_precision`; precision, recall and F1 over all labels (`overall_*`: OP, OR, OF1)
      and averaged over classes (`class_*`: CP, CR, CF1) at the threshold; the best OF1 and CF1 over
      the thresholds 0.01 to 0.99, chosen on these labels (`oracle_*`); `tied_scores`.
    """
    probabilities = special.expit(np.asarray(scores, np.float64))
    report = metrics.multilabel_report(probabilities, labels, threshold=threshold)
    tuned = metrics.oracle_multilabel_f1(probabilities, labels)
    return {
        MAIN: metrics.mean_average_precision(scores, labels),
        **report._asdict(),
        "oracle_overall_f1": tuned.overall,
        "oracle_class_f1": tuned.per_class,
        "tied_scores": metrics.tied_scores(scores),
    }


def compare_labels(scores: np.ndarray, data: MultilabelDataset) -> dict[str, float]:
    """How well the signs of training scores match hidden labels.

    Args:
      scores: `[n, classes]`, raw scores of the training examples.
      data: the problem.

    Returns:
      `label_accuracy` over the hidden labels that somebody knows, `recovered_positives` and
      `hidden_positives` (counts), `label_precision` of those called positive; NaN over none.
    """
    rows = (data.labeled == 0) & (data.truth >= 0)
    called, true = scores[rows] > 0, data.truth[rows] == 1
    recovered = float(np.sum(called & true))
    return {
        "label_accuracy": float(np.mean(called == true)) if rows.any() else float("nan"),
        "label_precision": recovered / float(called.sum()) if called.any() else float("nan"),
        "recovered_positives": recovered,
        "hidden_positives": float(true.sum()),
    }
