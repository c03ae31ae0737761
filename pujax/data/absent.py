"""Data sets of which only the shapes are there: what a compiler needs and no disk has to hold."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pujax.data.image_files import ImageFiles
from pujax.data.raw import RawDataset


@dataclasses.dataclass(frozen=True)
class Absent:
    """An array without its numbers.

    Attributes:
      shape: of the array.
      dtype: of the array.
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> "Absent":
        """The rows of a slice, a list of rows, or a mask."""
        if isinstance(rows, slice):
            count = len(range(*rows.indices(len(self))))
        else:
            rows = np.asarray(rows)
            count = int(rows.sum()) if rows.dtype == bool else len(rows)
        return dataclasses.replace(self, shape=(count, *self.shape[1:]))

    def reshape(self, *shape: int) -> "Absent":
        """The same numbers in another shape."""
        return dataclasses.replace(self, shape=shape)


def one_class(
    name: str,
    shape: tuple[int, ...],
    *,
    train: Sequence[int],
    test: Sequence[int],
    class_names: tuple[str, ...],
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    unknown: int = 0,
) -> RawDataset:
    """A source whose examples have one class each.

    Labels come in the order of the classes, so that a split of them has the sizes and the priors of
    the real one, and other rows.

    Args:
      name: of the source.
      shape: of one example: height, width and channels of an image, or features of a row.
      train: training examples of every class.
      test: test examples of every class.
      class_names: of the classes.
      mean: as in `RawDataset`; None is 0, where only the data tell it.
      std: likewise; None is 1.
      unknown: training examples of unknown class, after the others.

    Returns:
      A `RawDataset` whose inputs are `Absent`.
    """
    labels = np.repeat(np.arange(len(train), dtype=np.int32), train)
    labels = np.concatenate([labels, np.full(unknown, -1, np.int32)])
    test_labels = np.repeat(np.arange(len(test), dtype=np.int32), test)
    dtype = np.dtype(np.uint8 if len(shape) == 3 else np.float32)

    def inputs(count: int) -> Any:  # stands for an array
        return Absent((count, *shape), dtype)

    return RawDataset(
        name=name,
        train_inputs=inputs(len(labels)),
        train_labels=labels,
        test_inputs=inputs(len(test_labels)),
        test_labels=test_labels,
        class_names=class_names,
        mean=mean or (0.0,) * shape[-1],
        std=std or (1.0,) * shape[-1],
    )


def image_lists(
    name: str,
    *,
    train: int,
    test: int,
    class_names: tuple[str, ...],
    side: int,
    load_side: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> RawDataset:
    """A source of image files with several labels each.

    Every image has one label, of one class after the other: which images have which label is in no
    compiled program.

    Args:
      name: of the source.
      train: training images.
      test: test images.
      class_names: of the classes.
      side: side length that a network sees.
      load_side: side length before the random crop.
      mean: per channel, of pixels in 0-1.
      std: likewise.

    Returns:
      A `RawDataset` of image files without a name.
    """

    def labels(count: int) -> np.ndarray:
        return np.eye(len(class_names), dtype=np.int8)[np.arange(count) % len(class_names)]

    return RawDataset(
        name=name,
        train_inputs=ImageFiles(("",) * train, side, load_side),
        train_labels=labels(train),
        test_inputs=ImageFiles(("",) * test, side, load_side),
        test_labels=labels(test),
        class_names=class_names,
        mean=mean,
        std=std,
    )
