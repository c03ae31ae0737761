"""Several labels per example from a NumPy archive: X_train, Y_train, X_test, Y_test."""

import pathlib
import zipfile

import numpy as np

from pujax import reading
from pujax.data import preparation, raw
from pujax.data.digests import Digests
from pujax.data.image_preparation import ImagePreparation
from pujax.data.readers import frames, image_listing

_ARRAYS = ("X_train", "Y_train", "X_test", "Y_test")
_NAMES = "label_names"


def load(path: pathlib.Path, *, image_size: int, load_size: int, missing: str) -> raw.RawDataset:
    """Reads an archive.

    `X_*` are numbers `[n, features]` or uint8 images `[n, height, width, 3]` or `[n, height,
    width]`, which are grey. `Y_*` are `[n, classes]`: 1, 0, and in `Y_train` -1 for unknown.
    `label_names` (optional) holds one name per class. What becomes of numbers is learned from
    `X_train`, see `preparation.Preparation`; mean and deviation are those of the training examples.

    Args:
      path: what `numpy.savez` has written, without Python objects.
      image_size: side length to resize images to (bicubic); 0 is the stored size.
      load_size: 0, since the images of an archive have one size.
      missing: of no meaning here, where no file can be missing.

    Returns:
      A `raw.RawDataset` of arrays.

    Raises:
      ValueError: the archive or an array of it is not as above, naming which.
    """
    del missing
    if load_size:
        raise ValueError(f"load_size is {load_size}; accepted: 0 with the archive {path}")
    arrays = _read(path)
    x_train, x_test = (_inputs(path, name, arrays[name]) for name in ("X_train", "X_test"))
    y_train = _labels(path, "Y_train", arrays["Y_train"], (raw.UNKNOWN, 0, 1))
    y_test = _labels(path, "Y_test", arrays["Y_test"], (0, 1))
    for name, inputs, labels in (("Y_train", x_train, y_train), ("Y_test", x_test, y_test)):
        accepted = (len(inputs), y_train.shape[1])
        if labels.shape != accepted:
            raise ValueError(f"{path}: {name} has shape {labels.shape}; accepted: {accepted}")
    names = np.asarray(arrays.get(_NAMES, np.arange(y_train.shape[1])))
    if names.shape != y_train.shape[1:]:
        raise ValueError(
            f"{path}: {_NAMES} has shape {names.shape}; accepted: {y_train.shape[1:]}, one name "
            "per column of Y_train"
        )
    prepared: preparation.Preparation | ImagePreparation
    notes: tuple[str, ...] = ()
    if x_train.ndim == 2:
        if image_size:
            raise ValueError(f"image_size is {image_size}; accepted: 0 with the table in {path}")
        trained, tested = (
            frames.of(x, name=f"{path}: {name}")
            for name, x in (("X_train", x_train), ("X_test", x_test))
        )
        if not (x_train != x_train[0]).any():
            raise ValueError(f"{path}: all rows of X_train are equal; accepted: rows that differ")
        prepared = preparation.fit(trained)
        notes = prepared.messages
        copies = _copies(
            prepared.row_digests(trained, beside=tested),
            prepared.row_digests(tested, beside=trained),
        )
        x_train, x_test = (prepared.transform(rows) for rows in (trained, tested))
    else:
        _, height, width, channels = x_train.shape
        side = image_size or (height if height == width else (height, width))
        prepared = ImagePreparation(side, channels, resample="bicubic")
        copies = _copies(*map(_digests, (x_train, x_test)))
        if image_size:
            x_train, x_test = (prepared.transform(images) for images in (x_train, x_test))
    statistics = raw.feature_statistics if x_train.ndim == 2 else raw.channel_statistics
    # An overflow in the statistics comes of numbers which `check` refuses by name.
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = statistics(x_train)
    return raw.RawDataset(
        name="multilabel",
        train_inputs=x_train,
        train_labels=y_train,
        test_inputs=x_test,
        test_labels=y_test,
        class_names=_texts(path, names),
        mean=mean,
        std=std,
        own=raw.OwnRows(
            "row",
            np.arange(1, len(x_train) + 1),
            notes,
            preparation=prepared,
            test_copies=copies,
        ),
    )


