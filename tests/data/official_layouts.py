"""Writers of the original file layouts, for tests: written from the formats, not by our readers."""

import gzip
import io
import pathlib
import struct
import tarfile

import numpy as np


def write_idx(path: pathlib.Path, array: np.ndarray) -> None:
    """An idx file of bytes; gzipped if the name says so."""
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    content += array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_idx_set(folder: pathlib.Path, arrays: list[np.ndarray], suffix: str = "") -> None:
    """The four files of an MNIST-like set."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    for name, array in zip(names, arrays, strict=True):
        write_idx(folder / f"{name}-ubyte{suffix}", array)


def cifar_rows(images: np.ndarray) -> np.ndarray:
    """Images `[n, 32, 32, 3]` as rows of 3072 bytes: red, green, blue, each row by row."""
    return np.stack([image.transpose(2, 0, 1).ravel() for image in images])


def cifar_binary(images: np.ndarray, *labels: np.ndarray) -> bytes:
    """One file of the binary layout."""
    rows = cifar_rows(images)
    return b"".join(
        bytes([*(int(label[i]) for label in labels)]) + rows[i].tobytes() for i in range(len(rows))
    )


class Python2Pickle:
    """Pickles a CIFAR batch as Python 2 with cPickle and the NumPy of 2009 did, byte for byte."""

    def __init__(self):
        self._count = 0

    def dump(self, entries: dict[bytes, object]) -> bytes:
        """The bytes of a dictionary of byte strings, lists and arrays, in its order."""
        self._count = 0
        parts = [b"\x80\x02}", self._put(), b"("]
        for key, value in entries.items():
            parts.append(self._text(key))
            if isinstance(value, bytes):
                parts.append(self._text(value))
            elif isinstance(value, list):
                parts.append(self._list(value))
            else:
                parts.append(self._array(value))
        return b"".join([*parts, b"u."])

    def _put(self) -> bytes:
        """The operation that remembers the object on top of the stack."""
        self._count += 1
        if self._count < 256:
            return b"q" + bytes([self._count])
        return b"r" + struct.pack("<i", self._count)

    def _text(self, text: bytes) -> bytes:
        return _string(text) + self._put()

    def _list(self, items: list) -> bytes:
        parts = [b"]", self._put()]
        for start in range(0, len(items), 1000):
            chunk = items[start : start + 1000]
            coded = (_number(item) if isinstance(item, int) else self._text(item) for item in chunk)
            parts.append(b"(" + b"".join(coded) + b"e")
        return b"".join(parts)

    def _array(self, array: np.ndarray) -> bytes:
        rows, columns = array.shape
        return b"".join(
            [
                b"cnumpy.core.multiarray\n_reconstruct\n" + self._put(),
                b"cnumpy\nndarray\n" + self._put(),
                b"K\x00\x85U\x01b\x87R" + self._put(),
                b"(K\x01" + _number(rows) + _number(columns) + b"\x86",
                b"cnumpy\ndtype\n" + self._put(),
                b"U\x02u1K\x00K\x01\x87R" + self._put(),
                b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
                _string(array.tobytes()) + b"tb",
            ]
        )


def _string(text: bytes) -> bytes:
    """A Python 2 string in pickle protocol 2."""
    if len(text) < 256:
        return b"U" + bytes([len(text)]) + text
    return b"T" + struct.pack("<i", len(text)) + text


def _number(value: int) -> bytes:
    """A small integer in pickle protocol 2."""
    return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)


def stl_images(images: np.ndarray) -> bytes:
    """Images `[n, 96, 96, 3]` channel by channel, and each channel column by column."""
    return b"".join(image[..., c].tobytes(order="F") for image in images for c in range(3))


def write_files(folder: pathlib.Path, files: dict[str, bytes]) -> None:
    """Files by name in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def write_tar(path: pathlib.Path, folder: str, files: dict[str, bytes]) -> None:
    """A gzipped tar archive with the files in a folder, as the originals are packed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
