"""20 Newsgroups by date: computers against science, as 2000-dimensional tf-idf (K. Lang, 1995).

Its nine topics comp.* and sci.* are 8,843 posts; the two classes are 0, sci, and 1, comp.
"""

import pathlib
import re
from collections.abc import Iterator

import numpy as np

from pujax.data import absent, raw
from pujax.data.readers import archive as archive_lib
from pujax.data.readers import download

CLASS_NAMES = ("sci", "comp")
TOPICS = (
    ("sci.crypt", "sci.electronics", "sci.med", "sci.space"),
    (
        "comp.graphics",
        "comp.os.ms-windows.misc",
        "comp.sys.ibm.pc.hardware",
        "comp.sys.mac.hardware",
        "comp.windows.x",
    ),
)
NUM_FEATURES = 2000
COUNTS = {"train": (2373, 2936), "test": (1579, 1955)}
"""Posts of each class in the by-date distribution."""

_FOLDERS = {"train": "20news-bydate-train", "test": "20news-bydate-test"}
_ARCHIVES = tuple(
    f"{name}.tar.{packed}"
    for name in ("20news-bydate", "20news-bydate-comp-sci")
    for packed in ("gz", "xz", "bz2")
)
_REMOTE = download.RemoteFile(
    "20news-bydate.tar.gz",
    "https://ndownloader.figshare.com/files/5975967",
    "sha256:8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
    None,
)
_CLASS_OF = {topic: i for i, topics in enumerate(TOPICS) for topic in topics}
_BLANK_LINE = re.compile(r"\r?\n[ \t]*\r?\n")


def load(directory: pathlib.Path) -> raw.RawDataset:
    """Reads the posts and turns them into tf-idf vectors.

    A post's header names its group, so it is cut off at the first blank line; quotes and signatures
    stay. The words are scikit-learn's default tokens, of which the 2000 most frequent in the
    training posts are kept; words and weights come from the training posts alone. Every vector has
    length 1, or 0 where a post has none of the words.

    Args:
      directory: folder with an archive (`20news-bydate.tar.gz`, as published, or its comp.* and
        sci.* alone) or with the folders `20news-bydate-train/TOPIC/NUMBER` and
        `20news-bydate-test/TOPIC/NUMBER`; or with such a folder `newsgroups`.

    Returns:
      A `RawDataset` of a table.

    Raises:
      MissingDataError: the posts are missing and cannot be downloaded.
      ValueError: an archive is damaged, or posts are missing in it.
    """
    from sklearn.feature_extraction import text  # where it is needed: it loads for a second

    location = _find(directory)
    if location is None:
        hint = (
            f"The folders {' and '.join(_FOLDERS.values())} of the unpacked archive, or an archive "
            "20news-bydate-comp-sci.tar.xz of their comp.* and sci.* alone, are accepted as well."
        )
        paths = download.fetch_all([_REMOTE], directory=directory / "newsgroups", hint=hint)
        location = paths[0]
    posts = _posts(location)
    vectorizer = text.TfidfVectorizer(max_features=NUM_FEATURES, dtype=np.float32)
    texts = {split: [words for _, _, words in posts[split]] for split in _FOLDERS}
    train = vectorizer.fit_transform(texts["train"]).toarray()
    mean, std = raw.feature_statistics(train)
    return raw.RawDataset(
        name="newsgroups",
        train_inputs=train,
        train_labels=_labels(posts["train"]),
        test_inputs=vectorizer.transform(texts["test"]).toarray(),
        test_labels=_labels(posts["test"]),
        class_names=CLASS_NAMES,
        mean=mean,
        std=std,
    )


def without_data() -> raw.RawDataset:
    """What `load` returns, without the numbers: see `pujax.data.absent`."""
    return absent.one_class(
        "newsgroups",
        (NUM_FEATURES,),
        train=COUNTS["train"],
        test=COUNTS["test"],
        class_names=CLASS_NAMES,
    )


def body(post: bytes) -> str:
    """Text of a post below its header; '' where it has no blank line."""
    parts = _BLANK_LINE.split(post.decode("latin-1"), maxsplit=1)
    return parts[1] if len(parts) == 2 else ""


def _find(directory: pathlib.Path) -> pathlib.Path | None:
    """The folder that holds both unpacked folders, or an archive."""
    for base in (directory, directory / "newsgroups"):
        if all((base / folder).is_dir() for folder in _FOLDERS.values()):
            return base
        for name in _ARCHIVES:
            if (base / name).is_file():
                return base / name
    return None


def _labels(posts):
    return np.array([_CLASS_OF[topic] for topic, _, _ in posts], np.int32)


def _posts(location: pathlib.Path) -> dict[str, list[tuple[str, str, str]]]:
    """`(topic, number, body)` of all posts of both splits, in that order."""
    read = _from_folder if location.is_dir() else _from_archive
    posts: dict[str, list[tuple[str, str, str]]] = {split: [] for split in _FOLDERS}
    for path, post in read(location):
        split = next((s for s, folder in _FOLDERS.items() if folder == path.parts[-3]), None)
        if split is not None and path.parts[-2] in _CLASS_OF:
            topic, number = path.parts[-2:]
            posts[split].append((topic, number, body(post)))
    for split, items in posts.items():
        items.sort()
        counts = tuple(np.bincount(_labels(items), minlength=2).tolist()) if items else (0, 0)
        if counts != COUNTS[split]:
            raise ValueError(
                f"{location} has {counts[0]} posts of sci.* and {counts[1]} of comp.* in "
                f"{_FOLDERS[split]}; accepted: {COUNTS[split][0]} and {COUNTS[split][1]}, those of "
                "the by-date distribution (18,846 posts in all)"
            )
    return posts


def _from_folder(location: pathlib.Path) -> Iterator[tuple[pathlib.PurePath, bytes]]:
    for path in location.glob("20news-bydate-*/*/*"):
        if path.is_file():
            yield path, path.read_bytes()


def _from_archive(location: pathlib.Path) -> Iterator[tuple[pathlib.PurePath, bytes]]:
    """Nothing is unpacked, so that an archive cannot write anywhere."""
    with archive_lib.naming(str(location)):
        for archive, member in archive_lib.members(location):
            path = pathlib.PurePosixPath(member.name)
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None and len(path.parts) >= 3:
                yield path, file.read()
