"""Reweighting instead of relabelling: weights of examples from one gradient, and nothing stored.

    python examples/example_weights.py

Digits, even against odd, 100 positives labelled; U counts as negative, and close to half of it is
not. In every step an example weighs as much as a little more of it would have lowered the loss on
60 clean examples (Ren et al., ICML 2018). Without that, P and U as groups weigh the same.
"""

import jax
import jax.numpy as jnp
import optax

from pujax import meta, risks
from pujax.data import dataset
from pujax.data.sources import digits

TASK = {"positive_classes": (0, 2, 4, 6, 8), "num_labeled": 100, "num_support": 60}
HOW = {"setting": "one_sample", "sampling": "stratified"}


def score(params, images):
    """Logits `[batch]` of a network with one hidden layer."""
    return jax.nn.relu(images.reshape(len(images), -1) / 255.0 @ params["in"]) @ params["out"]


def main(learn=True, epochs=40, seed=0):
    """Trains; returns the share of the weight on hidden positives, and the test accuracy."""
    data = dataset.build(digits.load(), seed=seed, **TASK, **HOW)
    x, labeled, support_x, support_y, *_ = jax.tree.map(jnp.asarray, data.training_data())
    keys = jax.random.split(jax.random.key(seed), 2 + epochs)
    draw = jax.random.normal
    params = {"in": draw(keys[0], [64, 64]) / 8, "out": draw(keys[1], [64]) / 8}
    truth, optimizer = jnp.asarray(data.truth), optax.adam(1e-3)

    def step(carry, rows):
        params, state = carry
        sign = jnp.where(labeled[rows], 1, -1)
        each = lambda params: risks.logistic_loss(sign * score(params, x[rows]))
        inner = lambda params, weights: weights @ each(params)
        outer = lambda params: meta.balanced_bce(score(params, support_x), support_y)
        weights = 0.5 / jnp.where(sign > 0, jnp.sum(sign > 0), jnp.sum(sign < 0))
        if learn:
            slope = meta.meta_gradient(inner, outer, params, 0 * weights, learning_rate=0.1)
            weights = jnp.maximum(-slope, 0) / jnp.maximum(jnp.sum(jnp.maximum(-slope, 0)), 1e-12)
        updates, state = optimizer.update(jax.grad(inner)(params, weights), state)
        on_hidden = jnp.sum(weights * (sign < 0) * truth[rows])
        return (optax.apply_updates(params, updates), state), on_hidden

    rows = jax.vmap(lambda k: jax.random.permutation(k, len(x))[:1300])(keys[2:]).reshape(-1, 130)
    (params, _), on_hidden = jax.lax.scan(step, (params, optimizer.init(params)), rows)
    accuracy = jnp.mean((score(params, data.test_inputs) > 0) == data.test_labels)
    return float(jnp.mean(on_hidden)), float(accuracy)


if __name__ == "__main__":
    for name, learn in (("by group", False), ("learned", True)):
        share, accuracy = main(learn)
        print(f"{name}: {share:.2f} of the weight on hidden positives, accuracy {accuracy:.3f}")
