"""Milliseconds and memory of semantic decoupling, forward and with its gradient.

    python benchmarks/semantic_decoupling.py --batch=4 --classes=20,80
    python benchmarks/semantic_decoupling.py --batch=35 --classes=80 --rounds=3

The materialised form is the definition of PU-MLC's released code: an array [batch, positions,
classes, attention] through two affine maps, the softmax over positions, and the features times
their weights as an array [batch, positions, classes, width] that is then summed. The einsum form
replaces only that last array. Ours is `pujax.models.semantic_graph`: the two affine maps as one
vector, one category after the other. Times are medians of alternating calls, compilation not
included; memory is what the compiled program needs besides its arguments and results, which is less
than the arrays of a form together where the compiler fuses one into the sum that follows.
"""

import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from pujax import checks
from pujax.models import semantic_graph

_BATCH = flags.DEFINE_integer("batch", 4, "Images.", lower_bound=1)
_POSITIONS = flags.DEFINE_integer("positions", 49, "Positions of the map.", lower_bound=1)
_CLASSES = flags.DEFINE_list("classes", ["20", "80"], "Categories, one table for each.")
_WIDTH = flags.DEFINE_integer("width", 1024, "Channels of the map.", lower_bound=1)
_ATTENTION = flags.DEFINE_integer("attention", 512, "Width of the comparison.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 9, "Timed calls of each form.", lower_bound=1)


def _attention(projected, words, hidden, score):
    """The weights of positions [batch, positions, classes] by the definition."""
    joint = jnp.tanh(projected[:, :, None] * words)
    return jax.nn.softmax((joint @ hidden) @ score, axis=1)


def _materialised(features, projected, words, hidden, score):
    weights = _attention(projected, words, hidden, score)
    return jnp.sum(features[:, :, None] * weights[..., None], axis=1)


def _einsum(features, projected, words, hidden, score):
    weights = _attention(projected, words, hidden, score)
    return jnp.einsum("bpc,bpd->bcd", weights, features)


def _ours(features, projected, words, hidden, score):
    return semantic_graph.decouple(features, projected, words, hidden @ score)


def _arguments(classes):
    """Features and weights of about the size that they have in the network, and a target."""
    rng = np.random.default_rng(0)
    shapes = [
        (_BATCH.value, _POSITIONS.value, _WIDTH.value),
        (_BATCH.value, _POSITIONS.value, _ATTENTION.value),
        (classes, _ATTENTION.value),
        (_ATTENTION.value, _ATTENTION.value),
        (_ATTENTION.value,),
        (_BATCH.value, classes, _WIDTH.value),
    ]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    for index in (3, 4):
        arrays[index] /= np.sqrt(_ATTENTION.value)
    return arrays[:-1], arrays[-1]


def _milliseconds(calls, arguments, rounds):
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call(*arguments))
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def _table(classes):
    """A line per form: cost, and the largest difference of the gradient from the first form's."""
    write = sys.stdout.write
    arguments, target = jax.device_put(_arguments(classes))
    forms = {"materialised": _materialised, "einsum": _einsum, "ours": _ours}
    forward, backward = {}, {}
    for name, form in forms.items():

        def loss(*inputs, form=form):
            return jnp.sum(form(*inputs) * target)

        forward[name] = jax.jit(form).lower(*arguments).compile()
        backward[name] = jax.jit(jax.grad(loss, range(5))).lower(*arguments).compile()
    gradients = {
        name: [np.asarray(leaf) for leaf in call(*arguments)] for name, call in backward.items()
    }
    [call(*arguments) for call in forward.values()]
    times = [_milliseconds(calls, arguments, _ROUNDS.value) for calls in (forward, backward)]
    write(f"\n{_BATCH.value} images, {_POSITIONS.value} positions, {classes} categories\n")
    write(f"{'':>14s} {'forward':>20s} {'with gradient':>20s}\n")
    write(f"{'form':>14s} {'ms':>9s} {'MB':>10s} {'ms':>9s} {'MB':>10s} {'gradient off':>13s}\n")
    for name in forms:
        memory = [
            calls[name].memory_analysis().temp_size_in_bytes / 1e6 for calls in (forward, backward)
        ]
        error = max(
            np.max(np.abs(mine - first)) / np.max(np.abs(first))
            for mine, first in zip(gradients[name], gradients["materialised"], strict=True)
        )
        write(
            f"{name:>14s} {times[0][name]:9.1f} {memory[0]:10.2f} {times[1][name]:9.1f} "
            f"{memory[1]:10.2f} {error:13.1e}\n"
        )
        sys.stdout.flush()


def main(argv):
    """Prints the tables."""
    del argv
    sizes = [int(text) if text.isdecimal() else text for text in _CLASSES.value]
    try:
        checks.require(len(sizes) > 0, "--classes", "", "integers from 1, one for each table")
        for size in sizes:
            checks.whole_number("--classes", size, 1)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"jax {jax.__version__}, {jax.devices()[0].device_kind}\n")
    for classes in sizes:
        _table(classes)
    return 0


if __name__ == "__main__":
    app.run(main)
