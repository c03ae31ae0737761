"""Applies a trained model to new rows: pujax predict RUN NEW.csv --output=scores.csv.

Rows are read and scored some at a time. Of a large file only the scores are in memory, which ranks
and budgets need, and 16 bytes per id, which tell whether one occurs twice; names wait in a
temporary file.
"""

import contextlib
import csv
import io
import itertools
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import rich.progress
from absl import flags
from rich.console import Console

from pujax import accelerator, command_line, huge_pages, usage
from pujax.checks import one_of, require, whole_number
from pujax.console import message, plural, show_own_messages
from pujax.data.preparation import Preparation
from pujax.data.readers import image_trees
from pujax.files import check_writable, make_folder_of, replacing
from pujax.training import (
    compilation_cache,
    decisions,
    hub,
    new_rows,
    prediction_csv,
    saved_model,
)
from pujax.training.saved_model import SavedModel

_WRITTEN = 10_000
"""Rows that are written at once."""
_OTHER_FORMATS = frozenset(
    [".xlsx", ".xls", ".ods", ".parquet", ".json", ".jsonl", ".npz", ".npy", ".html", ".tsv"]
    + [".gz", ".bz2", ".xz", ".zip"]
)
"""Endings of files that other programs would not read as CSV."""
_HEADING = 1_000_000
"""Characters of the longest heading that is looked at; thousands of labels have a long one."""


class Predictions(NamedTuple):
    """What a model says of rows, in their order.

    Of a model of several labels per example `scores`, `ranks` and `decisions` are `[n, labels]`,
    and what stands below holds for each label by itself.

    Attributes:
      id_name: what the rows are named by; 'row' counts them from 1, 'file' is an image's path.
      ids: `[n]`.
      scores: float `[n]`, positive by the method's own rule where above 0; NaN for an image that
        cannot be read.
      probabilities: float `[n]`, P(y = 1 | x) of rows of the population; None where no prior was
        known in training.
      ranks: int `[n]`, 1 for the highest score; 0 for an image that cannot be read.
      decisions: bool `[n]`, by the rule of the run or the one that was asked for.
      probabilities_low: float `[n]`, lower ends of the probabilities' intervals, for the smallest
        prior that its estimates leave open, see `calibration.fit_ends`; NaN for an image that
        cannot be read; None without probabilities, or of a model of an earlier version.
      probabilities_high: likewise upper ends, for the largest prior.
      label_names: of several labels per example; none where a row is positive or not.
    """

    id_name: str
    ids: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray | None
    ranks: np.ndarray
    decisions: np.ndarray
    probabilities_low: np.ndarray | None = None
    probabilities_high: np.ndarray | None = None
    label_names: tuple[str, ...] = ()


