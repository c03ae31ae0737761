"""CIFAR-10: 50,000 + 10,000 colour images of 32 x 32 in ten classes (Krizhevsky, 2009)."""

import pathlib

from pujax.data import raw
from pujax.data.readers import cifar_batches, download

SOURCE = cifar_batches.CifarSource(
    name="cifar10",
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test="test_batch",
    binary_folder="cifar-10-batches-bin",
    python_folder="cifar-10-batches-py",
    binary_archive="cifar-10-binary.tar.gz",
    python_archive=download.RemoteFile(
        filename="cifar-10-python.tar.gz",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        checksum="md5:c58f30108f718f92721af3b95e74349a",
        size=170498071,
    ),
    label_keys=("labels",),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.247, 0.243, 0.261),
)

CLASS_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def load(directory: pathlib.Path) -> raw.RawDataset:
    """Reads CIFAR-10 from the original python or binary files, packed or unpacked.

    Args:
      directory: folder with an archive, its folder or its files, or with `cifar10/`.

    Returns:
      A `RawDataset`.

    Raises:
      MissingDataError: nothing is there and it cannot be downloaded.
      ValueError: a file is damaged or missing from its folder.
    """
    return cifar_batches.load(SOURCE, directory, label_key="labels", class_names=CLASS_NAMES)


def without_data() -> raw.RawDataset:
    """What `load` returns, without the images: see `pujax.data.absent`."""
    return cifar_batches.without_data(SOURCE, CLASS_NAMES)
