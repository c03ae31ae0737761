"""A data set as its source publishes it, before anybody decides what is positive or labelled."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pujax.checks import require
from pujax.data.image_files import ImageFiles, as_array

UNKNOWN = -1
"""Class id of an example of unknown class, such as STL-10's unlabeled images; unknown label."""

_FAR = 1000.0
"""How many times smaller the deviation of a column is without its outliers, from which on they are
all that is left of it once it is standardised."""
_CHUNK = 1000
_IMAGES = 100
"""Rows, and images, counted at once, which bounds the memory that NumPy takes for it."""


class SharedRows(NamedTuple):
    """Test rows that training has, too.

    Attributes:
      rows: test rows that equal a training row in every feature column, or have its id.
      same_id: those of them that have its id.
      of: all test rows.
      among_training: share of the training rows that equal another training row in every feature
        column: what is to be expected where equal rows are different cases.
      what: 'rows'; 'images', which are equal where their files are, byte by byte; or 'examples' of
        an archive, which are equal where all their numbers are.
    """

    rows: int
    same_id: int
    of: int
    among_training: float
    what: str = "rows"

    def numbers(self) -> dict[str, int | float]:
        """What a summary keeps."""
        return {name: value for name, value in self._asdict().items() if name != "what"}

    @property
    def sentence(self) -> str:
        """What a run warns of."""
        what = self.what
        counted = (
            f"{self.rows:,} of {self.of:,} test {what} ({self.rows / self.of:.1%}) are also "
            f"training {what}"
        )
        if what == "images":
            return (
                f"{counted}, the same file; of the training images {self.among_training:.1%} "
                "are the same file as another one. The numbers of the test set are too good: take "
                "them out of the test set or of the training images"
            )
        part, places = "feature column", "data.path or of data.test_path"
        if what == "examples":
            part, places = "number", "X_train and Y_train or of X_test and Y_test"
        by_id = f" or with the same id ({self.same_id:,})" if self.same_id else ""
        return (
            f"{counted}, equal in every {part}{by_id}; of the training {what} "
            f"{self.among_training:.1%} equal another one. Unless equal {what} are different "
            f"cases, the numbers of the test set are too good: leave them out of {places}"
        )


class OwnRows(NamedTuple):
    """What is kept of a user's own rows beside their numbers.

    Attributes:
      id_name: column that names a row, or 'row' or 'file' where there is none.
      ids: `[n]`, name of every row of the training set, in its order.
      notes: sentences on how the file was read, for the run to print.
      preparation: turns new rows into inputs, once it is learned; None before.
      test_copies: test rows that are also training rows; None without any.
      unreadable: names of what cannot be read and was left out, of the test set, too.
    """

    id_name: str
    ids: np.ndarray
    notes: tuple[str, ...] = ()
    preparation: Any = None
    test_copies: SharedRows | None = None
    unreadable: tuple[str, ...] = ()


