"""Problems with several labels per example, of which a share is known."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from pujax.checks import at_least, between, one_of, require
from pujax.data import pu_dataset
from pujax.data.image_files import ImageFiles
from pujax.data.pu_dataset import TrainingData
from pujax.data.raw import UNKNOWN, OwnRows, RawDataset, empty_classes
from pujax.data.splits.settings import SCALINGS
from pujax.models.encoder import Encoder


class MultilabelInfo(NamedTuple):
    """Numbers that a method may build on; all known before anything is compiled.

    None depends on which labels are known, so that seeds that differ in that only are one program.

    Attributes:
      name: source name.
      class_names: one per class.
      n: training examples.
      known_ratio: share of the labels that are known.
      input_shape: shape of one example.
      mean: per channel, what `normalize` subtracts from pixels in 0-1; per feature of a table.
      std: per channel or feature, what it then divides by.
      load_side: of streamed images, the side that they have before they are cropped on the host;
        0 where the inputs are in memory.
    """

    name: str
    class_names: tuple[str, ...]
    n: int
    known_ratio: float
    input_shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    load_side: int = 0

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def is_table(self) -> bool:
        """True where an example is a row of numbers, False where it is an image."""
        return len(self.input_shape) == 1

    @property
    def input_dtype(self) -> str:
        """Type of the inputs: 'float32' for tables, 'uint8' for images."""
        return "float32" if self.is_table else "uint8"

    @property
    def prior(self) -> float:
        """NaN: there is one share of positives per class, and no method is told it."""
        return math.nan


class MultilabelDataset(NamedTuple):
    """A multi-label problem on the host.

    It has the parts of a `pu_dataset.PUDataset` that training looks at.

    Attributes:
      info: counts and shapes.
      inputs: uint8 or float32 `[n, ...]`, or `ImageFiles`, which are streamed.
      labeled: int8 `[n, classes]`, 1 for a known positive, -1 for a known negative, 0 for an
        unknown label. PU methods look at the known positives alone.
      test_inputs: `[t, ...]` or `ImageFiles`.
      test_labels: int8 `[t, classes]`, 1 or 0.
      truth: int8 `[n, classes]`, 1, 0, or -1 where unknown. Evaluation only.
      support_inputs: none.
      support_labels: none.
      validation_inputs: none.
      encoder: what networks start from, or None, see `pujax.training.init_from`.
      own: what is kept of a user's own examples, else None.
    """

    info: MultilabelInfo
    inputs: np.ndarray | ImageFiles
    labeled: np.ndarray
    test_inputs: np.ndarray | ImageFiles
    test_labels: np.ndarray
    truth: np.ndarray
    support_inputs: np.ndarray
    support_labels: np.ndarray = np.zeros(0, np.int8)
    validation_inputs: np.ndarray = np.zeros(0, np.uint8)
    encoder: Encoder | None = None
    own: OwnRows | None = None

    @property
    def streamed(self) -> bool:
        """Whether training images come from files, batch by batch."""
        return isinstance(self.inputs, ImageFiles)

    def training_data(self) -> TrainingData:
        """What training sees, see `pu_dataset.training_data`."""
        return pu_dataset.training_data(self)

    def reveal(self, which: str) -> "MultilabelDataset":
        """The problem with every label of the source known: a fully supervised baseline's.

        Raises:
          ValueError: for a word other than 'all'.
        """
        one_of("reveals", which, ("all",))
        return self._replace(
            info=self.info._replace(known_ratio=1.0), labeled=codes(self.truth, self.truth >= 0)
        )

    def digest(self) -> str:
        """A short hash of all examples and labels; problems with the same are the same."""
        held = [self.test_inputs, self.test_labels, self.truth]
        if self.own is not None:
            names = "\0".join(map(str, (*self.info.class_names, *self.own.ids))).encode()
            held.append(np.frombuffer(names, np.uint8))
        return pu_dataset.digest(self, *held)

    def counts(self) -> dict[str, int | None]:
        """Counts that every run prints at its start and writes into its summary."""
        hidden = self.truth[self.labeled == 0]
        known = self.labeled == 1
        return {
            "classes": self.info.num_classes,
            "train": len(self.labeled),
            "labeled": int(known.sum()),
            "labeled_negatives": int((self.labeled == -1).sum()),
            "unlabeled": int((self.labeled == 0).sum()),
            "hidden_positives": pu_dataset.known_sum(hidden),
            "unlabeled_without_truth": int((hidden < 0).sum()),
            "classes_without_labeled": len(empty_classes(self.labeled)),
            "test": len(self.test_labels),
            "test_positives": int(self.test_labels.sum()),
            "classes_without_test_positives": len(empty_classes(self.test_labels)),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Which labels of a source stay known; a config's `data` section has all fields by these names.

    Attributes:
      known_ratio: share of the labels that stay known, in (0, 1].
      known_seed: of the choice; -1 takes the run's seed. The authors' is 0.
      scaling: 'standard' normalises by the source's mean and standard deviation, 'unit' leaves
        pixels in [0, 1] and tables as they are.

    Raises:
      ValueError: naming the field, its value and what is accepted.
    """

    known_ratio: float
    known_seed: int = -1
    scaling: str = "standard"

    def __post_init__(self) -> None:
        between("data.known_ratio", self.known_ratio, 0, 1, include="high")
        at_least("data.known_seed", self.known_seed, -1)
        one_of("data.scaling", self.scaling, SCALINGS)


