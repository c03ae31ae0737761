"""Cells as a job array of SLURM, submitted by submitit."""

import importlib
import importlib.util
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

from pujax.checks import require
from pujax.console import message
from pujax.sweep.launch import Task, Train
from pujax.training import preemption

_MOST_TIME_LIMITS = 100
"""How often a cell may go on in another job; submitit's own number is 3."""
_OWN = {
    "time": "--minutes_per_cell",
    "cpus-per-task": "--cpus_per_cell",
    "gpus-per-node": "--gpus_per_cell",
    **dict.fromkeys(("array", "error", "job-name", "open-mode", "output", "signal"), "none"),
}
"""Options of sbatch that are not free, and the flag that sets them."""


class SlurmEngine(NamedTuple):
    """Every cell is a job of an array; at its time limit it saves, and goes on in a new one.

    Attributes:
      folder: of the job files and logs, which all machines share.
      cpus: cores of a cell.
      gpus: GPUs of a cell.
      minutes: time limit of a job.
      options: of sbatch, as `sbatch_options` reads them.
      cluster: 'slurm', or 'local' for processes on this machine.
      poll_seconds: from one look at the results to the next.
    """

    folder: str
    cpus: int = 1
    gpus: int = 0
    minutes: int = 1440
    options: Mapping[str, Any] = {}
    cluster: str = "slurm"
    poll_seconds: float = 10.0

    def run(
        self, train: Train, tasks: Sequence[Task], request: preemption.StopRequest
    ) -> Iterator[tuple[int, str]]:
        """See `launch.Engine.run`; after a signal it does not wait for the jobs to end."""
        waiting = dict(enumerate(self._submit(train, tasks)))
        while waiting and not request.signal:
            for number, job in list(waiting.items()):
                if job.done():
                    del waiting[number]
                    yield number, _outcome(job)
            if waiting:
                time.sleep(self.poll_seconds)
        for job in waiting.values():
            job.cancel()
        if waiting:
            message(f"{len(waiting)} jobs were cancelled; those that run save and end")

    def _submit(self, train: Train, tasks: Sequence[Task]) -> list[Any]:
        submitit = importlib.import_module("submitit")
        executor = submitit.AutoExecutor(
            folder=self.folder, cluster=self.cluster, slurm_max_num_timeout=_MOST_TIME_LIMITS
        )
        executor.update_parameters(
            name="pujax",
            timeout_min=self.minutes,
            cpus_per_task=self.cpus,
            gpus_per_node=self.gpus or None,
            stderr_to_stdout=True,
            slurm_additional_parameters=dict(self.options) or None,
        )
        try:
            jobs = executor.map_array(CellJob(train), tasks)
        except submitit.core.utils.FailedJobError as error:
            said = " ".join(str(error).split())
            raise ValueError(
                f"--launch is 'slurm'; accepted: on a machine whose sbatch takes the jobs ({said})"
            ) from error
        message(f"{len(jobs)} jobs, {jobs[0].job_id} first; their logs are in {self.folder}")
        return jobs


class CellJob:
    """What a job calls; submitit submits it again before the time limit, see `checkpoint`."""

    def __init__(self, train: Train):
        self._train = train

    def __call__(self, task: Task) -> str:
        """Trains a task; returns why it could not be trained, '' if it was."""
        submit_again = signal.getsignal(signal.SIGUSR2)
        is_late = False

        def save_first(number: int, frame: FrameType | None) -> None:
            nonlocal is_late
            is_late = True
            os.kill(os.getpid(), signal.SIGTERM)  # which the training answers by saving

        signal.signal(signal.SIGUSR2, save_first)
        try:
            return self._train(task)
        except SystemExit:
            if is_late and callable(submit_again):
                submit_again(signal.SIGUSR2, None)  # ends this process
            return "stopped by a signal; the same command goes on"
        finally:
            signal.signal(signal.SIGUSR2, submit_again)

    def checkpoint(self, task: Task) -> Any:
        """What submitit runs in the next job: the same, since a cell resumes from its folder."""
        return importlib.import_module("submitit").helpers.DelayedSubmission(self, task)


def check() -> None:
    """Raises a ValueError if submitit or SLURM is not installed."""
    has_package = importlib.util.find_spec("submitit") is not None
    need = "with the package submitit, pip install 'pujax[slurm]'"
    require(has_package, "--launch", "slurm", need)
    has_slurm = all(map(shutil.which, ("sbatch", "srun")))
    require(has_slurm, "--launch", "slurm", "on a machine that has the commands sbatch and srun")


def sbatch_options(texts: Sequence[str]) -> dict[str, Any]:
    """Options of sbatch from `KEY=VALUE`, or `KEY` for one without a value.

    Args:
      texts: one option each.

    Raises:
      ValueError: for one that another flag or this package sets.
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().removeprefix("--").replace("_", "-")
        require(bool(key), "--sbatch", text, "KEY=VALUE, or KEY")
        if key in _OWN:
            raise ValueError(
                f"--sbatch is {text!r}, which the sweep sets (flag: {_OWN[key]}); accepted: "
                "other options of sbatch, such as partition=gpu"
            )
        options[key] = value if equals else True
    return options


def _outcome(job: Any) -> str:
    error = job.exception()
    if error is None:
        return job.result()
    return f"job {job.job_id} ended without a result, its log is {job.paths.stdout}"
