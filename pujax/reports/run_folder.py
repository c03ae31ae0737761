"""Reads the folder of a run: what is there, finished or not, of this version or an earlier one."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pujax import files, reading
from pujax.training import example_scores
from pujax.training.evaluation import model_selection
from pujax.training.example_scores import ExampleScores

CONFIG, SUMMARY, METRICS, DATA = "config.json", "summary.json", "metrics.jsonl", "data.json"
_OF_A_MODEL = ("model.safetensors", "preparation.json")
_ACCEPTED = "the folder of a run, such as runs/NAME-TIME, or a folder that holds such folders"
_DEEP = 4
"""Levels of folders below the one that is named, in which runs of a sweep are looked for."""

_FIELDS: dict[str, tuple[type, ...]] = {
    "method": (str,),
    "dataset": (str,),
    "seed": (int,),
    "counts": (dict,),
    "test": (dict,),
}
"""Fields that every summary has."""
_OTHER_FIELDS: dict[str, tuple[type, ...]] = {
    "comparison": (dict,),
    "held_out": (list,),
    "held_out_by_prior": (list,),
    "held_out_prior": (dict,),
    "mean_probability": (dict, type(None)),
    "num_epochs": (int,),
    "one_class": (list,),
    "oracle": (bool,),
    "oracle_best_epoch": (dict,),
    "predicts_one_class": (dict,),
    "prior": (int, float, type(None)),
    "prior_choice": (dict, type(None)),
    "prior_interval": (list, type(None)),
    "prior_source": (str,),
    "prior_unlabeled": (int, float, type(None)),
    "reveals": (str,),
    "selection": (dict,),
    "setting": (str,),
    "test_copies": (dict, type(None)),
    "train": (dict,),
    "undone_steps": (int, float),
    "versions": (dict,),
    "warnings": (list,),
}
_OF_NUMBERS = (
    "counts",
    "held_out_prior",
    "mean_probability",
    "oracle_best_epoch",
    "test",
    "test_copies",
    "train",
)
"""Parts of a summary whose values are numbers or null."""
_SHARES = (*model_selection.BINARY_METRICS, "predicted_positive")
"""Of the test set's numbers those in [0, 1]."""
_WORDS = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
_WORDS |= {int: "a number", float: "a number", type(None): "null"}


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """What a folder holds.

    Attributes:
      folder: of the run.
      name: short, unique among the runs of a page.
      config: the resolved configuration.
      summary: the result; None where the run is not finished.
      rows: one per epoch.
      digest: of its data, equal for the same examples, labels and split, and the same encoder
        that it starts from; '' where not written.
      examples: the digest without the encoder; '' where not written, as by older versions.
      scores: of every example; None where the run did not write them.
    """

    folder: str
    name: str
    config: dict[str, Any]
    summary: dict[str, Any] | None
    rows: tuple[dict[str, Any], ...]
    digest: str
    examples: str
    scores: ExampleScores | None

    @property
    def method(self) -> str:
        """Name of the method."""
        return str((self.config.get("method") or {}).get("name", "unknown"))

    @property
    def seed(self) -> Any:
        """The seed."""
        return self.config.get("seed", "unknown")

    @property
    def dataset(self) -> str:
        """Name of the data set."""
        if self.summary is not None:
            return str(self.summary["dataset"])
        return str((self.config.get("data") or {}).get("source", "unknown"))

    @property
    def is_multilabel(self) -> bool:
        """Whether examples have several labels."""
        return self.summary is not None and self.summary.get("setting") == "multilabel"


def find(folders: Sequence[str]) -> list[Run]:
    """The runs that a command line names; a folder of a sweep stands for all runs in it.

    Raises:
      ValueError: naming the folder that is none of a run, or the file that is damaged.
    """
    places: list[str] = []
    for folder in folders:
        if not os.path.isdir(folder):
            what = "a file" if os.path.exists(folder) else "which does not exist"
            raise ValueError(f"RUN is {folder!r}, {what}; accepted: {_ACCEPTED}")
        found = [folder] if _is_run(folder) else sorted(_below(folder))
        if not found:
            what = "which holds no config.json" if os.listdir(folder) else "an empty folder"
            if os.path.isfile(os.path.join(folder, CONFIG)):
                what = "a saved model"
            raise ValueError(f"RUN is {folder!r}, {what}; accepted: {_ACCEPTED}")
        places += [place for place in found if not any(map(_same(place), places))]
    return [read(place, name) for place, name in zip(places, names(places), strict=True)]


def compared(run: Run) -> list[Run]:
    """The runs of the methods that a run trained beside its own, in its folder."""
    below = [os.path.join(run.folder, name) for name in sorted(os.listdir(run.folder))]
    return [
        read(place, f"{run.name}/{os.path.basename(place)}") for place in below if _is_run(place)
    ]


