"""Cells as tasks of Ray, on the cluster that Ray finds or on this machine."""

import importlib
import importlib.util
import logging
import signal
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pujax.checks import require
from pujax.sweep.launch import Task, Train
from pujax.training import preemption

_LOG = logging.getLogger(__name__)

_RETRIES = 3
_SECONDS_BETWEEN_LOOKS = 1.0
"""How soon a signal to the launching process is noticed."""


class RayEngine(NamedTuple):
    """Every cell is a task, in a process of its own, repeated up to three times if that dies.

    Attributes:
      cpus: cores that Ray reserves for a cell.
      gpus: likewise; the process sees these and no others.
    """

    cpus: int = 1
    gpus: int = 0

    def run(
        self, train: Train, tasks: Sequence[Task], request: preemption.StopRequest
    ) -> Iterator[tuple[int, str]]:
        """See `launch.Engine.run`."""
        ray = importlib.import_module("ray")
        if not ray.is_initialized():
            ray.init()
        _say_what_waits(ray, self)
        # max_calls=1: a process that has opened a GPU keeps its memory until it ends.
        remote = ray.remote(
            num_cpus=self.cpus, num_gpus=self.gpus, max_calls=1, max_retries=_RETRIES
        )(cell)
        numbers = {remote.remote(train, task): i for i, task in enumerate(tasks)}
        pending, is_cancelled = list(numbers), False
        while pending:
            done, pending = ray.wait(pending, num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS)
            for ref in done:
                yield numbers[ref], _outcome(ray, ref)
            if request.signal and not is_cancelled:
                is_cancelled = True
                for ref in pending:
                    ray.cancel(ref)  # SIGINT to those that run; the others never begin


def check() -> None:
    """Raises a ValueError if Ray is not installed."""
    require(
        importlib.util.find_spec("ray") is not None,
        "--launch",
        "ray",
        "with the package ray, pip install 'pujax[ray]'",
    )


def cell(train: Train, task: Task) -> str:
    """Trains a task; Ray repeats it after a SIGTERM to its process, but not after `ray.cancel`."""
    try:
        return train(task)
    except SystemExit as error:
        if error.code != 128 + signal.SIGINT:
            raise
        return "stopped"


def _outcome(ray: Any, ref: Any) -> str:
    try:
        return ray.get(ref)
    except ray.exceptions.TaskCancelledError:
        return "stopped"
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [""]
        return f"Ray gave up on it: {type(error).__name__}: {lines[0][:500]}"


def _say_what_waits(ray: Any, engine: RayEngine) -> None:
    """Logs if no node could take a cell now; an autoscaler may still add one."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, wanted in (("CPU", engine.cpus), ("GPU", engine.gpus)):
        most = max((node.get(name, 0) for node in nodes), default=0)
        if most < wanted:
            _LOG.warning(
                "a cell needs %d %ss, and no node of Ray has more than %d: the cells wait until "
                "one joins",
                *(wanted, name, most),
            )