class Predictor(NamedTuple):
    """A loaded model; see `load`.

    A predictor that was loaded can be pickled, for workers on other machines: the pickle holds the
    files of the model, and no code.

    Attributes:
      model: its parts.
      files: content of the files that it was loaded from, by name.
    """

    model: SavedModel
    files: Mapping[str, bytes] = {}

    def __repr__(self) -> str:
        return f"Predictor({self.model.description['config']['method']['name']})"

    def __reduce__(self) -> tuple[Any, ...]:
        require(bool(self.files), "predictor.files", {}, "a predictor of pujax.load, to be pickled")
        return _from_files, (self.files,)

    def predict(
        self, rows: Any, *, decide: str = "", unreadable: str = "fail", chunk_size: int = 0
    ) -> Predictions:
        """Predictions for rows.

        Args:
          rows: for a model of tables the path of a file, a pandas DataFrame, or an array `[n, d]`
            for models of arrays; with the columns of training, label and id or not. For a model of
            images a folder, which is searched with the folders below it, a list of paths, or uint8
            `[n, height, width, channels]` of any size (for a model of grey images without the last
            axis, too).
          decide: rule in place of the run's, see `training.decisions`; of several labels it holds
            for each by itself.
          unreadable: 'fail' refuses an image that cannot be read by name, 'skip' gives it the score
            NaN.
          chunk_size: rows that are read at a time, 0 for what fits most; results do not depend on
            it.

        Raises:
          ValueError: naming the columns that are missing, extra or of another type, the file that
            cannot be read, or the argument.
        """
        self._check(decide, "decide")
        whole_number("chunk_size", chunk_size, 0)
        found = self.model.rows_of(rows, unreadable=unreadable, num_rows=chunk_size)
        ids: list[np.ndarray] = []
        scores = self.model.scores(found, lambda chunk: ids.append(np.asarray(chunk.ids)))
        low, high = self.model.probability_interval(scores) or (None, None)
        names = self.model.label_names
        return Predictions(
            id_name=found.id_name,
            ids=np.concatenate(ids) if ids else np.zeros(0, object),
            scores=scores,
            probabilities=self.model.probabilities(scores),
            ranks=np.stack([_ranks(x) for x in scores.T], axis=1) if names else _ranks(scores),
            decisions=self.model.decide(scores, decide),
            probabilities_low=low,
            probabilities_high=high,
            label_names=names,
        )

    def write(
        self, rows: Any, path: str, *, decide: str = "", unreadable: str = "fail"
    ) -> tuple[int, int, list[str]]:
        """Writes predictions as a CSV file, which is there as a whole at the end or not at all.

        Args:
          rows: as in `predict`.
          path: of the file; its folder is made if missing.
          decide: as in `predict`.
          unreadable: likewise.

        Returns:
          How many rows there are, how many are called positive (of several labels, how many labels
          are predicted), and why images could not be read.

        Raises:
          ValueError: as `predict`, and for a path that is a folder or one of the files of rows.
        """
        self._check(decide, "--decide")
        _check_place("path", path, rows)
        found = self.model.rows_of(rows, unreadable=unreadable)
        with tempfile.TemporaryFile("w+", encoding="utf-8") as names:
            with _bar() as bar:

                def take(chunk: new_rows.Chunk) -> None:
                    # JSON has no line breaks, and no limit of length.
                    names.writelines(f"{json.dumps(str(name))}\n" for name in chunk.ids)
                    bar(chunk.done, chunk.total)

                scores = self.model.scores(found, take)
            chosen = self.model.decide(scores, decide)
            lines = self._lines(found.id_name, scores, chosen)
            names.seek(0)
            ids = map(json.loads, names)

            def texts() -> Iterator[str]:
                for start in range(0, max(len(scores), 1), _WRITTEN):
                    named = np.array(list(itertools.islice(ids, _WRITTEN)), object)
                    yield lines(named, slice(start, start + _WRITTEN), not start)

            make_folder_of(path)
            with replacing(path) as file:
                file.writelines(text.encode("utf-8") for text in texts())
        return len(scores), int(chosen.sum()), found.reasons

    def _lines(
        self, id_name: str, scores: np.ndarray, chosen: np.ndarray
    ) -> Callable[[np.ndarray, slice, bool], str]:
        """`(ids of some rows, their slice, with_header) -> CSV text` of predictions."""
        if self.model.label_names:
            return lambda ids, part, with_header: prediction_csv.label_text(
                id_name,
                self.model.label_names,
                ids,
                scores[part],
                chosen[part],
                with_header=with_header,
            )
        shares, ranks = self.model.probabilities(scores), _ranks(scores)
        ends = self.model.probability_interval(scores)
        return lambda ids, part, with_header: prediction_csv.text(
            id_name,
            ids,
            scores[part],
            None if shares is None else shares[part],
            ranks[part],
            chosen[part],
            between=None if ends is None else (ends[0][part], ends[1][part]),
            with_header=with_header,
        )

    def _check(self, decide: str, field: str) -> None:
        """Raises a ValueError for a rule that cannot be, before anything is scored."""
        if decide:
            rule, _ = decisions.parse(decide, field=field)
            known = rule != "probability" or self.model.calibration is not None
            require(known, field, decide, "another rule, since no probability is known")


def load(run: str | os.PathLike[str], *, revision: str = "") -> Predictor:
    """Loads the model that a run left, or one from the Hugging Face Hub.

    Args:
      run: folder of a finished run on one's own rows, or `model/` in it; or `hf://OWNER/NAME`,
        which is downloaded with the package huggingface_hub (the extra [hub]). Nothing else makes
        a call to the network.
      revision: of a model on the Hub, a commit, a tag or a branch; '' is the newest. Only a commit
        names the same model for ever.

    Raises:
      ValueError: naming the file that is missing or damaged, or what ended the download.
    """
    hub.check(run, revision)
    if hub.is_address(run):
        run = hub.download(str(run), revision)
    else:
        saved_model.check_run(run)
    model = saved_model.load(run)
    description = saved_model.description_of(run)
    folder = pathlib.Path(description).parent
    names = saved_model.file_names(description, model.description)
    return Predictor(model, {name: (folder / name).read_bytes() for name in names})


