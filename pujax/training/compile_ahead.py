"""Programs that a run needs later are compiled in the background while it trains.

A run of several stages, or one that trains other methods for comparison afterwards, compiles a
program at the start of each. Compilation takes seconds to minutes, one step of a small network on
a CPU keeps one core busy, and a TPU none. On a GPU nothing is compiled ahead: XLA chooses among
kernels by timing them, and another program on the device would falsify the times.
"""

import concurrent.futures
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from pujax import accelerator
from pujax.data import pu_dataset
from pujax.methods.base import Stage
from pujax.training import stage_shapes, train_step
from pujax.training.method_setup import MethodSetup

_LOG = logging.getLogger(__name__)
_BACKENDS = ("cpu", "tpu")
_THREAD = "compile_ahead"

# By the compiled step of a stage: its programs in the making, or made.
_PROGRAMS: dict[Any, concurrent.futures.Future] = {}


@contextlib.contextmanager
def compiling(setups: Sequence[MethodSetup], mesh: Mesh) -> Iterator[None]:
    """While the block runs, compiles what these runs of one seed need, after the first stage.

    What has not begun when the block is left is not compiled, and what has begun is not waited for.
    An error is left to the stage that meets it.

    Args:
      setups: in the order in which they train; the first one's first stage is left out, since it
        trains at once.
      mesh: devices.
    """
    if jax.default_backend() not in _BACKENDS or jax.process_count() > 1:
        yield
        return
    jobs: list[tuple[concurrent.futures.Future, Callable[[], None]]] = []
    for setup in setups:
        if setup.data.streamed:  # a step takes images as they come from the host
            continue
        for index, train in enumerate(_steps(setup, mesh)):
            if index or setup is not setups[0]:
                _PROGRAMS[train] = concurrent.futures.Future()
                job = functools.partial(_compile, setup, index, train, mesh)
                jobs.append((_PROGRAMS[train], job))
    # Python would wait for the threads of an executor before it ends, for minutes after a signal;
    # how a process ends beside this one: `commands.leave_if_compiling`.
    threading.Thread(target=_work, args=(jobs,), name=_THREAD, daemon=True).start()
    try:
        yield
    finally:
        for program, _ in jobs:
            program.cancel()
        _PROGRAMS.clear()


def _work(jobs: Sequence[tuple[concurrent.futures.Future, Callable[[], None]]]) -> None:
    """Does one job after another; one that was cancelled is left out."""
    for program, job in jobs:
        if program.set_running_or_notify_cancel():
            try:
                job()
            finally:
                program.set_result(None)


def is_compiling() -> bool:
    """Whether a program is in the making, perhaps one that nobody waits for any more."""
    return any(thread.name == _THREAD for thread in threading.enumerate())


def finish(train: Any) -> None:
    """Returns once the programs of a stage are made, or will be made by who asks.

    Args:
      train: what `train_step.make_train` returned for the stage.
    """
    program = _PROGRAMS.get(train)
    if program is not None and not program.cancel():
        program.result()


def _steps(setup: MethodSetup, mesh: Mesh) -> list[Any]:
    """The compiled step of every stage, as `run_state.Run.train_steps` has it for one seed."""
    steps, first_epoch = [], 0
    packed = accelerator.few_kernels(setup.config.run.few_kernels)
    for stage in setup.method.stages:
        steps.append(train_step.make_train(stage, mesh, first_epoch=first_epoch, packed=packed))
        first_epoch += stage.num_epochs
    return steps


def _compile(setup: MethodSetup, index: int, train: Any, mesh: Mesh) -> None:
    """Compiles the start of a stage and its step."""
    stage: Stage = setup.method.stages[index]
    try:
        arrays = pu_dataset.flat(setup.data.training_data())
        data = stage_shapes.on_mesh(arrays, mesh)
        num_labeled = int(np.sum(setup.data.labeled)) if stage.batching.num_positives else 0
        stages = setup.method.stages[: index + 1]
        shapes = stage_shapes.of_stages(stages, data, mesh, num_labeled=num_labeled)
        previous = shapes[index - 1].state if index else None
        init: Any = train_step.make_init(stage.init, mesh)
        init.lower(shapes[index].key, previous, data).compile()
        most = train_step.steps_per_dispatch(
            setup.config.run.steps_per_dispatch, shapes[index].state
        )
        num_steps = stage.batching.steps_per_epoch(len(setup.data.labeled))
        count = train_step.steps_per_call(num_steps, most)
        names = setup.metric_names[index]
        traced = stage_shapes.trace_train(train, shapes[index], names, mesh, count=count)
        traced.lower().compile()
    except Exception:
        _LOG.debug("stage %s was not compiled ahead", stage.name, exc_info=True)
