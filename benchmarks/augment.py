"""Time of the random views per batch on this machine: `python benchmarks/augment.py`.

Prints the median and the fastest of many calls of each compiled view, and the time to compile it.
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from pujax import augment


def milliseconds(function, arguments, repeats: int) -> tuple[float, float, float]:
    """Compiles a function, then times it.

    Returns:
      Median and minimum of one call, and the first call with its compilation, all in milliseconds.
    """
    compiled = jax.jit(function)
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        times.append(1000 * (time.perf_counter() - start))
    return float(np.median(times[1:])), min(times[1:]), times[0]


def main() -> None:
    """Reads the flags and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64, help="images per batch")
    parser.add_argument("--size", type=int, default=32, help="height and width in pixels")
    parser.add_argument("--channels", type=int, default=3, choices=(1, 3))
    parser.add_argument("--repeats", type=int, default=100, help="timed calls of each view")
    flags = parser.parse_args()

    key = jax.random.key(0)
    shape = (flags.batch, flags.size, flags.size, flags.channels)
    images = jax.random.randint(key, shape, 0, 256, jnp.int32).astype(jnp.uint8)
    views = {
        "normalize": lambda key, images: augment.normalize(images, mean=0.5, std=0.25),
        "weak_view": augment.weak_view,
        "strong_view, 0 operations": functools.partial(augment.strong_view, num_ops=0),
        "strong_view, 1 operation": functools.partial(augment.strong_view, num_ops=1),
        "strong_view, 3 operations": augment.strong_view,
        "random_resized_crop": augment.random_resized_crop,
        "color_jitter": augment.color_jitter,
        "random_blur": augment.random_blur,
        "contrastive_view": augment.contrastive_view,
        "contrastive_view, all steps": functools.partial(
            augment.contrastive_view, blur_probability=0.5, solarize_probability=0.2
        ),
    }
    device = jax.devices()[0]
    print(f"{device.platform} ({device.device_kind}), jax {jax.__version__}, images {shape}")
    print(f"{'milliseconds per batch':<28}{'median':>10}{'fastest':>10}{'compile':>10}")
    for name, view in views.items():
        median, fastest, first = milliseconds(view, (key, images), flags.repeats)
        print(f"{name:<28}{median:>10.2f}{fastest:>10.2f}{first:>10.0f}")


if __name__ == "__main__":
    main()
