"""CIFAR-100: 50,000 + 10,000 colour images of 32 x 32 in 100 classes (Krizhevsky, 2009)."""

import pathlib

from pujax.data import raw
from pujax.data.readers import cifar_batches, download

SOURCE = cifar_batches.CifarSource(
    name="cifar100",
    train=("train",),
    test="test",
    binary_folder="cifar-100-binary",
    python_folder="cifar-100-python",
    binary_archive="cifar-100-binary.tar.gz",
    python_archive=download.RemoteFile(
        filename="cifar-100-python.tar.gz",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        checksum="md5:eb9058c3a382ffc7106e4002c42a8d85",
        size=169001437,
    ),
    label_keys=("coarse_labels", "fine_labels"),
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)

_COARSE = """
aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
household_furniture insects large_carnivores large_man-made_outdoor_things
large_natural_outdoor_scenes large_omnivores_and_herbivores medium_mammals
non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2
"""

_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

CLASS_NAMES = {"coarse": tuple(_COARSE.split()), "fine": tuple(_FINE.split())}
"""Class names per sort of labels; both are numbered alphabetically, as in the files."""

LABEL_SETS = tuple(CLASS_NAMES)


def load(directory: pathlib.Path, *, label_set: str = "coarse") -> raw.RawDataset:
    """Reads CIFAR-100 from the original python or binary files, packed or unpacked.

    Args:
      directory: folder with an archive, its folder or its files, or with `cifar100/`.
      label_set: 'coarse' for the 20 superclasses, 'fine' for the 100 classes.

    Returns:
      A `RawDataset`.

    Raises:
      MissingDataError: nothing is there and it cannot be downloaded.
      ValueError: a file is damaged or missing from its folder.
    """
    class_names = CLASS_NAMES[label_set]
    return cifar_batches.load(
        SOURCE, directory, label_key=f"{label_set}_labels", class_names=class_names
    )


def without_data(*, label_set: str = "coarse") -> raw.RawDataset:
    """What `load` returns, without the images: see `pujax.data.absent`."""
    return cifar_batches.without_data(SOURCE, CLASS_NAMES[label_set])
