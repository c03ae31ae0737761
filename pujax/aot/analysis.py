"""Counts of a compiled program: kernels by kind and by part, operations, traffic, collectives."""

import dataclasses
from typing import NamedTuple

from pujax.aot import costs, hlo, parts
from pujax.aot.hlo import Instruction, Module

KINDS = (
    *("fusion", "convolution", "matmul", "copy", "collective"),
    *("while", "conditional", "sort", "custom call", "scalar", "other"),
)
# What names a value, or ends something that another instruction began.
_NO_KERNEL = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "partition-id"),
    *("replica-id", "after-all", "opt-barrier", "add-dependency", "domain", "get-dimension-size"),
}
_ENDINGS = ("-done", "-update")
_NO_KERNEL_TARGETS = ("AllocateBuffer", "Sharding", "MoveToHost", "MoveToDevice")
_COPIES = ("copy", "copy-start", "slice-start", "dynamic-slice-start")


class Kernel(NamedTuple):
    """Something that a device is told to do.

    Attributes:
      kind: one of `KINDS`; 'scalar' computes one number, which a TPU does beside its vector units.
      part: one of `parts.PARTS`.
      in_step: whether it runs in every step, as opposed to once in a call of many steps.
      launches: how often it runs in one run of the body that it is in; loops of a number that is
        not known count once.
      flops: of one launch, see `costs.flops`.
      dtype: of the factors that are multiplied, '' for none.
      num_bytes: of one launch, see `costs.traffic`.
      collective: kind of the exchange, '' for none.
      exchanged: bytes of it.
    """

    kind: str
    part: str
    in_step: bool
    launches: float
    flops: float
    dtype: str
    num_bytes: int
    collective: str
    exchanged: int


@dataclasses.dataclass
class Totals:
    """Sums over kernels, on one device.

    Attributes:
      kernels: instructions that are kernels, of all steps that a body holds.
      launches: how often they run.
      by_kind: kernels of every kind.
      by_part: kernels of every part.
      by_part_and_kind: kernels by part, then by kind.
      flops: by type of the factors.
      num_bytes: read and written.
      collectives: by kind, how many launches and how many bytes in all.
    """

    kernels: float = 0.0
    launches: float = 0.0
    by_kind: dict[str, float] = dataclasses.field(default_factory=dict)
    by_part: dict[str, float] = dataclasses.field(default_factory=dict)
    by_part_and_kind: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    flops: dict[str, float] = dataclasses.field(default_factory=dict)
    num_bytes: float = 0.0
    collectives: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)

    def add(self, kernel: Kernel, share: float) -> None:
        """Counts a kernel as `share` of one."""
        launches = kernel.launches * share
        self.kernels += share
        self.launches += launches
        self.num_bytes += kernel.num_bytes * launches
        _add(self.by_kind, kernel.kind, share)
        _add(self.by_part, kernel.part, share)
        _add(self.by_part_and_kind.setdefault(kernel.part, {}), kernel.kind, share)
        if kernel.flops:
            _add(self.flops, kernel.dtype, kernel.flops * launches)
        if kernel.collective:
            entry = self.collectives.setdefault(kernel.collective, {})
            _add(entry, "launches", launches)
            _add(entry, "bytes", kernel.exchanged * launches)


def _add(sums: dict[str, float], name: str, number: float) -> None:
    sums[name] = sums.get(name, 0.0) + number


class Analysis(NamedTuple):
    """What the text of a program says.

    Attributes:
      per_step: of one training step; None where a program has no steps.
      per_call: of what runs once in a call, outside of the steps.
      unknown_loops: loops of which the compiler does not know how often they run; the host reads a
        number from the device at every turn, and their kernels count once.
    """

    per_step: Totals | None
    per_call: Totals
    unknown_loops: int


def analyse(text: str, *, num_steps: int = 0) -> Analysis:
    """Counts what a program does.

    Args:
      text: optimized HLO.
      num_steps: training steps of one call; 0 for a program that is no training.

    Returns:
      An `Analysis`.

    Raises:
      ValueError: the text is no such module.
    """
    module = hlo.parse(text)
    walk = _Walk(module)
    loop = _loop_over_steps(walk, num_steps) if num_steps > 1 else None
    kernels = walk.kernels(module.entry, loop=loop, in_step=num_steps == 1)
    per_step = Totals() if num_steps else None
    per_call = Totals()
    # A compiler may put several steps into the body of the loop, so that it turns fewer times, and
    # may unroll a short loop whole.
    share = 1.0
    if loop is not None:
        turns = module.trip_count(loop) or num_steps
        share = turns / num_steps if num_steps % turns == 0 else 1.0
    for kernel in kernels:
        if per_step is not None and num_steps > 1 and loop is None:
            per_step.add(kernel, 1 / num_steps)
        elif per_step is not None and kernel.in_step:
            per_step.add(kernel, share)
        else:
            per_call.add(kernel, 1.0)
    return Analysis(per_step, per_call, walk.unknown_loops)


