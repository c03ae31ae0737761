"""Programs of training steps as the loop has them, and times with all launches queued."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.monitoring
from jax.sharding import Mesh

from benchmarks.accelerator_parts import results
from benchmarks.accelerator_parts.problems import Problem
from pujax import accelerator
from pujax.aot import analysis
from pujax.data import pu_dataset
from pujax.training import seed_axis, train_step
from pujax.training.train_step import Carry

_TINY_STEPS_PER_CALL = 2
_ROUND_SECONDS = 0.5
_ROUNDS = 3
_HIT = "/jax/compilation_cache/cache_hits"
_hits: list[str] = []
jax.monitoring.register_event_listener(lambda event, **_: event == _HIT and _hits.append(event))


def seconds_per_call(call: Callable[[], Any], *, tiny: bool) -> float:
    """Median over rounds of the time of one call, of many that are queued before one is waited for.

    Args:
      call: computes on the device and returns arrays of it.
      tiny: two calls are enough.
    """
    jax.block_until_ready(call())  # compiles
    start = time.perf_counter()
    jax.block_until_ready(call())
    once = time.perf_counter() - start
    count = 1 if tiny else max(1, min(round(_ROUND_SECONDS / max(once, 1e-7)), 10000))
    times = []
    for _ in range(1 if tiny else _ROUNDS):
        start = time.perf_counter()
        last = None
        for _ in range(count):
            last = call()
        jax.block_until_ready(last)
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)


class StageProgram:
    """The program of one stage, of one seed or several.

    Attributes:
      name: of the stage.
      count: steps of a call.
      batch_size: of one seed.
      num_seeds: in the program.
    """

    def __init__(self, name, train, carry, arguments, at, count, batch_size, num_seeds):
        self.name, self.count = name, count
        self.batch_size, self.num_seeds = batch_size, num_seeds
        self._train, self._carry, self._arguments, self._at = train, carry, arguments, at
        self._compiled: Any = None

    @property
    def state(self) -> Any:
        """The state at the end of the last call."""
        return self._carry.state

    def call(self) -> Any:
        """Runs the steps of a call; the carry's sums, which the device may still compute."""
        given = (self._carry, *self._arguments, *self._at)
        self._carry = self._train(*given, count=self.count)
        return self._carry.sums

    def compile(self) -> dict[str, Any]:
        """Compiles the program, and says what the compiler says about it."""
        before, start = len(_hits), time.perf_counter()
        lowered = self._train.lower(self._carry, *self._arguments, *self._at, count=self.count)
        traced = time.perf_counter() - start
        compiled = lowered.compile()
        found = {
            "trace_seconds": traced,
            "compile_seconds": time.perf_counter() - start - traced,
            "found_in_cache": len(_hits) > before,
        }
        memory = compiled.memory_analysis()
        if memory is not None:
            found |= {
                "argument_bytes": memory.argument_size_in_bytes,
                "temporary_bytes": memory.temp_size_in_bytes,
            }
        self._compiled = compiled
        return found

    def _flops(self) -> dict[str, Any]:
        """FLOPs of a step, or why they are not known: the times are worth more than the count."""
        try:
            return {"flops": flops_per_step(self._compiled.as_text(), self.count)}
        except Exception as error:  # of a plugin that shows no text, or one in another form
            return {"flops": None, "flops_unknown": f"{type(error).__name__}: {error}"[:400]}

    def measure(self, peak: float | None, *, tiny: bool) -> dict[str, Any]:
        """Everything about the program: what `compile` says, times, and steps that were undone.

        Args:
          peak: FLOP per second of a large product in the same precision, if known.
          tiny: whether times count for nothing.
        """
        found: dict[str, Any] = {"stage": self.name, "seeds": self.num_seeds}
        found |= {"steps_per_call": self.count} | self.compile()
        step = seconds_per_call(self.call, tiny=tiny) / self.count
        sums = jax.device_get(self._carry.sums)
        stats = jax.local_devices()[0].memory_stats() or {}
        found |= self._flops()
        return found | {
            "step_seconds": step,
            "steps_per_second": 1 / step,
            "images_per_second": self.num_seeds * self.batch_size / step,
            "share_of_peak": share_of_peak(found["flops"], step, peak),
            # Of the process so far, other parts included.
            "process_peak_bytes": stats.get("peak_bytes_in_use"),
            # With those that the method itself leaves out: they cost as much.
            "finished_steps": float((sums["steps"] + sums.get("skipped", 0)).sum()),
            "undone_steps": float(sums["nonfinite"].sum()),
        }


