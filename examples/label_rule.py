"""A label rule of one's own: exponentiated gradients in place of LaGAM's projection.

    python examples/label_rule.py

The gradient of a clean loss moves soft labels: LaGAM takes its sign, here it moves log-odds.
"""

import jax
import jax.numpy as jnp
import optax

from pujax import meta
from pujax.data import dataset
from pujax.data.sources import digits

TASK = {"positive_classes": (0, 2, 4, 6, 8), "num_labeled": 100, "num_support": 60}
HOW = {"setting": "one_sample", "sampling": "stratified"}


def score(params, images):
    """Logits `[batch]` of a network with one hidden layer."""
    return jax.nn.relu(images.reshape(len(images), -1) / 255.0 @ params["in"]) @ params["out"]


def rule(labels, gradient, pinned):
    """The new labels; those of known positives stay 1."""
    odds = jax.scipy.special.logit(jnp.clip(labels, 0.02, 0.98))
    odds -= 0.2 * gradient / jnp.maximum(jnp.mean(jnp.abs(gradient)), 1e-12)
    return jnp.where(pinned, 1.0, jax.nn.sigmoid(odds))


def main(learn=True, epochs=40, seed=0):
    """Trains on the labels; returns the share of right labels and the test accuracy."""
    data = dataset.build(digits.load(), seed=seed, **TASK, **HOW)
    x, labeled, support_x, support_y, *_ = jax.tree.map(jnp.asarray, data.training_data())
    keys = jax.random.split(jax.random.key(seed), 2 + epochs)
    draw, optimizer = jax.random.normal, optax.adam(3e-3)
    params = {"in": draw(keys[0], [64, 64]) / 8, "out": draw(keys[1], [64]) / 8}
    rows = jax.vmap(lambda k: jax.random.permutation(k, len(x))[:1300])(keys[2:]).reshape(-1, 130)

    def step(carry, rows):
        params, state, labels = carry
        inner = lambda params, labels: meta.balanced_bce(score(params, x[rows]), labels)
        outer = lambda params: meta.balanced_bce(score(params, support_x), support_y)
        slope = meta.meta_gradient(inner, outer, params, labels[rows], learning_rate=0.1)
        new = rule(labels[rows], slope, labeled[rows]) if learn else labels[rows]
        updates, state = optimizer.update(jax.grad(inner)(params, new), state)
        return (optax.apply_updates(params, updates), state, labels.at[rows].set(new)), None

    start = params, optimizer.init(params), labeled * 1.0
    params, _, labels = jax.lax.scan(step, start, rows)[0]
    tested = score(params, data.test_inputs) > 0
    return jnp.mean((labels > 0.5) == data.truth), jnp.mean(tested == data.test_labels)


if __name__ == "__main__":
    for name, numbers in (("as given", main(learn=False)), ("learned", main())):
        print("labels {}: {:.3f} right, test accuracy {:.3f}".format(name, *numbers))
