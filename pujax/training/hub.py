"""Models on the Hugging Face Hub: `hf://OWNER/NAME` names one, and only such a name is downloaded.

The package huggingface_hub, which the extra [hub] installs, keeps the files in its own cache.
"""

import logging
import os
import re
from typing import Any

from pujax import reading
from pujax.checks import require

_LOG = logging.getLogger(__name__)

PREFIX = "hf://"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*")
FILES = (
    *("config.json", "model.safetensors", "preparation.json", "encoder.skops"),
    *("word_vectors.npy", "README.md"),
)
"""What is downloaded, whatever else a repository holds."""


def is_address(run: Any) -> bool:
    """Whether a text names a model on the Hub."""
    return isinstance(run, str) and run.startswith(PREFIX)


def check(run: Any, revision: str) -> None:
    """Raises a ValueError for an address or a revision that cannot be, before any call.

    Args:
      run: a folder, or an address.
      revision: as in `download`.
    """
    if not is_address(run):
        accepted = f"'' for a folder; a revision is of {PREFIX}OWNER/NAME"
        require(revision == "", "revision", revision, accepted)
        return
    named = _NAME.fullmatch(run.removeprefix(PREFIX)) and ".." not in run
    require(bool(named), "the run", run, f"{PREFIX}OWNER/NAME, without more after it")
    known = isinstance(revision, str) and (not revision or _REVISION.fullmatch(revision))
    accepted = "a commit, a tag or a branch; '' is the newest"
    require(bool(known) and ".." not in revision, "revision", revision, accepted)


def download(run: str, revision: str = "") -> str:
    """Downloads a model, unless huggingface_hub has it already.

    Args:
      run: `hf://OWNER/NAME`.
      revision: a commit, a tag or a branch; '' is the newest.

    Returns:
      The folder that holds it.

    Raises:
      ValueError: in one line, for another address, without huggingface_hub, and for whatever ends
        the download.
    """
    check(run, revision)
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError(
            f"{run} needs the package huggingface_hub; accepted: pip install 'pujax[hub]', or the "
            "model's folder"
        ) from error
    name = run.removeprefix(PREFIX)
    try:
        folder = huggingface_hub.snapshot_download(
            name, revision=revision or None, allow_patterns=list(FILES)
        )
    except Exception as error:  # of the network, the Hub and the disk, without a common base
        at = f" at {revision!r}" * bool(revision)
        text = f"{type(error).__name__}: {reading.one_line(error)}"
        raise ValueError(
            f"{run}{at} cannot be downloaded ({text}); accepted: a model that is there and may be "
            "read"
        ) from error
    folder = os.fspath(folder)
    if not revision:
        commit = os.path.basename(folder)
        _LOG.info("%s is at %s today; revision='%s' keeps it", run, commit, commit)
    return folder
