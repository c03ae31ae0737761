"""Trains the cells of a plan on other machines: one task per cell, a shared folder, one table."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from pujax import console
from pujax.sweep import runner
from pujax.sweep.plan import Plan
from pujax.training import preemption

_LOG = logging.getLogger(__name__)

_LOCK_SECONDS = 120.0
"""A host that died holds its locks on an NFS server for 90 s unless it is set otherwise."""
_LEFT = "another process trains it"


class Task(NamedTuple):
    """One cell as it is sent to a worker.

    Attributes:
      plan: the cell alone, with the seeds of all.
      workdir: folder of the sweep, as the worker sees it too.
      sequential: as of `runner.run`.
      uses_gpus: whether the worker may open GPUs.
    """

    plan: Plan
    workdir: str
    sequential: bool
    uses_gpus: bool


Train = Callable[[Task], str]
"""Trains a task; returns why it could not be trained, '' if it was."""


class Engine(Protocol):
    """What runs tasks on other machines."""

    @property
    def gpus(self) -> int:
        """How many a task gets."""

    def run(
        self, train: Train, tasks: Sequence[Task], request: preemption.StopRequest
    ) -> Iterator[tuple[int, str]]:
        """Runs every task once, and again if its worker died.

        Args:
          train: what a worker calls.
          tasks: one per cell.
          request: tells whether a signal came; then all tasks are asked to save and end.

        Yields:
          The number of a task that ended, and why it was not trained, '' if it was.
        """


def run(
    plan: Plan,
    workdir: str,
    engine: Engine,
    *,
    only: str = "",
    sequential: bool = False,
    train: Train | None = None,
) -> int:
    """Trains the unfinished cells of a plan with an engine, waits for them and writes the table.

    This process checks everything and downloads missing data before it sends the first cell.

    Args:
      plan: the cells.
      workdir: folder of the sweep, which all machines share under this path.
      engine: runs the cells.
      only: as of `runner.run`.
      sequential: likewise.
      train: what a worker calls, for tests; None is `train_task`.

    Returns:
      How many cells were stopped or could not be trained.

    Raises:
      SystemExit: after SIGINT or SIGTERM, once all cells were asked to save and end.
      ValueError: as `runner.run`.
    """
    sweep = runner.prepare(plan, workdir, only=only, sequential=sequential)
    place, plan, seeds = sweep.place, sweep.plan, plan.seeds
    left = [i for i in sweep.chosen if place.unfinished(plan.cells[i], seeds)]
    # A worker writes no table, and what it shows may not be known of this cell alone.
    alone = Plan(plan.title, (), plan.seeds)
    tasks = [
        Task(alone._replace(cells=(plan.cells[i],)), workdir, sequential, engine.gpus > 0)
        for i in left
    ]
    num_failed = 0
    sweep.write_results()
    with preemption.StopRequest() as request:
        for number, reason in engine.run(train or train_task, tasks, request) if tasks else ():
            cell = plan.cells[left[number]]
            if reason not in ("", _LEFT) and not request.signal:
                place.write_error(cell, seeds, reason)
            reason = place.error(cell, seeds) or reason
            num_failed += bool(reason)
            sweep.write_results()
            ended = "stopped before its end" if place.unfinished(cell, seeds) else "done"
            console.message(f"{cell.name}: {reason or ended}")
        if request.signal:
            raise SystemExit(128 + request.signal)
    runner.show_table(sweep, needs_all=False)
    return num_failed


def train_task(task: Task) -> str:
    """Trains one cell in the process of a worker.

    Args:
      task: the cell.

    Returns:
      Why it could not be trained, '' if it was; what stopped single seeds is in their folders.

    Raises:
      SystemExit: after SIGINT or SIGTERM, once all is saved.
    """
    console.show_own_messages()
    if not task.uses_gpus:
        # Else every worker of a machine would take three quarters of the same GPU's memory.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with preemption.StopRequest() as request:
        try:
            sweep = runner.prepare(
                task.plan, task.workdir, sequential=task.sequential, writes_tables=False
            )
            is_ours = runner.train_cell(sweep, 0, request, wait=_LOCK_SECONDS)
        except Exception as error:
            _LOG.exception("%s", task.plan.cells[0].name)
            return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        if request.signal:
            raise SystemExit(128 + request.signal)
    return "" if is_ours or sweep.is_over(0) else _LEFT
