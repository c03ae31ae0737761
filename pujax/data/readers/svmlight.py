"""The classification tables of the LIBSVM pages, in svmlight text."""

import lzma
import os
import pathlib
import zlib
from typing import NamedTuple

import numpy as np

from pujax import reading
from pujax.data import absent, raw
from pujax.data.readers import download, holdout, packed

_PAGES = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
PAGE = f"{_PAGES}/binary.html"
MULTICLASS_PAGE = f"{_PAGES}/multiclass.html"
_ENDINGS = ("", ".gz", ".bz2", ".xz")
# (negative, positive) as the page and its copies code them.
_CODES = ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)


class SvmlightSource(NamedTuple):
    """What distinguishes one table from another.

    Attributes:
      name: source name.
      train_files: names of the files that make up the training set, one tuple per way of having it.
      test_file: name of the test set's file, or '' where there is none.
      num_features: columns.
      train_counts: rows of every class in the training files; of two classes the negative first.
      test_counts: likewise of the test file; zeros where there is none.
      class_names: of the classes.
      codes: how the files may write the classes, in the order of their ids.
      page: where the files are to be had.
    """

    name: str
    train_files: tuple[tuple[str, ...], ...]
    test_file: str
    num_features: int
    train_counts: tuple[int, ...]
    test_counts: tuple[int, ...]
    class_names: tuple[str, ...]
    codes: tuple[tuple[float, ...], ...] = _CODES
    page: str = PAGE


def without_data(source: SvmlightSource, *, test_fraction: float = 0.2) -> raw.RawDataset:
    """The table without its numbers; `load` tells about `test_fraction`."""
    train, test = source.train_counts, source.test_counts
    if not source.test_file:
        test = tuple(holdout.size(count, test_fraction) for count in train)
        train = tuple(count - held for count, held in zip(train, test, strict=True))
    return absent.one_class(
        source.name, (source.num_features,), train=train, test=test, class_names=source.class_names
    )


def load(
    source: SvmlightSource,
    directory: pathlib.Path,
    *,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> raw.RawDataset:
    """Reads a table as float32; classes are 0, 1, ..., however the file codes them.

    Args:
      source: which table.
      directory: folder with the files, or with a folder of the source's name or `libsvm`.
      test_fraction: share of each class that is held out where there is no test file.
      seed: chooses another test set there.

    Returns:
      A `RawDataset`; mean and deviation are those of its training rows.

    Raises:
      MissingDataError: a file is missing; the page publishes no checksums, so none is downloaded.
      ValueError: a file is damaged, or does not hold the rows that it should.
    """
    train, test = _find_all(source, directory)
    inputs, labels = _read(source, train, source.train_counts)
    if test:
        test_inputs, test_labels = _read(source, [test], source.test_counts)
    else:
        held = holdout.is_test(labels, test_fraction=test_fraction, seed=seed)
        test_inputs, test_labels = inputs[held], labels[held]
        inputs, labels = inputs[~held], labels[~held]
    mean, std = raw.feature_statistics(inputs)
    return raw.RawDataset(
        name=source.name,
        train_inputs=inputs,
        train_labels=labels,
        test_inputs=test_inputs,
        test_labels=test_labels,
        class_names=source.class_names,
        mean=mean,
        std=std,
    )


def _find_all(source, directory):
    """Paths of the training files and of the test file (None where there is none)."""
    places = [[_find(directory, source.name, name) for name in way] for way in source.train_files]
    train = next((paths for paths in places if None not in paths), None)
    test = _find(directory, source.name, source.test_file) if source.test_file else None
    missing = []
    if train is None:
        missing.append(" or ".join(" with ".join(way) for way in source.train_files))
    if source.test_file and test is None:
        missing.append(source.test_file)
    if missing:
        raise download.MissingDataError(
            f"cannot find {' and '.join(missing)} (plain, .gz, .bz2 or .xz) in {directory} or "
            f"{directory / source.name}; get it from {source.page} and put it there",
            reason="not found",
        )
    return train, test


def _find(directory, name, file):
    """A file by its name on the page, packed or not; never a folder of the same name."""
    for base in (directory, directory / name, directory / "libsvm"):
        for ending in _ENDINGS:
            path = base / (file + ending)
            if path.is_file():
                return path
    return None


def _read(source, paths, counts):
    """Rows and class ids of some files, one after another."""
    parts = [_read_file(path, source.num_features) for path in paths]
    inputs, codes = (np.concatenate(part) for part in zip(*parts, strict=True))
    where = ", ".join(map(str, paths))
    found, labels = np.unique(codes, return_inverse=True)
    if tuple(found.tolist()) not in source.codes:
        order = "the first of each pair negative" if len(counts) == 2 else "as published"
        raise ValueError(
            f"{where} has the labels {tuple(found.tolist())}; accepted: "
            f"{', '.join(map(str, source.codes))}, {order}"
        )
    sizes = np.bincount(labels).tolist()
    if tuple(sizes) != counts:
        raise ValueError(f"{where} has {_rows(sizes)}; accepted: {_rows(counts)}, as published")
    return inputs, labels.astype(np.int32)


def _rows(counts):
    """Rows of every class in words."""
    if len(counts) == 2:
        return f"{counts[0]} negatives and {counts[1]} positives"
    return f"{', '.join(map(str, counts))} rows of its classes"


def _read_file(path, num_features):
    from sklearn import datasets  # where it is needed: it loads for a second

    try:
        with packed.open_binary(os.fspath(path)) as stream:
            rows, codes = datasets.load_svmlight_file(
                stream, n_features=num_features, dtype=np.float32, zero_based=False
            )
    except _DAMAGE as error:
        raise ValueError(f"{path} is damaged or truncated: {reading.one_line(error)}") from error
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{path} is not svmlight text of {num_features} features: "
            f"{reading.one_line_of_text(error)}"
        ) from error
    try:
        remedy = "take the file as published"
        what = f"{rows.shape[0]} rows"
        reading.check_size(path, 4 * rows.shape[0] * num_features, what, remedy=remedy)
    except ValueError as error:
        raise ValueError(f"{path} is held dense: {error}") from error
    return rows.toarray(), codes.astype(np.float64)
