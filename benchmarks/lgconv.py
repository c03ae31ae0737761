"""Milliseconds and memory of the local-global convolution beside the plain one it replaces.

    python benchmarks/lgconv.py --batch=35 --side=448 --dtype=bfloat16
    python benchmarks/lgconv.py --width=16 --side=64 --batch=4

One table for the forward pass and one for forward and backward (gradients of the parameters and of
the inputs), a line for each stage of a ResNet-101: a layer of `width * 2**i` channels on maps of
`side / 2**(i + 2)` pixels, stride 1. Times are medians of alternating calls, compilation not
included; memory is what the compiled program needs besides its arguments and results.
"""

import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from flax import linen as nn

from pujax.models import layers
from pujax.models.lgconv import LgConv

_BATCH = flags.DEFINE_integer("batch", 8, "Images.", lower_bound=1)
_SIDE = flags.DEFINE_integer("side", 448, "Side of the images in pixels.", lower_bound=32)
_WIDTH = flags.DEFINE_integer("width", 64, "Channels in the first stage.", lower_bound=8)
_DTYPE = flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Compute type.")
_ROUNDS = flags.DEFINE_integer("rounds", 9, "Timed calls of each form.", lower_bound=1)
_NUM_STAGES = 4


class Plain(nn.Module):
    """The 3x3 convolution alone."""

    features: int
    dtype: str

    @nn.compact
    def __call__(self, inputs):
        """Maps [batch, height, width, channels] to the same."""
        return layers.conv(
            inputs, self.features, 3, padding=1, use_bias=False, dtype=self.dtype, name="conv"
        )


def _forward(module):
    return jax.jit(module.apply)


def _backward(module):
    def both(variables, inputs, slope):
        outputs, pull = jax.vjp(module.apply, variables, inputs)
        return outputs, pull(slope)

    return jax.jit(both)


def _measure(calls, rounds):
    """Median milliseconds and megabytes by name; `calls` are (jitted function, arguments)."""
    compiled = {name: call.lower(*args).compile() for name, (call, args) in calls.items()}
    times = {name: [] for name in calls}
    for round_number in range(rounds + 1):
        for name, call in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(call(*calls[name][1]))
            if round_number:  # the first call warms up
                times[name].append(1e3 * (time.perf_counter() - start))
    return {
        name: (
            statistics.median(times[name]),
            compiled[name].memory_analysis().temp_size_in_bytes / 1e6,
        )
        for name in calls
    }


def _stage(index):
    """Modules, variables and inputs of one stage's layer."""
    width, side = _WIDTH.value * 2**index, _SIDE.value // 2 ** (index + 2)
    dtype = jnp.dtype(_DTYPE.value)
    rng = np.random.default_rng(index)
    inputs = jnp.asarray(rng.normal(size=(_BATCH.value, side, side, width)), dtype)
    modules = {"plain": Plain(width, dtype), "lgconv": LgConv(width, dtype=dtype)}
    example = jnp.zeros((1, 2, 2, width), dtype)
    return inputs, {
        name: (module, jax.jit(module.init)(jax.random.key(0), example))
        for name, module in modules.items()
    }


def main(argv):
    """Prints the tables."""
    del argv
    write = sys.stdout.write
    write(
        f"jax {jax.__version__}, {jax.devices()[0].device_kind}, {_DTYPE.value}, "
        f"{_BATCH.value} images of {_SIDE.value} pixels\n"
    )
    stages = [_stage(index) for index in range(_NUM_STAGES)]
    for title, is_backward in (("forward", False), ("forward and backward", True)):
        write(f"\n{title}\n")
        write(f"{'maps':>15s} {'plain, ms':>10s} {'LgConv, ms':>10s} {'ratio':>6s} ")
        write(f"{'plain, MB':>10s} {'LgConv, MB':>10s}\n")
        for inputs, modules in stages:
            calls = {}
            for name, (module, variables) in modules.items():
                if is_backward:
                    calls[name] = (_backward(module), (variables, inputs, inputs))
                else:
                    calls[name] = (_forward(module), (variables, inputs))
            costs = _measure(calls, _ROUNDS.value)
            (plain, plain_mb), (ours, ours_mb) = costs["plain"], costs["lgconv"]
            shape = " x ".join(str(size) for size in inputs.shape[1:])
            write(f"{shape:>15s} {plain:10.2f} {ours:10.2f} {ours / plain:6.2f} ")
            write(f"{plain_mb:10.1f} {ours_mb:10.1f}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    app.run(main)
