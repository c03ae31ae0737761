"""CIFAR-10 and CIFAR-100 in both original layouts, packed and unpacked (Krizhevsky, 2009)."""

import pathlib
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from pujax.data import absent, raw
from pujax.data.readers import archive, cifar_pickle, download

SIDE = 32
PIXELS = 3 * SIDE * SIDE
SIZES = (50000, 10000)


class CifarSource(NamedTuple):
    """What distinguishes CIFAR-10 from CIFAR-100.

    Attributes:
      name: source name.
      train: names of the training files, without the `.bin` of the binary layout.
      test: name of the test file, likewise.
      binary_folder: folder inside the binary archive.
      python_folder: folder inside the python archive.
      binary_archive: file name.
      python_archive: the archive that is downloaded when nothing is there.
      label_keys: keys of the labels in a python file; in a binary file the label bytes come in
        the same order.
      mean: per channel, of pixels in 0-1.
      std: per channel, of pixels in 0-1.
    """

    name: str
    train: tuple[str, ...]
    test: str
    binary_folder: str
    python_folder: str
    binary_archive: str
    python_archive: download.RemoteFile
    label_keys: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def without_data(source: CifarSource, class_names: tuple[str, ...]) -> raw.RawDataset:
    """The data set without its images; every class has as many as the others."""
    train, test = ([size // len(class_names)] * len(class_names) for size in SIZES)
    return absent.one_class(
        source.name,
        (SIDE, SIDE, 3),
        train=train,
        test=test,
        class_names=class_names,
        mean=source.mean,
        std=source.std,
    )


def load(
    source: CifarSource, directory: pathlib.Path, *, label_key: str, class_names: tuple[str, ...]
) -> raw.RawDataset:
    """Reads one of the two data sets from whichever layout is there, or downloads it first.

    Args:
      source: which data set.
      directory: folder to look in, see `pujax.data.sources.load`.
      label_key: which labels, one of `source.label_keys`.
      class_names: one name per label.

    Returns:
      A `RawDataset`.

    Raises:
      MissingDataError: nothing is there and it cannot be downloaded.
      ValueError: a file is damaged or missing from its folder.
    """
    binary = archive.find(
        directory,
        source.name,
        (source.binary_folder, source.binary_archive),
        marker=f"{source.train[0]}.bin",
    )
    python = archive.find(
        directory,
        source.name,
        (source.python_folder, source.python_archive.filename),
        marker=source.train[0],
    )
    if binary is not None:
        location, folder, suffix = binary, source.binary_folder, ".bin"
    else:
        if python is None:
            hint = (
                f"Also accepted there: {source.binary_archive}, or either archive unpacked "
                f"({source.binary_folder}, {source.python_folder})."
            )
            (python,) = download.fetch_all(
                [source.python_archive], directory=directory / source.name, hint=hint
            )
        location, folder, suffix = python, source.python_folder, ""

    def reader(stream: BinaryIO, where: str) -> tuple[np.ndarray, np.ndarray]:
        read = read_python if binary is None else read_binary
        images, labels = read(stream, where, label_keys=source.label_keys)
        highest = int(labels[label_key].max(initial=0))
        if highest >= len(class_names):
            raise ValueError(
                f"{where} holds the label {highest}; accepted: 0..{len(class_names) - 1}"
            )
        return images, labels[label_key]

    names = [f"{name}{suffix}" for name in (*source.train, source.test)]
    batches = archive.read_members(location, folder, names, reader)
    train = [batches[name] for name in names[:-1]]
    train_labels = np.concatenate([labels for _, labels in train])
    test_inputs, test_labels = batches[names[-1]]
    sizes = (len(train_labels), len(test_labels))
    archive.warn_if_partial(location, sizes=sizes, original=SIZES)
    return raw.RawDataset(
        name=source.name,
        train_inputs=np.concatenate([images for images, _ in train]),
        train_labels=train_labels,
        test_inputs=test_inputs,
        test_labels=test_labels,
        class_names=class_names,
        mean=source.mean,
        std=source.std,
    )


def read_binary(
    stream: BinaryIO, where: str, *, label_keys: tuple[str, ...]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Reads records of one byte per label and 3072 bytes of pixels in channel, row, column order.

    Args:
      stream: the file.
      where: its name for error messages.
      label_keys: names of the label bytes.

    Returns:
      `(images, labels)`: uint8 `[n, 32, 32, 3]` and int32 `[n]` per key.

    Raises:
      ValueError: the file is empty or ends inside a record.
    """
    content, record = stream.read(), len(label_keys) + PIXELS
    if not content or len(content) % record:
        raise ValueError(
            f"{where} is truncated or not such a file: {len(content)} bytes; "
            f"accepted: a multiple of {record}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    labels = {key: records[:, i].astype(np.int32) for i, key in enumerate(label_keys)}
    return _images(records[:, len(label_keys) :]), labels


def read_python(
    stream: BinaryIO, where: str, *, label_keys: tuple[str, ...]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Reads a pickled dictionary, refusing every object but plain values and NumPy arrays.

    Args:
      stream: the file.
      where: its name for error messages.
      label_keys: keys of the labels.

    Returns:
      `(images, labels)` as `read_binary`.

    Raises:
      ValueError: the file is truncated, unsafe, or holds something else.
    """
    try:
        entries = cifar_pickle.read(stream.read())
    except ValueError as error:
        raise ValueError(f"{where} is damaged, truncated or no CIFAR batch: {error}") from error
    missing = [key for key in ("data", *label_keys) if key not in entries]
    if missing:
        raise ValueError(f"{where} has no entry {missing[0]!r}; accepted: a CIFAR batch")
    data = entries["data"]
    if not isinstance(data, np.ndarray):
        raise ValueError(f"{where} holds no array of pixels; accepted: a CIFAR batch")
    labels = {key: _labels(where, key, entries[key]) for key in label_keys}
    is_batch = data.dtype == np.uint8 and data.ndim == 2 and data.shape[1] == PIXELS and len(data)
    if not is_batch or any(values.shape != data.shape[:1] for values in labels.values()):
        shapes = {key: values.shape for key, values in labels.items()}
        raise ValueError(
            f"{where} holds {data.dtype} {data.shape} with labels {shapes}; "
            f"accepted: uint8 [n, {PIXELS}] with n labels"
        )
    return _images(data), labels


def _images(rows: np.ndarray) -> np.ndarray:
    """`[n, 3072]` in channel, row, column order as `[n, 32, 32, 3]`."""
    return np.ascontiguousarray(rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def _labels(where: str, key: str, values: Any) -> np.ndarray:
    """Labels as int32 `[n]`, of a list or an array of whole numbers."""
    is_list = isinstance(values, list) and all(type(value) is int for value in values)
    array = np.array(values, object) if is_list else values
    is_flat = isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "iuO"
    if not is_flat or not len(array) or not 0 <= min(array) <= max(array) < 2**31:
        raise ValueError(
            f"{where}: {key!r} holds something else than class ids; accepted: whole numbers from 0"
        )
    return array.astype(np.int32)
