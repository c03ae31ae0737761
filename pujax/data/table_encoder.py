"""Words and dates of a table as numbers: skrub's TableVectorizer, applied and saved.

It is saved by skops and not by pickle, so that reading a file runs no code of the file: only
objects of the types in `_TRUSTED` are created, and its SHA-256 is kept elsewhere.
"""

import hashlib
import importlib.metadata
import io
import itertools
import os
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pujax import reading
from pujax.files import replacing

_FILE = "encoder.skops"
_VERSIONS = ("skrub", "scikit-learn", "pandas")
_SEED = 0
# skrub adds this ending, of random digits, to the name of a feature that another one has already.
_RANDOM_ENDING = re.compile(r"__skrub_[0-9a-f]+__$")
_MAX_WORDS = 40
"""Where a column has fewer different words than these, each becomes a column of its own."""

_TRUSTED = ("numpy.dtype",) + tuple(
    "skrub." + name
    for name in (
        "_apply_to_each_col.ApplyToEachCol",
        "_check_input.CheckInputDataFrame",
        "_clean_categories.CleanCategories",
        "_clean_null_strings.CleanNullStrings",
        "_dataframe._common.is_any_date",
        "_dataframe._common.is_categorical",
        "_dataframe._common.is_numeric",
        "_datetime_encoder.DatetimeEncoder",
        "_drop_uninformative.DropUninformative",
        "_duration_to_float.DurationToFloat",
        "_string_encoder.StringEncoder",
        "_table_vectorizer.PassThrough",
        "_table_vectorizer.ShortReprDict",
        "_table_vectorizer.TableVectorizer",
        "_table_vectorizer._created_by_predicate",
        "_to_datetime.ToDatetime",
        "_to_float.ToFloat",
        "_to_str.ToStr",
        "selectors._base.All",
        "selectors._base.And",
        "selectors._base.Cols",
        "selectors._base.Filter",
        "selectors._base.Sub",
        "selectors._selectors._cardinality_below",
    )
)


def fit(path: str, table: Any) -> Any:
    """Learns from the training rows.

    Args:
      path: of their file, for messages.
      table: pandas DataFrame of text, categories and dates, NaN or NaT where one is missing.

    Returns:
      A fitted `skrub.TableVectorizer`.

    Raises:
      ValueError: skrub is not installed.
    """
    try:
        import skrub
    except ImportError as error:
        raise ValueError(
            f"{path} has words or dates, which need skrub: pip install 'pujax[tables]'"
        ) from error
    from sklearn.preprocessing import OneHotEncoder

    encoder = skrub.TableVectorizer(
        cardinality_threshold=_MAX_WORDS,
        # No word is left out, so that a word that is new differs from all of them.
        low_cardinality=OneHotEncoder(
            handle_unknown="ignore", sparse_output=False, dtype=np.float32
        ),
        high_cardinality=skrub.StringEncoder(random_state=_SEED),
    )
    with warnings.catch_warnings():  # that few different words make few features
        warnings.simplefilter("ignore", UserWarning)
        return encoder.fit(table)


def transform(encoder: Any, table: Any) -> tuple[np.ndarray, list[str], list[str]]:
    """Applies what was learned.

    Args:
      encoder: what `fit` or `load` returned.
      table: DataFrame of `n` rows, as in `fit`.

    Returns:
      `(values, names, sources)`: float64 `[n, features]`, NaN for a date that is missing; the names
      of the features, all different, and the columns that they are made of.
    """
    with warnings.catch_warnings():  # that a word is new
        warnings.simplefilter("ignore", UserWarning)
        encoded = encoder.transform(table)
    sources = [encoder.output_to_input_[name] for name in encoded.columns]
    return encoded.to_numpy(np.float64), _numbered(encoded.columns), sources


def _numbered(names: Iterable[str]) -> list[str]:
    """Names whose random endings, where two columns make one name, are numbers in their order."""
    plain = [_RANDOM_ENDING.sub("", name) for name in names]
    known, result = set(plain), dict[str, None]()  # which keeps its order
    for name in plain:
        others = (f"{name} ({number})" for number in itertools.count(2))
        free = (other for other in others if other not in known and other not in result)
        result[name if name not in result else next(free)] = None
    return list(result)


def save(encoder: Any, folder: str | os.PathLike) -> dict[str, Any]:
    """Writes the encoder into a folder, atomically.

    Returns:
      What `load` needs besides, in types of JSON.

    Raises:
      ValueError: skops is not installed, or the encoder holds types that `load` would not create.
    """
    sio = _skops()
    # Its description repeats itself: compressed it takes a thirtieth.
    content = sio.dumps(encoder, compression=zipfile.ZIP_DEFLATED)
    _check_types(sio.get_untrusted_types(data=content), "the encoder")
    with replacing(os.path.join(os.fspath(folder), _FILE)) as file:
        file.write(content)
    return {"sha256": hashlib.sha256(content).hexdigest(), "versions": _versions()}


def load(folder: str | os.PathLike, record: Mapping[str, Any]) -> Any:
    """Reads what `save` wrote; warns where a package has another version than then.

    Args:
      folder: where it was saved.
      record: what `save` returned.

    Raises:
      ValueError: naming the file that is missing, another one, holds other types than skrub's, or
        cannot be read with the versions that are installed.
    """
    sio = _skops()
    path = os.path.join(os.fspath(folder), _FILE)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error}); accepted: a saved one") from error
    if hashlib.sha256(content).hexdigest() != record["sha256"]:
        raise ValueError(f"{path} is not the file that was saved; accepted: that one, unchanged")
    then, now = record["versions"], _versions()
    other = [f"{name} {then[name]}, here {now[name]}" for name in now if then[name] != now[name]]
    if other:
        message = f"{path} was saved with {'; '.join(other)}: numbers may differ"
        warnings.warn(message, stacklevel=3)
    try:
        reading.check_zip(io.BytesIO(content), path)
        types = sio.get_untrusted_types(data=content)
    except Exception as error:  # skops has no common base for what a damaged file makes it raise
        reason = reading.one_line(error)
        raise ValueError(f"{path} is damaged ({reason}); accepted: a saved one") from error
    _check_types(types, path)
    try:
        return sio.loads(content, trusted=list(_TRUSTED))
    except Exception as error:  # whatever a class of another version has to say
        reason = re.sub(r"\s+", " ", str(error))
        wanted = " ".join(f"'{name}=={version}'" for name, version in then.items())
        raise ValueError(f"{path} cannot be read ({reason}); pip install {wanted}") from error


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise ValueError(
            "a preparation of words or dates needs skops: pip install 'pujax[tables]'"
        ) from error
    return skops.io


def _check_types(types: list[str], what: str) -> None:
    others = sorted(set(types) - set(_TRUSTED))
    if others:
        raise ValueError(f"{what} holds {', '.join(others)}; accepted: types of skrub and NumPy")


def _versions() -> dict[str, str]:
    found = {}
    for name in _VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found
