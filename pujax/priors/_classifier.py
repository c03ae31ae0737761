"""A small scorer of P against U: a network as two functions, and one epoch of training it."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pujax import risks
from pujax.arrays import consecutive_shuffles


class Network(NamedTuple):
    """A scorer as two pure functions.

    Attributes:
      init: `(key, features [b, d]) -> params`.
      apply: `(params, features [b, d]) -> scores [b]`, logits; the features are standardised.
    """

    init: Callable[[jax.Array, jax.Array], Any]
    apply: Callable[[Any, jax.Array], jax.Array]


def mlp(hidden: Sequence[int]) -> Network:
    """A perceptron with ReLU units, He's initial weights and one output.

    Args:
      hidden: units per layer; empty for a linear model.
    """

    def init(key: jax.Array, features: jax.Array) -> Any:
        sizes = (features.shape[1], *hidden, 1)
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = zip(keys, sizes[:-1], sizes[1:], strict=True)
        return [
            (
                jax.random.normal(k, (a, b), jnp.float32) * math.sqrt(2 / a),
                jnp.zeros(b, jnp.float32),
            )
            for k, a, b in shapes
        ]

    def apply(params: Any, features: jax.Array) -> jax.Array:
        for weights, bias in params[:-1]:
            features = jax.nn.relu(features @ weights + bias)
        weights, bias = params[-1]
        return (features @ weights + bias)[:, 0]

    return Network(init, apply)


def make_epoch(net: Network, optimizer: Any, batch_size: int) -> Callable[..., tuple[Any, Any]]:
    """Compiles a training epoch; the loss is that of CVIR: P and the kept U weigh one half each.

    Args:
      net: the network that is trained.
      optimizer: of optax.
      batch_size: examples of P, and of U, in a step; an epoch goes once through the larger sample.

    Returns:
      `(params, state, P [m, d], U [n, d], kept [n], key) -> (params, state)`.
    """

    def loss(params, p, u, kept):
        return risks.cvir_of_samples(net.apply(params, p), net.apply(params, u), kept=kept)

    @jax.jit
    def run(params, state, p, u, kept, key):
        steps = -(-max(len(p), len(u)) // batch_size)
        size = min(batch_size, max(len(p), len(u)))
        p_key, u_key = jax.random.split(key)
        order = [
            consecutive_shuffles(key, len(rows), steps * size)
            for key, rows in ((p_key, p), (u_key, u))
        ]

        def step(carry, rows):
            params, state = carry
            gradient = jax.grad(loss)(params, p[rows[0]], u[rows[1]], kept[rows[1]])
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        rows = jnp.stack(order).reshape(2, steps, size).swapaxes(0, 1)
        return jax.lax.scan(step, (params, state), rows)[0]

    return run
