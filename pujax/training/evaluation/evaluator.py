"""Evaluation of a method's states: scores of whole sets, which a task compares with the truth."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from pujax.data import batching, flat_images, streaming
from pujax.data.flat_images import FlatImages
from pujax.data.image_files import ImageFiles
from pujax.data.pu_dataset import DataInfo, PUDataset, TrainingData
from pujax.methods.base import Method
from pujax.training import row_names, sharding
from pujax.training.evaluation.summary import Final
from pujax.training.evaluation.tasks import Problem, Task

Inputs = np.ndarray | jax.Array | FlatImages | ImageFiles


class Begun(NamedTuple):
    """An evaluation that the devices are at.

    Attributes:
      row: returns what it adds to the epoch's row, once the devices are done.
      pending: what they compute, a tree of arrays.
    """

    row: Callable[[], dict[str, float]]
    pending: Any = ()

    def wait(self) -> None:
        """Returns when the devices are done with it."""
        jax.block_until_ready(self.pending)


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
        self._batch_size = sharding.even_batch(batch_size, mesh)  # of a small set, too
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

    def begin(self, state: Any) -> "Begun":
        """Queues on the devices what the row of an evaluated epoch needs.

        Its `row()` has `test_*` where there is a test set, `test_NAME_*` for every alternative of
        the method; `val_*` where there is a validation set; learned labels and estimates of the
        method. The state may be donated to the next step before the row is asked for.
        """
        trained, state = state, self.calibrated(state)
        moves_scores = self._method.calibrate is not None or self._method.adjust is not None
        held_inputs = self._validation_inputs
        test: Any = None
        plain = held = held_plain = None
        if len(self._test_inputs):
            test = self._map(self._predict_all or self._predict, state, self._test_inputs)
            if moves_scores:
                plain = self._map(self._predict, trained, self._test_inputs)
        if held_inputs is not None:
            held = self._map(self._predict, state, held_inputs)
            if moves_scores:
                held_plain = self._map(self._predict, trained, held_inputs)
        labels, gradients = self._labels(state), self._gradients(state)
        estimates = self._estimated(state)

        def row() -> dict[str, float]:
            result = {}
            if test is not None:
                by_prefix = test if self._predict_all is not None else {"": test}
                result = {
                    f"test_{prefix}{name}": value
                    for prefix, scores in by_prefix.items()
                    for name, value in self._test_metrics(self._adjusted(scores)).items()
                }
            if plain is not None:
                uncalibrated = self._test_metrics(_on_host(plain))
                result["test_uncalibrated_accuracy"] = uncalibrated["accuracy"]
            if held is not None:
                scores = self._adjusted(held, self._validation_labeled)
                plain_scores = scores if held_plain is None else _on_host(held_plain)
                result |= self._task.validation_metrics(
                    scores, self._data, plain_scores=plain_scores
                )
            result |= self._label_metrics(labels, gradients)
            return result | self._estimates(estimates)

        return Begun(row, (test, plain, held, held_plain, labels, gradients, estimates))

    def final(self, state: Any, inputs: Inputs, *, embedded: np.ndarray | None = None) -> Final:
        """What the end of a run reports.

        Args:
          state: the state that is reported.
          inputs: all training examples of the problem.
          embedded: int `[m]`, the training examples whose representation figures want; None is
            none.
        """
        state = self.calibrated(state)
        inputs = self._put(inputs)
        test_scores, held_scores = np.zeros(0, np.float32), None
        if len(self._test_inputs):
            test_scores = self._scores(state, self._test_inputs)
        if self._validation_inputs is not None:
            held_scores = self._scores(state, self._validation_inputs, self._validation_labeled)
        return Final(
            test=self._test_metrics(test_scores) if len(test_scores) else {},
            test_scores=test_scores,
            train_scores=self._scores(state, inputs, self._data.labeled),
            embeddings=self._embeddings(state, embedded),
            labels=self._label_metrics(self._labels(state), self._gradients(state)),
            estimates=self._estimates(self._estimated(state)),
            held_scores=held_scores,
        )

    def _embeddings(self, state: Any, rows: np.ndarray | None) -> np.ndarray | None:
        """The representation `[m, dim]` of some training examples, int `[m]`, if there is one.

        Batches have the size that batches of all examples have, filled up by repeating rows: a
        matrix product of another size may round a row otherwise.
        """
        if self._embed is None or rows is None:
            return None
        everything = self._data.inputs
        filled = np.resize(rows, max(len(rows), min(self._batch_size, len(everything))))
        return _on_host(self._map(self._embed, state, self._put(everything[filled])))[: len(rows)]

    def _put(self, inputs: Inputs) -> Any:
        """Arrays on the devices, of images their bytes; files stay where they are."""
        if isinstance(inputs, np.ndarray):
            return sharding.replicate(flat_images.flatten(inputs), self._mesh)
        return inputs

    def _map(self, function: Callable[..., Any], state: Any, inputs: Inputs) -> Any:
        """A compiled function of state and inputs, over a whole set.

        The result is queued on the devices; of image files it is on the host already.
        """

        if isinstance(inputs, ImageFiles):
            return streaming.map_files(
                lambda images: jax.tree.map(sharding.to_host, function(state, images)),
                inputs,
                batch_size=self._batch_size,
                sharding=sharding.of_batch(self._batch_size, self._mesh),
            )
        return batching.map_batches(function, inputs, batch_size=self._batch_size, args=(state,))

    def _scores(self, state: Any, inputs: Inputs, labeled: np.ndarray | None = None) -> np.ndarray:
        """Scores of a whole set; see `_adjusted`."""
        return self._adjusted(self._map(self._predict, state, inputs), labeled)

    def _adjusted(self, scores: Any, labeled: np.ndarray | None = None) -> np.ndarray:
        """Scores on the host, after the method's transductive rule, if it has one.

        The rule is told which rows are a sample of the population: all, but in two-sample data not
        the labelled positives, which `labeled` masks; None is a set without any.
        """
        scores = _on_host(scores)
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

    def _labels(self, state: Any) -> jax.Array | None:
        """A copy of what the method has learned as labels; None where it learns none."""
        learned = self._method.soft_labels
        return None if learned is None else jnp.copy(learned(state))

    def _gradients(self, state: Any) -> jax.Array | None:
        """A copy of the last gradients of the learned labels; None where none are recorded."""
        recorded = self._method.label_gradients
        return None if recorded is None else jnp.copy(recorded(state))

    def _label_metrics(
        self, labels: jax.Array | None, gradients: jax.Array | None
    ) -> dict[str, float]:
        """Learned labels and their gradients against the hidden truth; empty without labels."""
        if labels is None:
            return {}
        result = self._task.label_metrics(_on_host(labels), self._data)
        if gradients is not None:
            result |= self._task.label_gradient_metrics(_on_host(gradients), self._data)
        return result

    def _estimated(self, state: Any) -> dict[str, jax.Array]:
        """A copy of what the method has estimated itself; empty where it estimates nothing."""
        if self._method.estimates is None:
            return {}
        found = dict(self._method.estimates(state))
        # Only a call tells the names: what estimates may need the host.
        row_names.check("an estimate", found, also=("loss", "skipped"))
        return jax.tree.map(jnp.copy, found)

    def _estimates(self, values: dict[str, jax.Array]) -> dict[str, float]:
        """Estimates on the host, with their errors where the truth is known."""
        numbers = {name: float(_on_host(value)) for name, value in values.items()}
        return self._task.with_prior_error(numbers, self._data) if numbers else {}


def _on_host(tree: Any) -> Any:
    """Arrays, wherever they are, as NumPy's."""
    return jax.tree.map(
        lambda x: sharding.to_host(x) if isinstance(x, jax.Array) else np.asarray(x), tree
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
