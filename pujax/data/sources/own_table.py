"""Your own table in one file: who is labelled positive, and everybody else."""

import dataclasses
import os
import pathlib
import re
import zipfile
from typing import Any, NamedTuple

import numpy as np

from pujax import reading
from pujax.checks import require
from pujax.data import preparation, raw
from pujax.data.readers import columns, frames, pu_labels
from pujax.data.readers.columns import listed

OWN = True
CLASS_NAMES = ("negative", "positive")
_WITHOUT_ID = "row"
_FEATURES_ONLY = ".npy"
_BESIDE = "labels"
"""What labels beside an array are called."""


class Rows(NamedTuple):
    """What a file says.

    Attributes:
      frame: its rows.
      labels: who is labelled.
      ids: what the rows are called.
      left_out: columns that the file has and `frame` has not.
      words: columns that are read as words, whatever their cells look like.
    """

    frame: frames.Frame
    labels: pu_labels.Labels
    ids: pu_labels.Ids
    left_out: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def aside(self) -> tuple[str, ...]:
        """Columns that are no features."""
        return (self.labels.column, *self.ids.aside, *self.left_out)

    def prepared(self, rows: np.ndarray | None = None) -> preparation.Preparation:
        """What columns become, learned from rows (int `[m]`, None for all)."""
        return preparation.fit(self.frame, rows, aside=self.aside, words=self.words)

    def named(self, row: int) -> str:
        """What messages call a row: by its id, else by its line, else by its number from 1."""
        if self.ids.values is not None:
            return f"{self.ids.column} {self.ids.values[row]}"
        return self.frame.place(row).removeprefix(f"{self.frame.path}, ")

    @property
    def notes(self) -> tuple[str, ...]:
        """How it was read, in sentences that name the configuration's fields."""
        notes = map(_in_fields, (self.labels.sentence, *self.ids.sentences))
        left_out = f"left out, as data.leave_out says: {listed(self.left_out)}"
        return (*notes, left_out) if self.left_out else tuple(notes)


def read(
    directory: pathlib.Path,
    *,
    path: str,
    label: str = "",
    id_column: str = "",
    zero_is: str = "auto",
    positive: str = "",
    leave_out: str = "",
    words: str = "",
    label_is_last: bool = False,
    dtype: type = np.float32,
) -> Rows:
    """Reads one file of any format of `readers.frames`.

    How labels are read is said in `pu_labels.read`.

    Args:
      directory: where a relative path is looked for if it is not in the current folder.
      path: of the file.
      label: name of the label's column; '' is `labels` or `y` beside arrays. For an `.npy`, which
        holds features only, another `.npy`, with the label of every row.
      id_column: name of the column that names a row; '' looks for one, 'none' keeps all columns.
      positive: the word that marks a positive, where it is not one of the usual ones.
      zero_is: 'negative', 'unlabeled' or 'auto', see `pu_labels.read`.
      leave_out: names of columns that are no features, with commas between them.
      words: names of columns whose cells are words, whatever they look like, likewise.
      label_is_last: whether '' as `label` stands for the last column of a table, too.
      dtype: of svmlight's numbers, see `frames.read`.

    Raises:
      ValueError: naming file, line and column of what cannot be read.
    """
    frame = frames.read(_found("data.path", path, directory), dtype=dtype)
    if not _is_features_only(path):  # of which it is the path of a file
        label = columns.plain(label)
    id_column = columns.plain(id_column)
    left_out = _listed(frame, "data.leave_out", leave_out)
    _check_features(frame, "data.leave_out", left_out, {label: "the label", id_column: "the id"})
    frame = labeled = frame.without(left_out)
    if _is_features_only(path):
        labeled, label = _labels_beside(frame, label, directory), _BESIDE
    if frame.is_table and not label:
        names = listed(frame.names, most=20)
        if len(frame.names) > 20:  # the label is often the last
            names += f", the last of which is {frame.names[-1]!r}"
        if not label_is_last:
            raise ValueError(
                f"data.label is ''; accepted: the column that holds the label: {names}"
            )
        label = frame.names[-1]
    name = {"": None, "none": ""}.get(id_column, id_column)
    try:
        labels = pu_labels.read(labeled, label or None, positive=positive or None, zero_is=zero_is)
        ids = pu_labels.ids(frame, name, label=labels.column)
    except ValueError as error:
        raise ValueError(_in_fields(str(error))) from error
    of_words = _listed(frame, "data.words", words)
    no_features = {labels.column: "the label"} | dict.fromkeys(ids.aside, "an id")
    _check_features(frame, "data.words", of_words, no_features)
    return Rows(frame, labels, ids, left_out, of_words)


