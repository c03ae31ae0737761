"""The command line of the prior study; `python -m pujax.prior_study --help` lists it."""

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from pujax import prior_study
from pujax.console import message, run_command
from pujax.training import metrics_writer

_USAGE = """usage: python -m pujax.prior_study RUNDIR [--factors=0.1,0.5,1,2,5,10] [--seeds=3]
  RUNDIR               a finished run that left an encoder, of impulses for example
  --factors=A,B        what the prior in U is multiplied by; those of 0.1 to 10 below the limit
  --seeds=3            heads per factor: other starts, other orders
  --epochs=100         of every head
  --loss=LOSS          imbalanced_nnpu (default) or nnpu
  --beside=DIR,DIR     runs whose test AUC is drawn too, one trained from scratch for example
  --data_dir=FOLDER    where the data are, if not where the run found them
  --help               shows this text
Writes study.json, curves.csv and curves.png into RUNDIR/prior_study."""


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_list("factors", [], "factors", flag_values=values)
    flags.DEFINE_integer("seeds", 3, "seeds", flag_values=values)
    flags.DEFINE_integer("epochs", 100, "epochs", flag_values=values)
    flags.DEFINE_string("loss", "imbalanced_nnpu", "loss", flag_values=values)
    flags.DEFINE_list("beside", [], "beside", flag_values=values)
    flags.DEFINE_string("data_dir", "", "data_dir", flag_values=values)
    return values


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    values = _flags()

    def study(rest: list[str]) -> int:
        if len(rest) != 1:
            raise ValueError(f"command line: RUNDIR is {' '.join(rest)!r}; accepted: one folder")
        folder = rest[0]
        beside = {name: _rows(x) for name, x in _named(values.beside).items()}
        try:
            result = prior_study.of_run(
                folder,
                data_dir=values.data_dir,
                factors=_numbers(values.factors),
                num_seeds=values.seeds,
                num_epochs=values.epochs,
                loss=values.loss,
            )
        except ValueError as error:  # a source advises with the flags of a run
            text = str(error).replace("--config.data.dir", "--data_dir")
            raise ValueError(text) from error
        target = os.path.join(folder, "prior_study")
        title = f"{values.loss} with a wrong prior, {os.path.basename(os.path.normpath(folder))}"
        prior_study.write(result, target, title=title, beside=beside)
        message(f"{prior_study.table(result)}\nWritten to {target}")
        return 0

    return run_command(argv, values, lambda: _USAGE, study)


def _numbers(texts: Sequence[str]) -> list[float]:
    try:
        return [float(text) for text in texts]
    except ValueError as error:
        raise ValueError(f"--factors is {','.join(texts)!r}; accepted: 0.5,1,2") from error


def _rows(folder: str) -> list[dict[str, Any]]:
    """Metrics of a run, read only."""
    name = metrics_writer.JSON_LINES
    if not os.path.exists(os.path.join(folder, name)):
        raise ValueError(f"--beside: {folder} holds no {name}; accepted: folders of runs")
    return metrics_writer.read_rows(folder)


def _named(folders: Sequence[str]) -> dict[str, str]:
    """Folders by the last parts of their paths, as many as tell them apart.

    Raises:
      ValueError: for a folder that is given twice.
    """
    paths = [pathlib.Path(folder).resolve() for folder in folders]
    if len(set(paths)) < len(paths):
        given = ",".join(folders)
        raise ValueError(f"--beside is {given!r}; accepted: folders that differ")
    for length in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(names):
            return dict(zip(names, folders, strict=True))
    return {}


if __name__ == "__main__":
    sys.exit(main(sys.argv))
