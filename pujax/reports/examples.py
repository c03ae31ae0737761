"""Examples worth a look: the most certain, the most uncertain, and the most surprising ones.

Pictures and rows are read from the data if they are still where the configuration says, and are
the same as in training; nothing is downloaded.
"""

import base64
import io
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_collections
import numpy as np
from PIL import Image

from pujax.console import first_line
from pujax.data.image_files import as_array
from pujax.data.pu_dataset import PUDataset
from pujax.data.readers import download, frames
from pujax.reports import missing
from pujax.reports.parts import Card, Cards, Section, Table, percent
from pujax.reports.run_folder import Run
from pujax.training import config as config_lib
from pujax.training import experiment, init_from

SHOWN = 6
_COLUMNS = 8
_SIDE = 96
_CELL = 60
_TITLE = "Examples"
_ONE_SAMPLE = (
    "Labelled positives were taken out of the population, so that its unlabeled rows (U) hold "
    "fewer positives: the probability of a row of U is lower than that of a new row with the same "
    "score."
)
OFF = (
    "Left out, as was asked for (--noexamples): no row, cell or picture of the data is shown. "
    "The settings name its file and the run's folder."
)


class _Kind(NamedTuple):
    """Examples of one kind.

    Attributes:
      caption: what they are.
      members: part, 'train', 'held' or 'test', and row in that part, of each example.
    """

    caption: str
    members: tuple[tuple[str, int], ...]


class _Source(NamedTuple):
    """Where examples are shown from.

    Attributes:
      data: the problem, as it was in training.
      frame: rows of a user's own table as they are in the file, else None.
      test_frame: likewise, of the test set.
    """

    data: PUDataset
    frame: frames.Frame | None
    test_frame: frames.Frame | None


def section(run: Run) -> Section:
    """The examples of a run."""
    if run.scores is None:
        text = missing.SEVERAL_LABELS if run.is_multilabel else missing.reason(run)
        return Section("examples", _TITLE, (text,))
    source, reason = _read(run)
    texts = [reason] if reason else []
    if _is_one_sample(run) and len(run.scores.train_probabilities):
        texts.append(_ONE_SAMPLE)
    tables, cards = [], []
    for kind in _kinds(run):
        if not kind.members:
            continue
        if source is not None and len(source.data.info.input_shape) == 3:
            pictures = tuple(_card(run, source, *member) for member in kind.members)
            cards.append(Cards(kind.caption, pictures))
        else:
            tables.append(_table(run, source, kind))
    return Section("examples", _TITLE, tuple(texts), tables=tuple(tables), cards=tuple(cards))


def _kinds(run: Run) -> list[_Kind]:
    """Which examples are shown."""
    scores = run.scores
    assert scores is not None  # `section` has looked
    values, members = [], []
    for part in ("train", "held"):
        own, labeled = getattr(scores, f"{part}_scores"), getattr(scores, f"{part}_labeled")
        ids = getattr(scores, f"{part}_ids")
        # Two-sample data repeat P in U: such a row is no unlabeled one.
        repeated = np.isin(ids, ids[labeled]) if len(ids) == len(own) else labeled
        rows = np.flatnonzero(~labeled & ~repeated & np.isfinite(own))
        values.append(own[rows])
        members += [(part, int(row)) for row in rows]
    unlabeled = np.concatenate(values)

    def first(order: np.ndarray) -> tuple[tuple[str, int], ...]:
        return tuple(members[i] for i in order[:SHOWN])

    known, positive = [], []
    for part in ("train", "held"):
        own, labeled = getattr(scores, f"{part}_scores"), getattr(scores, f"{part}_labeled")
        rows = np.flatnonzero(labeled & np.isfinite(own))
        positive += own[rows].tolist()
        known += [(part, int(row)) for row in rows]
    order = np.argsort(positive, kind="stable")
    low = tuple(known[i] for i in order[:SHOWN])
    tests, labels = scores.test_scores, scores.test_labels
    wrong = np.flatnonzero(((tests > 0) != (labels == 1)) & np.isfinite(tests))
    wrong = wrong[np.argsort(-np.abs(tests[wrong]), kind="stable")][:SHOWN]
    by_score = np.argsort(-unlabeled, kind="stable")
    return [
        _Kind("Most certain: unlabeled, with the highest scores", first(by_score)),
        _Kind("Most certain: unlabeled, with the lowest scores", first(by_score[::-1])),
        _Kind(
            "Most uncertain: unlabeled, with scores nearest to the threshold 0",
            first(np.argsort(np.abs(unlabeled), kind="stable")),
        ),
        _Kind("Most surprising: known positives with the lowest scores", low),
        _Kind(
            "Most surprising: test examples whose score is surest of the wrong class",
            tuple(("test", int(row)) for row in wrong),
        ),
    ]


def _is_one_sample(run: Run) -> bool:
    return (run.summary or {}).get("setting") == "one_sample"


