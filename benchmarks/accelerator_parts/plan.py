"""The parts in order of value, with what they cost on one accelerator, and the budget of a call."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Part(NamedTuple):
    """One measurement.

    Attributes:
      name: of its file; what comes before the first '-' chooses all parts of a kind.
      seconds: stated cost on one accelerator, compilation included; what a part that continues
        needs at least.
      what: one sentence.
      function: 'module:function' in this package.
      options: arguments of the function.
      flags: XLA_FLAGS of its process; parts with the same share one.
      continues: whether it uses all the time there is, and goes on in the next call.
    """

    name: str
    seconds: float
    what: str
    function: str
    options: dict[str, Any] = {}
    flags: str = ""
    continues: bool = False


# Of GPUs; each is one change from what JAX does by itself. An unknown one ends the process.
FLAGS = {
    "no_command_buffers": "--xla_gpu_enable_command_buffer=",
    "more_command_buffers": "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,"
    "CUDNN,COLLECTIVES,CONDITIONAL,WHILE --xla_gpu_graph_min_graph_size=1",
    "latency_hiding": "--xla_gpu_enable_latency_hiding_scheduler=true",
    "no_autotuning": "--xla_gpu_autotune_level=0",
    "no_triton_gemm": "--xla_gpu_enable_triton_gemm=false",
}


def _step(name: str, network: str, dtype: str, few: str, seconds: float, what: str) -> Part:
    options = {"network": network, "dtype": dtype, "few_kernels": few}
    return Part(name, seconds, what, "steps:run", options)


def all_parts(*, tiny: bool = False) -> list[Part]:
    """Every part, the most valuable first.

    Args:
      tiny: for a dry run, which leaves out the flags: they are about GPUs, and would start a
        process each.
    """
    lagam = "LaGAM, CIFAR-10-1, ResNet-18, batch 64, {}"
    parts = [
        Part(
            *("device", 60, "versions, memory, products, copies and launches", "device:run"),
        ),
        _step("step-bfloat16", "lagam", "bfloat16", "on", 120, lagam.format("bfloat16")),
        _step("step-float32", "lagam", "float32", "on", 120, lagam.format("float32")),
    ]
    for dtype in ("bfloat16", "float32"):
        what = lagam.format(f"{dtype}, run.few_kernels=off")
        parts.append(_step(f"step-{dtype}-many", "lagam", dtype, "off", 120, what))
    parts.append(
        Part("profile", 75, "kernels of LaGAM's main stage, by time", "profile:run"),
    )
    for name, flags in FLAGS.items():
        part = _step(f"flags-{name}", "lagam", "bfloat16", "on", 75, f"main stage with {flags}")
        options = part.options | {"only_stage": "main", "needs": "gpu"}
        parts.append(part._replace(flags="" if tiny else flags, options=options))
    for network, seconds, what in (
        ("impulses", 90, "ImPULSeS, ResNet-50 at 224 pixels, pretraining, {}"),
        ("pu_mlc", 150, "PU-MLC, ResNet-101 with LgConv at 448 pixels, {}"),
        ("gradpu", 30, "GradPU, MNIST, dense layers, {}"),
        ("ncpu", 90, "NcPU, CIFAR-10, ResNet-18, batch 256, {}"),
    ):
        for dtype in ("bfloat16", "float32"):
            name = f"{network}-{dtype}"
            parts.append(_step(name, network, dtype, "on", seconds, what.format(dtype)))
    for network, seconds in (("gradpu", 75), ("lagam", 240)):
        what = f"1, 3 and 8 seeds of {network} in one program"
        parts.append(Part(f"seeds-{network}", seconds, what, "seeds:run", {"network": network}))
    return [
        *parts,
        Part("kmeans", 45, "k-means of 49,500 embeddings, 100 and 5 clusters", "operations:kmeans"),
        Part("augment", 60, "random views of a batch", "operations:views"),
        Part("evaluate", 45, "scores of 50,000 images", "operations:evaluation"),
        Part(
            *("train-lagam", 120, "LaGAM CIFAR-10-1, as many epochs as fit", "training:lagam"),
            continues=True,
        ),
        Part(
            *("train-ncpu", 120, "NcPU CIFAR-10, as many epochs as fit", "training:ncpu"),
            continues=True,
        ),
        Part(
            *("train-gradpu_table1", 90, "GradPU's Table 1, all seeds at once", "training:table1"),
            continues=True,
        ),
    ]


def choose(parts: Sequence[Part], text: str) -> list[Part]:
    """The parts that a list of names or kinds means, in their own order.

    Args:
      parts: all parts.
      text: 'step,kmeans'; '' is all.

    Raises:
      ValueError: for a name that is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    kinds = list(dict.fromkeys(part.name.partition("-")[0] for part in parts))
    for name in names:
        if name not in kinds and all(part.name != name for part in parts):
            raise ValueError(
                f"--part is {name!r}; accepted: {', '.join(kinds)}, or a name from --list"
            )
    return [p for p in parts if not names or {p.name, p.name.partition("-")[0]} & set(names)]


class Budget:
    """The time of this call.

    Args:
      seconds: how long it may take.
      clock: seconds from any origin; replaced in tests.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._end = clock() + seconds

    def left(self) -> float:
        """Seconds left, 0 or more."""
        return max(self._end - self._clock(), 0.0)

    def fits(self, part: Part) -> bool:
        """Whether a part may begin."""
        return part.seconds <= self.left()
