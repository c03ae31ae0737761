"""Applies a trained model to new rows: python -m pujax.predict RUN NEW.csv --output=scores.csv."""

import os
import sys
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from pujax.checks import require
from pujax.console import message, show_own_messages
from pujax.data.readers import frames, pu_labels
from pujax.files import check_folder, replace_text
from pujax.training import decisions, own_results, saved_model
from pujax.training.saved_model import SavedModel

_USAGE = """usage: python -m pujax.predict RUN FILE [--output=FILE.csv] [--decide=RULE]
  RUN                  folder of a finished run on one's own rows, or its model/
  FILE                 new rows in any format that training reads, with the same columns; the
                       label's column may be there or not
  --output=FILE.csv    where to write; default: predictions.csv in the current folder
  --decide=RULE        'score:0', 'probability:0.5', 'share:0.02', 'top:100'; default: the run's
  --help               shows this text
Writes the id under its own name, score, probability, rank and decision, in the rows' order."""


class Predictions(NamedTuple):
    """What a model says of rows, in their order.

    Attributes:
      id_name: what the rows are named by; 'row' counts them from 1.
      ids: `[n]`.
      scores: float `[n]`, positive by the method's own rule where above 0.
      probabilities: float `[n]`, P(y = 1 | x) of rows of the population; None where no prior was
        known in training.
      ranks: int `[n]`, 1 for the highest score.
      decisions: bool `[n]`, by the rule of the run or the one that was asked for.
    """

    id_name: str
    ids: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray | None
    ranks: np.ndarray
    decisions: np.ndarray


class Predictor(NamedTuple):
    """A loaded model; see `load`.

    Attributes:
      model: its parts.
    """

    model: SavedModel

    def predict(self, rows: Any, *, decide: str = "") -> Predictions:
        """Predictions for rows.

        Args:
          rows: path of a file, a pandas DataFrame, or an array `[n, d]` for models of arrays; with
            the columns of training, label and id or not.
          decide: rule in place of the run's, see `training.decisions`.

        Raises:
          ValueError: naming the columns that are missing, extra or of another type.
        """
        frame = frames.read(rows) if isinstance(rows, str | os.PathLike) else frames.of(rows)
        name = self.model.description["id_name"]
        if name in frame.names:
            ids = pu_labels.ids(frame, name).values
        else:
            name, ids = "row", np.arange(1, frame.num_rows + 1)
        scores = self.model.scores(frame)
        return Predictions(
            id_name=name,
            ids=np.asarray(ids),
            scores=scores,
            probabilities=self.model.probabilities(scores),
            ranks=decisions.ranks(scores),
            decisions=self.model.decide(scores, decide),
        )


def load(run: str | os.PathLike[str]) -> Predictor:
    """Loads the model that a run left.

    Args:
      run: folder of a finished run on one's own rows, or `model/` in it.

    Raises:
      ValueError: naming the file that is missing or damaged.
    """
    return Predictor(saved_model.load(run))


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    show_own_messages()
    values = flags.FlagValues()
    flags.DEFINE_string("output", "predictions.csv", "output", flag_values=values)
    flags.DEFINE_string("decide", "", "decide", flag_values=values)
    flags.DEFINE_bool("help", False, "help", short_name="h", flag_values=values)
    try:
        rest = values(argv)[1:]
        if values.help:
            message(_USAGE)
            return 0
        if len(rest) != 2:
            raise ValueError(f"command line: {rest} is not RUN and FILE\n{_USAGE}")
        folder = os.path.dirname(os.path.abspath(values.output))
        check_folder("--output", folder)
        is_folder = os.path.isdir(values.output)
        require(not is_folder, "--output", values.output, "the name of a file, not of a folder")
        result = load(rest[0]).predict(rest[1], decide=values.decide)
        os.makedirs(folder, exist_ok=True)
        replace_text(values.output, own_results.csv_text(*result))
    except (ValueError, OSError, flags.Error) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    chosen = int(result.decisions.sum())
    message(f"{len(result.scores)} rows, {chosen} called positive: {values.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
