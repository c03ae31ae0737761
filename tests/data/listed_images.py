"""Small images for the tests of sources whose images stay in files."""

import numpy as np
from PIL import Image

from pujax.data import sources


def write_image(path, *, side=8, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def labels_by_name(inputs, labels, class_names):
    """File name to the names of its labels."""
    return {
        path.rpartition("/")[2]: {class_names[i] for i in np.flatnonzero(row == 1)}
        for path, row in zip(inputs.paths, labels, strict=True)
    }


def both(source, folder, **options):
    """The data set, and for each split the labels by file name."""
    data = sources.load(source, directory=folder, **options)
    train = labels_by_name(data.train_inputs, data.train_labels, data.class_names)
    test = labels_by_name(data.test_inputs, data.test_labels, data.class_names)
    return data, train, test