def _copies(trained: Digests, tested: Digests) -> raw.SharedRows | None:
    """The test examples that training has, too, by all their numbers; None without any."""
    found = int(tested.among(trained).sum())
    if not found:
        return None
    alike = trained.num_repeated() / len(trained)
    return raw.SharedRows(found, 0, len(tested), alike, "examples")


def _digests(images: np.ndarray) -> Digests:
    found = Digests()
    found.add(image.tobytes() for image in images)
    return found


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is none; accepted: what numpy.savez writes")
        held = reading.npz_names(path)
        missing = [name for name in _ARRAYS if name not in held]
        strips = [name for name in held if "_webp_" in name]
        if missing and strips:
            raise ValueError(
                f"it holds compressed strips of images ({strips[0]}, ...) in place of "
                f"{', '.join(missing)}; unpack it with the load.py that comes with it, "
                f"`python load.py {path.stem} OUT.npz`, and pass OUT.npz"
            )
        if missing:
            raise ValueError(
                f"it lacks {', '.join(missing)} and holds {', '.join(held) or 'none'}"
                f"; accepted: {', '.join(_ARRAYS)} and, if you like, {_NAMES}"
            )
        wanted = [*_ARRAYS, *(name for name in (_NAMES,) if name in held)]
        return reading.read_npz(path, wanted)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read as an archive: {reading.one_line(error)}"
        ) from error


def _inputs(path: pathlib.Path, name: str, array: np.ndarray) -> np.ndarray:
    """Images `[n, height, width, channels]`, or a table whose numbers fit into float32."""
    is_number = array.dtype.kind in "fiub"
    is_image = array.dtype == np.uint8 and (array.ndim == 3 or array.ndim == 4)
    if array.ndim == 4 and array.shape[-1] not in (1, 3):
        is_image = False
    if not array.size or not (is_image or (is_number and array.ndim == 2)):
        raise ValueError(
            f"{path}: {name} is {array.dtype} {array.shape}; accepted: numbers [n, features], or "
            "uint8 images [n, height, width], [n, height, width, 1] or [n, height, width, 3]"
        )
    if is_image:
        return array[..., None] if array.ndim == 3 else array
    with np.errstate(over="ignore"):
        wrong = array[~np.isfinite(array.astype(np.float32))]
    if wrong.size:
        raise ValueError(
            f"{path}: {name} holds {wrong[0]:g} in the first of {wrong.size} places; accepted: "
            f"numbers up to {np.finfo(np.float32).max:.2g} (float32)"
        )
    return array


def _labels(path: pathlib.Path, name: str, array: np.ndarray, codes: tuple[int, ...]) -> np.ndarray:
    """Labels as int8, after a look at their values."""
    if array.dtype.kind not in "fiub" or array.ndim != 2 or not array.size:
        raise ValueError(
            f"{path}: {name} is {array.dtype} {array.shape}; accepted: numbers [n, classes]"
        )
    others = np.setdiff1d(array, codes)
    if len(others):
        accepted = ", ".join(map(str, codes))
        accepted += f", of which {raw.UNKNOWN} is unknown" * (raw.UNKNOWN in codes)
        raise ValueError(f"{path}: {name} holds {others[0]:g}; accepted: {accepted}")
    return array.astype(np.int8)


def _texts(path: pathlib.Path, names: np.ndarray) -> tuple[str, ...]:
    """Names of classes as text; those in bytes are UTF-8."""
    try:
        texts = np.char.decode(names, "utf-8") if names.dtype.kind == "S" else names.astype(str)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {_NAMES} is {error.object!r}; accepted: text") from error
    image_listing.check_apart(f"{path}: {_NAMES}", texts.tolist())
    return tuple(texts.tolist())
