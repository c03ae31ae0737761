"""Downloads that end with the right file or with none, and go on where they broke off.

A file appears under its own name only after its size and checksum have been verified. Until then
it is `NAME.part`, which a later call continues.
"""

import contextlib
import contextvars
import logging
import math
import os
import pathlib
import urllib.error
import uuid
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from pujax import locks
from pujax.data.readers import http_transfer

_LOG = logging.getLogger(__name__)


class MissingDataError(ValueError):
    """A file that is needed is not on disk and cannot be downloaded; the message says what to do.

    Attributes:
      reason: what went wrong, in a few words.
    """

    def __init__(self, message: str, *, reason: str = ""):
        super().__init__(message)
        self.reason = reason


RemoteFile = http_transfer.RemoteFile

_OFFLINE = contextvars.ContextVar("pujax_offline", default=False)
_NO_DOWNLOAD = "nothing is downloaded here"


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """While the block runs `fetch` takes files that are there and downloads none."""
    token = _OFFLINE.set(True)
    try:
        yield
    finally:
        _OFFLINE.reset(token)


def default_directory() -> pathlib.Path:
    """Where data sets are kept: $PUJAX_DATA, else `pujax/data` in the user's cache."""
    chosen = os.environ.get("PUJAX_DATA")
    if chosen:
        return pathlib.Path(chosen).expanduser()
    return user_cache() / "data"


def user_cache() -> pathlib.Path:
    """`pujax` in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return pathlib.Path(cache).expanduser() / "pujax"


def fetch(
    url: str,
    *,
    directory: str | os.PathLike[str],
    filename: str,
    checksum: str,
    size: int | None = None,
    timeout: float = 10.0,
    retries: int = 3,
) -> pathlib.Path:
    """Returns the path of a verified file, downloading it if it is not there yet.

    A transfer that breaks off is resumed with an HTTP range request, by this call or by a later
    one. Retries count only attempts that brought nothing new; a server that cannot be reached at
    all is given up at once, so a machine without a network learns so quickly. Processes that want
    the same file at the same time take turns, and the later ones find it finished.

    Args:
      url: http or https address.
      directory: folder of the file; created if missing.
      filename: plain file name in that folder.
      checksum: 'md5:...' or 'sha256:...' in hexadecimal.
      size: number of bytes, if known.
      timeout: seconds without any answer after which a connection counts as dead.
      retries: attempts without progress that are forgiven.

    Returns:
      `directory / filename`.

    Raises:
      MissingDataError: naming file, URL, checksum, folder and what went wrong.
      ValueError: a checksum or file name that is not of the accepted form.
    """
    remote = RemoteFile(filename, url, checksum, size)
    http_transfer.new_hash(checksum)
    if filename in ("", "..") or pathlib.PurePath(filename).name != filename:
        raise ValueError(f"filename is {filename!r}; accepted: a name without a folder")
    directory = pathlib.Path(directory)
    target = directory / filename
    if is_verified(target, remote):
        return target
    if _OFFLINE.get():
        raise MissingDataError(
            missing_message([remote], directory, reason=_NO_DOWNLOAD), reason=_NO_DOWNLOAD
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _part_file(target, remote) as part:
            if part is not None:
                http_transfer.complete(part, remote, timeout=timeout, retries=retries)
    except (OSError, http_transfer.WrongContent) as error:
        reason = error.reason if type(error) is urllib.error.URLError else error
        message = missing_message([remote], directory, reason=reason)
        raise MissingDataError(message, reason=str(reason)) from error
    return target


def fetch_all(
    remotes: Iterable[RemoteFile], *, directory: str | os.PathLike[str], hint: str = ""
) -> list[pathlib.Path]:
    """`fetch` for several files that belong together; an error lists all that are missing.

    Args:
      remotes: the files.
      directory: their folder.
      hint: a sentence that an error ends with, for example which other layouts are understood.

    Returns:
      One path per file.

    Raises:
      MissingDataError: as `fetch`.
    """
    remotes = list(remotes)
    try:
        return [fetch(directory=directory, **remote._asdict()) for remote in remotes]
    except MissingDataError as error:
        folder = pathlib.Path(directory)
        missing = [
            remote for remote in remotes if not is_verified(folder / remote.filename, remote)
        ]
        message = missing_message(missing, folder, reason=error.reason, hint=hint)
        raise MissingDataError(message, reason=error.reason) from error


def missing_message(
    remotes: Iterable[RemoteFile], directory: os.PathLike[str], *, reason: object, hint: str = ""
) -> str:
    """The text that tells a person which files to get from where and where to put them."""
    remotes = list(remotes)
    lines = [f"cannot get {', '.join(remote.filename for remote in remotes)}: {reason}"]
    for remote in remotes:
        size = f", {remote.size} bytes" if remote.size is not None else ""
        lines.append(f"  {remote.filename}  from {remote.url}  ({remote.checksum}{size})")
    lines.append(f"With a network it is downloaded by itself; or put it into {directory}")
    return "\n".join(lines + [hint] * bool(hint))


def is_verified(path: pathlib.Path, remote: RemoteFile) -> bool:
    """Whether a file is there with the size and the checksum that it should have."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return http_transfer.is_right(stream, remote)


@contextlib.contextmanager
def _part_file(target: pathlib.Path, remote: RemoteFile) -> Iterator[BinaryIO | None]:
    """The unfinished file, held by this process alone; None if another process has finished it.

    It becomes `target` when the block ends well and is deleted when its content proves wrong. The
    lock sits on the part file itself, so nothing is left behind. While this process waited for it,
    the file may have been renamed or deleted; then the inode differs and the next one is tried.
    """
    # Without locks a name of its own keeps processes apart; such a part cannot be resumed.
    own_part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    is_locked = locks.fcntl is not None
    part = target.with_name(f"{target.name}.part") if is_locked else own_part
    while True:
        with part.open("a+b") as stream:
            if is_locked and not _lock(stream, target.name):
                if not stream.seek(0, os.SEEK_END):
                    part.unlink()
                is_locked, part = False, own_part
                continue
            if not _is_open_as(stream, part):
                continue
            if is_verified(target, remote):
                if not is_locked:
                    stream.close()  # Windows deletes no file that is open
                part.unlink()
                yield None
                return
            try:
                yield stream
                if not is_locked:
                    stream.close()
                os.replace(part, target)
            except BaseException as error:
                is_wrong = isinstance(error, http_transfer.WrongContent)
                if not is_locked:
                    stream.close()
                if is_wrong or not is_locked or not stream.seek(0, os.SEEK_END):
                    part.unlink()
                raise
            return


def _is_open_as(stream: BinaryIO, path: pathlib.Path) -> bool:
    """Whether an open file still has that path."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(stream: BinaryIO, name: str) -> bool:
    """Waits until this process alone holds the file; False if the file system has no locks."""
    is_ours = locks.lock(stream)
    if is_ours is False:
        _LOG.info("%s is being downloaded by another process; waiting for it", name)
        is_ours = locks.lock(stream, wait=math.inf)
    return bool(is_ours)
