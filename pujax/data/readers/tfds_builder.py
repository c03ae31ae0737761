"""Finds a prepared tensorflow-datasets set, or prepares it.

What TensorFlow Datasets 4.9 can do without TensorFlow decides what happens here:

- Sets prepared as `array_record` or `parquet` are read by its `as_data_source`, which decodes
  images with Pillow. It refuses `tfrecord`, its own default, which `tfds_records` reads instead.
- Preparing works for builders that hand over arrays in `Tensor` features or images as encoded
  bytes. Unpacking downloaded originals and encoding pixel arrays as images need TensorFlow.
- Its downloader retries for minutes where there is no network; so that is tried here first.
"""

import difflib
import importlib
import importlib.util
import pathlib
import re
import urllib.error
import urllib.request
from typing import Any

from pujax.data.readers import download

TIMEOUT = 10.0
"""Seconds after which a server counts as unreachable."""


def prepared(name: str, directory: pathlib.Path) -> Any:
    """Returns a builder whose data are on disk, preparing them if they are not on disk yet.

    Args:
      name: set, configuration and version as in `tfds.builder`.
      directory: data directory; see `pujax.data.sources.tfds.load` for the folders it may be in.

    Returns:
      A `tfds.core.DatasetBuilder`.

    Raises:
      MissingDataError: a package or an original file is missing; the message says which.
      ValueError: tensorflow-datasets does not know the set.
    """
    if not has_package("tensorflow_datasets"):
        raise download.MissingDataError(
            "source 'tfds' needs tensorflow-datasets: pip install tensorflow-datasets",
            reason="no package tensorflow_datasets",
        )
    tfds = importlib.import_module("tensorflow_datasets")
    home = directory / "tfds"
    for place in (directory, None, home):
        builder = _builder(tfds, name, place)
        if builder is not None and builder.info.splits:
            return builder
    if builder is None:
        known = tfds.list_builders(with_community_datasets=False)
        close = difflib.get_close_matches(re.split("[/:]", name)[0], known)
        raise ValueError(
            f"tfds_name is {name!r}; accepted: a set, configuration and version that "
            f"tensorflow-datasets {tfds.__version__} knows or that is prepared in {directory}"
            + (f"; similar names: {', '.join(close)}" if close else "")
        )
    _prepare(tfds, builder, name, home, originals_in=(directory / builder.name, directory))
    return builder


def has_package(name: str) -> bool:
    """Whether a package can be imported; it is not imported."""
    return importlib.util.find_spec(name) is not None


def _builder(tfds: Any, name: str, place: pathlib.Path | None) -> Any | None:
    """The builder for one folder, None where the set is neither there nor known."""
    try:
        return tfds.builder(name, data_dir=None if place is None else str(place))
    except (ValueError, AssertionError):
        return None
    except ImportError as error:
        raise _needs(name, error) from error


def _prepare(
    tfds: Any,
    builder: Any,
    name: str,
    home: pathlib.Path,
    *,
    originals_in: tuple[pathlib.Path, ...],
) -> None:
    """Prepares a set in `home`, as array_record, or says what is missing to do so."""
    downloads = home / "downloads"
    try:
        originals = [
            download.RemoteFile(info.filename, url, f"sha256:{info.checksum}", int(info.size))
            for url, info in (builder.url_infos or {}).items()
        ]
    except ImportError as error:
        raise _needs(name, error) from error
    places = (downloads / "manual", *originals_in)
    manual = next(
        (p for p in places if any((p / file.filename).is_file() for file in originals)), places[0]
    )
    missing = [file for file in originals if not (manual / file.filename).is_file()]
    if originals and not has_package("tensorflow"):
        raise download.MissingDataError(
            f"{name} is not prepared in {home}, and unpacking its original files needs "
            f"TensorFlow: pip install tensorflow. Or prepare it elsewhere with "
            f"tfds.builder({name!r}).download_and_prepare(file_format='array_record') and copy "
            f"the folder {builder.info.full_name} to {home}",
            reason="no package tensorflow",
        )
    if missing and (reason := _unreachable(missing[0].url)):
        raise download.MissingDataError(
            download.missing_message(missing, manual, reason=reason), reason=reason
        )
    try:
        builder.download_and_prepare(
            download_dir=str(downloads),
            download_config=tfds.download.DownloadConfig(manual_dir=str(manual)),
            file_format="array_record" if has_package("array_record") else None,
        )
    except Exception as error:
        raise _needs(name, error) from error


def _unreachable(url: str) -> str:
    """Why a server does not answer; '' if it does, with any status."""
    request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "pujax"})
    try:
        urllib.request.urlopen(request, timeout=TIMEOUT).close()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError as error:
        return str(getattr(error, "reason", error))
    return ""


def _needs(name: str, error: BaseException) -> download.MissingDataError:
    """An error that says which package is missing, as far as the chain of causes tells."""
    cause: BaseException | None = error
    while cause is not None:
        found = re.search(r"No module named '([\w.]+)'", str(cause))
        if found:
            package = found[1].partition(".")[0]
            return download.MissingDataError(
                f"preparing {name} needs the package {package}: pip install {package}",
                reason=f"no package {package}",
            )
        cause = cause.__cause__ or cause.__context__
    return download.MissingDataError(
        f"tensorflow-datasets cannot prepare {name}: {error}", reason=str(error)
    )