def _from_files(files: Mapping[str, bytes]) -> Predictor:
    """A predictor from the content of its files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            pathlib.Path(folder, name).write_bytes(content)
        return load(folder)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """int `[n]` as `decisions.ranks`, 0 where there is no score."""
    ranks, known = np.zeros(len(scores), np.int64), ~np.isnan(scores)
    ranks[known] = decisions.ranks(scores[known])
    return ranks


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal and nothing elsewhere, as a function of what is done and all."""
    if not sys.stderr.isatty():  # some versions of rich end even a disabled bar with an empty line
        yield lambda done, total: None
        return
    progress = rich.progress.Progress(
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("{task.percentage:.0f}%"),
        rich.progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with progress:
        task = progress.add_task("scoring", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    show_own_messages()
    compilation_cache.enable("on")
    values = flags.FlagValues()
    flags.DEFINE_string("output", "scores.csv", "output", flag_values=values)
    flags.DEFINE_string("decide", "", "decide", flag_values=values)
    flags.DEFINE_string("unreadable", "fail", "unreadable", flag_values=values)
    flags.DEFINE_string("revision", "", "revision", flag_values=values)
    flags.DEFINE_bool("help", False, "help", short_name="h", flag_values=values)
    try:
        rest = values(argv)[1:]
        if values.help:
            message(usage.text("predict", argv[0]))
            return 0
        command_line.check_once(argv, values)
        accepted = "two, RUN and FILE or FOLDER; --help says more"
        require(len(rest) == 2, "the number of arguments", len(rest), accepted)
        one_of("--unreadable", values.unreadable, image_trees.UNREADABLE)
        if not os.path.exists(rest[1]):
            raise ValueError(
                f"FILE is {rest[1]!r}, which does not exist; accepted: rows or images as in "
                "training"
            )
        options = {"decide": values.decide, "unreadable": values.unreadable}
        if not hub.is_address(rest[0]):
            saved_model.check_run(rest[0])
        _check_output(values.output, *rest)
        accelerator.devices()
        model = load(rest[0], revision=values.revision)
        if os.path.isdir(rest[1]):
            _check_takes_folders(rest[1], model)
        count, chosen, reasons = model.write(rest[1], values.output, **options)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; nothing was written\n")
        return 130
    except (ValueError, OSError, flags.Error) as error:
        text = command_line.describe(error, values).replace(
            "unreadable='skip'", "--unreadable=skip"
        )
        text = re.sub("^the run is ", "RUN is ", text)
        sys.stderr.write(f"{text}\n")
        return 2
    rule = values.decide or model.model.description["decide"]
    for line in (*reasons, *_beyond_rows(rule, count - len(reasons))):
        sys.stderr.write(f"{line}\n")
    left_out = f", {len(reasons)} without a score as they cannot be read" if reasons else ""
    what = "labels predicted" if model.model.label_names else "called positive"
    message(f"{count} rows, {chosen} {what}{left_out}: {values.output}")
    return 0


def _beyond_rows(rule: str, count: int) -> list[str]:
    """A sentence where a budget is larger than the number of rows with a score; else none."""
    name, budget = decisions.parse(rule)
    if name != "top" or budget <= count:
        return []
    return [f"{rule} is more than {plural(count, 'row')}: all are called positive"]


def _check_takes_folders(rows: str, model: Predictor) -> None:
    """Raises a ValueError for a folder where the model is one of tables."""
    if isinstance(model.model.preparation, Preparation):
        takes = model.model.preparation.takes
        raise ValueError(
            f"FILE is {rows!r}, which is a folder; accepted: a file that holds {takes}"
        )


def _check_output(path: str, run: str, rows: str) -> None:
    """Raises a ValueError for an output that would take the place of something else."""
    _check_place("--output", path, rows)
    check_writable("--output", path)
    inside = os.path.dirname(os.path.realpath(path))
    own = os.path.realpath(run)
    if os.path.commonpath([inside, own]) == own:
        raise ValueError(f"--output is {path!r}; accepted: a place outside of the run's folder")
    if os.path.exists(path) and not _are_predictions(path):
        raise ValueError(
            f"--output is {path!r}, a file that pujax predict did not make; accepted: the name of "
            "a new file, or of earlier predictions"
        )
    ending = os.path.splitext(path)[1].lower()
    require(ending not in _OTHER_FORMATS, "--output", path, "a name such as scores.csv, for a CSV")


def _check_place(field: str, path: str, rows: Any) -> None:
    """Raises a ValueError unless a path is, or can be, a file that no row is read from."""
    require(bool(path), field, path, "the name of a file")
    if not os.path.exists(path):
        folder = os.path.dirname(os.path.realpath(path))
        is_lost = os.path.islink(path) and not os.path.isdir(folder)
        require(
            not is_lost, field, path, f"a link into a folder that exists, which {folder} is not"
        )
        return
    require(os.path.isfile(path), field, path, "the name of a file")
    for source in rows if isinstance(rows, list | tuple) else [rows]:
        if not isinstance(source, str | os.PathLike) or not os.path.exists(source):
            continue
        is_input = os.path.samefile(path, source)
        if os.path.isdir(source):
            inside, folder = os.path.realpath(path), os.path.realpath(source)
            is_input = os.path.commonpath([inside, folder]) == folder and not _are_predictions(path)
        require(not is_input, field, path, "another file than the rows to predict")


def _are_predictions(path: str) -> bool:
    """Whether a file is empty, or has the heading that `Predictor.write` gives."""
    if not os.path.getsize(path):
        return True
    try:
        with open(path, encoding="utf-8", newline="") as file:
            start = io.StringIO(file.read(_HEADING), newline="")  # a name may hold a line break
            heading = next(csv.reader(start), [])
    except (ValueError, csv.Error):  # no text, or no table
        return False
    return prediction_csv.is_of_new_rows(heading)


if __name__ == "__main__":
    huge_pages.restart()
    sys.exit(main(sys.argv))
