"""Scores a table of any size on all machines of a Ray cluster.

    pip install 'pujax[ray,tables]'
    python examples/score_with_ray.py RUN TABLE SCORES --workers=8 --gpus_per_worker=1

RUN is the folder of a finished run on one's own table, TABLE a Parquet file or a folder of them
with the columns of training, SCORES a new folder. Only this process has to see RUN: the model
travels to the workers as a pickle. Each worker keeps the model and scores one batch after the
other, so that no machine holds the table. Ranks and budgets (`top:100`, `share:0.02`) compare all
rows, so they are not computed here: sort the scores afterwards.
"""

import argparse
import os

import pandas as pd
import ray

import pujax
from pujax.predict import Predictor


class Scorer:
    """A worker: it receives the model once, and then batches."""

    def __init__(self, model: Predictor):
        self._model = model

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows with the columns `score` and, where a prior was known, `probability`."""
        found = self._model.predict(rows)
        columns = {"score": found.scores}
        if found.probabilities is not None:
            columns["probability"] = found.probabilities
        return rows.assign(**columns)


def score(
    run: str, table: str, scores: str, *, workers: int = 1, gpus: int = 0, batch_size: int = 8192
) -> None:
    """Scores a table and writes it as Parquet files, in no particular order.

    Args:
      run: folder of a finished run on one's own table.
      table: Parquet file, or a folder of them.
      scores: folder to write.
      workers: processes that score.
      gpus: GPUs of each; 0 scores on CPUs.
      batch_size: rows that a worker scores at a time.

    Raises:
      ValueError: for a run, a table or a folder of scores that cannot be used, before Ray starts.
    """
    for name, number, least in (("workers", workers, 1), ("gpus_per_worker", gpus, 0)):
        if number < least:
            raise ValueError(f"{name} is {number}; accepted: an integer from {least}")
    if not os.path.exists(table):
        raise ValueError(f"table is {table!r}; accepted: a Parquet file, or a folder of them")
    if os.path.exists(scores):
        raise ValueError(f"scores is {scores!r}, which exists; accepted: a folder to be made")
    model = pujax.load(run)
    # A worker without a GPU must not open one, and one with a GPU has it for itself.
    hidden = {} if gpus else {"runtime_env": {"env_vars": {"JAX_PLATFORMS": "cpu"}}}
    ray.data.read_parquet(table).map_batches(
        Scorer,
        fn_constructor_args=(model,),
        batch_format="pandas",
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=1,
        num_gpus=gpus,
        **hidden,
    ).write_parquet(scores)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("run", "table", "scores"):
        parser.add_argument(name)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--gpus_per_worker", type=int, default=0)
    given = parser.parse_args()
    try:
        score(
            given.run,
            given.table,
            given.scores,
            workers=given.workers,
            gpus=given.gpus_per_worker,
        )
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
