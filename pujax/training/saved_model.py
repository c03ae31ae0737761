"""A trained method as a folder: parameters, configuration, preparation, calibration, a model card.

    model.safetensors   the numbers that prediction looks at
    config.json         configuration, data, prior, calibration, decision, versions, checksums
    preparation.json    how columns become features (and what it needs beside it), or images pixels
    word_vectors.npy    of several labels, where the head of the network reads a file of them
    README.md           the model card

These are the names that the Hugging Face Hub expects. Formats 1 and 2, of earlier versions, have
`model.json` in place of `config.json`. The state of a method is rebuilt from shapes, so that no
code is stored.
"""

import functools
import itertools
import logging
import math
import os
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import safetensors.numpy

import pujax
from pujax import calibration, catalogue, checksums, methods, models, reading
from pujax.checks import between, one_of, require
from pujax.data import image_preparation, preparation
from pujax.data.image_preparation import ImagePreparation
from pujax.data.multilabel_dataset import MultilabelDataset, MultilabelInfo
from pujax.data.pu_dataset import DataInfo, PUDataset
from pujax.data.readers import columns, image_trees
from pujax.files import replace_text, replacing, to_plain, write_json
from pujax.methods.base import Method
from pujax.metrics import Estimate
from pujax.training import decisions, hub, model_card, model_numbers, new_rows
from pujax.training.evaluation import multilabel, summary
from pujax.training.new_rows import Chunk, NewRows

_LOG = logging.getLogger(__name__)

_FORMAT = 3
_LIBRARY = "pujax"
_NOT_AS_SAVED = "is not what was saved (its checksum differs); accepted: the file as written"
_NUMBERS, _DESCRIPTION, _CARD = "model.safetensors", "config.json", "README.md"
_PREPARATION = "preparation.json"
_WORD_VECTORS = "word_vectors.npy"
_EARLIER = "model.json"
"""What the description is called in formats 1 and 2."""
_ACCEPTED = (
    "the folder of a finished run on one's own rows, model/ in it, or hf://OWNER/NAME for one on "
    "the Hugging Face Hub"
)
_PLACES: tuple[tuple[str, ...], ...] = (
    ("init_from",),
    ("model", "init"),
    ("method", "word_vectors"),
    *(("data", name) for name in ("dir", "path", "test_path", "label")),
)
"""Fields of a configuration that may name a place on the computer that trained."""