def flops_per_step(text: str, count: int) -> float | None:
    """FLOPs of a step in convolutions and matrix products, as `pujax compile` counts them.

    XLA's own count leaves out what a GPU program calls of cuDNN, which are all its convolutions.

    Args:
      text: optimized HLO of a program.
      count: steps of a call.

    Returns:
      None where none is found, which says that they are not known.
    """
    found = analysis.analyse(text, num_steps=count).per_step
    assert found is not None
    return sum(found.flops.values()) or None


def share_of_peak(flops: float | None, seconds: float, peak: float | None) -> float | None:
    """FLOPs over time over what the device can do, None where that is not known."""
    return flops / seconds / peak if peak and flops else None


def measured_peak(out: str, dtype: str) -> float | None:
    """FLOP per second of the part `device`, if it has run."""
    entry = results.load(out, "device") or {}
    return entry.get("values", {}).get("peak_flops", {}).get(dtype)


def stage_programs(
    problems: Sequence[Problem], mesh: Mesh, *, tiny: bool
) -> Iterator[StageProgram]:
    """The programs of the stages that train on images, one after another, as a run has them.

    A stage that trains on features (`Stage.encode`) is left out, and what follows it.

    Args:
      problems: one, or several seeds of the same experiment.
      mesh: devices.
      tiny: two steps a call.
    """
    setups, streamed = [problem.setup for problem in problems], problems[0].streamed
    first = setups[0]
    methods = [
        first.method if setup.data.info == first.data.info else setup.method for setup in setups
    ]
    if len(methods) > 1:
        methods = seed_axis.share_methods(methods, first.data.training_data())
    data = seed_axis.put([pu_dataset.flat(setup.data.training_data()) for setup in setups], mesh)
    seeds = [setup.config.seed for setup in setups]
    key = train_step.run_key(seeds[0] if len(seeds) == 1 else seeds, mesh)
    packed = accelerator.few_kernels(first.config.run.few_kernels)
    state, epoch = None, 0
    for index, stages in enumerate(zip(*(method.stages for method in methods), strict=True)):
        stage = seed_axis.join_stages(stages)
        if stage.encode is not None:
            return
        init_key = train_step.stage_key(key, train_step.INIT, index)
        state = train_step.init_state(stage, init_key, state, data, mesh)
        sums = train_step.zero_sums(first.metric_names[index], mesh, num_seeds=len(setups))
        plan = train_step.epoch_plan(stage, key, epoch, data)
        train = train_step.make_train(
            stage, mesh, first_epoch=epoch, streamed=streamed, packed=packed
        )
        size = stage.batching.batch_size
        seen = data._replace(inputs=data.inputs[:size]) if streamed else data
        num_steps = stage.batching.steps_per_epoch(len(first.data.labeled))
        count = train_step.steps_per_call(num_steps, 1 if streamed else train_step.STEPS_PER_CALL)
        if tiny and not streamed:
            count = _TINY_STEPS_PER_CALL
        at: tuple[int, ...] = (epoch, 0, 0) if count == 1 else (epoch, 0, 0, count)
        program = StageProgram(
            *(stage.name, train, Carry(state, sums), (seen, plan, key), at, count),
            *(size, len(setups)),
        )
        yield program
        state, epoch = program.state, epoch + stage.num_epochs
