"""Evaluation of a method's states: scores of whole sets, which a task compares with the truth."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from pujax.data import batching, streaming
from pujax.data.image_files import ImageFiles
from pujax.data.pu_dataset import DataInfo, PUDataset, TrainingData
from pujax.methods.base import Method
from pujax.training import sharding
from pujax.training.evaluation.summary import Final
from pujax.training.evaluation.tasks import Problem, Task

Inputs = np.ndarray | jax.Array | ImageFiles


class Evaluator:
    """Scores a method's state on the test and validation sets, and its labels on hidden truth.

    Args:
      method: the method.
      data: the PU problem, truth included.
      training: what the method trains on, on the devices; `calibrate` looks at it.
      mesh: devices to run on.
      task: what the scores are compared with.
      batch_size: examples per call.
      threshold: probability from which on a label is predicted, where the task has several.
    """

    def __init__(
        self,
        method: Method,
        data: Problem,
        training: TrainingData | None,
        mesh: Mesh,
        *,
        task: Task,
        batch_size: int,
        threshold: float = 0.5,
    ):
        self._method = method
        self._data = data
        self._training: Any = training  # not None where the method calibrates
        self._mesh = mesh
        self._task = task
        self._threshold = threshold
        # A batch that the devices divide evenly, for a small set too.
        self._batch_size = max(batch_size - batch_size % mesh.size, mesh.size)
        self._test_inputs = self._put(data.test_inputs)
        self._validation_inputs: jax.Array | ImageFiles | None = None
        self._validation_labeled: np.ndarray | None = None
        if isinstance(data, PUDataset) and len(data.validation_inputs):
            self._validation_inputs = self._put(data.validation_inputs)
            self._validation_labeled = data.validation_labeled
        self._predict = compiled(method.predict, mesh)
        self._embed = compiled(method.embed, mesh) if method.embed else None
        self._predict_all = None
        if method.alternatives:
            every = tuple(method.alternatives.items())
            self._predict_all = compiled(_side_by_side(method.predict, every), mesh)

    def row(self, state: Any) -> dict[str, float]:
        """What an evaluated epoch adds to its row.

        `test_*` where there is a test set, `test_NAME_*` for every alternative of the method;
        `val_*` where there is a validation set; learned labels and estimates of the method.
        """
        trained, state = state, self.calibrated(state)
        moves_scores = self._method.calibrate is not None or self._method.adjust is not None
        has_test = len(self._test_inputs) > 0
        result = {}
        if has_test:
            result = {
                f"test_{prefix}{name}": value
                for prefix, scores in self._all_scores(state, self._test_inputs).items()
                for name, value in self._test_metrics(scores).items()
            }
        if moves_scores and has_test:
            plain = self._map(self._predict, trained, self._test_inputs)
            result["test_uncalibrated_accuracy"] = self._test_metrics(plain)["accuracy"]
        inputs = self._validation_inputs
        if inputs is not None:
            scores = self._scores(state, inputs, self._validation_labeled)
            plain = self._map(self._predict, trained, inputs) if moves_scores else scores
            result |= self._task.validation_metrics(scores, self._data, plain_scores=plain)
        return result | self._label_metrics(state) | self._estimates(state)

    def final(self, state: Any, inputs: Inputs, *, with_embeddings: bool = True) -> Final:
        """What the end of a run reports.

        Args:
          state: the state that is reported.
          inputs: all training examples of the problem.
          with_embeddings: whether figures want the representation of them.
        """
        state = self.calibrated(state)
        inputs = self._put(inputs)
        test_scores, held_scores = np.zeros(0, np.float32), None
        if len(self._test_inputs):
            test_scores = self._scores(state, self._test_inputs)
        if self._validation_inputs is not None:
            held_scores = self._scores(state, self._validation_inputs, self._validation_labeled)
        embeddings = None
        if self._embed is not None and with_embeddings:
            embeddings = self._map(self._embed, state, inputs)
        return Final(
            test=self._test_metrics(test_scores) if len(test_scores) else {},
            test_scores=test_scores,
            train_scores=self._scores(state, inputs, self._data.labeled),
            embeddings=embeddings,
            labels=self._label_metrics(state),
            estimates=self._estimates(state),
            held_scores=held_scores,
        )

    def _put(self, inputs: Inputs) -> jax.Array | ImageFiles:
        """Arrays on the devices; files stay where they are."""
        if isinstance(inputs, np.ndarray):
            return sharding.replicate(inputs, self._mesh)
        return inputs

    def _map(self, function: Callable[..., Any], state: Any, inputs: jax.Array | ImageFiles) -> Any:
        """A compiled function of state and inputs, over a whole set, on the host."""

        def of_batch(images: jax.Array) -> Any:
            return function(state, images)

        if isinstance(inputs, ImageFiles):
            return streaming.map_files(
                lambda images: jax.tree.map(sharding.to_host, of_batch(images)),
                inputs,
                batch_size=self._batch_size,
                sharding=sharding.of_batch(self._batch_size, self._mesh),
            )
        result = batching.map_batches(of_batch, inputs, batch_size=self._batch_size)
        return jax.tree.map(sharding.to_host, result)

    def _all_scores(self, state: Any, inputs: jax.Array | ImageFiles) -> Mapping[str, np.ndarray]:
        """Scores of a whole set by prefix: '' of `predict`, 'NAME_' of every alternative."""
        if self._predict_all is None:
            return {"": self._scores(state, inputs)}
        by_prefix = self._map(self._predict_all, state, inputs)
        return {name: self._adjusted(scores) for name, scores in by_prefix.items()}

    def _scores(
        self, state: Any, inputs: jax.Array | ImageFiles, labeled: np.ndarray | None = None
    ) -> np.ndarray:
        """Scores of a whole set; see `_adjusted`."""
        return self._adjusted(self._map(self._predict, state, inputs), labeled)

    def _adjusted(self, scores: np.ndarray, labeled: np.ndarray | None = None) -> np.ndarray:
        """Scores after the method's transductive rule, if it has one.

        The rule is told which rows are a sample of the population: all, but in two-sample data not
        the labelled positives, which `labeled` masks; None is a set without any.
        """
        adjust: Callable[..., Any] | None = self._method.adjust
        if adjust is None:
            return scores
        info = self._data.info
        is_two_sample = isinstance(info, DataInfo) and info.setting == "two_sample"
        population = np.ones(len(scores), bool)
        if is_two_sample and labeled is not None:
            population = ~labeled
        return np.asarray(adjust(scores, population))

    def calibrated(self, state: Any) -> Any:
        """The state as the method wants it evaluated; training never sees it."""
        if self._method.calibrate is None:
            return state
        return sharding.gather(self._method.calibrate(state, self._training), self._mesh)

    def _test_metrics(self, scores: np.ndarray) -> dict[str, float]:
        labels = self._data.test_labels
        return self._task.test_metrics(scores, labels, threshold=self._threshold)

    def _label_metrics(self, state: Any) -> dict[str, float]:
        """Learned labels against the hidden truth; empty where the method learns none."""
        if self._method.soft_labels is None:
            return {}
        labels = sharding.to_host(self._method.soft_labels(state))
        return self._task.label_metrics(labels, self._data)

    def _estimates(self, state: Any) -> dict[str, float]:
        """What the method estimated itself; empty where it estimates nothing."""
        if self._method.estimates is None:
            return {}
        values = self._method.estimates(state)
        return self._task.with_prior_error(
            {k: float(sharding.to_host(v)) for k, v in values.items()}, self._data
        )


@functools.lru_cache(maxsize=16)
def compiled(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """A function of state and inputs over the mesh; seeds with the same one compile it once."""

    def on_mesh(state, inputs):
        return function(state, sharding.split_batch(inputs, mesh))

    return jax.jit(on_mesh, out_shardings=sharding.replicated(mesh))


@functools.lru_cache(maxsize=16)
def _side_by_side(
    predict: Callable[..., jax.Array],
    alternatives: tuple[tuple[str, Callable[..., jax.Array]], ...],
) -> Callable[..., dict[str, jax.Array]]:
    """All of them as one function, so that images are decoded and copied once."""

    def predict_all(state, inputs):
        others = {f"{name}_": other(state, inputs) for name, other in alternatives}
        return {"": predict(state, inputs)} | others

    return predict_all