class RawDataset(NamedTuple):
    """Inputs and labels of a training and a test set.

    An example has one class, or several labels. Inputs are images, uint8
    `[n, height, width, channels]`, in memory or in files, or a table of numbers, float32
    `[n, features]`.

    Attributes:
      name: source name.
      train_inputs: `[n, ...]` or `ImageFiles`.
      train_labels: int32 `[n]`, class ids; with several labels per example int8 `[n, classes]`,
        1 or 0. -1 means unknown.
      test_inputs: `[t, ...]` or `ImageFiles`; `t` is 0 where there is no test set, which data
        with one class per example may be without.
      test_labels: likewise `[t]` or `[t, classes]`, without -1.
      class_names: one name per class.
      mean: per channel, of pixels in 0-1; per feature of a table.
      std: likewise, positive.
      prepare: `(training rows int [n']) -> RawDataset`, which fills in the inputs of data whose
        preparation is learned on training rows only; None where inputs are as they are.
      own: what belongs to a user's own rows, else None.
      known_at_random: whether the examples of known class stand for all, as those of a published
        set are meant to. In a user's own data they are those somebody happened to label.
    """

    name: str
    train_inputs: np.ndarray | ImageFiles
    train_labels: np.ndarray
    test_inputs: np.ndarray | ImageFiles
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    known_at_random: bool = True
    prepare: "Callable[[np.ndarray], RawDataset] | None" = None
    own: OwnRows | None = None

    @property
    def is_multilabel(self) -> bool:
        """Whether an example has a row of labels instead of one class id."""
        return self.train_labels.ndim > 1

    def scaled_by(self, scaling: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What inputs are shifted and divided by.

        Args:
          scaling: 'standard' for `mean` and `std`; 'unit' for 0 and 1.
        """
        if scaling == "standard":
            return self.mean, self.std
        return (0.0,) * len(self.mean), (1.0,) * len(self.std)


def of_rows(rows: np.ndarray, labeled: np.ndarray) -> RawDataset:
    """Rows of numbers in memory, of which some are labeled positive and nothing else is known.

    Args:
      rows: `[n, dim]`.
      labeled: bool `[n]`, whether a row is a labeled positive.

    Returns:
      Its training rows, without test rows. Its mean is 0 and its deviation 1, so that every
      `scaling` leaves the numbers as they are.
    """
    return RawDataset(
        name="rows",
        train_inputs=rows,
        train_labels=np.where(labeled, 1, -1).astype(np.int32),
        test_inputs=rows[:0],
        test_labels=np.zeros(0, np.int32),
        class_names=("negative", "positive"),
        mean=(0.0,) * rows.shape[1],
        std=(1.0,) * rows.shape[1],
        known_at_random=False,
    )


def empty_classes(labels: np.ndarray) -> list[int]:
    """Ids of the classes to which no example belongs, as far as known.

    Args:
      labels: int `[n, classes]`, 1, 0 or -1.

    Returns:
      Increasing class ids.
    """
    return np.flatnonzero(~(labels == 1).any(axis=0)).tolist()


def channel_statistics(
    images: np.ndarray | ImageFiles,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel, of pixels in 0-1.

    Both come from a histogram of the 256 grey levels, so they are exact and need no float copy of
    the images.

    Args:
      images: uint8 `[n, height, width, channels]`, or files, of which a part is decoded at a time.

    Returns:
      `(mean, std)`, one number per channel.

    Raises:
      ValueError: a channel is constant, so nothing can be divided by its deviation.
    """
    levels = np.arange(256) / 255.0
    counts = np.zeros((images.shape[-1], 256), np.int64)
    for start in range(0, len(images), _IMAGES):
        pixels = as_array(images[start : start + _IMAGES])
        for channel in range(images.shape[-1]):
            counts[channel] += np.bincount(pixels[..., channel].ravel(), minlength=256)
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


class Outlier(NamedTuple):
    """A number so large that all others of its column are the same beside it.

    Attributes:
      column: index of the column.
      row: index of the row.
      value: the number.
      typical: the largest distance from the median of all rows but `left_out`.
      left_out: how many rows that are: the farthest ones, or all that hold this number.
    """

    column: int
    row: int
    value: float
    typical: float
    left_out: int


def outliers(table: np.ndarray) -> list[Outlier]:
    """Columns of which standardising leaves nothing but a few numbers, with the farthest of these.

    A column counts where its deviation without a few rows is less than a thousandth of what it is
    with them, and one row of a hundred differs from the median still. The few are the farthest row
    of every thousand (at least one), or all that hold the farthest number, if they are a hundredth
    at most (of a thousand rows and fewer, ten or a tenth). A mistyped number does this, and missing
    ones that are all written as -999999; a heavy tail does not, nor do the rare counts of a column
    of zeros.

    Args:
      table: float `[n, features]`, finite.

    Returns:
      One for each such column, in their order.
    """
    found: list[Outlier] = []
    size = len(table)
    few = max(1, size // 1000)
    most = max(1, min(10, size // 10), size // 100)
    if size <= most:
        return found
    # What is searched for has nearly all of its column's variance in `most` rows, so that the
    # farthest is about this many deviations away at least. Few columns have such a row.
    mean, std = (np.array(numbers) for numbers in feature_statistics(table))
    farthest = np.maximum(table.max(0) - mean, mean - table.min(0))
    for column in np.flatnonzero(farthest > 0.9 * np.sqrt(size / most) * std).tolist():
        values = table[:, column].astype(np.float64)
        median = np.median(values)
        distance = np.abs(values - median)
        row = int(distance.argmax())
        for left_out in (
            np.argpartition(distance, size - few)[size - few :],
            np.flatnonzero(values == values[row]),
        ):
            rest = np.delete(values, left_out)
            is_varied = np.count_nonzero(rest != median) * 100 >= len(rest) > 0
            if len(left_out) <= most and is_varied and rest.std() * _FAR < values.std():
                typical = float(np.abs(rest - median).max())
                found.append(Outlier(column, row, float(values[row]), typical, len(left_out)))
                break
    return found


def describe_outliers(
    table: np.ndarray, *, columns: Sequence[Any], row: Callable[[int], str], remedy: str
) -> tuple[str, ...]:
    """What a person should know of `outliers`.

    Args:
      table: float `[n, features]`, finite.
      columns: names `[features]`.
      row: the name of a row, by its index.
      remedy: what to do with a cell that cannot be corrected, `{}` in its place, such as 'clip {}'.

    Returns:
      One sentence on the first of them, or none.
    """
    found = outliers(table)
    if not found:
        return ()
    first = found[0]
    others = {1: "", 2: "; 1 more column is like this"}
    more = others.get(len(found), f"; {len(found) - 1} more columns are like this")
    cell, it = ("such cells", "them") if first.left_out > 1 else ("that cell", "it")
    return (
        f"column {columns[first.column]!r} holds {first.value:.4g} in {row(first.row)}, beside "
        f"which its other numbers are nothing once they are standardised (all rows but "
        f"{first.left_out} are within {first.typical:.4g} of the median): correct {cell}, or "
        f"{remedy.format(it)}{more}",
    )


def check(data: RawDataset) -> RawDataset:
    """Returns `data` unchanged if its parts fit one another.

    With several labels per example, classes without a positive are let through in either split: a
    metric has a rule for them, and `empty_classes` names them.

    Args:
      data: what a source has read.

    Returns:
      The same object.

    Raises:
      ValueError: naming the source, the field, what it is and what is accepted.
    """
    try:
        _check_inputs(data)
        check_labels = _check_label_rows if data.is_multilabel else _check_class_ids
        for split in ("train", "test"):
            check_labels(data, split, getattr(data, f"{split}_labels"))
    except ValueError as error:
        raise ValueError(f"source {data.name!r}: {error}") from None
    return data


def _check_inputs(data: RawDataset) -> None:
    kinds = [isinstance(inputs, ImageFiles) for inputs in (data.train_inputs, data.test_inputs)]
    require(
        kinds[0] == kinds[1],
        "test_inputs",
        type(data.test_inputs).__name__,
        f"{type(data.train_inputs).__name__}, as train_inputs is",
    )
    for split in ("train", "test"):
        inputs = getattr(data, f"{split}_inputs")
        kind = (np.dtype(inputs.dtype).name, len(inputs.shape))
        may_be_empty = split == "test" and not data.is_multilabel
        require(
            kind in (("uint8", 4), ("float32", 2)) and min(inputs.shape[may_be_empty:]) > 0,
            f"{split}_inputs",
            f"{inputs.dtype} {inputs.shape}",
            "a non-empty uint8 array [n, height, width, channels] or float32 [n, features]",
        )
        if kind[1] == 2:
            broken = int((~np.isfinite(inputs)).sum())
            require(not broken, f"{split}_inputs", f"not finite in {broken} places", "numbers")
    shape = data.train_inputs.shape[1:]
    what = "test image" if len(shape) == 3 else "test row"
    require(data.test_inputs.shape[1:] == shape, what, data.test_inputs.shape[1:], f"{shape}")
    for field in ("mean", "std"):
        value = getattr(data, field)
        right = len(value) == shape[-1] and bool(np.isfinite(value).all())
        require(right, field, value, f"{shape[-1]} finite numbers")
    require(min(data.std) > 0, "std", data.std, "positive numbers")


def _check_class_ids(data: RawDataset, split: str, labels: np.ndarray) -> None:
    wanted = (len(getattr(data, f"{split}_inputs")),)
    require(
        labels.dtype == np.int32 and labels.shape == wanted,
        f"{split}_labels",
        f"{labels.dtype} {labels.shape}",
        f"int32 {wanted}",
    )
    if not len(labels):  # a test set may be missing
        return
    low, high, last = int(labels.min()), int(labels.max()), len(data.class_names) - 1
    least, why = UNKNOWN if split == "train" else 0, ""
    if split == "test" and low == UNKNOWN:  # as where the labels of a contest are kept back
        why = ", since every test label has to be known: choose another split, or a set with labels"
    is_right = low >= least and high <= last
    require(is_right, f"{split}_labels", f"in {low}..{high}", f"{least}..{last}{why}")


def _check_label_rows(data: RawDataset, split: str, labels: np.ndarray) -> None:
    names = data.class_names
    require(len(names) > 0, "class_names", names, "at least one name")
    empty = [i + 1 for i, name in enumerate(names) if not name.strip()]
    require(not empty, "class_names", f"empty in places {empty}", "a name for each class")
    doubles = sorted({name for name in names if names.count(name) > 1})
    require(not doubles, "class_names", f"{doubles} more than once", "names that differ")
    wanted = (len(getattr(data, f"{split}_inputs")), len(names))
    require(
        labels.dtype == np.int8 and labels.shape == wanted,
        f"{split}_labels",
        f"{labels.dtype} {labels.shape}",
        f"int8 {wanted}, a row per example and a column per class name",
    )
    codes = (UNKNOWN, 0, 1) if split == "train" else (0, 1)
    others = np.setdiff1d(labels, codes).tolist()
    accepted = ", ".join(map(str, codes))
    require(not others, f"{split}_labels", f"{others} in places", accepted)
    positives = split == "test" or bool((labels == 1).any())
    require(positives, "train_labels", "without a 1", "at least one positive of any class")