def read(folder: str, name: str) -> Run:
    """What a folder holds.

    Args:
      folder: of a run.
      name: of the run on the page.

    Raises:
      ValueError: naming the file, the field, its value and what is accepted.
    """
    config = files.read_json(os.path.join(folder, CONFIG))
    for section in ("data", "method", "run"):
        _require(os.path.join(folder, CONFIG), section, config.get(section), (dict,))
    path = os.path.join(folder, SUMMARY)
    summary = None
    if os.path.exists(path):
        summary = files.read_json(path)
        for field, types in _FIELDS.items():
            _require(path, field, summary.get(field), types)
        for field, types in _OTHER_FIELDS.items():
            if field in summary:
                _require(path, field, summary[field], types)
        _check_numbers(path, summary)
    path = os.path.join(folder, DATA)
    data = files.read_json(path) if os.path.exists(path) else {}
    digest, examples = (str(data.get(field, "")) for field in ("digest", "examples"))
    rows = tuple(rows_of(os.path.join(folder, METRICS)))
    scores = example_scores.read(folder)
    return Run(folder, name, config, summary, rows, digest, examples, scores)


def _same(folder: str) -> Callable[[str], bool]:
    """Whether another path leads to a folder: 'runs/a/' and './runs/a' are 'runs/a'."""
    return lambda other: os.path.realpath(folder) == os.path.realpath(other)


def _is_run(folder: str) -> bool:
    """Whether a folder is that of a run; a saved model has a `config.json`, too."""
    has = {name for name in (CONFIG, *_OF_A_MODEL) if os.path.isfile(os.path.join(folder, name))}
    return has == {CONFIG}


def _below(folder: str, deep: int = 1) -> Iterator[str]:
    """Folders of runs below one; what a run holds itself does not count."""
    for entry in os.scandir(folder):
        if not entry.is_dir():
            continue
        if _is_run(entry.path):
            yield entry.path
        elif deep < _DEEP:
            yield from _below(entry.path, deep + 1)


def names(folders: Sequence[str]) -> list[str]:
    """The last parts of the paths, as many as tell them apart; equal ones of equal paths."""
    paths = [pathlib.Path(os.path.abspath(folder)).parts for folder in folders]
    size = 1
    while len({path[-size:] for path in paths}) < len(paths) and size < max(map(len, paths)):
        size += 1
    return ["/".join(path[-size:]) for path in paths]


def rows_of(path: str) -> Iterator[dict[str, Any]]:
    """The rows of `metrics.jsonl` of a run, which may still train.

    A last line that is not finished is left out; without a file there are no rows.

    Args:
      path: of the file.

    Raises:
      ValueError: for another line that is no row.
    """
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        lines = file.read().splitlines()
    for index, line in enumerate(lines):
        try:
            row = reading.parse_json(line.decode("utf-8"))
        except ValueError:
            row = None
        if isinstance(row, dict) and type(row.get("epoch")) is int:
            yield row
        elif index + 1 < len(lines):
            raise ValueError(
                f"line {index + 1} of {path} is {line[:60]!r}; accepted: a JSON object with an "
                "integer 'epoch'"
            )


def _check_numbers(path: str, summary: dict[str, Any]) -> None:
    """Raises a ValueError unless the parts of a summary hold what the page reads from them."""

    def number(field: str, value: Any) -> None:
        _require(path, field, value, (int, float, type(None)))

    for part in _OF_NUMBERS:
        for name, value in (summary.get(part) or {}).items():
            if name != "labels_from":
                number(f"{part}.{name}", value)
    for name in _SHARES:
        value = summary["test"].get(name)
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{path}: test.{name} is {value}; accepted: a number in [0, 1]")
    for name, value in summary["counts"].items():
        if value is not None and not (value >= 0 and value == int(value)):
            raise ValueError(f"{path}: counts.{name} is {value}; accepted: a whole number from 0")
    for name, side in (summary.get("predicts_one_class") or {}).items():
        if side not in ("positive", "negative", None):
            raise ValueError(
                f"{path}: predicts_one_class.{name} is {side!r}; accepted: 'positive', 'negative' "
                "or null"
            )
    number("selection.epoch", (summary.get("selection") or {}).get("epoch"))
    best = summary.get("oracle_best_epoch") or {}
    if best.get("test_accuracy") is not None:
        _require(path, "oracle_best_epoch.epoch", best.get("epoch"), (int,))
    for part in ("held_out", "held_out_by_prior"):
        for i, entry in enumerate(summary.get(part, ())):
            _require(path, f"{part}[{i}]", entry, (dict,))
            if part == "held_out":
                _require(path, f"{part}[{i}].name", entry.get("name"), (str,))
            for name, value in entry.items():
                if name not in ("name", "assumption", "prior from", "used"):
                    number(f"{part}[{i}].{name}", value)
    choice = summary.get("prior_choice")
    if choice is not None:
        _require(path, "prior_choice.method", choice.get("method"), (str,))
        _require(path, "prior_choice.estimates", choice.get("estimates"), (dict,))
        for name, ends in choice["estimates"].items():
            _require(path, f"prior_choice.estimates.{name}", ends, (list,))
            if not 1 <= len(ends) <= 3:
                raise ValueError(
                    f"{path}: prior_choice.estimates.{name} has {len(ends)} numbers; accepted: a "
                    "share, or a share and both ends of its interval"
                )
            for i, end in enumerate(ends):
                number(f"prior_choice.estimates.{name}[{i}]", end)


def _require(path: str, field: str, value: Any, types: tuple[type, ...]) -> None:
    is_right = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if not is_right:
        accepted = " or ".join(dict.fromkeys(_WORDS[kind] for kind in types))
        shown = repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        raise ValueError(f"{path}: {field} is {shown}; accepted: {accepted}")
