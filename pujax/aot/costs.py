"""What an instruction of optimized HLO costs: multiplications, memory traffic, bytes exchanged.

Floating-point operations are those of convolutions and matrix products, a multiplication and an
addition each, since a step has hardly others. Bytes are those that a kernel must read and write in
the device's main memory if nothing stays in a cache.
"""

import math
import re

from pujax.aot.hlo import Instruction, Module, Shape

_CUDNN = "__cudnn$conv"
_MATMULS = ("__cublas$", "__onednn$matmul", "__cpu$matmul")
_SLICES = ("dynamic-slice", "gather", "slice")
COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "ragged-all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
)


def flops(module: Module, line: Instruction, shapes: dict[str, Shape]) -> float:
    """Operations of convolutions and matrix products, those inside of a fusion among them.

    Args:
      module: the program.
      line: the instruction.
      shapes: the first array of every instruction of its computation.
    """
    target = line.attribute("custom_call_target")
    if line.opcode == "dot" or target.startswith(_MATMULS):
        return _matmul_flops(line, shapes)
    if line.opcode == "convolution" or target.startswith(_CUDNN):
        return _convolution_flops(line, shapes, target)
    if line.opcode in ("fusion", "call", "async-start"):
        return sum(
            flops(module, inner, first_shapes(lines))
            for lines in _called(module, line)
            for inner in lines
        )
    return 0.0


def matmul_dtype(module: Module, line: Instruction, shapes: dict[str, Shape]) -> str:
    """Type of the factors in the first convolution or matrix product in it; '' without one."""
    target = line.attribute("custom_call_target")
    if line.opcode in ("dot", "convolution") or target.startswith((_CUDNN, *_MATMULS)):
        known = [shapes[name].dtype for name in line.operands[:2] if name in shapes]
        # A mask that is a factor takes the type of the other one.
        real = [dtype for dtype in known if dtype.startswith(("f", "bf"))]
        return (real or known or [line.shapes[0].dtype])[0]
    if line.opcode in ("fusion", "call", "async-start"):
        for lines in _called(module, line):
            inner = first_shapes(lines)
            found = (matmul_dtype(module, other, inner) for other in lines)
            if dtype := next(filter(None, found), ""):
                return dtype
    return ""


def has_convolution(module: Module, line: Instruction) -> bool:
    """Whether it is, or holds, a convolution over at least one axis of space."""
    if line.attribute("custom_call_target").startswith(_CUDNN):
        return True
    if line.opcode == "convolution":
        return any(label.isdigit() for label in line.attribute("dim_labels"))
    if line.opcode in ("fusion", "call", "async-start"):
        inner = (other for lines in _called(module, line) for other in lines)
        return any(has_convolution(module, other) for other in inner)
    return False


def first_shapes(lines: list[Instruction]) -> dict[str, Shape]:
    """The first array of every instruction's result, by name."""
    return {line.name: line.shapes[0] for line in lines if line.shapes}


def _called(module: Module, line: Instruction) -> list[list[Instruction]]:
    return [module.computations.get(name, []) for name in line.called()]


def _matmul_flops(line: Instruction, shapes: dict[str, Shape]) -> float:
    left = shapes.get(line.operands[0]) if line.operands else None
    if left is None:
        return 0.0
    text = line.attribute("lhs_contracting_dims")
    if not text:  # of a library call, which has them in its settings
        found = re.search(r'"lhs_contracting_dimensions":\["?(\d+)', line.attributes)
        text = found[1] if found else str(len(left.dims) - 1)
    contracted = math.prod(left.dims[int(axis)] for axis in re.findall(r"\d+", text))
    return 2.0 * line.shapes[0].size * contracted


def _convolution_flops(line: Instruction, shapes: dict[str, Shape], target: str) -> float:
    """Twice the products of a kernel element with an element of the input that is there.

    Products with padding, and with the zeros that a dilation puts between elements, are not
    counted: they are no part of the task, whatever a compiler makes of them.
    """
    operands = [shapes[name] for name in line.operands[:2] if name in shapes]
    if len(operands) < 2:
        return 0.0
    inputs, kernel, result = operands[0], operands[1], line.shapes[0]
    # The labels of cuDNN's gradients are those of the convolution forward.
    if target.endswith("BackwardInput"):
        inputs, result = result, inputs
    elif target.endswith("BackwardFilter"):
        kernel, result = result, kernel
    labels = re.match(r"(\w+)_(\w+)->(\w+)", line.attribute("dim_labels"))
    if labels is None:
        return 0.0
    of_inputs, of_kernel, of_result = labels.groups()
    window = dict(re.findall(r"(\w+)=([\dx_\-]+)", line.attribute("window")))
    pairs = 1.0
    for axis in sorted(filter(str.isdigit, of_result)):
        pairs *= _pairs(
            inputs.dims[of_inputs.index(axis)],
            kernel.dims[of_kernel.index(axis)],
            result.dims[of_result.index(axis)],
            {name: text.split("x")[int(axis)] for name, text in window.items()},
        )
    # Kernels of grouped convolutions hold the features of one group.
    features = kernel.dims[of_kernel.index("i")]
    groups = int(line.attribute("batch_group_count") or 1)
    outer = result.dims[of_result.index("b")] * result.dims[of_result.index("f")]
    return 2.0 * pairs * features * outer / groups


