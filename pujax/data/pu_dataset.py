"""What a PU problem holds: arrays, counts, priors, and the hidden truth kept apart from training.

Training code only ever sees `TrainingData` (arrays on the device) and `DataInfo` (numbers), which
do not hold the truth.
"""

import hashlib
from typing import Any, NamedTuple

import jax
import numpy as np

from pujax.checks import one_of
from pujax.data import flat_images
from pujax.data.image_files import ImageFiles
from pujax.data.raw import OwnRows
from pujax.data.splits import labeling_mechanisms
from pujax.models.encoder import Encoder

REVEALS = ("all", "negatives")
# Where U comes from: all that is left of the source, a sample of it, one at a class prior, or all
# that is not labelled where labels are as they are.
REST, SAMPLE, AT_PRIOR, AS_LABELED = "rest", "sample", "at_prior", "as_labeled"


class TrainingData(NamedTuple):
    """What a method may look at, as device arrays.

    Attributes:
      inputs: P and U together, uint8 images `[n, height, width, channels]`, which a run keeps as
        `FlatImages`, or a float32 table `[n, features]`; the row is the example id.
      labeled: bool `[n]`, True for a labelled positive; in multi-label problems int8
        `[n, classes]`, 1 for a known positive, -1 for a known negative, 0 for an unknown label.
      support_inputs: `[s, ...]`, clean examples held apart; `s` may be 0.
      support_labels: float32 `[s]`, their true binary labels.
      encoder: a `models.encoder.Encoder` that networks start from, or None.
      copies: int32 `[n]` where U repeats P: the row of an example's other copy, or its own row
        where it has none. None where no example is there twice.
    """

    inputs: Any
    labeled: jax.Array
    support_inputs: jax.Array
    support_labels: jax.Array
    encoder: Encoder | None = None
    copies: jax.Array | None = None


class DataInfo(NamedTuple):
    """Numbers that a method may build on; all known before anything is compiled.

    Attributes:
      name: source name.
      setting: 'one_sample' or 'two_sample'.
      n_p: labelled positives.
      n_u: unlabeled examples.
      n_support: support examples.
      support_positives: positives among them.
      prior: share of positives in the population the risk speaks of; NaN where it is not given
        and the true classes do not tell it.
      prior_unlabeled: share of positives in U; NaN likewise.
      prior_source: where `prior` came from.
      input_shape: shape of one example.
      mean: per channel, what `normalize` subtracts from pixels in 0-1; per feature of a table.
      std: per channel or feature, what it then divides by.
      positives_apart: labelled positives of the population that are in the support set and not in
        P; 0 where the population is what the support set leaves. Its negatives are in U then.
    """

    name: str
    setting: str
    n_p: int
    n_u: int
    n_support: int
    support_positives: int
    prior: float
    prior_unlabeled: float
    prior_source: str
    input_shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    positives_apart: int = 0

    @property
    def n(self) -> int:
        """Number of training examples, P and U."""
        return self.n_p + self.n_u

    @property
    def sample_labeled(self) -> int:
        """Labelled positives of one-sample data, those that do not train among them."""
        return self.n_p + self.positives_apart

    @property
    def sample_size(self) -> int:
        """Examples of one-sample data, which stand for the population."""
        return self.n + self.positives_apart

    @property
    def is_table(self) -> bool:
        """True where an example is a row of numbers, False where it is an image."""
        return len(self.input_shape) == 1

    @property
    def input_dtype(self) -> str:
        """Type of the inputs: 'float32' for tables, 'uint8' for images."""
        return "float32" if self.is_table else "uint8"


class PriorChoice(NamedTuple):
    """Several estimates of the share of positives in U, and the one that is used.

    Attributes:
      method: name of the estimator that is used.
      agree: whether one share lies in the intervals of all that carry information.
      estimates: by name the share of U and the ends of its interval, NaN without one.
    """

    method: str
    agree: bool
    estimates: dict[str, tuple[float, ...]]


