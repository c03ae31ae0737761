"""Which part of a training step an instruction belongs to, by what JAX wrote beside it.

An instruction has the path of its scopes (`jit(train)/transpose(jvp(PUNet))/backbone/conv1`) and
the lines of the sources that made it. XLA gives a fusion those of one of its operations, its last.
"""

import re

from pujax.aot.hlo import Instruction, Module

FINITE = "finite check and undo"
RANDOM = "augmentation and random numbers"
NORM = "batch norm"
OPTIMIZER = "optimizer"
LOSSES = "losses"
FORWARD = "forward"
BACKWARD = "backward"
OTHER = "other"
PARTS = (FORWARD, BACKWARD, NORM, LOSSES, OPTIMIZER, RANDOM, FINITE, OTHER)

_FINITE = ("_keep_finite", "_is_finite")
_RANDOM_OPS = re.compile(
    r"threefry|random_|rng|jit\(_(?:uniform|normal|normal_real|beta|gamma|randint|shuffle"
    r"|bernoulli|choice|truncated_normal)\)"
)
_NORM_SCOPE = re.compile(r"(?:^|/)[\w.]*(?:norm\d*|BatchNorm\w*|bn\d*)(?:$|/)")
# A module's scope inside of a derivative, `jvp(PUNet)`; a loss outside of modules is `jvp()`.
_IN_MODULE = re.compile(r"jvp\([A-Za-z]\w*\)")
_IN_LOSS = re.compile(r"jvp\((?:\)|jit\(|jvp|transpose|vmap)")
# Folders and files that say what is done in them, and the part.
_FILES = (
    ("/pujax/augment/", RANDOM),
    ("/methods/_common/mixup.py", RANDOM),
    ("/pujax/risks/", LOSSES),
    ("/pujax/contrastive/", LOSSES),
    ("/pujax/meta/", LOSSES),
    ("/pujax/mutual_info/", LOSSES),
    ("/methods/_common/losses.py", LOSSES),
    ("/optax/losses/", LOSSES),
    ("/optax/", OPTIMIZER),
    ("/methods/_common/optimizer.py", OPTIMIZER),
    ("/methods/_common/averaging.py", OPTIMIZER),
)
_MODEL_FILES = ("/pujax/models/", "/flax/")


def part_of(module: Module, line: Instruction) -> str:
    """The part of a step that an instruction is of, one of `PARTS`.

    A fusion without a path of its own counts as what most of its operations are.
    """
    if line.op_name or line.frame:
        return of_operation(line.op_name, module.places(line.frame))
    votes: dict[str, int] = {}
    for name in line.called():
        for inner in module.computations.get(name, ()):
            if inner.op_name or inner.frame:
                part = of_operation(inner.op_name, module.places(inner.frame))
                votes[part] = votes.get(part, 0) + 1
    return max(votes, key=lambda part: votes[part]) if votes else OTHER


def of_operation(op_name: str, places: list[tuple[str, str]]) -> str:
    """The part of an operation.

    Args:
      op_name: path of its scopes.
      places: (file, function) of its line and of the callers, the innermost first; may be empty.
    """
    if any(name in function.split(".") for _, function in places for name in _FINITE):
        return FINITE
    is_backward = "transpose(" in op_name
    in_module = bool(_IN_MODULE.search(op_name))
    if in_module:
        if _NORM_SCOPE.search(op_name):
            return NORM
        return BACKWARD if is_backward else FORWARD
    if _RANDOM_OPS.search(op_name):
        return RANDOM
    for file, function in places:
        if any(folder in file for folder in _MODEL_FILES):
            if "BatchNorm" in function or _NORM_SCOPE.search(op_name):
                return NORM
            return BACKWARD if is_backward else FORWARD
        if function == "normalize":
            return FORWARD  # what every input goes through, augmented or not
        part = next((part for folder, part in _FILES if folder in file), "")
        if part == OPTIMIZER and _IN_LOSS.search(op_name):
            return LOSSES  # the optimizer's function differentiates the loss
        if part:
            return part
        if function.split(".")[-1] == "_views":
            return RANDOM
    if _NORM_SCOPE.search(op_name):
        return NORM
    return LOSSES if _IN_LOSS.search(op_name) else OTHER