def load(
    directory: pathlib.Path,
    *,
    path: str,
    test_path: str = "",
    label: str = "",
    id_column: str = "",
    zero_is: str = "auto",
    positive: str = "",
    leave_out: str = "",
    words: str = "",
) -> raw.RawDataset:
    """Reads one file, see `read`, and perhaps a test set.

    What columns become is learned from the rows that training sees, see `RawDataset.prepare`.

    Args:
      directory: as in `read`.
      path: likewise.
      test_path: of a file with the same columns, where every row is known to be positive or
        negative; '' means that there is no test set.
      label: as in `read`.
      id_column: likewise.
      positive: likewise.
      zero_is: likewise.
      leave_out: likewise.
      words: likewise.

    Returns:
      A `RawDataset` of a table without numbers, which `prepare` fills in.

    Raises:
      ValueError: naming file, line and column of what cannot be read.
    """
    tested = None
    if test_path:
        accepted = "a file with labels, such as an .npz that holds 'x' and 'labels'"
        require(not _is_features_only(test_path), "data.test_path", test_path, accepted)
        found = _found("data.test_path", test_path, directory)
        _check_other_file(test_path, found, path, directory)
        tested = frames.read(found)
    own_rows = read(
        directory,
        path=path,
        label=label,
        id_column=id_column,
        zero_is=zero_is,
        positive=positive,
        leave_out=leave_out,
        words=words,
    )
    return dataset(own_rows, tested, positive=positive)


def dataset(
    own_rows: Rows, tested: frames.Frame | None = None, *, positive: str = ""
) -> raw.RawDataset:
    """The data set of rows that are read, as `load` returns it.

    Args:
      own_rows: what `read` returned.
      tested: rows of a test set, with a label in each.
      positive: as in `read`.

    Raises:
      ValueError: naming line and column of a label that is none.
    """
    frame, labels, ids = own_rows[:3]
    try:
        test_labels, test_notes = _test_labels(tested, labels.column, positive)
    except ValueError as error:
        raise ValueError(_in_fields(str(error))) from error
    values = np.arange(1, frame.num_rows + 1) if ids.values is None else ids.values
    notes = (*own_rows.notes, *test_notes)
    if frame.num_before and ids.values is None:
        first = frame.num_before + 1
        notes += (f"rows are counted over both arrays: row {first} is the first of 'unlabeled'",)
    own = raw.OwnRows(id_name=ids.column or _WITHOUT_ID, ids=values, notes=notes)
    data = raw.RawDataset(
        name="own_table",
        train_inputs=np.zeros([frame.num_rows, 1], np.float32),
        train_labels=labels.values.astype(np.int32),
        test_inputs=np.zeros([len(test_labels), 1], np.float32),
        test_labels=test_labels,
        class_names=CLASS_NAMES,
        mean=(0.0,),
        std=(1.0,),
        known_at_random=False,
        own=own,
    )

    def prepare(rows: np.ndarray) -> raw.RawDataset:
        learned = own_rows.prepared(rows)
        inputs = learned.transform(frame)
        mean, std = raw.feature_statistics(inputs[rows])
        far = raw.describe_outliers(
            inputs[rows],
            columns=learned.feature_names,
            row=lambda i: own_rows.named(int(rows[i])),
            remedy="leave {} empty" if frame.is_table else "clip {}",  # an array has no empty cell
        )
        test_inputs, copies = inputs[:0], None
        if tested is not None:
            test_inputs = learned.transform(tested)
            copies = _test_copies(own_rows, tested, learned)
        warned = () if copies is None else (f"warning: {copies.sentence}",)
        return data._replace(
            train_inputs=inputs,
            test_inputs=test_inputs,
            mean=mean,
            std=std,
            own=own._replace(
                preparation=learned,
                notes=(*own.notes, *learned.messages, *far, *warned),
                test_copies=copies,
            ),
        )

    return data._replace(prepare=prepare)


def _found(
    field: str, path: str, directory: pathlib.Path, *, accepted: str = f"a file, {frames.FORMATS}"
) -> pathlib.Path:
    """The place of a file, in the current folder or in `directory`."""
    require(path != "", field, path, accepted)
    given = pathlib.Path(path).expanduser()
    for place in (given, directory / given):
        if os.path.exists(place):
            if os.path.isdir(place):
                raise ValueError(f"{field} is {path!r}, which is a folder; accepted: {accepted}")
            return place
    raise ValueError(f"{field} is {path!r}, which does not exist; accepted: {accepted}")


def _listed(frame: frames.Frame, field: str, text: str) -> tuple[str, ...]:
    """The columns that a field names, with commas between them."""
    if not text:
        return ()
    if not frame.is_table:
        raise ValueError(f"{field} is {text!r}; accepted: '', since {frame.path} names no columns")
    if text in frame.names:  # which may hold a comma
        return (text,)
    names = [columns.plain(name.strip()) for name in text.split(",")]
    for name in names:
        frame.column(name, field=field)
    return tuple(dict.fromkeys(names))


def _check_features(
    frame: frames.Frame, field: str, names: tuple[str, ...], others: dict[str, str]
) -> None:
    """Raises a ValueError for a column of a field that is something else by another one."""
    for name in set(names) & set(others):
        raise ValueError(
            f"{field} names {name!r}, which is {others[name]}; accepted: other columns of "
            f"{frame.path}"
        )