class PUDataset(NamedTuple):
    """A PU problem on the host.

    Attributes:
      info: counts, priors and shapes.
      inputs: uint8 or float32 `[n, ...]`, P and U; or `ImageFiles`, which are streamed.
      labeled: bool `[n]`.
      source_ids: int `[n]`, rows of the source's training set.
      support_inputs: `[s, ...]`.
      support_labels: int8 `[s]`.
      test_inputs: `[t, ...]` or `ImageFiles`.
      test_labels: int8 `[t]`, 1 or 0.
      truth: int8 `[n]`, hidden true labels, 1, 0 or -1 where unknown. Evaluation only.
      validation_inputs: `[v, ...]` or `ImageFiles`, a held-out PU problem of the same setting,
        P_val first, then U_val, which in two-sample data repeats P_val where U repeats P; `v` is 0
        without a validation set.
      validation_labeled: bool `[v]`, True for P_val.
      validation_truth: int8 `[v]`, true labels, for the oracle's selection only.
      labeling: how the labelled positives were chosen; its numbers rest on the truth, so that
        training does not see them.
      unlabeled_from: where U comes from, `REST` and so on; two-sample data repeat P
        in U only where it is `REST`.
      prior_interval: of an estimated `info.prior`, else None.
      encoder: what networks start from, or None, see `pujax.training.init_from`.
      class_sides: names of the positive classes, and of the negative ones.
      validation_ids: int `[v]`, rows of the source's training set.
      own: what is kept of a user's own rows, else None.
      prior_choice: what an estimated prior was chosen from, else None.
    """

    info: DataInfo
    inputs: np.ndarray | ImageFiles
    labeled: np.ndarray
    source_ids: np.ndarray
    support_inputs: np.ndarray
    support_labels: np.ndarray
    test_inputs: np.ndarray | ImageFiles
    test_labels: np.ndarray
    truth: np.ndarray
    validation_inputs: np.ndarray | ImageFiles = np.zeros(0, np.uint8)
    validation_labeled: np.ndarray = np.zeros(0, bool)
    validation_truth: np.ndarray = np.zeros(0, np.int8)
    labeling: labeling_mechanisms.Report = labeling_mechanisms.Report()
    unlabeled_from: str = REST
    prior_interval: tuple[float, float] | None = None
    encoder: Encoder | None = None
    class_sides: tuple[tuple[str, ...], ...] = ((), ())
    validation_ids: np.ndarray = np.zeros(0, np.int64)
    own: OwnRows | None = None
    prior_choice: PriorChoice | None = None

    @property
    def streamed(self) -> bool:
        """Whether training images come from files, batch by batch."""
        return isinstance(self.inputs, ImageFiles)

    def training_data(self) -> TrainingData:
        """What training sees, see `training_data`."""
        return training_data(self)

    def hidden(self) -> np.ndarray:
        """Mask `[n]` of the examples whose label is hidden.

        U, but in two-sample data without its copies of P, whose label is known.
        """
        return ~np.isin(self.source_ids, self.source_ids[self.labeled])

    def reveal(self, which: str) -> "PUDataset":
        """The problem with hidden labels revealed: a supervised upper bound's data.

        Examples of unknown class are left out, and so are the copies of P that two-sample
        data keep in U. The priors are those of what is left. Only oracle baselines may ask for it.

        Args:
          which: 'all' reveals every label, so that P is all positives and U all negatives;
            'negatives' keeps the labelled positives against the true negatives of U and drops U's
            hidden positives (GradPU's "Sup.").

        Raises:
          ValueError: for another word.
        """
        one_of("reveals", which, REVEALS)
        if which == "all":
            keep = self.labeled | (self.hidden() & (self.truth >= 0))
            labeled = (self.truth == 1)[keep]
        else:
            keep = self.labeled | (self.truth == 0)
            labeled = self.labeled[keep]
        num_positive = int(labeled.sum())
        return self._replace(
            info=self.info._replace(
                n_p=num_positive,
                n_u=len(labeled) - num_positive,
                prior=num_positive / len(labeled),
                prior_unlabeled=0.0,
                prior_source="revealed",
            ),
            inputs=self.inputs[keep],
            labeled=labeled,
            source_ids=self.source_ids[keep],
            truth=self.truth[keep],
        )

    def digest(self) -> str:
        """A short hash of all examples and labels; problems with the same are the same."""
        held = [self.validation_inputs, self.validation_labeled, self.validation_truth]
        if self.own is not None:
            names = "\0".join(map(str, self.own.ids)).encode()
            held.append(np.frombuffer(names, np.uint8))
        return digest(self, *held, self.test_inputs, self.test_labels, self.truth)

    def counts(self) -> dict[str, int | None]:
        """Counts that every run prints at its start and writes into its summary.

        `hidden_positives` is None where the class of no unlabeled example is known, and else counts
        among those of known class; `unlabeled_without_truth` says of how many it is unknown.
        Neither counts `unlabeled_copies`, the labelled positives that U repeats.
        """
        hidden = self.truth[self.hidden()]
        return {
            "labeled": int(self.labeled.sum()),
            "unlabeled": int((~self.labeled).sum()),
            "unlabeled_copies": int((~self.labeled).sum()) - len(hidden),
            "support": len(self.support_labels),
            "support_positives": int(self.support_labels.sum()),
            "validation": self._num_validation(),
            "validation_labeled": int(self.validation_labeled.sum()),
            "test": len(self.test_labels),
            "test_positives": int(self.test_labels.sum()),
            "hidden_positives": known_sum(hidden),
            "unlabeled_without_truth": int((hidden < 0).sum()),
        }

    def _num_validation(self) -> int:
        """Distinct held-out items."""
        repeats = self.info.setting == "two_sample" and self.unlabeled_from == REST
        copies = self.validation_labeled.sum() if repeats else 0
        return int(len(self.validation_labeled) - copies)

    def validation_prior(self) -> float:
        """Share of positives in the population that the validation set speaks of.

        That of training, but in one-sample data where U_val is like U and another share of all is
        labelled: with U drawn at a class prior, and with labels as they are, by rounding of few.
        """
        is_like_u = self.unlabeled_from in (AT_PRIOR, AS_LABELED)
        if not is_like_u or self.info.setting != "one_sample":
            return self.info.prior
        share = float(np.mean(self.validation_labeled))
        return share + (1 - share) * self.info.prior_unlabeled