def _pairs(size: int, kernel: int, outputs: int, window: dict[str, str]) -> int:
    """How many (output, kernel element) along an axis meet an element of the input."""
    stride = int(window.get("stride", 1))
    low = int(window.get("pad", "0_0").split("_")[0])
    between, apart = int(window.get("lhs_dilate", 1)), int(window.get("rhs_dilate", 1))
    count = 0
    for offset in range(kernel):
        places = (output * stride + offset * apart - low for output in range(outputs))
        count += sum(
            0 <= place <= (size - 1) * between and place % between == 0 for place in places
        )
    return count


def traffic(module: Module, line: Instruction, shapes: dict[str, tuple[Shape, ...]]) -> int:
    """Bytes read and written in main memory.

    Of an array of which a kernel only takes slices, those count; of one that it changes in part,
    what it writes. Arrays that a TPU keeps on the chip do not count.

    Args:
      module: the program.
      line: the instruction.
      shapes: the arrays of every instruction of its computation.
    """
    read, written = _moved(module, line)
    total = written
    for index, name in enumerate(line.operands):
        arrays = shapes.get(name, ())
        total += read.get(index, sum(_outside(array) for array in arrays))
    return total


def _moved(module: Module, line: Instruction) -> tuple[dict[int, int], int]:
    """Bytes read of the operands that are not read whole, by index, and bytes written."""
    written = sum(map(_outside, line.shapes))
    if line.opcode in _SLICES:
        return {0: written}, written
    if line.opcode in ("dynamic-update-slice", "scatter"):
        return {0: 0}, _update_bytes(line, {}, written)
    if line.opcode != "fusion":
        return {}, written
    lines = next(iter(_called(module, line)), [])
    arrays = first_shapes(lines)
    users: dict[str, list[Instruction]] = {}
    for other in lines:
        for name in other.operands:
            users.setdefault(name, []).append(other)
    read = {}
    for other in lines:
        if other.opcode != "parameter":
            continue
        uses = users.get(other.name, [])
        if all(use.opcode in _SLICES and use.operands[0] == other.name for use in uses):
            taken = sum(use.shapes[0].num_bytes for use in uses)
            whole = sum(shape.num_bytes for shape in other.shapes)
            read[int(other.arguments)] = min(taken, whole)
        elif all(_is_target(use, other.name) for use in uses):
            read[int(other.arguments)] = 0
    root = next((other for other in lines if other.is_root), None)
    if root is not None and root.opcode == "dynamic-update-slice":
        written = _update_bytes(root, arrays, written)
    return read, written


def _is_target(use: Instruction, name: str) -> bool:
    """Whether it changes the array in place."""
    in_place = use.is_root and use.opcode == "dynamic-update-slice"
    return in_place and use.operands[0] == name and name not in use.operands[1:]


def _update_bytes(line: Instruction, arrays: dict[str, Shape], written: int) -> int:
    """Bytes of the part that is written, or all where it is not known."""
    part = arrays.get(line.operands[1]) if len(line.operands) > 1 else None
    return min(written, part.num_bytes) if part else written


def _outside(shape: Shape) -> int:
    """Bytes in the device's main memory."""
    return 0 if shape.space else shape.num_bytes


def collective(line: Instruction) -> str:
    """Which of `COLLECTIVES` it begins; '' for what is none, or ends one."""
    name = line.opcode.removesuffix("-start")
    if line.opcode == "async-start":
        name = next((kind for kind in COLLECTIVES if kind in line.attributes), "")
    return name if name in COLLECTIVES else ""


def exchanged(line: Instruction) -> int:
    """Bytes of the array that a collective exchanges, on one device: the larger of both sides."""
    arrays = [shape for shape in line.shapes if shape.dims or len(line.shapes) == 1]
    # `-start` of most has what goes in and what comes out, one after the other.
    is_pair = line.opcode.endswith("-start") and line.opcode != "all-reduce-start"
    if is_pair and len(line.operands) * 2 <= len(arrays):
        count = len(line.operands)
        sides = (arrays[:count], arrays[count : 2 * count])
        return max(sum(shape.num_bytes for shape in side) for side in sides)
    return sum(shape.num_bytes for shape in line.shapes)