def _facts(run: Run, part: str, row: int) -> tuple[tuple[str, str], ...]:
    """Score, probability and what is known of an example."""
    scores: Any = run.scores
    probabilities = getattr(scores, f"{part}_probabilities")
    facts = [("score", f"{getattr(scores, f'{part}_scores')[row]:.3g}")]
    if len(probabilities):
        name = "probability" if part == "test" or not _is_one_sample(run) else "probability in U"
        facts.append((name, percent(float(probabilities[row]))))
    if part == "test":
        known = "test, positive" if scores.test_labels[row] == 1 else "test, negative"
    else:
        known = "labelled positive" if getattr(scores, f"{part}_labeled")[row] else "unlabeled"
        truth = int(getattr(scores, f"{part}_truth")[row])
        if known == "unlabeled" and truth >= 0:
            known += f", in truth {'positive' if truth else 'negative'}"
        known += ", held out" if part == "held" else ""
    return (*facts, ("known", known))


def _name(run: Run, source: _Source | None, part: str, row: int) -> str:
    """What an example is called: its id among one's own rows, else its row, from 1."""
    ids = None if part == "test" else getattr(run.scores, f"{part}_ids")
    place = row if ids is None or not len(ids) else int(ids[row])
    own = source.data.own if source is not None else None
    if own is not None and part != "test":
        return f"{own.id_name} {own.ids[place]}" if own.id_name != "file" else str(own.ids[place])
    return f"{'test' if part == 'test' else 'training'} row {place + 1}"


def _inputs(source: _Source, part: str) -> Any:
    data = source.data
    return {"train": data.inputs, "held": data.validation_inputs, "test": data.test_inputs}[part]


def _card(run: Run, source: _Source, part: str, row: int) -> Card:
    """An example with its picture."""
    pixels = as_array(_inputs(source, part)[np.array([row])])[0]
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    image.save(file, "png", optimize=True)
    address = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
    return Card(address, _name(run, source, part, row), _facts(run, part, row))


def _table(run: Run, source: _Source | None, kind: _Kind) -> Table:
    """Examples as rows, with the first columns of the data where they are there."""
    names = list(dict.fromkeys(name for member in kind.members for name, _ in _facts(run, *member)))
    lines, columns = [], []
    for part, row in kind.members:
        facts = dict(_facts(run, part, row))
        cells = _cells(run, source, part, row)
        columns = [name for name, _ in cells]
        lines.append(
            (
                _name(run, source, part, row),
                *(facts.get(name, "") for name in names),
                *(text for _, text in cells),
            )
        )
    return Table(kind.caption, ("example", *names, *columns), tuple(lines))


def _cells(run: Run, source: _Source | None, part: str, row: int) -> list[tuple[str, str]]:
    """Names and values of the first columns of an example."""
    if source is None:
        return []
    frame = source.test_frame if part == "test" else source.frame
    if frame is None:
        values = np.asarray(_inputs(source, part)[row])
        return [(f"feature {i}", f"{x:.4g}") for i, x in enumerate(values[:_COLUMNS])]
    ids = getattr(run.scores, f"{part}_ids", None)
    place = row if part == "test" or ids is None else int(ids[row])
    own = source.data.own
    aside = own.preparation.aside if own else ()
    if not frame.is_table:
        return [(f"feature {i}", f"{x:.4g}") for i, x in enumerate(frame.values[place][:_COLUMNS])]
    names = [name for name in frame.values.columns if name not in aside][:_COLUMNS]
    return [(str(name), _shown(frame.values[name].iloc[place])) for name in names]


def _shown(value: Any) -> str:
    text = "" if value is None or value != value else str(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."


def _read(run: Run) -> tuple[_Source | None, str]:
    """The data of a run, or why they are not shown."""
    config: Any = None
    try:
        config = config_lib.resolve(ml_collections.ConfigDict(run.config))
        if config.data.source == "tfds":
            return None, "Rows and pictures are not read from tensorflow-datasets."
        with download.offline():
            data = init_from.attach(config, experiment.load_data(config))
        if not isinstance(data, PUDataset):
            return None, ""
        if not run.digest or data.digest() != run.digest:
            return None, (
                "Rows and pictures are not shown: the data are no longer what this run was trained "
                "on (their digest differs)."
            )
        return _Source(data, *_frames(config)), ""
    except (ValueError, OSError, KeyError, TypeError) as error:
        return None, (
            "Rows and pictures are not shown: the data could not be read again "
            f"({first_line(error)})."
        )


def _frames(config: Any) -> Sequence[frames.Frame | None]:
    """The files of a user's own table as they are; None each where there is none."""
    if config.data.source != "own_table":
        return None, None
    return tuple(_frame(config, path) for path in (config.data.path, config.data.test_path))


def _frame(config: Any, path: str) -> frames.Frame | None:
    if not path:
        return None
    given = pathlib.Path(path).expanduser()
    folder = pathlib.Path(config.data.dir).expanduser() if config.data.dir else None
    inside = (folder or download.default_directory()) / given
    return frames.read(given if os.path.exists(given) else inside)
