"""The command line of the prior study; `python -m pujax.prior_study --help` lists it."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from pujax import prior_study
from pujax.console import message, run_command
from pujax.reports import run_folder

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
        names = run_folder.names(values.beside)
        if len(set(names)) < len(names):
            given = ",".join(values.beside)
            raise ValueError(f"--beside is {given!r}; accepted: folders that differ")
        beside = {name: _rows(x) for name, x in zip(names, values.beside, strict=True)}
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
    path = os.path.join(folder, run_folder.METRICS)
    if not os.path.exists(path):
        accepted = "folders of runs"
        raise ValueError(f"--beside: {folder} holds no {run_folder.METRICS}; accepted: {accepted}")
    return list(run_folder.rows_of(path))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
