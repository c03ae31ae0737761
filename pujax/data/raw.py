"""A data set as its source publishes it, before anybody decides what is positive or labelled."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

UNKNOWN = -1
"""Class id of an example whose class nobody knows, such as STL-10's unlabeled images."""

_CHUNK = 1000
"""Rows counted at once, which bounds the memory that NumPy takes for it."""


class RawDataset(NamedTuple):
    """Inputs and class ids of a training and a test set.

    Inputs are images, uint8 `[n, height, width, channels]`, or a table of numbers, float32
    `[n, features]`.

    Attributes:
      name: source name.
      train_inputs: `[n, ...]`.
      train_labels: int32 `[n]`, class ids; -1 means unknown.
      test_inputs: `[t, ...]`.
      test_labels: int32 `[t]`.
      class_names: one name per class id.
      mean: per channel, of pixels in 0-1; per feature of a table.
      std: likewise, positive.
    """

    name: str
    train_inputs: np.ndarray
    train_labels: np.ndarray
    test_inputs: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def channel_statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel, of pixels in 0-1.

    Both come from a histogram of the 256 grey levels, so they are exact and need no float copy of
    the images.

    Args:
      images: uint8 `[n, height, width, channels]`.

    Returns:
      `(mean, std)`, one number per channel.

    Raises:
      ValueError: a channel is constant, so nothing can be divided by its deviation.
    """
    levels = np.arange(256) / 255.0
    counts = np.zeros((images.shape[-1], 256), np.int64)
    for start in range(0, len(images), _CHUNK):
        for channel in range(images.shape[-1]):
            pixels = images[start : start + _CHUNK, ..., channel]
            counts[channel] += np.bincount(pixels.ravel(), minlength=256)
    means, stds = [], []
    for channel, share in enumerate(counts / counts.sum(1, keepdims=True)):
        mean = float(share @ levels)
        std = float(np.sqrt(share @ (levels - mean) ** 2))
        if not std > 0:
            raise ValueError(f"channel {channel} of the training images is constant: {mean:.4f}")
        means.append(mean)
        stds.append(std)
    return tuple(means), tuple(stds)


def feature_statistics(table: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per column of a table, summed in float64.

    A constant column gets the deviation 1, which makes it a column of zeros: one-hot encodings have
    such columns often, and unlike a constant channel of an image they are no sign of a mistake.

    Args:
      table: float `[n, features]`, finite.

    Returns:
      `(mean, std)`, one number per feature.
    """
    mean = table.mean(0, dtype=np.float64)
    squares = np.zeros(table.shape[1])
    for start in range(0, len(table), _CHUNK):
        squares += np.square(table[start : start + _CHUNK] - mean).sum(0)
    std = np.sqrt(squares / len(table))
    # Rounding of the mean may leave a constant column with a tiny deviation.
    constant = (table.min(0) == table.max(0)) | (std < np.finfo(np.float32).tiny)
    return tuple(mean.tolist()), tuple(np.where(constant, 1.0, std).tolist())


def requirement(source: str) -> Callable[[bool, str, object, str], None]:
    """`require(condition, field, value, accepted)`, whose ValueError names the source."""

    def require(condition: bool, field: str, value: object, accepted: str) -> None:
        if not condition:
            raise ValueError(f"source {source!r}: {field} is {value}, accepted: {accepted}")

    return require


def check(data: RawDataset) -> RawDataset:
    """Returns `data` unchanged if its parts fit one another.

    Args:
      data: what a source has read.

    Returns:
      The same object.

    Raises:
      ValueError: naming the source, the field, what it is and what is accepted.
    """

    require = requirement(data.name)
    for split in ("train", "test"):
        inputs, labels = getattr(data, f"{split}_inputs"), getattr(data, f"{split}_labels")
        kind = (np.dtype(inputs.dtype).name, inputs.ndim)
        require(
            kind in (("uint8", 4), ("float32", 2)) and inputs.size > 0,
            f"{split}_inputs",
            f"{inputs.dtype} {inputs.shape}",
            "a non-empty uint8 array [n, height, width, channels] or float32 [n, features]",
        )
        if kind[1] == 2:
            broken = int((~np.isfinite(inputs)).sum())
            require(not broken, f"{split}_inputs", f"not finite in {broken} places", "numbers")
        require(
            labels.dtype == np.int32 and labels.shape == inputs.shape[:1],
            f"{split}_labels",
            f"{labels.dtype} {labels.shape}",
            f"int32 {inputs.shape[:1]}",
        )
        low, high = int(labels.min()), int(labels.max())
        require(
            low >= UNKNOWN and high < len(data.class_names),
            f"{split}_labels",
            f"in {low}..{high}",
            f"{UNKNOWN}..{len(data.class_names) - 1}",
        )
    shape = data.train_inputs.shape[1:]
    what = "test image" if len(shape) == 3 else "test row"
    require(data.test_inputs.shape[1:] == shape, what, data.test_inputs.shape[1:], f"{shape}")
    for field in ("mean", "std"):
        value = getattr(data, field)
        right = len(value) == shape[-1] and bool(np.isfinite(value).all())
        require(right, field, value, f"{shape[-1]} finite numbers")
    require(min(data.std) > 0, "std", data.std, "positive numbers")
    return data
