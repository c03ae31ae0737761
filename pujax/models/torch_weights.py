"""Pretrained residual networks of torchvision, read from a local file into ours.

The networks are `resnet*_v1` of `models.NAMES`; files hold a state dict with torchvision's names,
which timm's ResNets share. Nothing is ever downloaded. With `i`, `j` and `k` counted from 1:

| in the file                         | in ours                                            |   |
|-------------------------------------|----------------------------------------------------|---|
| `conv1.weight`                      | `params/stem/kernel`                               | a |
| `bn1.*`                             | `*/stem_norm/*`                                    | b |
| `layer{i}.{j-1}.conv{k}.weight`     | `params/stage{i}_block{j}/conv{k}/kernel`          | a |
| the same, where it is an `LgConv`   | `params/stage{i}_block{j}/conv{k}/conv/kernel`     | a |
| `layer{i}.{j-1}.bn{k}.*`            | `*/stage{i}_block{j}/norm{k}/*`                    | b |
| `layer{i}.{j-1}.downsample.0.weight`| `params/stage{i}_block{j}/shortcut/kernel`         | a |
| `layer{i}.{j-1}.downsample.1.*`     | `*/stage{i}_block{j}/shortcut_norm/*`              | b |
| `fc.*`, `*.num_batches_tracked`     | left out                                           |   |

a. From [out, in, height, width] to [height, width, in, out].
b. `weight`, `bias` become `params/.../scale`, `bias`; `running_mean`, `running_var` become
   `batch_stats/.../mean`, `var`.

A `module.` before every name is taken off. Numbers become float32. The global branches of an
`LgConv` are in no such file and keep their first values (`encoder.put`).
"""

import os
import re

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from pujax import reading
from pujax.models import resnet_v1
from pujax.models.encoder import Encoder
from pujax.models.lgconv import GLOBAL_BRANCH

SUFFIXES = (".safetensors", ".npz", ".pth", ".pt")
_PREFIX = "module."  # of a network that was saved inside of torch's DataParallel
_IGNORED = re.compile(r"fc\..*|.*\.num_batches_tracked")
_NUM_NAMED = 3
_LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}


def load(path: str, backbone: resnet_v1.PostActResNet) -> Encoder:
    """Reads pretrained weights.

    Args:
      path: of a `.safetensors` or `.npz` file with torchvision's names, or of a `.pth` or `.pt`
        file that `torch.save(model.state_dict(), path)` wrote, which needs torch installed.
      backbone: the network to read for, with the "imagenet" stem and three channels.

    Returns:
      Its numbers as nested dicts of float32 arrays on the host, without the global branches.

    Raises:
      ValueError: if the network is of another kind, there is no such file, it is not what its
        ending says, or its arrays are not those of the network: all that are missing, unexpected or
        of another shape are counted, and the first of each named. Likewise for a number that is
        not finite, and a variance below 0.
      OSError: if the file cannot be read.
    """
    if not isinstance(backbone, resnet_v1.PostActResNet):
        raise ValueError(
            f"backbone is a {type(backbone).__name__}; accepted: resnet18_v1, resnet50_v1,"
            " resnet101_v1, the networks that torchvision's weights fit"
        )
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"file of weights is {path!r}; accepted: *{', *'.join(SUFFIXES)}")
    if not os.path.isfile(path):
        raise ValueError(f"file of weights is {path!r}; accepted: a local file that exists")
    read = {".safetensors": _read_safetensors, ".npz": _read_npz}.get(suffix, _read_torch)
    arrays = read(path)
    if arrays and all(name.startswith(_PREFIX) for name in arrays):
        arrays = {name.removeprefix(_PREFIX): array for name, array in arrays.items()}
    arrays = {name: array for name, array in arrays.items() if not _IGNORED.fullmatch(name)}

    ours = expected(backbone)
    _check(path, dict(ours.values()), arrays, backbone.stem)
    flat = {place: _to_ours(arrays[name]) for place, (name, _) in ours.items()}
    for place, (name, _) in ours.items():
        _check_numbers(path, name, flat[place])
    trees = traverse_util.unflatten_dict(flat)
    return Encoder(trees["params"], trees["batch_stats"])


