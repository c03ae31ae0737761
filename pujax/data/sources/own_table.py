"""Your own table in one file: who is labelled positive, and everybody else."""

import os
import pathlib

import numpy as np

from pujax.data import preparation, raw
from pujax.data.readers import frames, pu_labels

CLASS_NAMES = ("negative", "positive")
_WITHOUT_ID = "row"


def load(
    directory: pathlib.Path,
    *,
    path: str,
    label: str = "",
    id_column: str = "",
    zero_is: str = "auto",
    positive: str = "",
) -> raw.RawDataset:
    """Reads one file of any format of `readers.frames`.

    How labels are read is said in `pu_labels.read`. There is no test set. What columns become is
    learned from the rows that training sees, see `RawDataset.prepare`.

    Args:
      directory: where a relative `path` is looked for if it is not in the current folder.
      path: of the file.
      label: name of the label's column; '' is `labels` or `y` beside arrays.
      id_column: name of the column that names a row; '' looks for one, 'none' keeps all columns.
      positive: the word that marks a positive, where it is not one of the usual ones.
      zero_is: 'negative', 'unlabeled' or 'auto', see `pu_labels.read`.

    Returns:
      A `RawDataset` of a table without numbers, which `prepare` fills in.

    Raises:
      ValueError: naming file, line and column of what cannot be read.
    """
    given = pathlib.Path(path).expanduser()
    places = [place for place in (given, directory / given) if os.path.exists(place)]
    if not places:
        raise ValueError(f"data.path is {path!r}, which does not exist; accepted: a file of rows")
    frame = frames.read(places[0])
    if frame.is_table and not label:
        names = ", ".join(map(repr, frame.names))
        raise ValueError(f"data.label is ''; accepted: the column that holds the label: {names}")
    labels = pu_labels.read(frame, label or None, positive=positive or None, zero_is=zero_is)
    name = {"": None, "none": ""}.get(id_column, id_column)
    ids = pu_labels.ids(frame, name, label=labels.column)
    aside = (labels.column, *ids.aside)
    values = np.arange(1, frame.num_rows + 1) if ids.values is None else ids.values
    notes = tuple(_in_fields(note) for note in (labels.sentence, *ids.sentences))
    own = raw.OwnRows(id_name=ids.column or _WITHOUT_ID, ids=values, notes=notes)
    data = raw.RawDataset(
        name="own_table",
        train_inputs=np.zeros([frame.num_rows, 1], np.float32),
        train_labels=labels.values.astype(np.int32),
        test_inputs=np.zeros([0, 1], np.float32),
        test_labels=np.zeros(0, np.int32),
        class_names=CLASS_NAMES,
        mean=(0.0,),
        std=(1.0,),
        known_at_random=False,
        own=own,
    )

    def prepare(rows: np.ndarray) -> raw.RawDataset:
        learned = preparation.fit(frame, rows, aside=aside)
        inputs = learned.transform(frame)
        mean, std = raw.feature_statistics(inputs[rows])
        return data._replace(
            train_inputs=inputs,
            test_inputs=inputs[:0],
            mean=mean,
            std=std,
            own=own._replace(preparation=learned, notes=(*own.notes, *learned.messages)),
        )

    return data._replace(prepare=prepare)


def _in_fields(note: str) -> str:
    """A sentence of the readers, with the configuration's fields for their arguments."""
    note = note.replace("id_column=''", "data.id_column=none")
    return note.replace("zero_is='", "data.zero_is='")
