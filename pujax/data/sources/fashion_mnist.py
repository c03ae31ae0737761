"""Fashion-MNIST: 60,000 + 10,000 pieces of clothing, 28 x 28, grey (Xiao et al., 2017)."""

import pathlib

from pujax.data import raw
from pujax.data.readers import idx

SOURCE = idx.IdxSource(
    name="fashion_mnist",
    folders=("FashionMNIST/raw", "raw"),
    base_url="https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
    files=(
        (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    mean=0.2860,
    std=0.3530,
    train_counts=(6000,) * 10,
    test_counts=(1000,) * 10,
)


def load(directory: pathlib.Path) -> raw.RawDataset:
    """Reads Fashion-MNIST from its four idx files.

    Args:
      directory: folder with the files, or with `fashion_mnist/`, `FashionMNIST/raw/` or `raw/`.

    Returns:
      A `RawDataset`.

    Raises:
      MissingDataError: files are missing and cannot be downloaded.
      ValueError: a file is damaged.
    """
    return idx.load(SOURCE, directory)


def without_data() -> raw.RawDataset:
    """What `load` returns, without the images: see `pujax.data.absent`."""
    return idx.without_data(SOURCE)
