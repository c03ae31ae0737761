"""A data set as its source publishes it, before anybody decides what is positive or labelled."""

from typing import NamedTuple

import numpy as np

UNKNOWN = -1
"""Class id of an example whose class nobody knows, such as STL-10's unlabeled images."""

_CHUNK = 1000
"""Images counted at once, which bounds the memory that NumPy takes for it."""


class RawDataset(NamedTuple):
    """Images and class ids of a training and a test set.

    Attributes:
      name: source name.
      train_inputs: uint8 `[n, height, width, channels]`.
      train_labels: int32 `[n]`, class ids; -1 means unknown.
      test_inputs: uint8 `[t, height, width, channels]`.
      test_labels: int32 `[t]`.
      class_names: one name per class id.
      mean: per channel, of pixels in 0-1.
      std: per channel, of pixels in 0-1.
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


def check(data: RawDataset) -> RawDataset:
    """Returns `data` unchanged if its parts fit one another.

    Args:
      data: what a source has read.

    Returns:
      The same object.

    Raises:
      ValueError: naming the source, the field, what it is and what is accepted.
    """

    def require(condition: bool, field: str, value: object, accepted: str) -> None:
        if not condition:
            raise ValueError(f"source {data.name!r}: {field} is {value}, accepted: {accepted}")

    for split in ("train", "test"):
        inputs, labels = getattr(data, f"{split}_inputs"), getattr(data, f"{split}_labels")
        require(
            inputs.dtype == np.uint8 and inputs.ndim == 4 and inputs.size > 0,
            f"{split}_inputs",
            f"{inputs.dtype} {inputs.shape}",
            "a non-empty uint8 array [n, height, width, channels]",
        )
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
    require(
        data.test_inputs.shape[1:] == shape, "test image", data.test_inputs.shape[1:], f"{shape}"
    )
    for field in ("mean", "std"):
        value = getattr(data, field)
        require(len(value) == shape[-1], field, value, f"{shape[-1]} numbers")
    return data
