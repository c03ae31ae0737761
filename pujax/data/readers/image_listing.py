"""Which files in a folder are images, and which of its folders hold unlabeled ones."""

import os
import pathlib
import unicodedata
from collections.abc import Collection, Iterable

from pujax.console import plural

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
UNLABELED = ("unlabeled", "unlabelled")
"""What a folder of unlabeled images beside those of classes is called, in upper or lower case."""


def folder_names(folder: pathlib.Path) -> tuple[str, ...]:
    """Names of the folders in a folder that are not hidden, in alphabetical order.

    Raises:
      ValueError: two of them look alike, see `check_apart`.
    """
    entries = (entry for entry in folder.iterdir() if entry.is_dir())
    names = tuple(sorted(entry.name for entry in entries if not entry.name.startswith(".")))
    check_apart(folder, names)
    return names


def unlabeled_folder(folder: pathlib.Path) -> str:
    """Name of the folder of unlabeled images in a folder, one of `UNLABELED`; '' if there is none.

    Raises:
      ValueError: there are two.
    """
    return folder_called(folder, UNLABELED, "unlabeled images")


def folder_called(folder: pathlib.Path, names: Collection[str], what: str) -> str:
    """Name of the folder in a folder that has one of some names; '' if there is none.

    Args:
      folder: that holds it.
      names: in lower case; the folder's may be in upper case.
      what: images it holds, for the message.

    Raises:
      ValueError: there are two.
    """
    found = [name for name in folder_names(folder) if name.lower() in names]
    if len(found) > 1:
        raise ValueError(
            f"{folder} has the folders {' and '.join(map(repr, found))}, both of {what}; "
            "accepted: one of them"
        )
    return found[0] if found else ""


def image_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The images in a folder, in alphabetical order; none if there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _is_image(path.name) and not path.is_dir())


def check_none_beside(folder: pathlib.Path, field: str, accepted: str) -> None:
    """Raises a ValueError for images that lie in a folder itself, beside folders of images.

    Args:
      folder: that holds the folders.
      field: what to call it in the message.
      accepted: where images may lie.
    """
    beside = image_files(folder)
    if beside:
        raise ValueError(
            f"{field} holds {plural(len(beside), 'image')} beside the folders "
            f"({beside[0].name!r} is the first); accepted: {accepted}"
        )


def has_images(folder: pathlib.Path) -> bool:
    """Whether there is an image in a folder or below it, looked for no longer than to the first.

    Hidden folders and links to folders are passed over, and so are folders that cannot be opened.
    """
    for _, folders, names in os.walk(folder):
        if any(map(_is_image, names)):
            return True
        folders[:] = [name for name in folders if not name.startswith(".")]
    return False


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")


def images_below(folder: str | os.PathLike[str]) -> list[str]:
    """The images in a folder and all folders below it.

    Files whose name does not end like an image's, and hidden files and folders, are passed over. A
    folder that is linked is looked into, unless it is one of those that it lies in.

    Args:
      folder: to look in.

    Returns:
      Paths relative to the folder, with '/' between their parts, in alphabetical order.

    Raises:
      ValueError: for a name that is not UTF-8, which no table of results could hold, and for a
        folder that cannot be opened.
    """
    found: list[str] = []
    _add_images(os.fspath(folder), "", frozenset(), found)
    return sorted(found)


def images_if_there(folder: pathlib.Path) -> list[str]:
    """`images_below`; none if there is no such folder, as a class may lack one of the splits."""
    return images_below(folder) if folder.is_dir() else []


def _add_images(root: str, inside: str, above: frozenset[str], found: list[str]) -> None:
    place = os.path.realpath(os.path.join(root, inside))
    if place in above:
        return
    try:
        with os.scandir(place) as listing:
            entries = [entry for entry in listing if not entry.name.startswith(".")]
    except OSError as error:
        raise ValueError(f"{place} cannot be opened: {error.strerror}") from error
    for entry in entries:
        path = f"{inside}/{entry.name}" if inside else entry.name
        if entry.is_dir():
            _add_images(root, path, above | {place}, found)
        elif _is_image(entry.name):
            check_name(root, path)
            full = os.path.join(place, entry.name)
            if not entry.is_file() and os.path.exists(full):  # a pipe would be read for ever
                raise ValueError(f"{full} is no file; accepted: image files")
            found.append(path)


def check_name(root: str, path: str) -> None:
    """Raises a ValueError for a path in `root` that cannot be written as text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{root} holds {path!r}; accepted: names in UTF-8") from None


def check_apart(place: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Raises a ValueError for two different names of one look, as of letters and accents apart."""
    forms: dict[str, str] = {}
    for name in names:
        other = forms.setdefault(unicodedata.normalize("NFC", name), name)
        if other != name:
            raise ValueError(
                f"{place} has two names that look like {name!r} (Unicode NFC and NFD); accepted: "
                "one way to compose its letters"
            )


def composed_otherwise(names: Iterable[str], known: Iterable[str]) -> str:
    """A remark on names that look like known ones and are not; '' where there are none."""
    forms = {unicodedata.normalize("NFC", name) for name in known}
    alike = any(unicodedata.normalize("NFC", name) in forms for name in names)
    return " (letters are composed otherwise: Unicode NFC and NFD)" * alike
