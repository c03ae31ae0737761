"""Learning the class prior: nnPU whose prior follows the loss on a few clean examples.

    python examples/learned_prior.py

Handwritten digits, even against odd, 100 positives labelled. Training starts from a prior that is
wrong. Before every step the prior moves, with an optimizer of its own, against the gradient of the
loss on 60 clean examples after a virtual step; then it is put back into its range.
"""

import jax
import jax.numpy as jnp
import optax

from pujax import meta, risks
from pujax.data import dataset
from pujax.data.sources import digits

TASK = {"positive_classes": (0, 2, 4, 6, 8), "num_labeled": 100, "num_support": 60}
HOW = {"setting": "two_sample", "sampling": "stratified"}


def score(params, images):
    """Logits `[batch]` of a network with one hidden layer."""
    return jax.nn.relu(images.reshape(len(images), -1) / 255.0 @ params["in"]) @ params["out"]


def main(learn=True, prior=0.2, epochs=40, seed=0):
    """Trains; returns the prior at the end, the true one, and the test accuracy."""
    data = dataset.build(digits.load(), seed=seed, **TASK, **HOW)
    x, labeled, support_x, support_y, *_ = jax.tree.map(jnp.asarray, data.training_data())
    keys = jax.random.split(jax.random.key(seed), 2 + epochs)
    draw = jax.random.normal
    params = {"in": draw(keys[0], [64, 64]) / 8, "out": draw(keys[1], [64]) / 8}
    optimizer, of_prior = optax.adam(1e-3), optax.adam(5e-3)

    def step(carry, rows):
        params, state, prior, prior_state = carry
        inner = lambda params, prior: risks.nnpu(score(params, x[rows]), labeled[rows], prior=prior)
        outer = lambda params: meta.balanced_bce(score(params, support_x), support_y)
        if learn:
            gradient = meta.meta_gradient(inner, outer, params, prior, learning_rate=0.1)
            change, prior_state = of_prior.update(gradient, prior_state)
            prior = optax.projections.projection_box(prior + change, 0.01, 0.99)
        updates, state = optimizer.update(jax.grad(inner)(params, prior), state)
        return (optax.apply_updates(params, updates), state, prior, prior_state), None

    rows = jax.vmap(lambda k: jax.random.permutation(k, len(x))[:1400])(keys[2:]).reshape(-1, 140)
    prior = jnp.float32(prior)
    start = params, optimizer.init(params), prior, of_prior.init(prior)
    params, _, prior, _ = jax.lax.scan(step, start, rows)[0]
    accuracy = jnp.mean((score(params, data.test_inputs) > 0) == data.test_labels)
    return float(prior), data.info.prior, float(accuracy)


if __name__ == "__main__":
    for name, learn in (("kept", False), ("learned", True)):
        print("prior {}: {:.2f} (true {:.2f}), test accuracy {:.3f}".format(name, *main(learn)))
