"""The metrics of a run, one row per epoch: JSON lines, CSV, TensorBoard.

Whatever is rewritten is written beside and renamed, so that a reader never sees half a file. A
non-finite number becomes null (an empty cell in CSV), because JSON has no word for it; every other
number is written so that reading it gives the same bits back.
"""

import csv
import io
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pujax import reading
from pujax.files import naming, replace_text, to_plain

_LOG = logging.getLogger(__name__)

JSON_LINES = "metrics.jsonl"
CSV = "metrics.csv"
TENSORBOARD = "tensorboard"


class MetricsWriter:
    """One row per epoch in `metrics.jsonl` and `metrics.csv`, and in TensorBoard where asked for.

    Rows that an earlier process left in the folder are read first, so that a resumed run goes on
    in the same files. What a crash can leave is repaired: an unfinished last line is dropped, and
    the CSV is written again from the JSON lines, as it is where a row has a new column. Epochs that
    only the CSV has are taken from there, and lines that are lost while the run lasts are written
    again.

    Args:
      folder: where the files go; made if missing.
      tensorboard: whether to write `folder/tensorboard` too, where tensorboardX is installed.

    Attributes:
      rows: all rows so far, as they read back from the file.

    Raises:
      ValueError: if a line of an existing `metrics.jsonl` other than the last is not a row.
    """

    def __init__(self, folder: str | os.PathLike, *, tensorboard: bool = False):
        self._folder = os.fspath(folder)
        os.makedirs(self._folder, exist_ok=True)
        self._make_events = _tensorboard_writer() if tensorboard else None
        self._events: Any = None
        path = self._path(JSON_LINES)
        self._sizes = {JSON_LINES: 0, CSV: 0}  # of the files as this process wrote them
        self._columns: list[str] = []  # of the CSV
        self.rows, intact = _read_rows(path) if os.path.exists(path) else ([], True)
        lost = _rows_of_table(self._path(CSV), {row["epoch"] for row in self.rows})
        if lost:
            _LOG.warning("%s lacks %d epochs, which are taken from %s", path, len(lost), CSV)
            self.rows = sorted([*self.rows, *lost], key=lambda row: row["epoch"])
        if lost or not intact:
            self._write_lines()
        self._note_size(JSON_LINES)
        if self.rows:
            self._write_csv()

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds the row of one epoch; it is on the disk when this returns.

        Args:
          row: numbers, strings or None by column name, with at least `epoch`, counted from 0.

        Raises:
          ValueError: if `epoch` is missing, or a value cannot be written as JSON.
        """
        plain = to_plain(row)
        if not _is_row(plain):
            raise ValueError(f"a row needs an integer 'epoch'; got the row {plain}")
        self.rows.append(plain)
        path = self._path(JSON_LINES)
        if self._is_changed(JSON_LINES):
            _LOG.warning("%s was changed or removed; it is written again", path)
            os.makedirs(self._folder, exist_ok=True)
            self._write_lines()
        else:
            self._add(JSON_LINES, _line(plain))
        if self._is_changed(CSV) or not plain.keys() <= set(self._columns):
            self._write_csv()
        else:
            self._add(CSV, _table([plain], self._columns))
        self._write_events(plain)

    def hole(self, num_epochs: int) -> str:
        """What is wrong with the rows of the first epochs; '' if there is one of each, in order.

        Args:
          num_epochs: rows with `epoch < num_epochs` count.
        """
        epochs = [row["epoch"] for row in self.rows if row["epoch"] < num_epochs]
        if epochs == list(range(num_epochs)):
            return ""
        return (
            f"{self._path(JSON_LINES)} has the epochs {epochs}, but the checkpoint stands after "
            f"epoch {num_epochs - 1}; accepted: one row for every epoch before it (something else "
            "wrote to this folder; remove it and its checkpoints to start again)"
        )

    def truncate(self, num_epochs: int) -> None:
        """Forgets epochs that a resumed run is about to repeat.

        Args:
          num_epochs: rows with `epoch < num_epochs` stay.
        """
        kept = [row for row in self.rows if row["epoch"] < num_epochs]
        if len(kept) == len(self.rows):
            return
        self.rows = kept
        self._write_lines()
        self._write_csv()
        # Opened again by the next row, which tells TensorBoard to discard what comes after it.
        self.close()

    def close(self) -> None:
        """Closes TensorBoard's file; the others are complete after every row."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _write_lines(self) -> None:
        replace_text(self._path(JSON_LINES), "".join(map(_line, self.rows)))
        self._note_size(JSON_LINES)

    def _write_csv(self) -> None:
        self._columns = list(dict.fromkeys(name for row in self.rows for name in row))
        # The header is a row whose cells are called what they are.
        header = [dict(zip(self._columns, self._columns, strict=True))] if self._columns else []
        replace_text(self._path(CSV), _table([*header, *self.rows], self._columns))
        self._note_size(CSV)

    def _add(self, name: str, text: str) -> None:
        """Writes text at the end of a file; the cost of a row does not grow with their number."""
        path = self._path(name)
        with naming(path), open(path, "a", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._note_size(name)

    def _is_changed(self, name: str) -> bool:
        """Whether a file is not as this process wrote it."""
        return self._size_now(name) != self._sizes[name]

    def _size_now(self, name: str) -> int:
        """Bytes of a file; 0 where there is none."""
        try:
            return os.stat(self._path(name)).st_size
        except FileNotFoundError:
            return 0

    def _note_size(self, name: str) -> None:
        self._sizes[name] = self._size_now(name)

    def _write_events(self, row: Mapping[str, Any]) -> None:
        if self._make_events is None:
            return
        epoch = row["epoch"]
        if self._events is None:
            self._events = self._make_events(
                self._path(TENSORBOARD),
                purge_step=epoch,
                # File names carry whole seconds only; two of one second would overwrite each other.
                filename_suffix=f".from_epoch_{epoch:06d}",
            )
        for name, value in row.items():
            if name != "epoch" and isinstance(value, int | float):
                self._events.add_scalar(name, value, epoch)
        self._events.flush()


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"


def _table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Lines of a CSV without a header: None and absent cells are empty, floats are their repr."""
    text = io.StringIO()
    csv.DictWriter(text, columns, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue()


def begins_with_a_row(path: str) -> bool:
    """Whether the first line of a file is a row of a run, and not another program's."""
    with open(path, "rb") as file:
        row = _parse(file.readline())
    return row is not None and "stage" in row


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and type(value.get("epoch")) is int


def _read_rows(path: str) -> tuple[list[dict[str, Any]], bool]:
    """Rows of a JSON lines file, and whether it was whole, newline at the end included."""
    with open(path, "rb") as file:
        content = file.read()
    rows = []
    lines = content.splitlines()
    for number, line in enumerate(lines, start=1):
        row = _parse(line)
        if row is not None:
            rows.append(row)
        elif number < len(lines):
            raise ValueError(
                f"line {number} of {path} is {line[:60]!r}; accepted: a JSON object with an "
                "integer 'epoch' (mend or remove the file)"
            )
        else:
            _LOG.warning("%s ended in an unfinished line, which is dropped", path)
    return rows, len(rows) == len(lines) and (not content or content.endswith(b"\n"))


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = reading.parse_json(line.decode("utf-8"))
    except ValueError:  # not JSON, or not UTF-8
        return None
    return row if _is_row(row) else None


def _rows_of_table(path: str, known: set[int]) -> list[dict[str, Any]]:
    """Rows of a CSV whose epochs are not known; an empty cell is no entry.

    An unfinished last line is no row: its last number may lack digits.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            whole = file.read().rpartition("\n")[0]
        cells = list(csv.DictReader(io.StringIO(whole, newline="")))
    except (FileNotFoundError, ValueError, csv.Error):
        return []
    rows = [{k: _number(v) for k, v in row.items() if k and v} for row in cells]
    return [row for row in rows if _is_row(row) and row["epoch"] not in known]


def _number(cell: Any) -> Any:
    """A cell as it was before it was written: a number, True, False, or text."""
    if cell in ("True", "False"):
        return cell == "True"
    for kind in (int, float):
        try:
            return kind(cell)
        except (TypeError, ValueError):
            continue
    return cell


def _tensorboard_writer() -> Any:
    """tensorboardX's writer class, or None where it is not installed."""
    try:
        import tensorboardX
    except ImportError:
        _LOG.debug("tensorboardX is not installed, so nothing is written for TensorBoard")
        return None
    return tensorboardX.SummaryWriter