def _is_features_only(path: str) -> bool:
    """Whether a file holds one array, by its name."""
    return path.lower().endswith(_FEATURES_ONLY)


def _labels_beside(frame: frames.Frame, path: str, directory: pathlib.Path) -> frames.Frame:
    """The rows with the labels of another file as `_BESIDE`, and called by that file's path."""
    accepted = (
        f"an .npy file with one label for each of the {frame.num_rows} rows of {frame.path}, a "
        "number, a truth value or a word"
    )
    require(_is_features_only(path), "data.label", path, accepted)
    found = _found("data.label", path, directory, accepted=accepted)
    try:
        labels: Any = None if zipfile.is_zipfile(found) else reading.read_npy(found)
    except (OSError, ValueError) as error:
        raise ValueError(f"{found} cannot be read ({error}); accepted: {accepted}") from error
    is_right = isinstance(labels, np.ndarray) and labels.shape == (frame.num_rows,)
    if not is_right or labels.dtype.kind not in "fiubU":
        shape = getattr(labels, "shape", None)
        what = "an archive" if shape is None else f"{labels.dtype} of shape {shape}"
        raise ValueError(f"{found} holds {what}; accepted: {accepted}")
    return dataclasses.replace(frame, path=str(found), beside={_BESIDE: labels})


def _check_other_file(
    test_path: str, found: pathlib.Path, path: str, directory: pathlib.Path
) -> None:
    """Raises a ValueError for a test set that is the training file, by whatever name."""
    if os.path.samefile(found, _found("data.path", path, directory)):
        raise ValueError(
            f"data.test_path is {test_path!r}, the same file as data.path; accepted: a file of "
            "other rows, each known to be positive or negative, or '' for no test set"
        )


def _test_copies(
    rows: Rows, tested: frames.Frame, learned: preparation.Preparation
) -> raw.SharedRows | None:
    """The test rows that training has, too, by their features or their id; None without any."""
    import pandas as pd

    trained = learned.row_digests(rows.frame, beside=tested)
    equal = learned.row_digests(tested, beside=rows.frame).among(trained)
    same_id = np.zeros(len(equal), bool)
    name = rows.ids.column
    if name is not None and rows.ids.values is not None and name in tested.names:
        ids = columns.text(tested.column(name, field="id_column"))
        others = pd.Series(rows.ids.values)
        if columns.are_whole(others):
            ids, others = columns.without_point(ids), columns.without_point(others)
        # A number that only counts the rows of its file names nothing that two files share.
        if not _counts_rows(ids):
            same_id = ids.isin(others).to_numpy(bool)
    found = int((equal | same_id).sum())
    if not found:
        return None
    again = trained.num_repeated() / rows.frame.num_rows
    return raw.SharedRows(found, int(same_id.sum()), len(equal), again)


def _counts_rows(ids: Any) -> bool:
    """Whether ids, text, are 0, 1, 2 and so on, or begin at 1, in any order."""
    words = set(ids.tolist())
    return any(words == {str(i + start) for i in range(len(ids))} for start in (0, 1))


def _test_labels(
    frame: frames.Frame | None, column: str, positive: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class ids `[t]` of test rows, which all must be known, and a sentence on how they were read.

    None of either without a test set.
    """
    if frame is None:
        return np.zeros(0, np.int32), ()
    read = pu_labels.read(
        frame,
        column,
        positive=positive or None,
        zero_is="negative",
        others_are="known negatives as well",
    )
    labels = read.values
    unknown = np.flatnonzero(labels == raw.UNKNOWN)
    if positive:  # any other word is another class then, but one that says that it is unknown
        unknown = np.flatnonzero(pu_labels.is_unknown(frame, column, positive=labels == 1))
        labels = (labels == 1).astype(np.int8)
    if len(unknown):
        cell = str(columns.text(frame.column(column, field="label")).fillna("").iloc[unknown[0]])
        raise ValueError(
            f"{frame.place(int(unknown[0]))}, column {column!r} says nothing of the class "
            f"({cell!r}); accepted in a test set: a known positive or negative in every row"
        )
    return labels.astype(np.int32), (pu_labels.describe_known(frame, column, labels),)


def in_options(text: str) -> str:
    """A sentence about a file as a command says it, whose argument DATA is the file."""
    text = re.sub(r"\bdata\.path is\b", "DATA is", text)
    return re.sub(r"\bdata\.(label|positive|id_column|leave_out|words)\b", r"--\1", text)


def _in_fields(note: str) -> str:
    """A sentence of the readers, with the configuration's fields for their arguments."""
    note = note.replace("id_column=''", "data.id_column=none").replace(
        "label is None;", "label is '';"
    )
    note = note.replace("; leave it out if", "; leave it out (data.leave_out) if")
    note = re.sub(r"^(label|id_column|zero_is|positive)(?= is )", r"data.\1", note)
    return re.sub(r"(?<![\w.])(id_column|positive)(?==['.])", r"data.\1", note)