def known_sum(truth: np.ndarray) -> int | None:
    """Positives among true labels 1, 0, -1 (unknown); None where there are labels, all unknown."""
    return int((truth == 1).sum()) if not len(truth) or (truth >= 0).any() else None


def training_data(data: Any) -> TrainingData:
    """The arrays that training sees (still on the host); the truth is not among them.

    Of streamed images it holds two black ones, for their shape.

    Args:
      data: a `PUDataset` or a `multilabel_dataset.MultilabelDataset`.
    """
    inputs = data.inputs
    if data.streamed:
        inputs = np.zeros([2, *inputs.shape[1:]], inputs.dtype)
    return TrainingData(
        inputs,
        data.labeled,
        data.support_inputs,
        data.support_labels.astype(np.float32),
        data.encoder,
        _copies(getattr(data, "source_ids", None)),
    )


def _copies(ids: np.ndarray | None) -> Any:
    """The row of each example's other copy, see `TrainingData`; an id occurs at most twice."""
    if ids is None:
        return None
    order = np.argsort(ids, kind="stable")
    is_pair = ids[order[1:]] == ids[order[:-1]]
    if not is_pair.any():
        return None
    result = np.arange(len(ids), dtype=np.int32)
    first, second = order[:-1][is_pair], order[1:][is_pair]
    result[first], result[second] = second, first
    return result


def flat(data: TrainingData) -> TrainingData:
    """The same with images as `FlatImages`, the form in which a run keeps them on devices."""
    return data._replace(inputs=flat_images.flatten(data.inputs))


def like(inputs: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of inputs, however they are kept."""
    return jax.ShapeDtypeStruct(inputs.shape, inputs.dtype)


def digest(data: Any, *held: np.ndarray | ImageFiles) -> str:
    """A short hash of what training sees, and of the inputs and labels `held` apart from it.

    Image files count by name and size, so that a set that was moved stays the same.
    """
    result = hashlib.blake2b(digest_size=16)
    streamed = [data.inputs] if data.streamed else []
    seen = training_data(data)._replace(copies=None)  # the hash of older runs is without them
    for part in (*jax.tree.leaves(seen), *streamed, *held):
        if isinstance(part, ImageFiles):
            result.update(part.digest().encode())
        else:
            result.update(str((part.shape, part.dtype)).encode())
            result.update(np.ascontiguousarray(part).data)
    return result.hexdigest()
