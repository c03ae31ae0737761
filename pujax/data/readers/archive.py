"""Members of a tar archive, or the same files unpacked in a folder, read without unpacking."""

import contextlib
import gzip
import logging
import lzma
import pathlib
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, TypeVar, cast

from pujax import reading

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

_DAMAGE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)


def members(location: pathlib.Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The members of a tar archive, each of a size that is in proportion to the archive's.

    Args:
      location: the archive, packed with gzip, bzip2 or xz, or not.

    Yields:
      `(archive, member)`, in the archive's order.

    Raises:
      OSError: it cannot be opened.
      ValueError: naming the archive that is damaged, and the member that is too large.
    """
    with naming(str(location)), tarfile.open(location, "r:*") as archive:
        while True:
            try:
                member = archive.next()
            except (*_DAMAGE, OSError):
                raise
            except Exception as error:  # a damaged header makes tarfile raise errors of many types
                raise tarfile.ReadError(reading.one_line(error)) from error
            if member is None:
                return
            try:
                reading.check_size(location, member.size, f"member {member.name!r} unpacks to")
            except ValueError as error:
                raise ValueError(f"{location} is damaged or truncated: {error}") from error
            yield archive, member


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Turns the errors of a damaged file into a `ValueError` that names it."""
    try:
        yield
    except (*_DAMAGE, OSError) as error:
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # not of bz2, which has no number
            raise
        raise ValueError(f"{where} is damaged or truncated: {reading.one_line(error)}") from error


def read_members(
    location: pathlib.Path,
    folder: str,
    names: Iterable[str],
    reader: Callable[[BinaryIO, str], T],
) -> dict[str, T]:
    """Applies `reader` to some files of a folder or of a tar archive (in the archive's order).

    Nothing is unpacked, so an archive cannot write anywhere. One that tries (an absolute path,
    `..`), or that holds a link where a file belongs, is refused all the same.

    Args:
      location: a folder with the files in it, or an archive.
      folder: the folder that the files have inside an archive.
      names: plain file names.
      reader: called with an open binary stream and a text that names it for error messages.

    Returns:
      One result per name.

    Raises:
      ValueError: a file is missing or damaged, or the archive is unsafe; the message names it.
    """
    names = list(names)
    results: dict[str, T] = {}
    if location.is_dir():
        for name in names:
            path = location / name
            if path.is_file():
                with path.open("rb") as stream, naming(str(path)):
                    results[name] = reader(stream, str(path))
    else:
        with naming(str(location)):
            for archive, member in members(location):
                inner = pathlib.PurePosixPath(member.name)
                if inner.is_absolute() or ".." in inner.parts:
                    raise ValueError(f"{location} is unsafe: it holds the path {member.name!r}")
                if inner.parent.name != folder or inner.name not in names:
                    continue
                if not member.isfile():
                    raise ValueError(f"{location}: {member.name} is not an ordinary file")
                content = cast(BinaryIO, archive.extractfile(member))
                results[inner.name] = reader(content, f"{location}, member {member.name}")
    missing = [name for name in names if name not in results]
    if missing:
        raise ValueError(f"{location} is incomplete: {', '.join(missing)} missing")
    return results


def read_exactly(stream: BinaryIO, size: int, where: str) -> bytes:
    """Reads `size` bytes or raises a `ValueError` that names the file."""
    content = stream.read(size)
    if len(content) != size:
        raise ValueError(f"{where} is truncated: {len(content)} of {size} bytes")
    return content


def warn_if_partial(
    where: pathlib.Path, *, sizes: tuple[int, ...], original: tuple[int, ...]
) -> None:
    """Warns where a set is smaller or larger than published; files do not say their length."""
    if sizes != original:
        _LOG.warning("%s holds %s images, the original has %s", where, sizes, original)


def find(
    root: pathlib.Path, source: str, candidates: Iterable[str], *, marker: str | None = None
) -> pathlib.Path | None:
    """First path that exists: candidates in `root`, then in `root / source`.

    Args:
      root: folder to look in.
      source: name of the sub-folder that is looked through next.
      candidates: relative paths in order of preference.
      marker: a file name that counts as a candidate by its folder: if it is there, the folder
        itself is the answer.

    Returns:
      The path, or None.
    """
    candidates = list(candidates)
    for base in (root, root / source):
        for candidate in candidates:
            if (base / candidate).exists():
                return base / candidate
        if marker is not None and (base / marker).is_file():
            return base
    return None
