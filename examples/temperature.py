"""A hypergradient: how the temperature of a contrastive loss should change, by several estimators.

    python examples/temperature.py

Inside: ten steps of group contrast. Outside: a classifier by class means on 60 clean digits.
"""

import jax
import jax.numpy as jnp

from pujax import contrastive, meta
from pujax.data import dataset
from pujax.data.sources import digits

TASK = {"positive_classes": (0, 2, 4, 6, 8), "num_labeled": 100, "num_support": 60}
HOW = {"setting": "one_sample", "sampling": "stratified"}


def embed(params, images):
    """Unit vectors `[batch, 16]`."""
    hidden = jnp.tanh(images.reshape(len(images), -1) / 255.0 @ params["in"]) @ params["out"]
    return hidden / jnp.linalg.norm(hidden, axis=1, keepdims=True)


def main(estimators=("reverse", "mixed", "finite_difference"), descent=15, seed=0):
    """Returns the gradients at the start, by estimator, and (temperature, outer loss) by step."""
    data = dataset.build(digits.load(), seed=seed, **TASK, **HOW)
    x, labeled, support_x, support_y, *_ = jax.tree.map(jnp.asarray, data.training_data())
    keys, draw = jax.random.split(jax.random.key(seed)), jax.random.normal
    params = {"in": draw(keys[0], [64, 64]) / 8, "out": draw(keys[1], [64, 16]) / 8}
    x, labeled = jnp.roll(x, 32, axis=0)[:128], jnp.roll(labeled, 32)[:128]  # 96 of P, 32 of U
    together = labeled[:, None] == jnp.tile(labeled, 2)

    def inner(params, log_temperature):
        z = embed(params, x)
        return contrastive.group_contrast(z, z, together, temperature=jnp.exp(log_temperature))

    def outer(params):
        z, known = embed(params, support_x), support_y[::2]  # half against the means of the other
        middle = [weights @ z[::2] / jnp.sum(weights) for weights in (known, 1 - known)]
        return meta.balanced_bce(5 * z[1::2] @ (middle[0] - middle[1]), support_y[1::2])

    def gradient(log_temperature, estimator):
        how = {"estimator": estimator, "learning_rate": 0.3, "num_steps": 10, "rolled": True}
        return meta.meta_gradient(inner, outer, params, log_temperature, return_info=True, **how)

    compiled, now, path = jax.jit(gradient, static_argnums=1), jnp.log(0.5), []
    gradients = {name: float(compiled(now, name)[0]) for name in estimators}
    for _ in range(descent):
        slope, info = compiled(now, "mixed")
        path.append((float(jnp.exp(now)), float(info.outer_loss)))
        now -= 2.0 * slope
    return gradients, path


if __name__ == "__main__":
    gradients, path = main()
    print("d loss / d log temperature:", ", ".join(f"{n} {g:.5f}" for n, g in gradients.items()))
    print("(temperature, outer loss):", path[0], "at first,", path[-1], "at last")