def expected(backbone: resnet_v1.PostActResNet) -> dict[tuple[str, ...], tuple[str, tuple]]:
    """What a file for this network must hold.

    Args:
      backbone: the network.

    Returns:
      By the path of every array, `("params", "stem", "kernel")` and so on, its name in the file and
      its shape there.
    """
    inputs = jax.ShapeDtypeStruct((1, 64, 64, 3), jnp.float32)
    shapes = jax.eval_shape(lambda key, x: backbone.init(key, x, False), jax.random.key(0), inputs)
    return {
        place: (_torch_name(place[1:]), _torch_shape(leaf.shape))
        for place, leaf in traverse_util.flatten_dict(shapes).items()
        if GLOBAL_BRANCH not in place
    }


def _torch_name(place: tuple[str, ...]) -> str:
    """`("stage1_block2", "norm3", "scale")` as `layer1.1.bn3.weight`."""
    *modules, leaf = place
    if modules[0].startswith("stem"):
        names = ["conv1" if modules[0] == "stem" else "bn1"]
    else:
        ((stage, block),) = re.findall(r"^stage(\d+)_block(\d+)$", modules[0])
        child = modules[1].replace("norm", "bn")
        child = {"shortcut": "downsample.0", "shortcut_bn": "downsample.1"}.get(child, child)
        # An LgConv has its 3x3 kernel one level further down; the file knows of no such level.
        names = [f"layer{stage}", str(int(block) - 1), child]
    return ".".join([*names, _LEAVES[leaf]])


def _torch_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[3], shape[2], *shape[:2]) if len(shape) == 4 else shape


def _check_numbers(path: str, name: str, array: np.ndarray) -> None:
    """Raises a ValueError for numbers that a network cannot hold."""
    bad = ~np.isfinite(array)
    accepted = "finite numbers"
    if name.endswith("running_var"):
        bad, accepted = bad | (array < 0), "finite numbers of 0 and more"
    if bad.any():
        raise ValueError(f"{path}: {name} holds {array[bad].ravel()[0]}; accepted: {accepted}")


def _to_ours(array: np.ndarray) -> np.ndarray:
    array = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array
    return np.array(array, np.float32, order="C")


def _read_safetensors(path: str) -> dict[str, np.ndarray]:
    try:
        return reading.read_safetensors(path)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); accepted: a safetensors file") from error


def _read_npz(path: str) -> dict[str, np.ndarray]:
    try:
        return reading.read_npz(path)
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged ({error}); accepted: what np.savez wrote of arrays by name"
        ) from error


def _read_torch(path: str) -> dict[str, np.ndarray]:
    try:
        import torch
    except ImportError as error:
        raise ValueError(
            f"file of weights is {path!r}, which only torch reads, and torch is not installed;"
            " accepted: the same as .safetensors, or converted where torch is:"
            " import numpy, torch; state = torch.load(FILE, map_location='cpu', weights_only=True);"
            " numpy.savez('weights.npz', **{k: v.float().numpy() for k, v in state.items()})"
        ) from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle's, zip's and torch's own, which have no common base
        raise ValueError(
            f"{path} cannot be read by torch as tensors alone ({type(error).__name__}); accepted:"
            " torch.save(model.state_dict(), path)"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(x, torch.Tensor) for x in state.values()):
        raise ValueError(
            f"{path} holds no plain state dict; accepted: torch.save(model.state_dict(), path)"
        )
    return {name: tensor.float().numpy() for name, tensor in state.items()}


def _check(path: str, wanted: dict[str, tuple], arrays: dict[str, np.ndarray], stem: str) -> None:
    """Raises a ValueError unless the file's names and shapes are those of the network."""
    misshaped = [
        f"{name} {list(arrays[name].shape)} in place of {list(shape)}"
        for name, shape in wanted.items()
        if name in arrays and arrays[name].shape != shape
    ]
    problems = {
        "missing": [name for name in wanted if name not in arrays],
        "unexpected": [name for name in arrays if name not in wanted],
        "of another shape": misshaped,
    }
    if not any(problems.values()):
        return
    told = "; ".join(
        f"{len(names)} {problem} ({', '.join(names[:_NUM_NAMED])}"
        f"{', ...' if len(names) > _NUM_NAMED else ''})"
        for problem, names in problems.items()
        if names
    )
    if stem != "imagenet" and any(text.startswith("conv1.weight ") for text in misshaped):
        told += (
            f"; the stem {stem!r} has a 3x3 kernel, torchvision's networks a 7x7 one:"
            " model.options.stem must be 'imagenet'"
        )
    raise ValueError(
        f"{path} does not fit the network: {told}; accepted: the state dict of torchvision's"
        " network of the same size"
    )
