"""Milliseconds and memory of the debiased contrastive loss with its gradient.

    python benchmarks/debiased_loss.py --batch=512 --dim=128 --block=128
    python benchmarks/debiased_loss.py --large_batch=0 --rounds=9

Two views per image, so the similarity matrix has `2 * batch` rows and columns. The textbook form is
the formula written down: exponentials of the full matrix, a mask, a sum per row, plain automatic
differentiation. The second table is a batch whose matrix is too large to be held at once. Times are
medians of alternating calls, compilation not included; memory is what the compiled program needs
besides its arguments and results.
"""

import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from pujax import contrastive

_BATCH = flags.DEFINE_integer("batch", 512, "Images.", lower_bound=2)
_DIM = flags.DEFINE_integer("dim", 128, "Length of the vectors.", lower_bound=1)
_BLOCK = flags.DEFINE_integer("block", 128, "Anchors per block.", lower_bound=1)
_LARGE_BATCH = flags.DEFINE_integer("large_batch", 8192, "Images of the second table; 0: none.")
_LARGE_BLOCK = flags.DEFINE_integer("large_block", 512, "Anchors per block there.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 15, "Timed calls of each form.", lower_bound=1)
_OPTIONS = {"temperature": 0.5, "tau_plus": 0.1}


def _ours(block_size):
    def loss(first, second):
        return contrastive.debiased(first, second, block_size=block_size, **_OPTIONS)

    return loss


def _textbook(first, second):
    temperature, tau_plus = _OPTIONS["temperature"], _OPTIONS["tau_plus"]
    points, batch = jnp.concatenate([first, second]), len(first)
    # As precise as ours, also on devices whose default product has fewer digits.
    products = jnp.matmul(points, points.T, precision=jax.lax.Precision.HIGHEST)
    similarities = jnp.exp(products / temperature)
    other_image = ~jnp.tile(jnp.eye(batch, dtype=bool), (2, 2))
    positive = jnp.exp(jnp.sum(first * second, axis=1) / temperature)
    positive = jnp.concatenate([positive, positive])
    others = jnp.sum(similarities * other_image, axis=1)
    num_others = 2 * batch - 2
    corrected = (others - tau_plus * num_others * positive) / (1 - tau_plus)
    negatives = jnp.maximum(corrected, num_others * jnp.exp(-1 / temperature))
    return -jnp.mean(jnp.log(positive / (positive + negatives)))


def _views(batch, dim):
    """Two views that resemble each other as those of a network in training do."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(batch, dim))
    views = common + 0.5 * rng.normal(size=(2, batch, dim))
    return (views / np.linalg.norm(views, axis=-1, keepdims=True)).astype(np.float32)


def _table(title, forms, views, rounds):
    """A line per form: loss, largest difference of the gradient from the first form's, cost."""
    write = sys.stdout.write
    write(f"\n{title}\n")
    write(f"{'form':>14s} {'loss':>9s} {'gradient off':>12s} {'ms':>9s} {'memory, MB':>10s}\n")
    compiled = {
        name: jax.jit(jax.value_and_grad(form, (0, 1))).lower(*views).compile()
        for name, form in forms.items()
    }
    results = {name: jax.block_until_ready(call(*views)) for name, call in compiled.items()}
    times = {name: [] for name in forms}
    for _ in range(rounds):
        for name, call in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(call(*views))
            times[name].append(1e3 * (time.perf_counter() - start))
    expected = np.stack(next(iter(results.values()))[1])
    for name, (value, gradient) in results.items():
        error = np.max(np.abs(np.stack(gradient) - expected)) / np.max(np.abs(expected))
        memory = compiled[name].memory_analysis().temp_size_in_bytes / 1e6
        write(
            f"{name:>14s} {float(value):9.5f} {error:12.1e} {statistics.median(times[name]):9.1f} "
            f"{memory:10.1f}\n"
        )
        sys.stdout.flush()


def main(argv):
    """Prints the tables."""
    del argv
    device = jax.devices()[0]
    sys.stdout.write(f"jax {jax.__version__}, {device.device_kind}\n")
    batch, dim, block = _BATCH.value, _DIM.value, _BLOCK.value
    forms = {"textbook": _textbook, "direct": _ours(0), f"blocks of {block}": _ours(block)}
    views = jax.device_put(tuple(_views(batch, dim)), device)
    _table(f"{batch} images, {2 * batch} x {dim}", forms, views, _ROUNDS.value)
    if _LARGE_BATCH.value:
        batch, block = _LARGE_BATCH.value, _LARGE_BLOCK.value
        views = jax.device_put(tuple(_views(batch, dim)), device)
        forms = {f"blocks of {block}": _ours(block)}
        _table(f"{batch} images, {2 * batch} x {dim}", forms, views, min(_ROUNDS.value, 3))


if __name__ == "__main__":
    app.run(main)
