"""Any image classification set of tensorflow-datasets, read without TensorFlow where possible."""

import pathlib
import re
from typing import Any

import numpy as np
from PIL import Image

from pujax.data import raw, sources
from pujax.data.readers import download, image_arrays, tfds_builder, tfds_records


def load(
    directory: pathlib.Path,
    *,
    tfds_name: str,
    image_size: int = 0,
    train_split: str = "train",
    test_split: str = "",
) -> raw.RawDataset:
    """Reads a set that tensorflow-datasets knows, preparing it first if it is not prepared.

    Prepared sets are looked for in `directory`, in `directory/tfds` and where tensorflow-datasets
    keeps them itself (`~/tensorflow_datasets` or $TFDS_DATA_DIR). A set that has to be prepared
    goes to `directory/tfds`. Original files that were put into `directory/tfds/downloads/manual`,
    `directory/<set>` or `directory` itself are not downloaded again.

    Args:
      directory: data directory.
      tfds_name: name, configuration and version as in `tfds.builder`: 'mnist', 'mnist:3.0.1'.
      image_size: side length to resize to (bilinear), or 0 for the stored size.
      train_split: split of the training set, in the notation of tensorflow-datasets.
      test_split: split of the test set; '' takes 'test' or, if there is none, 'validation'.

    Returns:
      A `RawDataset`; mean and deviation are those of its training images.

    Raises:
      MissingDataError: a package or an original file is missing; the message says which.
      ValueError: the set or split does not exist or holds no labelled 8-bit images.
    """
    try:
        builder = tfds_builder.prepared(tfds_name, directory)
    except download.MissingDataError as error:
        source = re.split("[/:]", tfds_name)[0]
        if source not in sources.NAMES:
            raise
        hint = f"{error}. Source {source!r} reads its original files directly."
        raise download.MissingDataError(hint, reason=error.reason) from error
    if not test_split:
        test_split = "test" if "test" in builder.info.splits else "validation"
    image_key, label_key = _keys(builder.info)
    train, test = (
        _read_split(builder, split, image_key, label_key, image_size=image_size)
        for split in (train_split, test_split)
    )
    mean, std = raw.channel_statistics(train[0])
    return raw.RawDataset(
        name=builder.info.name,
        train_inputs=train[0],
        train_labels=train[1],
        test_inputs=test[0],
        test_labels=test[1],
        class_names=tuple(builder.info.features[label_key].names),
        mean=mean,
        std=std,
    )


def _keys(info: Any) -> tuple[str, str]:
    """Names of the image and of the label feature."""
    features = info.features
    pair = info.supervised_keys
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(key in features for key in pair)):
        images = [key for key in features if len(features[key].shape or ()) == 3]
        labels = [key for key in features if hasattr(features[key], "names")]
        pair = (*images[:1], *labels[:1])
    is_usable = len(pair) == 2 and len(features[pair[0]].shape or ()) == 3
    if not is_usable or not hasattr(features[pair[1]], "names"):
        raise ValueError(
            f"{info.full_name} has the features {', '.join(features)}; "
            f"accepted: one image and one class label"
        )
    return pair


def _read_split(
    builder: Any, split: str, image_key: str, label_key: str, *, image_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of one split, filled into one array as they are read."""
    name = builder.info.full_name
    try:
        count = builder.info.splits[split].num_examples
    except (KeyError, ValueError) as error:
        known = ", ".join(builder.info.splits)
        raise ValueError(
            f"{name} has no split {split!r}; accepted for data.train_split and data.test_split: "
            f"{known}, or parts such as 'train[80%:]'"
        ) from error
    images, labels = None, np.empty(count, np.int32)
    row = -1
    for row, example in enumerate(tfds_records.examples(builder, split)):
        image = np.asarray(example[image_key])
        if image.dtype != np.uint8:
            raise ValueError(f"{name} has images of type {image.dtype}; accepted: uint8")
        if image_size:
            flat = image[..., 0] if image.shape[-1] == 1 else image
            resized = image_arrays.resize(Image.fromarray(flat), image_size)
            image = image_arrays.pixels(resized)
        if images is None:
            images = np.empty((count, *image.shape), np.uint8)
        if image.shape != images.shape[1:]:
            raise ValueError(
                f"{name}, split {split!r}: image {row} has the shape {image.shape}, others have "
                f"{images.shape[1:]}; set image_size to bring all to one size"
            )
        images[row], labels[row] = image, example[label_key]
    if row + 1 != count or images is None:
        raise ValueError(f"{name}, split {split!r} has {row + 1} examples; accepted: {count}")
    return images, labels
