"""Derivatives of convolutions by their kernel on one core: XLA's, and by patches.

    OMP_NUM_THREADS=1 taskset -c 0 python -m benchmarks.convolution

CPU milliseconds after compilation, the third lowest of ten: the convolution, its derivative by the
kernel (reverse mode) and a tangent of the kernel (forward mode), float32.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax

from pujax.models import convolution

# Images, kernel, stride and zeros on each side.
SHAPES = {
    "ResNet-18, stage 1": ((64, 32, 32, 64), (3, 3, 64, 64), 1, 1),
    "ResNet-18, stage 2": ((64, 16, 16, 128), (3, 3, 128, 128), 1, 1),
    "ResNet-18, stage 3": ((64, 8, 8, 256), (3, 3, 256, 256), 1, 1),
    "ResNet-18, stage 4": ((64, 4, 4, 512), (3, 3, 512, 512), 1, 1),
    "small CNN, layer 1": ((64, 28, 28, 1), (3, 3, 1, 32), 1, 1),
    "small CNN, layer 2": ((64, 28, 28, 32), (3, 3, 32, 64), 2, 1),
    "LeNet, layer 1": ((256, 28, 28, 1), (5, 5, 1, 10), 1, 0),
    "LeNet, layer 2": ((256, 12, 12, 10), (5, 5, 10, 20), 1, 0),
}


def main() -> None:
    """Prints a line per shape; `no` where a network would leave the derivative to XLA."""
    print("shape                convolution  derivative: XLA  patches  tangent: XLA  patches  used")
    for name, (images_shape, kernel_shape, stride, zeros) in SHAPES.items():
        images = jax.random.normal(jax.random.key(0), images_shape)
        kernel = jax.random.normal(jax.random.key(1), kernel_shape)
        padding = ((zeros, zeros), (zeros, zeros))
        options = {"strides": (stride, stride), "padding": padding}
        plain = functools.partial(convolution._plain, **options)
        patches = functools.partial(convolution._by_patches, **options)
        slopes = jax.random.normal(jax.random.key(2), plain(images, kernel).shape)
        figures = [
            milliseconds(plain, images, kernel),
            *(milliseconds(_derivative, f, images, kernel, slopes) for f in (plain, patches)),
            *(milliseconds(f, images, kernel) for f in (plain, patches)),
        ]
        used = convolution._pays(images, kernel, (stride, stride), padding)
        widths = (13, 16, 9, 13, 9)
        row = "".join(f"{figure:{width}.1f}" for figure, width in zip(figures, widths, strict=True))
        print(f"{name:19s}{row}  {'yes' if used else 'no'}", flush=True)


def _derivative(convolve: Callable[..., Any], images: Any, kernel: Any, slopes: Any) -> Any:
    (found,) = jax.vjp(functools.partial(convolve, images), kernel)[1](slopes)
    return found


def milliseconds(function: Callable[..., Any], *arguments: Any) -> float:
    """CPU milliseconds of a compiled call; a function among the arguments is compiled in."""
    static = [index for index, argument in enumerate(arguments) if callable(argument)]
    compiled = jax.jit(function, static_argnums=static)
    jax.block_until_ready(compiled(*arguments))
    times = []
    for _ in range(10):
        started = time.process_time()
        jax.block_until_ready(compiled(*arguments))
        times.append(time.process_time() - started)
    return 1000 * sorted(times)[2]


if __name__ == "__main__":
    main()
