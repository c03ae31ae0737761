"""The JSON files of the parts: one per part, replaced atomically, never guessed at."""

import json
import os
import pathlib
from typing import Any

from pujax.files import write_json

RUNNING, DONE, FAILED, SKIPPED, UNFINISHED = "running", "done", "failed", "skipped", "unfinished"
"""What a part is: `skipped` cannot run here, `unfinished` goes on in the next call."""


def path(out: str, name: str) -> pathlib.Path:
    """File of one part."""
    return pathlib.Path(out) / f"{name}.json"


def load(out: str, name: str) -> dict[str, Any] | None:
    """What a part has written, or None.

    Raises:
      ValueError: naming the file, if it is not what a part writes.
    """
    file = path(out, name)
    if not file.is_file():
        return None
    try:
        entry = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(_damage(file, str(error))) from error
    if not isinstance(entry, dict) or "status" not in entry or entry.get("part") != name:
        raise ValueError(_damage(file, f"it is no result of part {name!r}"))
    return entry


def _damage(file: pathlib.Path, why: str) -> str:
    return (
        f"{file} is damaged ({why}); accepted: the file as written, or none, and the part runs anew"
    )


def save(out: str, name: str, entry: dict[str, Any]) -> None:
    """Replaces the file of one part."""
    os.makedirs(out, exist_ok=True)
    write_json(path(out, name), {"part": name, **entry})


def is_settled(entry: dict[str, Any] | None, *, retry: bool) -> bool:
    """Whether a part is not to run again.

    Args:
      entry: what it has written, or None.
      retry: whether one that failed is tried again.
    """
    settled = (DONE,) if retry else (DONE, FAILED)
    return entry is not None and entry["status"] in settled
