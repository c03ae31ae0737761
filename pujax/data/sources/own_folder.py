"""Your own images in one folder: `positive/`, `unlabeled/`, and `negative/` and `test/` if any."""

import os
import pathlib

import numpy as np

from pujax.data import raw
from pujax.data.image_preparation import ImagePreparation
from pujax.data.readers import image_listing, image_trees

OWN = True
CLASS_NAMES = ("negative", "positive")
DEFAULT_SIZE = 64
_LAYOUT = "a folder that holds positive/ and unlabeled/, and if you like negative/ and test/"
_CODES = {"positive": 1, "unlabeled": raw.UNKNOWN, "negative": 0}


def load(
    directory: pathlib.Path,
    *,
    path: str,
    image_size: int = 0,
    channels: int = 3,
    unreadable: str = "fail",
    streamed: bool = False,
) -> raw.RawDataset:
    """Reads images of any size and mode; an image is called by its path within the folder.

    The images of `positive/` are labelled positives, those of `unlabeled/` and, unless a split asks
    for known negatives, those of `negative/` count as unlabeled. `test/positive/` and
    `test/negative/` are a test set with known truth. Other names are accepted as in
    `image_trees.roles`, and images may lie in folders below these. Every image is read once here,
    so that a damaged one is found before training, streamed or not.

    Args:
      directory: where a relative `path` is looked for if it is not in the current folder.
      path: of the folder.
      image_size: side of the square that images are resized to (bilinear); 0 is 64, which shows
        what is in most pictures and lets small networks train on a CPU in minutes.
      channels: 3, or 1 for grey.
      unreadable: 'fail' refuses images that cannot be read, 'skip' leaves them out and says so.
      streamed: leaves the images in files.

    Returns:
      A `RawDataset` whose `prepare` fills in mean and deviation of the training images.

    Raises:
      ValueError: in one line, naming the folder that is missing, empty or called otherwise, or the
        first image that cannot be read, with their number.
    """
    root, field = _find(directory, path)
    names = image_trees.roles(root, field=field, accepted=(*_CODES, image_trees.TEST))
    listed = {role: _images(root, names[role]) for role in _CODES if role in names}
    for role in ("positive", "unlabeled"):
        if not listed.get(role):
            where = f"whose {names[role]}/ holds no image" if role in names else f"without {role}/"
            raise ValueError(f"{field}, {where}; accepted: {_LAYOUT}")
    tested = _test_images(root, names, field)
    parts = [(path, _CODES[role]) for role, paths in listed.items() for path in paths]
    num_train = len(parts)
    parts += [(path, _CODES[role]) for role, paths in tested.items() for path in paths]
    prepared = ImagePreparation(image_size or DEFAULT_SIZE, channels)
    files = prepared.files([os.path.join(root, path) for path, _ in parts])
    scan = image_trees.scan(files, keep=not streamed)
    left_out = image_trees.check_readable(scan.reasons, len(parts), unreadable)
    good = np.setdiff1d(np.arange(len(parts)), list(scan.reasons))
    inputs = files if scan.pixels is None else scan.pixels
    labels = np.array([code for _, code in parts], np.int32)
    train, test = good[good < num_train], good[good >= num_train]
    _check_left(labels[train], labels[test], field, bool(tested))
    described = [_described(names[role], role, len(paths)) for role, paths in listed.items()]
    described += [f"{len(paths):,} in test/ are {role}" for role, paths in tested.items()]
    notes = [f"{path}: {', '.join(described)}; images become {_pixels(prepared)}"]
    copies = image_trees.copies([root / parts[i][0] for i in good], len(train))
    warned = f"warning: {copies.sentence}" if copies else ""
    own = raw.OwnRows(
        id_name="file",
        ids=np.array([path for path, _ in parts], object)[train],
        notes=(*notes, *filter(None, [left_out, warned])),
        preparation=prepared,
        test_copies=copies,
        unreadable=tuple(parts[i][0] for i in sorted(scan.reasons)),
    )
    data = raw.RawDataset(
        name="own_folder",
        train_inputs=inputs[train],
        train_labels=labels[train],
        test_inputs=inputs[test],
        test_labels=labels[test],
        class_names=CLASS_NAMES,
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
        known_at_random=False,
        own=own,
    )

    def prepare(rows: np.ndarray) -> raw.RawDataset:
        sums, squares = scan.sums[train[rows]], scan.squares[train[rows]]
        height, width, _ = prepared.shape
        mean, std = image_trees.statistics(sums, squares, height * width)
        return data._replace(mean=tuple(mean), std=tuple(std))

    return data._replace(prepare=prepare)


def _find(directory: pathlib.Path, path: str) -> tuple[pathlib.Path, str]:
    """The folder, and how messages begin that speak of it."""
    field = f"data.path is {path!r}"
    given = pathlib.Path(path).expanduser()
    root = next((place for place in (given, directory / given) if os.path.exists(place)), None)
    if root is None:
        raise ValueError(f"{field}, which does not exist; accepted: {_LAYOUT}")
    if not root.is_dir():
        raise ValueError(f"{field}, a file; accepted: {_LAYOUT}")
    if not any(not entry.name.startswith(".") for entry in root.iterdir()):
        raise ValueError(f"{field}, an empty folder; accepted: {_LAYOUT}")
    return root, field


def _images(root: pathlib.Path, inside: str) -> list[str]:
    return [f"{inside}/{path}" for path in image_listing.images_below(root / inside)]


def _test_images(root: pathlib.Path, names: dict[str, str], field: str) -> dict[str, list[str]]:
    if image_trees.TEST not in names:
        return {}
    name = names[image_trees.TEST]
    accepted = ("positive", "negative")
    inside = image_trees.roles(root / name, field=f"{field} with {name}/", accepted=accepted)
    found = {role: _images(root, f"{name}/{inside[role]}") for role in accepted if role in inside}
    for role in accepted:
        if not found.get(role):
            raise ValueError(
                f"{field} with {name}/, which has no {role} image; accepted: {name}/positive/ and "
                f"{name}/negative/ with images, or no {name}/"
            )
    return found


def _check_left(train: np.ndarray, test: np.ndarray, field: str, has_test: bool) -> None:
    """Raises a ValueError where all images of a folder that is needed were left out."""
    for name, labels, codes in (("the folder", train, (1, -1)), ("test/", test, (1, 0))):
        if (name == "the folder" or has_test) and not set(codes) <= set(labels.tolist()):
            raise ValueError(
                f"{field}, and all positive or all other images of {name} cannot be read; "
                "accepted: at least one of each"
            )


def _described(name: str, role: str, count: int) -> str:
    meaning = {"positive": "labelled positive", "negative": "known negative"}.get(role, role)
    return f"{count:,} images in {name}/ are {meaning}"


def _pixels(prepared: ImagePreparation) -> str:
    height, width, channels = prepared.shape
    return f"{height} x {width}, {'grey' if channels == 1 else 'RGB'}"