def build(raw: RawDataset, *, seed: int, **settings: Any) -> MultilabelDataset:
    """Hides labels of a source.

    Every label, positive or negative, stays known with probability `known_ratio`, drawn as the
    authors of PU-MLC draw it: NumPy's legacy generator with the seed gives one uniform number per
    (example, class), and a label is known where that is below the ratio. With one seed, the labels
    known at a smaller ratio are among those known at a larger one. At the ratio 1 all are known.

    Args:
      raw: a loaded source with several labels per example.
      seed: of the choice, unless `known_seed` gives another.
      **settings: fields of `Settings`.

    Returns:
      A `MultilabelDataset`; test labels are never hidden.

    Raises:
      ValueError: naming the field, for a ratio or scaling that cannot be, or if no positive label
        is known.
    """
    chosen = Settings(**settings)
    seed = seed if chosen.known_seed < 0 else chosen.known_seed
    known_ratio = float(chosen.known_ratio)
    labeled = codes(raw.train_labels, known_mask(raw.train_labels.shape, known_ratio, seed))
    require(
        bool((labeled == 1).any()),
        "data.known_ratio",
        known_ratio,
        "a ratio that leaves a known positive, of which this one leaves none of "
        f"{int((raw.train_labels == 1).sum())}",
    )
    inputs = raw.train_inputs
    mean, std = raw.scaled_by(chosen.scaling)
    info = MultilabelInfo(
        name=raw.name,
        class_names=tuple(raw.class_names),
        n=len(inputs),
        known_ratio=known_ratio,
        input_shape=tuple(inputs.shape[1:]),
        mean=mean,
        std=std,
        load_side=inputs.load_side if isinstance(inputs, ImageFiles) else 0,
    )
    return MultilabelDataset(
        info=info,
        inputs=inputs,
        labeled=labeled,
        test_inputs=raw.test_inputs,
        test_labels=raw.test_labels,
        truth=raw.train_labels,
        support_inputs=np.zeros([0, *inputs.shape[1:]], inputs.dtype),
        own=raw.own,
    )


def known_mask(shape: tuple[int, int], known_ratio: float, seed: int) -> np.ndarray:
    """Which labels are known.

    Args:
      shape: examples and classes, in the order of the source: both decide the mask.
      known_ratio: in (0, 1].
      seed: of NumPy's legacy generator.

    Returns:
      bool `shape`.
    """
    if known_ratio == 1:
        return np.ones(shape, bool)
    return np.random.RandomState(seed).uniform(size=shape) < known_ratio  # noqa: NPY002


def codes(labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Labels as training sees them.

    Args:
      labels: int8 `[n, classes]`, 1, 0, or -1 for unknown.
      known: bool, like `labels`.

    Returns:
      int8, like `labels`: 1 known positive, -1 known negative, 0 unknown.
    """
    signs = np.where(labels == 1, 1, -1).astype(np.int8)
    return np.where(known & (labels != UNKNOWN), signs, 0).astype(np.int8)