class SavedModel(NamedTuple):
    """A loaded model.

    Attributes:
      method: what was trained.
      state: its state; numbers that prediction does not look at are zeros.
      preparation: turns rows into inputs.
      calibration: from scores to probabilities, or None.
      description: the rest of `config.json`.
      ends: of the interval of probabilities, or None.
    """

    method: Method
    state: Any
    preparation: preparation.Preparation | ImagePreparation
    calibration: calibration.Calibration | None
    description: dict[str, Any]
    ends: calibration.Ends | None = None

    @property
    def label_names(self) -> tuple[str, ...]:
        """Of examples with several labels each, the names of the labels; else none."""
        return tuple(self.description.get("label_names", ()))

    def rows_of(self, rows: Any, *, unreadable: str = "fail", num_rows: int = 0) -> NewRows:
        """Rows as this model takes them, see `new_rows.of_table` and `new_rows.of_images`.

        Args:
          rows: a table or images.
          unreadable: 'fail' or 'skip', of images.
          num_rows: of a chunk; 0 for what fits most.
        """
        one_of("unreadable", unreadable, image_trees.UNREADABLE)
        if isinstance(self.preparation, ImagePreparation):
            return new_rows.of_images(
                self.preparation, rows, unreadable=unreadable, num_rows=num_rows
            )
        name = _id_name(self.description, self.preparation.aside)
        return new_rows.of_table(self.preparation, rows, id_name=name, num_rows=num_rows)

    def scores(
        self, rows: NewRows, take: Callable[[Chunk], None] = lambda chunk: None
    ) -> np.ndarray:
        """Scores of new rows, which are read and scored some at a time.

        Args:
          rows: what `rows_of` returned.
          take: is given every chunk when it is read.

        Returns:
          float32 `[n]`, or `[n, labels]` of several labels; NaN where a row cannot be read.

        Raises:
          ValueError: as `new_rows.of_table` and `new_rows.of_images`; a score is not finite.
        """
        size = int(self.description["config"]["run"]["eval_batch_size"])
        predict = compiled(self.method.predict)
        readable: list[np.ndarray] = []

        def taken(chunk: Chunk) -> None:
            readable.append(chunk.readable)
            take(chunk)

        shape = (0, len(self.label_names)) if self.label_names else (0,)
        found, computed = [np.zeros(shape, np.float32)], None
        for inputs, count in new_rows.batches(rows.chunks, size, taken):
            last, computed = computed, (predict(self.state, jnp.asarray(inputs)), count)
            if last is not None:  # the device computes while the next batch is read
                found.append(np.asarray(last[0])[: last[1]])
        if computed is not None:
            found.append(np.asarray(computed[0])[: computed[1]])
        scores = np.concatenate(found)
        is_readable = np.concatenate([np.zeros(0, bool), *readable])
        wrong = np.argwhere(~np.isfinite(scores))
        wrong = wrong[is_readable[wrong[:, 0]]]
        if len(wrong):
            raise ValueError(
                f"row {wrong[0, 0] + 1} has the score {scores[tuple(wrong[0])]}; accepted: rows "
                "that are not so far from those of training"
            )
        scores[~is_readable] = np.nan
        return scores

    def probabilities(self, scores: np.ndarray) -> np.ndarray | None:
        """P(y = 1 | x) `[n]` of rows of the population; None where no prior was known.

        Args:
          scores: `[n]`; NaN stays NaN.
        """
        if self.calibration is None:
            return None
        known = ~np.isnan(scores)
        result = np.full(len(scores), np.nan)
        result[known] = calibration.probabilities(
            self.calibration, scores[known], unlabeled_only=False
        )
        return result

    def probability_interval(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Both ends of the interval `[n]` of `probabilities`; None where they are not known.

        Args:
          scores: `[n]`; NaN stays NaN.
        """
        if self.calibration is None or self.ends is None:
            return None
        known = ~np.isnan(scores)
        found = calibration.probability_interval(
            self.calibration, self.ends, scores[known], unlabeled_only=False
        )
        low, high = np.full([2, len(scores)], np.nan)
        low[known], high[known] = found
        return low, high

    def decide(self, scores: np.ndarray, rule: str = "") -> np.ndarray:
        """Which rows are called positive, bool `[n]`; '' is the rule of the run.

        Rows whose score is NaN are not, and do not count among those that a share is taken of. Of
        several labels, whose scores are `[n, labels]`, a rule holds for each by itself, and '' is
        the run's threshold.
        """
        if self.label_names:
            if not rule:
                return multilabel.is_predicted(scores, self.description["threshold"])
            return np.stack([self._decide(column, rule) for column in scores.T], axis=1)
        return self._decide(scores, rule or self.description["decide"])

    def _decide(self, scores: np.ndarray, rule: str) -> np.ndarray:
        """`decide` of one label."""
        known = ~np.isnan(scores)
        chosen = np.zeros(len(scores), bool)
        shares = self.probabilities(scores[known])
        chosen[known] = decisions.decide(rule, scores[known], shares)
        return chosen


def save(
    folder: str,
    config: ml_collections.FrozenConfigDict,
    method: Method,
    state: Any,
    data: PUDataset | MultilabelDataset,
    learned: calibration.Calibration | None,
    ends: calibration.Ends | None = None,
    *,
    estimates: Sequence[Estimate] = (),
    test: Mapping[str, float] | None = None,
) -> None:
    """Writes a model; each file is replaced atomically.

    Of files that the configuration names only the last part of their path is written down.

    Args:
      folder: to write into; it is made if missing.
      config: resolved configuration.
      method: what was trained.
      state: its state as it is evaluated, arrays on the host.
      data: the problem, on one's own examples.
      learned: from scores to probabilities, or None.
      ends: of the interval of probabilities, or None.
      estimates: what the held-out rows say of it.
      test: metrics on a test set, if there is one.
    """
    assert data.own is not None and data.own.preparation is not None
    os.makedirs(folder, exist_ok=True)
    numbers = model_numbers.numbers_of(method, state, data.info)
    with replacing(os.path.join(folder, _NUMBERS)) as file:
        file.write(safetensors.numpy.save(numbers))
    data.own.preparation.save(folder)
    settings = without_places(config.to_dict())
    if _reads_word_vectors(settings):
        settings["method"]["word_vectors"] = _WORD_VECTORS
        (words,) = (array for name, array in numbers.items() if name.endswith(".word_vectors"))
        with replacing(os.path.join(folder, _WORD_VECTORS)) as file:
            np.save(file, words)
    others = (_NUMBERS, _DESCRIPTION, _CARD)
    files = [x for x in sorted(os.listdir(folder)) if x in hub.FILES and x not in others]
    document = {
        "library_name": _LIBRARY,
        "pujax_version": pujax.__version__,
        "format": _FORMAT,
        "config": settings,
        "info": data.info._asdict(),
        "id_name": data.own.id_name,
        "takes": data.own.preparation.takes,
        **_of_kind(config, data.reveal(method.reveals) if method.reveals else data),
        "calibration": None if learned is None else learned._asdict(),
        "probability_ends": None if ends is None else _as_document(ends),
        "decide": config.run.decide,
        "estimates": [estimate._asdict() for estimate in estimates],
        "test": dict(test or {}),
        "versions": summary.versions(),
        "arrays": {name: checksums.of_array(array) for name, array in numbers.items()},
        "files": {name: checksums.of_file(os.path.join(folder, name)) for name in files},
    }
    document = to_plain(document)
    document["checksum"] = checksums.of_document(document)
    replace_text(os.path.join(folder, _CARD), model_card.card(document))
    write_json(os.path.join(folder, _DESCRIPTION), document)


def _of_kind(
    config: ml_collections.FrozenConfigDict, data: PUDataset | MultilabelDataset
) -> dict[str, Any]:
    """What a description says of one label per example, or of several."""
    if isinstance(data, PUDataset):
        return {"class_names": data.class_sides, "prior_interval": data.prior_interval}
    counts = {name: data.counts()[name] for name in ("labeled", "labeled_negatives", "unlabeled")}
    names = data.info.class_names
    return {"label_names": names, "threshold": config.run.threshold, "labels": counts}


def _reads_word_vectors(config: dict[str, Any]) -> bool:
    """Whether a method reads vectors of the classes from a file."""
    return config["method"].get("word_vectors", "") not in ("", models.RANDOM)


def description_of(run: str | os.PathLike[str]) -> str:
    """The path of a model's description, `config.json` or, of earlier versions, `model.json`.

    Args:
      run: folder of a run, which has a `config.json` of its own, or `model/` in it.

    Raises:
      ValueError: for what cannot be a folder.
    """
    require(bool(run) and isinstance(run, str | os.PathLike), "the run", run, _ACCEPTED)
    folder = os.fspath(run)

    def holds(*names: str) -> bool:
        return any(os.path.exists(os.path.join(folder, name)) for name in names)

    if not holds(_NUMBERS, _PREPARATION, _EARLIER):
        folder = os.path.join(folder, "model")
    is_earlier = holds(_EARLIER) and not holds(_DESCRIPTION)
    return os.path.join(folder, _EARLIER if is_earlier else _DESCRIPTION)


def check_run(run: str | os.PathLike[str]) -> None:
    """Raises a ValueError unless a path is a folder that holds a model, by the names of its files.

    Args:
      run: as `load` takes it.
    """
    path, reason = description_of(run), ""
    if not os.path.isdir(run):
        reason = "which is a file" if os.path.exists(run) else "which does not exist"
    elif not os.path.isfile(path):
        reason = "a folder without a model"
    if reason:
        raise ValueError(f"the run is {os.fspath(run)!r}, {reason}; accepted: {_ACCEPTED}")


def file_names(description: str, document: Mapping[str, Any]) -> list[str]:
    """Names of the files that a model is loaded from.

    Args:
      description: its path, of a model that was loaded.
      document: what it says.
    """
    folder, name = os.path.split(description)
    if "files" in document:
        return [name, _NUMBERS, *document["files"]]
    return [x for x in os.listdir(folder) if os.path.isfile(os.path.join(folder, x))]


def _refuse_own_code(method: Any, folders: Sequence[str | os.PathLike[str]]) -> None:
    """Raises if a method is a module in one of the model's folders; nothing is imported.

    A model brings no code. What lies in its folder may be a stranger's, and commands look for
    modules in the current folder, too.
    """
    if not methods.is_own(method):
        return
    places = map(os.path.realpath, catalogue.module_places(method))
    for place, inside in itertools.product(places, map(os.path.realpath, folders)):
        if os.path.commonpath([place, inside]) == inside:
            raise methods.UnusableMethod(
                f"method.name is {method!r}, a module in the model's own folder; accepted: a "
                "module apart from it, since a model brings no code"
            )


def load(folder: str | os.PathLike[str]) -> SavedModel:
    """Reads what `save` wrote, from a run's folder or from `model/` in it.

    Raises:
      ValueError: naming the file that is missing, damaged or of another format.
    """
    path, given = description_of(folder), folder
    folder, name = os.path.split(path)
    try:
        document = reading.read_json(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); accepted: {_ACCEPTED}") from error
    formats = (1, 2) if name == _EARLIER else (_FORMAT,)
    is_one = isinstance(document, dict) and document.get("format") in formats
    if not is_one or name != _EARLIER and document.get("library_name") != _LIBRARY:
        shown = " or ".join(map(str, formats))
        raise ValueError(f"{path} is no model of pujax of format {shown}; accepted: a saved one")
    if document["format"] == 1:
        _LOG.warning("%s has no checksums (an earlier version wrote it): damage goes unseen", path)
    else:
        _check_files(path, document)
    try:
        settings = document["config"]
        _refuse_own_code(settings["method"]["name"], (given, folder))
        if _reads_word_vectors(settings):
            settings = settings | {"method": dict(settings["method"])}
            settings["method"]["word_vectors"] = os.path.join(folder, _WORD_VECTORS)
        config = ml_collections.FrozenConfigDict(settings)
        info = _info(document["info"])
        _check_labels(document, info)
        method = methods.build(config, info)
        learned = document["calibration"]
        learned = None if learned is None else calibration.Calibration(**learned)
        ends = document.get("probability_ends")  # earlier models have none
        ends = None if ends is None else _ends(ends)
        decisions.parse(document["decide"])
        require(isinstance(document["id_name"], str), "id_name", document["id_name"], "a name")
        size = config.run.eval_batch_size
        require(type(size) is int and 0 < size <= 2**20, "run.eval_batch_size", size, "1 to 2**20")
    except methods.UnusableMethod as error:  # a module of the maker's own, which is not here
        raise ValueError(f"{path}: {error}") from error
    except Exception as error:  # whatever a method makes of settings that are none
        raise _refusal(path, document, error) from error
    described, path = path, os.path.join(folder, _NUMBERS)
    try:
        numbers = reading.read_safetensors(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); accepted: the file as saved") from error
    for name, array in numbers.items():
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{path}: {name} holds a number that is not finite; accepted: finite")
    try:
        state = model_numbers.restored(numbers, method, info, most_bytes=reading.most_bytes(path))
    except ValueError as error:  # of a number
        raise ValueError(f"{path}: {reading.one_line(error)}") from error
    except Exception as error:  # whatever tracing makes of a description that is none
        raise _refusal(described, document, error) from error
    for name, checksum in document.get("arrays", {}).items():
        if name not in numbers or checksums.of_array(numbers[name]) != checksum:
            raise ValueError(f"{path}: {name} {_NOT_AS_SAVED}")
    prepared = (preparation if info.is_table else image_preparation).load(folder)
    path = os.path.join(folder, _PREPARATION)
    accepted = f"{info.input_shape}, which the network of {name} sees"
    require(prepared.shape == info.input_shape, f"{path}: the shape", prepared.shape, accepted)
    return SavedModel(
        method=method,
        state=state,
        preparation=prepared,
        calibration=learned,
        description=document,
        ends=ends,
    )


def _refusal(path: str, document: dict[str, Any], error: Exception) -> ValueError:
    """What to say of a description that no method can be built from.

    One with a checksum is as it was saved, or forged: where it is not forged, the error is of this
    version, and is not to be taken for damage.
    """
    _LOG.debug("%s", path, exc_info=error)
    reason = reading.one_line(error if isinstance(error, ValueError) else repr(error))
    if document["format"] == 1:
        return ValueError(f"{path} is damaged ({reason}); accepted: a saved one")
    return ValueError(
        f"{path} is as it was saved, and this version cannot use it ({reason}); accepted: a model "
        "of this version of pujax or an earlier one"
    )


def _check_files(described: str, document: dict[str, Any]) -> None:
    """Raises a ValueError unless the description and the files of the preparation are as saved."""
    rest = {name: value for name, value in document.items() if name != "checksum"}
    folder = os.path.dirname(described)
    if document.get("checksum") != checksums.of_document(rest):
        raise ValueError(f"{described} {_NOT_AS_SAVED}")
    for part in ("files", "arrays"):
        found = document.get(part)
        if not isinstance(found, dict) or part == "files" and any(map(os.path.dirname, found)):
            raise ValueError(f"{described} is damaged ({part}); accepted: a saved one")
    for name, checksum in document["files"].items():
        path = os.path.join(folder, name)
        try:
            found = checksums.of_file(path)
        except OSError as error:
            raise ValueError(f"{path} cannot be read ({error}); accepted: as saved") from error
        if found != checksum:
            raise ValueError(f"{path} {_NOT_AS_SAVED}")


def without_places(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration whose files have names and no folders, to be shared with others.

    Args:
      config: of a run, which is changed.
    """
    for *sections, name in _PLACES:
        inner = functools.reduce(lambda tree, section: tree[section], sections, config)
        value = inner.get(name)
        # A label is a column, whose name may hold anything, but for the .npy file of the labels.
        if isinstance(value, str) and (name != "label" or value.endswith(".npy")):
            inner[name] = re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return config


def _as_document(ends: calibration.Ends) -> dict[str, Any]:
    """Both ends as `_ends` reads them."""
    sides = {"low": ends.low._asdict(), "high": ends.high._asdict()}
    return sides | {"priors": list(ends.priors)}


def _id_name(description: Mapping[str, Any], aside: Sequence[str]) -> str:
    """The column of a table that named the rows in training; '' where none did.

    The description says 'row' in the latter case, too, and a column of that name may have been a
    feature, the label, or left out.

    Args:
      description: of the model.
      aside: columns that were no features, the label first.
    """
    name = description["id_name"]
    # What is left out is named by the user, alone or between commas.
    others = str(description["config"].get("data", {}).get("leave_out", ""))
    left_out = {columns.plain(one.strip()) for one in others.split(",")} | {others}
    is_id = name in aside[1:] and name not in left_out
    return name if is_id or name != "row" else ""


def _ends(document: dict[str, Any]) -> calibration.Ends:
    low, high = (calibration.Calibration(**document[name]) for name in ("low", "high"))
    return calibration.Ends(low, high, tuple(document["priors"]))


def _info(fields: dict[str, Any]) -> DataInfo | MultilabelInfo:
    """The numbers of a data set from JSON, which has no NaN and no tuples."""
    values: dict[str, Any] = {}
    for name, value in fields.items():
        values[name] = math.nan if value is None else value
        if isinstance(value, list):
            values[name] = tuple(value)
    return MultilabelInfo(**values) if "class_names" in values else DataInfo(**values)


def _check_labels(document: dict[str, Any], info: DataInfo | MultilabelInfo) -> None:
    """Raises a ValueError unless the names of several labels are there, and only then."""
    names = list(info.class_names) if isinstance(info, MultilabelInfo) else []
    right = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    found = document.get("label_names", [])
    if not right or found != names:
        shown, accepted = reprlib.repr(found), reprlib.repr(names)  # of thousands the first few
        raise ValueError(f"label_names is {shown}; accepted: different names, {accepted}")
    if names:
        between("threshold", document["threshold"], 0, 1)


@functools.lru_cache(maxsize=8)
def compiled(predict: Any) -> Any:
    """The compiled function; the same every time, so that it compiles once."""
    return jax.jit(predict)
