"""A run that lasts takes no more than one that has just begun: memory, arrays, programs."""

import json
import os
import subprocess
import sys

import pytest

from tests.contract import test_methods as contract
from tests.faults import runs, soak

# `classic` is fitted once, before the first step, so that there is nothing that lasts.
METHODS = [name for name in contract.METHODS if name not in contract.FITTED]
# Bytes. Rows stay in memory, and the allocator keeps some of what a checkpoint took for a while.
MOST_MEMORY = 16 * 2**20


def samples(name, epochs):
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1", "PYTHONPATH": str(runs.REPOSITORY)}
    result = subprocess.run(
        [sys.executable, "-m", "tests.faults.soak", name, str(epochs)],
        cwd=runs.REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return [soak.Sample(*sample) for sample in json.loads(result.stdout.splitlines()[-1])]


def check(name, epochs):
    taken = samples(name, epochs)
    grown = soak.growth(taken)
    first, last = taken[0], taken[-1]
    print(
        f"{name}: {last.step} steps, memory {last.memory / 2**20:.0f} MiB, "
        f"{grown.memory / 2**20:+.1f} after warm-up, arrays {last.arrays}, {grown.arrays:+d}, "
        f"compilations {last.programs}, {grown.programs:+d}, traces {grown.traces:+d}"
    )
    assert (first.epoch, last.epoch) == (2, epochs - 1 - (epochs - 3) % soak.EVERY)
    assert grown.memory < MOST_MEMORY
    assert (grown.arrays, grown.programs, grown.traces) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_two_thousand_steps_take_no_more_than_a_few(name):
    check(name, soak.EPOCHS)


@pytest.mark.thorough
def test_some_hundred_steps_of_two_stages_take_no_more_than_a_few():
    check("dist_pu", 64)


def made(number, **changes):
    fields = {"epoch": 5 * number, "stage": "train", "step": 60 * number, "memory": 2**30}
    return soak.Sample(**fields | {"arrays": 50, "programs": 9, "traces": 20} | changes)


def test_growth_counts_what_comes_after_the_warm_up_of_every_stage():
    early = [made(i, memory=2**20 * i, arrays=i, programs=i, traces=i) for i in range(2)]
    flat = [*early, *(made(i) for i in range(2, 8))]
    assert soak.growth(flat) == (0, 0, 0, 0)
    later = [x._replace(stage="later", programs=40, arrays=70, memory=2**31) for x in flat]
    assert soak.growth([*flat, *later]) == (0, 0, 0, 0)
    grows = [
        x._replace(memory=x.memory + 100 * i, arrays=50 + i, programs=9 + i, traces=20 + 2 * i)
        for i, x in enumerate(later)
    ]
    assert soak.growth([*flat, *grows]) == (200, 4, 4, 8)
    with pytest.raises(ValueError, match="no stage has"):
        soak.growth(flat[:5])
