"""A data set with several labels per example as its source publishes it."""

from typing import NamedTuple

import numpy as np

from pujax.data import raw
from pujax.data.image_files import ImageFiles

UNKNOWN = -1
"""Label of an example of which nobody knows whether it belongs to a class."""


class RawMultilabel(NamedTuple):
    """Inputs and label matrices of a training and a test set.

    Inputs are uint8 images `[n, height, width, channels]`, a table of numbers, float32
    `[n, features]`, or images in files.

    Attributes:
      name: source name.
      train_inputs: `[n, ...]` or `ImageFiles`.
      train_labels: int8 `[n, classes]`, 1 or 0; -1 means unknown.
      test_inputs: `[t, ...]` or `ImageFiles`.
      test_labels: int8 `[t, classes]`, 1 or 0.
      class_names: one name per class.
      mean: per channel, of pixels in 0-1; per feature of a table.
      std: likewise, positive.
    """

    name: str
    train_inputs: np.ndarray | ImageFiles
    train_labels: np.ndarray
    test_inputs: np.ndarray | ImageFiles
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def empty_classes(labels: np.ndarray) -> list[int]:
    """Ids of the classes to which no example belongs, as far as known.

    Args:
      labels: int `[n, classes]`, 1, 0 or -1.

    Returns:
      Increasing class ids.
    """
    return np.flatnonzero(~(labels == 1).any(axis=0)).tolist()


def check(data: RawMultilabel) -> RawMultilabel:
    """Returns `data` unchanged if its parts fit one another.

    Classes without a positive are let through, in either split: a metric has a rule for them, and
    `empty_classes` names them.

    Args:
      data: what a source has read.

    Returns:
      The same object.

    Raises:
      ValueError: naming the source, the field, what it is and what is accepted.
    """

    require = raw.requirement(data.name)
    kinds = [isinstance(inputs, ImageFiles) for inputs in (data.train_inputs, data.test_inputs)]
    require(
        kinds[0] == kinds[1],
        "test_inputs",
        type(data.test_inputs).__name__,
        f"{type(data.train_inputs).__name__}, as train_inputs is",
    )
    raw.check(_single_label(data))
    names = data.class_names
    require(len(names) > 0, "class_names", names, "at least one name")
    doubles = sorted({name for name in names if names.count(name) > 1})
    require(not doubles, "class_names", f"{doubles} more than once", "names that differ")
    for split, codes in (("train", (UNKNOWN, 0, 1)), ("test", (0, 1))):
        labels, rows = getattr(data, f"{split}_labels"), len(getattr(data, f"{split}_inputs"))
        require(
            labels.dtype == np.int8 and labels.shape == (rows, len(names)),
            f"{split}_labels",
            f"{labels.dtype} {labels.shape}",
            f"int8 {(rows, len(names))}, a row per example and a column per class name",
        )
        others = np.setdiff1d(labels, codes).tolist()
        accepted = ", ".join(map(str, codes))
        require(not others, f"{split}_labels", f"{others} in places", accepted)
    positives = int((data.train_labels == 1).sum())
    require(positives > 0, "train_labels", "without a 1", "at least one positive of any class")
    return data


def _single_label(data: RawMultilabel) -> raw.RawDataset:
    """The same inputs with one class for all, so that `raw.check` can judge them."""

    def as_array(inputs: np.ndarray | ImageFiles) -> np.ndarray:
        if isinstance(inputs, ImageFiles):  # an array of that shape which takes no memory
            return np.broadcast_to(np.zeros((), inputs.dtype), inputs.shape)
        return inputs

    return raw.RawDataset(
        name=data.name,
        train_inputs=as_array(data.train_inputs),
        train_labels=np.zeros(len(data.train_inputs), np.int32),
        test_inputs=as_array(data.test_inputs),
        test_labels=np.zeros(len(data.test_inputs), np.int32),
        class_names=("any",),
        mean=data.mean,
        std=data.std,
    )