def _is_kernel(line: Instruction) -> bool:
    """Whether it is something to do, as opposed to a name or the end of something."""
    if line.opcode == "custom-call":
        return line.attribute("custom_call_target") not in _NO_KERNEL_TARGETS
    return line.opcode not in _NO_KERNEL and not line.opcode.endswith(_ENDINGS)


def _loop_over_steps(walk: "_Walk", num_steps: int) -> Instruction | None:
    """The loop whose body is the training step: of those outside of others the largest."""
    loops = walk.outer_loops(walk.module.entry)
    turned = [loop for loop in loops if walk.module.trip_count(loop) in (None, num_steps)]
    return max(turned or loops, key=walk.size, default=None)


class _Walk:
    """Goes through the computations that a program runs."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.unknown_loops = 0

    def kernels(
        self,
        computation: str,
        *,
        loop: Instruction | None,
        in_step: bool,
        launches: float = 1.0,
    ) -> list[Kernel]:
        """Kernels of a computation and of what it runs; `loop` is that over the steps."""
        lines = self.module.computations.get(computation, [])
        one, every = costs.first_shapes(lines), {line.name: line.shapes for line in lines}
        found: list[Kernel] = []
        for line in lines:
            if not _is_kernel(line):
                continue
            if line.opcode == "call":
                for name in line.called():
                    found += self.kernels(name, loop=loop, in_step=in_step, launches=launches)
                continue
            kernel = self._kernel(line, one, every)
            found.append(kernel._replace(in_step=in_step, launches=launches))
            if line.opcode == "while":
                found += self._turns(line, loop, in_step, launches)
            elif line.opcode == "conditional":
                found += self._branches(line, loop, in_step, launches)
        return found

    def _turns(
        self, line: Instruction, loop: Instruction | None, in_step: bool, launches: float
    ) -> list[Kernel]:
        """Kernels of a loop's body and of its condition."""
        if line is loop:
            in_step, turns = True, 1
        else:
            known = self.module.trip_count(line)
            self.unknown_loops += known is None
            turns = known or 1
        found = []
        for name in (line.attribute("body"), line.attribute("condition")):
            found += self.kernels(name, loop=loop, in_step=in_step, launches=launches * turns)
        return found

    def _branches(
        self, line: Instruction, loop: Instruction | None, in_step: bool, launches: float
    ) -> list[Kernel]:
        """Kernels of all branches, of which the longest is taken to run."""
        branches = [
            self.kernels(name, loop=loop, in_step=in_step, launches=launches)
            for name in line.called()
        ]
        longest = max(branches, key=len, default=[])
        others = [kernel for branch in branches if branch is not longest for kernel in branch]
        return [*longest, *(kernel._replace(launches=0.0) for kernel in others)]

    def _kernel(self, line: Instruction, one: dict, every: dict) -> Kernel:
        exchange = costs.collective(line)
        has_body = line.opcode in ("while", "conditional")
        flops = 0.0 if has_body else costs.flops(self.module, line, one)
        return Kernel(
            kind=self._kind(line, flops, exchange),
            part=parts.part_of(self.module, line),
            in_step=False,
            launches=1.0,
            flops=flops,
            dtype=costs.matmul_dtype(self.module, line, one) if flops else "",
            num_bytes=0 if has_body else costs.traffic(self.module, line, every),
            collective=exchange,
            exchanged=costs.exchanged(line) if exchange else 0,
        )

    def _kind(self, line: Instruction, flops: float, exchange: str) -> str:
        if exchange:
            return "collective"
        if flops:
            return "convolution" if costs.has_convolution(self.module, line) else "matmul"
        if line.opcode in _COPIES:
            return "copy"
        if line.opcode == "custom-call":
            return "custom call"
        if line.opcode in KINDS:
            return line.opcode
        return "scalar" if all(not shape.dims for shape in line.shapes) else "other"

    def outer_loops(self, computation: str) -> list[Instruction]:
        """Loops of a computation that are in no other loop."""
        loops = []
        for line in self.module.computations.get(computation, []):
            if line.opcode == "while":
                loops.append(line)
            elif line.opcode == "call":
                loops += [loop for name in line.called() for loop in self.outer_loops(name)]
        return loops

    def size(self, line: Instruction) -> int:
        """Instructions in a loop, those of the loops in it among them."""
        lines = self.module.computations.get(line.attribute("body"), [])
        inner = [other for other in lines if other.opcode in ("while", "call", "conditional")]
        nested = sum(len(self.module.computations.get(x, [])) for y in inner for x in y.called())
        return len(lines) + nested
