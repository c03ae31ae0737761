"""Reads the text of an optimized HLO module: computations, instructions, shapes, places in sources.

The text is the one thing that all of XLA's compilers give. What is read here is what
`jax.stages.Compiled.as_text` prints for CPUs, NVIDIA GPUs and TPUs.
"""

import math
import re
from typing import NamedTuple

_BITS = {"pred": 8, "token": 0, "opaque": 0, "s4": 4, "u4": 4, "bf16": 16, "c64": 64, "c128": 128}
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=\s]*)\](?:\{([^{}]*)\})?")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(
    r"^\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][a-z0-9\-]*)\((.*?)\)(?:, (.*))?$"
)
_CALLED = re.compile(
    r"\b(?:calls|body|condition|to_apply|called_computations|branch_computations"
    r"|true_computation|false_computation)=(\{[^}]*\}|%[\w.\-]+)"
)
_NAME = re.compile(r"%([\w.\-]+)")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_TABLE = re.compile(r"^(FileNames|FunctionNames|FileLocations|StackFrames)$")
_NUMBER = re.compile(r"(\w+)=(\d+)")


class Shape(NamedTuple):
    """Type of an array.

    Attributes:
      dtype: as HLO writes it, 'bf16' for example.
      dims: its dimensions.
      space: 0 where the array is in the device's main memory, else a memory of the chip.
    """

    dtype: str
    dims: tuple[int, ...]
    space: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    @property
    def num_bytes(self) -> int:
        """Bytes without the padding of a layout."""
        bits = _BITS.get(self.dtype)
        if bits is None:
            digits = re.match(r"[a-z]+(\d+)", self.dtype)  # f32, s8, f8e4m3fn
            bits = int(digits[1]) if digits else 0
        return -(-self.size * bits // 8)


class Instruction(NamedTuple):
    """One line of a computation.

    Attributes:
      name: unique in the module.
      shapes: arrays of the result, those of a tuple one after another.
      opcode: 'fusion', 'all-reduce-start' and so on.
      operands: names of instructions of the same computation.
      arguments: what is between the parentheses after the opcode.
      attributes: the rest of the line.
      is_root: whether it is the result of its computation.
    """

    name: str
    shapes: tuple[Shape, ...]
    opcode: str
    operands: tuple[str, ...]
    arguments: str
    attributes: str
    is_root: bool

    @property
    def op_name(self) -> str:
        """What JAX called the operation: the path of its scopes; '' where nothing says it."""
        found = _OP_NAME.search(self.attributes)
        return found[1] if found else ""

    @property
    def frame(self) -> int:
        """Number of the place in the sources, see `Module.places`; 0 for none."""
        found = _FRAME.search(self.attributes)
        return int(found[1]) if found else 0

    def called(self) -> list[str]:
        """Names of the computations that it runs or applies."""
        return [name for group in _CALLED.findall(self.attributes) for name in _NAME.findall(group)]

    def attribute(self, name: str) -> str:
        """Value of an attribute such as `body` or `custom_call_target`, without signs around it."""
        found = re.search(rf'\b{name}=(?:"([^"]*)"|\{{([^}}]*)\}}|%?([^\s,]+))', self.attributes)
        return next((part for part in found.groups() if part is not None), "") if found else ""


class Module(NamedTuple):
    """A compiled program.

    Attributes:
      computations: instructions by computation, in the order that they run in.
      entry: name of the computation that the program is.
      frames: by number the file, the function, and the number of the caller's frame or 0.
    """

    computations: dict[str, list[Instruction]]
    entry: str
    frames: dict[int, tuple[str, str, int]]

    def places(self, frame: int) -> list[tuple[str, str]]:
        """(file, function) of the line that made an instruction, then of its callers."""
        places = []
        while frame in self.frames:
            file, function, parent = self.frames[frame]
            places.append((file, function))
            frame = parent if parent != frame else 0
        return places

    def trip_count(self, loop: Instruction) -> int | None:
        """How often the body of a `while` runs; None where that is not known before it runs."""
        found = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.attributes)
        if found:
            return int(found[1])
        pending, limits = [loop.attribute("condition")], set()
        while pending:
            for line in self.computations.get(pending.pop(), ()):
                pending += line.called()
                if line.opcode == "constant" and line.arguments.isdigit():
                    limits.add(int(line.arguments))
                elif line.opcode not in ("parameter", "compare", "fusion", "get-tuple-element"):
                    limits.add(-1)  # something is computed, so that it is no plain counter
        # A counter from 0 against one constant, which is what `lax.scan` and `fori_loop` make.
        return limits.pop() if len(limits) == 1 and min(limits) > 0 else None


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """The arrays of a type: of `f32[2,3]{1,0}` or of a tuple, nested or not."""
    shapes = []
    for dtype, dims, layout in _ARRAY.findall(text):
        space = re.search(r"S\((\d+)\)", layout)
        sizes = tuple(int(size) for size in re.findall(r"\d+", dims))
        shapes.append(Shape(dtype, sizes, int(space[1]) if space else 0))
    return tuple(shapes)


def parse(text: str) -> Module:
    """Reads a module.

    Args:
      text: as `jax.stages.Compiled.as_text` gives it.

    Returns:
      A `Module`.

    Raises:
      ValueError: the text has no entry computation.
    """
    computations: dict[str, list[Instruction]] = {}
    tables: dict[str, dict[int, str]] = {}
    entry, table, lines = "", "", None
    for line in text.splitlines():
        if lines is not None and line.startswith("}"):
            lines = None
        elif lines is not None:
            instruction = _instruction(line)
            if instruction:
                lines.append(instruction)
        elif head := _HEAD.match(line):
            lines = computations[head[2]] = []
            entry = head[2] if head[1] else entry
            table = ""
        elif _TABLE.match(line):
            table = line
            tables[table] = {}
        elif table and (row := re.match(r"^(\d+) (.*)$", line)):
            tables[table][int(row[1])] = row[2]
    if not entry:
        raise ValueError("the text has no ENTRY computation; accepted: an optimized HLO module")
    return Module(computations, entry, _frames(tables))


def _instruction(line: str) -> Instruction | None:
    found = _INSTRUCTION.match(line)
    if not found:
        return None
    root, name, shape, opcode, arguments, attributes = found.groups()
    return Instruction(
        name=name,
        shapes=parse_shapes(shape),
        opcode=opcode,
        operands=tuple(_NAME.findall(arguments)),
        arguments=arguments,
        attributes=attributes or "",
        is_root=bool(root),
    )


def _frames(tables: dict[str, dict[int, str]]) -> dict[int, tuple[str, str, int]]:
    """The frames of the tables in front of a module, which older versions of XLA do not print."""
    files, functions, locations, frames = (
        tables.get(name, {})
        for name in ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
    )
    numbers = {i: _numbers(row) for i, row in frames.items()}
    # The text counts parents from 1, where 1 is no parent, so that a first frame is its own.
    shift = 1 if any(row.get("parent_frame_id") == i for i, row in numbers.items()) else 0
    result = {}
    for i, row in numbers.items():
        place = _numbers(locations.get(row.get("file_location_id", 0), ""))
        file = files.get(place.get("file_name_id", 0), "").strip('"')
        function = functions.get(place.get("function_name_id", 0), "").strip('"')
        result[i] = (file, function, row.get("parent_frame_id", shift) - shift)
    return result


def _numbers(row: str) -> dict[str, int]:
    return {name: int(value) for name, value in _NUMBER.findall(row)}
