"""Convolutions and their derivatives on one core: XLA's, by patches, and by blocks of places.

    OMP_NUM_THREADS=1 taskset -c 0 python -m benchmarks.convolution

CPU milliseconds after compilation, the third lowest of ten, float32: the convolution, its
derivatives by the kernel and by the images (reverse mode) and a tangent of the kernel (forward
mode). The last column says what a network uses; patches are for the derivative by the kernel alone.
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
    "3 to 16 channels": ((64, 32, 32, 3), (3, 3, 3, 16), 1, 1),
    "8 to 8 channels": ((64, 28, 28, 8), (3, 3, 8, 8), 1, 1),
    "12 to 12 channels": ((64, 28, 28, 12), (3, 3, 12, 12), 1, 1),
    "15 to 16 channels": ((64, 28, 28, 15), (3, 3, 15, 16), 1, 1),
    "10 to 20 channels": ((64, 28, 28, 10), (3, 3, 10, 20), 1, 1),
    "3 to 24 channels": ((64, 28, 28, 3), (3, 3, 3, 24), 1, 1),
    "15 to 31 channels": ((64, 28, 28, 15), (3, 3, 15, 31), 1, 1),
    "3 to 16, 7 x 7": ((64, 28, 28, 3), (7, 7, 3, 16), 1, 3),
    "16 to 16, 5 x 5": ((64, 28, 28, 16), (5, 5, 16, 16), 1, 2),
}
# Heads of the columns and their widths.
_FORWARD = (("XLA", 6), ("blocks", 8))
_BY_KERNEL = (("XLA", 8), ("patches", 9), ("blocks", 8))
_BY_IMAGES = (("XLA", 9), ("blocks", 8))
_COLUMNS = (*_FORWARD, *_BY_KERNEL, *_BY_IMAGES, *_BY_KERNEL)


def main() -> None:
    """Prints a line per shape; `-` where blocks can't be taken."""
    print(f"{'':20s}convolution    by the kernel           by the images  tangent")
    print(f"{'':20s}" + "".join(f"{head:>{width}s}" for head, width in _COLUMNS))
    for name, (images_shape, kernel_shape, stride, zeros) in SHAPES.items():
        images = jax.random.normal(jax.random.key(0), images_shape)
        kernel = jax.random.normal(jax.random.key(1), kernel_shape)
        padding = ((zeros, zeros), (zeros, zeros))
        options = {"strides": (stride, stride), "padding": padding}
        plain = functools.partial(convolution._plain, **options)
        patches = functools.partial(convolution._by_patches, **options)
        blocks = functools.partial(convolution._by_blocks, padding=padding) if stride == 1 else None
        slopes = jax.random.normal(jax.random.key(2), plain(images, kernel).shape)
        arrays = (images, kernel, slopes)
        figures = [
            *(milliseconds(f, images, kernel) for f in (plain, blocks)),
            *(milliseconds(_of(f, 1), *arrays) for f in (plain, patches, blocks)),
            *(milliseconds(_of(f, 0), *arrays) for f in (plain, blocks)),
            *(milliseconds(_tangent(f), images, kernel) for f in (plain, patches, blocks)),
        ]
        widths = [width for _, width in _COLUMNS]
        row = "".join(f"{figure:>{width}s}" for figure, width in zip(figures, widths, strict=True))
        used = "XLA"
        if convolution._pays(images, kernel, (stride, stride), padding):
            is_narrow = convolution._is_narrow(images, kernel, (stride, stride), padding)
            used = "blocks" if is_narrow else "patches"
        print(f"{name:20s}{row}  {used}", flush=True)


def _of(convolve: Callable[..., Any] | None, argument: int) -> Callable[..., Any] | None:
    """The derivative by the images (0) or the kernel (1)."""

    def derivative(images: Any, kernel: Any, slopes: Any) -> Any:
        fixed = (lambda x: convolve(x, kernel), lambda x: convolve(images, x))[argument]
        return jax.vjp(fixed, (images, kernel)[argument])[1](slopes)[0]

    return None if convolve is None else derivative


def _tangent(convolve: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """The tangent for a change of the kernel by itself, alone."""

    def tangent(images: Any, kernel: Any) -> Any:
        return jax.jvp(functools.partial(convolve, images), (kernel,), (kernel,))[1]

    return None if convolve is None else tangent


def milliseconds(function: Callable[..., Any] | None, *arguments: Any) -> str:
    """CPU milliseconds of a compiled call, in figures."""
    if function is None:
        return "-"
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(*arguments))
    times = []
    for _ in range(10):
        started = time.process_time()
        jax.block_until_ready(compiled(*arguments))
        times.append(time.process_time() - started)
    return f"{1000 * sorted(times)[2]:.1f}"


if __name__ == "__main__":
    main()
