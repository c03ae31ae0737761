"""One file over HTTP: resumed where it stopped, and checked for being complete and unchanged."""

import hashlib
import http
import http.client
import logging
import os
import time
import urllib.error
import urllib.request
from typing import BinaryIO, NamedTuple

_LOG = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
LOG_SECONDS = 5.0
BACKOFF_SECONDS = 0.5
"""Pause before the first retry; it doubles with every further one."""


class RemoteFile(NamedTuple):
    """An original file on the network.

    Attributes:
      filename: its name on disk.
      url: where it is published.
      checksum: 'md5:...' or 'sha256:...' in hexadecimal.
      size: bytes, None where unknown.
    """

    filename: str
    url: str
    checksum: str
    size: int | None = None


class WrongContent(Exception):
    """What arrived is not the file that was asked for, and asking again will not help."""


def new_hash(checksum: str):
    """An empty hash object of the kind that a checksum names.

    Raises:
      ValueError: the checksum is not 'md5:' or 'sha256:' with its digits.
    """
    kind, _, digest = checksum.partition(":")
    digits = {"md5": 32, "sha256": 64}.get(kind)
    if len(digest) != digits or set(digest) - set("0123456789abcdef"):
        raise ValueError(
            f"checksum is {checksum!r}; accepted: 'md5:' or 'sha256:' and lower-case hex digits"
        )
    return hashlib.new(kind, usedforsecurity=False)


def is_right(stream: BinaryIO, remote: RemoteFile) -> bool:
    """Whether an open file has the right size and checksum."""
    if remote.size not in (None, stream.seek(0, os.SEEK_END)):
        return False
    digest = new_hash(remote.checksum)
    stream.seek(0)
    while chunk := stream.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest() == remote.checksum.partition(":")[2]


def complete(part: BinaryIO, remote: RemoteFile, *, timeout: float, retries: int) -> None:
    """Appends to `part` until it is the whole verified file."""
    is_fresh = part.seek(0, os.SEEK_END) == 0
    if not is_fresh and is_right(part, remote):
        return
    furthest = failures = 0
    while True:
        problem = _transfer(part, remote, timeout=timeout, is_patient=furthest > 0)
        if is_right(part, remote):
            break
        have = part.seek(0, os.SEEK_END)
        is_fresh = is_fresh or have == 0
        if remote.size is not None:
            ends = f"the server ends after {have} of {remote.size} bytes"
            problem = (problem or ends) if have < remote.size else None
        if problem is not None:
            failures = 0 if have > furthest else failures + 1
            furthest = max(furthest, have)
            if failures > retries:
                raise OSError(f"{problem}; gave up after {failures} attempts without progress")
            _LOG.info("%s: %s; trying again", remote.filename, problem)
            time.sleep(BACKOFF_SECONDS * 2**failures)
        elif is_fresh:
            raise WrongContent(f"the server sends another file ({have} bytes, wrong checksum)")
        else:  # what an earlier call had left may be the wrong part: once more from the start
            part.truncate(0)
            is_fresh = True
    part.flush()
    os.fsync(part.fileno())


def _transfer(
    part: BinaryIO, remote: RemoteFile, *, timeout: float, is_patient: bool
) -> str | None:
    """One request for what `part` lacks. None if the server says that this was all, else why not.

    Errors that another attempt cannot mend are raised; with `is_patient` a server that cannot be
    reached is no such error.
    """
    start = part.seek(0, os.SEEK_END)
    headers = {"User-Agent": "pujax", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(remote.url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.truncate(0)
        elif error.code < 500 and error.code not in (408, 429):
            raise
        return str(error)
    except urllib.error.URLError as error:
        if not is_patient:
            raise
        return str(error.reason)
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {error!r}"
    with response:
        begin = _first_byte(response)
        if begin > start:
            part.truncate(0)
            return f"the server sends bytes from {begin} instead of {start}"
        part.truncate(begin)
        have, announced, logged = begin, response.length, time.monotonic()
        while remote.size is None or have <= remote.size:
            try:
                chunk = response.read1(CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as error:
                return f"the connection broke after {have} bytes: {error!r}"
            if not chunk:
                break
            part.write(chunk)
            have += len(chunk)
            if time.monotonic() - logged > LOG_SECONDS:
                logged = time.monotonic()
                total = f" of {remote.size / 1e6:.1f}" if remote.size else ""
                _LOG.info("%s: %.1f%s MB", remote.filename, have / 1e6, total)
    if announced is not None and have - begin < announced:
        return f"the connection broke after {have} of {begin + announced} bytes"
    return None


def _first_byte(response: http.client.HTTPResponse) -> int:
    """Position in the file of the first byte of a response; 0 where a range was ignored."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return 0
    span = response.headers.get("Content-Range", "").removeprefix("bytes").strip()
    first = span.partition("-")[0]
    return int(first) if first.isdigit() else 0
