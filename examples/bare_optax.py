"""LaGAM's label update in an optax loop, with nothing of pujax but `pujax.meta`.

    python examples/bare_optax.py

Handwritten digits, even against odd: 60 clean examples, 100 labelled positives, the rest unlabeled.
"""

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

from pujax import meta


def score(params, x):
    """Logits `[batch]` of a network with one hidden layer."""
    return jax.nn.relu(x @ params["in"]) @ params["out"]


def main(epochs=40, seed=0):
    """Trains; returns the shares of right labels at the start and at the end, and the accuracy."""
    keys = jax.random.split(jax.random.key(seed), 3 + epochs)
    images, digit = load_digits(return_X_y=True)
    order = jax.random.permutation(keys[0], len(digit))
    x, truth = jnp.asarray(images)[order] / 16, jnp.asarray(digit % 2 == 0)[order]
    x_clean, x, x_test = jnp.split(x, [60, 1360])
    y_clean, truth, y_test = jnp.split(truth, [60, 1360])
    labeled = truth & (jnp.cumsum(truth) <= 100)
    draw = jax.random.normal
    params = {"in": draw(keys[1], [64, 64]) / 8, "out": draw(keys[2], [64]) / 8}
    optimizer = optax.adam(3e-3)

    def step(carry, rows):
        params, state, labels = carry
        inner = lambda params, labels: meta.balanced_bce(score(params, x[rows]), labels)
        outer = lambda params: meta.balanced_bce(score(params, x_clean), y_clean * 1.0)
        gradient = meta.meta_gradient(inner, outer, params, labels[rows], learning_rate=0.1)
        targets = meta.project_labels(gradient)
        new = meta.ema_labels(labels[rows], targets, rho=0.9, pinned=labeled[rows])
        updates, state = optimizer.update(jax.grad(inner)(params, new), state)
        return (optax.apply_updates(params, updates), state, labels.at[rows].set(new)), None

    rows = jax.vmap(lambda key: jax.random.permutation(key, 1300))(keys[3:]).reshape(-1, 130)
    start = params, optimizer.init(params), labeled * 1.0
    params, _, labels = jax.lax.scan(step, start, rows)[0]
    right = [float(jnp.mean((labels > 0.5) == truth)) for labels in (labeled, labels)]
    return *right, float(jnp.mean((score(params, x_test) > 0) == y_test))


if __name__ == "__main__":
    print("right labels: {:.3f} before, {:.3f} after; test accuracy {:.3f}".format(*main()))
