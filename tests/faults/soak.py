"""A long run of a method on a tiny problem, and what the process holds on the way.

`python -m tests.faults.soak METHOD [EPOCHS]` trains in the real loop, with an evaluation after
every epoch and checkpoints, and prints a JSON list of `Sample`s. It is a process of its own, so
that nothing that another method left behind hides what this one takes.
"""

import gc
import json
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import jax

from pujax.training import train_loop
from pujax.training.checkpoint import Checkpoints
from pujax.training.metrics_writer import MetricsWriter
from tests import tiny
from tests.contract import test_methods as contract

EPOCHS = 168
"""Of 12 steps each, or more: 2,016 in all."""

EVERY = 5
"""Epochs between two samples, and between two checkpoints."""

WARM_UP = 10
"""Epochs of every stage within which all programs compile and all buffers are made."""

_COMPILATION = "/jax/core/compile/backend_compile_duration"
_TRACE = "/jax/core/compile/jaxpr_trace_duration"


class Sample(NamedTuple):
    """What the process held after the row of an epoch.

    Attributes:
      epoch: counted from 0 over all stages.
      stage: its name.
      step: steps taken over all stages.
      memory: bytes of anonymous memory, swapped out or not: pages of files, such as those of
        libraries, come and go with the other work on the machine.
      arrays: live JAX arrays.
      programs: compilations so far, those that the cache on disk spared included.
      traces: traces of functions so far.
    """

    epoch: int
    stage: str
    step: int
    memory: int
    arrays: int
    programs: int
    traces: int


class Growth(NamedTuple):
    """What was added after the warm-up of every stage, all stages together.

    Attributes:
      memory: bytes.
      arrays: live arrays.
      programs: compilations.
      traces: traces.
    """

    memory: int
    arrays: int
    programs: int
    traces: int


def config(name: str, epochs: int):
    """The small configuration of a method, its stages and phases stretched over the epochs."""
    quarter = epochs // 4
    phases = {"warmup_epochs": quarter, "pretrain_epochs": 2 * quarter}
    phases |= {"representation_epochs": 2 * quarter, "teacher_start": 3 * quarter}
    phases |= {"pick_start": quarter, "pick_stop": 2 * quarter, "pick_ramp_epochs": quarter}
    run = {"steps_per_dispatch": 3, "progress_seconds": 1e9, "checkpoint_every": EVERY}
    return contract.small(name, num_epochs=epochs, run=run | {"eval_every": 1}, **phases)


def train(name: str, epochs: int, folder: str) -> list[Sample]:
    """Trains; nothing may go to the devices or come from them between the steps of an epoch."""
    counts = {_COMPILATION: 0, _TRACE: 0}
    samples = []

    def count(event, duration, **_):
        if event in counts:
            counts[event] += 1

    append, call, save = MetricsWriter.append, train_loop._call, Checkpoints.save
    saving = set()

    def noted(checkpoints, *args):
        saving.add(checkpoints)
        return save(checkpoints, *args)

    def sampled(writer, row):
        append(writer, row)
        if row["epoch"] % EVERY == EVERY // 2:
            for checkpoints in saving:  # one that is being written holds a copy of the state
                checkpoints.wait()
            gc.collect()  # what only the collector frees is no leak
            here = (_anonymous_memory(), len(jax.live_arrays()), *counts.values())
            samples.append(Sample(row["epoch"], row["stage"], row["step"], *here))

    def guarded(*args):
        with jax.transfer_guard("disallow"):
            call(*args)

    jax.monitoring.register_event_duration_secs_listener(count)
    MetricsWriter.append, train_loop._call, Checkpoints.save = sampled, guarded, noted
    state, rows = tiny.train_in(folder, config(name, epochs), contract.problem(name))
    assert state.is_finished and [row["epoch"] for row in rows] == list(range(epochs))
    return samples


def _anonymous_memory() -> int:
    """Bytes, of Linux alone."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return 1024 * sum(int(fields[name].split()[0]) for name in ("RssAnon", "VmSwap"))


def growth(samples: Sequence[Sample]) -> Growth:
    """What was added after the warm-up of every stage.

    Raises:
      ValueError: if no stage has four samples between its warm-up and its end.
    """
    parts = []
    for stage in dict.fromkeys(sample.stage for sample in samples):
        own = [sample for sample in samples if sample.stage == stage]
        # The row of a stage's last epoch may be written when its batches are gone already.
        own = [sample for sample in own[:-1] if sample.epoch >= own[0].epoch + WARM_UP]
        if len(own) < 4:
            continue
        memory = [int(statistics.median(x.memory for x in part)) for part in (own[:3], own[-3:])]
        numbers = [[getattr(x, k) for x in (own[0], own[-1])] for k in Growth._fields[1:]]
        parts.append([after - before for before, after in (memory, *numbers)])
    if not parts:
        raise ValueError("no stage has four samples between its warm-up and its end")
    return Growth(*map(sum, zip(*parts, strict=True)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        found = train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else EPOCHS, place)
    print(json.dumps(found))
