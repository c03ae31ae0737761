"""What the device is, and the ceilings of everything else: products, copies, launches."""

import jax
import jax.numpy as jnp

from benchmarks.accelerator_parts import measuring
from benchmarks.accelerator_parts.worker import Context
from pujax.training.evaluation import summary

_LAUNCHES = 500
# Name, type, precision. 'float32' is what a network in float32 gets by default.
_PRODUCTS = (
    ("bfloat16", jnp.bfloat16, "default"),
    ("float32", jnp.float32, "default"),
    ("float32_highest", jnp.float32, "highest"),
)


def run(context: Context) -> None:
    """Measures the ceilings."""
    first = jax.local_devices()[0]
    stats = first.memory_stats() or {}
    context.record(
        platform=first.platform,
        kind=first.device_kind,
        count=jax.device_count(),
        versions=summary.versions(),
        memory_bytes=stats.get("bytes_limit"),
        peak_flops={},
    )
    is_small = first.platform == "cpu"
    side = 64 if context.tiny else (2048 if is_small else 8192)
    peaks: dict[str, float] = {}
    for name, dtype, precision in _PRODUCTS:
        peaks[name] = _product(side, dtype, precision, tiny=context.tiny)
        context.record(peak_flops=peaks)
    size = 2**18 if context.tiny else (2**24 if is_small else 2**28)
    context.record(bytes_per_second=_copy(size, tiny=context.tiny))
    context.record(**_launches(10 if context.tiny else _LAUNCHES, tiny=context.tiny))


def _product(side: int, dtype, precision: str, *, tiny: bool) -> float:
    """FLOP per second of a product of two square matrices of random numbers."""
    keys = jax.random.split(jax.random.key(0))
    # A product of zeros runs faster than one of numbers.
    a, b = (jax.random.normal(key, [side, side], jnp.float32).astype(dtype) for key in keys)
    multiply = jax.jit(lambda a, b: jnp.matmul(a, b, precision=precision))
    return 2 * side**3 / measuring.seconds_per_call(lambda: multiply(a, b), tiny=tiny)


def _copy(size: int, *, tiny: bool) -> float:
    """Bytes read and written per second by a kernel that adds a number to many."""
    x = jax.random.normal(jax.random.key(0), [size], jnp.float32)
    add = jax.jit(lambda x: x + 1)
    return 2 * x.nbytes / measuring.seconds_per_call(lambda: add(x), tiny=tiny)


def _launches(count: int, *, tiny: bool) -> dict[str, float]:
    """Seconds per kernel of a long row of small ones, each of which waits for the one before.

    Products of small matrices, because XLA would join elementwise operations into one kernel.
    """
    x = jax.random.normal(jax.random.key(0), [16, 16]) / 4

    @jax.jit
    def row(x):
        for _ in range(count):
            x = x @ x
        return x

    @jax.jit
    def rolled(x):
        return jax.lax.fori_loop(0, count, lambda _, x: x @ x, x)

    one = jax.jit(lambda x: x @ x)
    return {
        "seconds_per_kernel": measuring.seconds_per_call(lambda: row(x), tiny=tiny) / count,
        "seconds_per_kernel_in_a_loop": measuring.seconds_per_call(lambda: rolled(x), tiny=tiny)
        / count,
        "seconds_per_call": measuring.seconds_per_call(lambda: one(x), tiny=tiny),
    }
