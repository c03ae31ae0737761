"""SGD with momentum and epoch-wise schedules, shared by the methods that train this way."""

import jax
import jax.numpy as jnp
import ml_collections
import optax

from pujax.methods import _checks


def default_config() -> ml_collections.ConfigDict:
    """Settings of LaGAM's optimizer (`momentum` without Nesterov, L2 added to the gradient)."""
    return ml_collections.ConfigDict(
        {
            "learning_rate": 1e-3,
            "lr_schedule": "step",
            "lr_drops": (250, 300, 350),
            "lr_factor": 0.1,
            "momentum": 0.9,
            "weight_decay": 1e-4,
        }
    )


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for a setting that cannot be."""
    _checks.positive("method.learning_rate", config.learning_rate)
    _checks.one_of("method.lr_schedule", config.lr_schedule, ("step", "cosine", "constant"))
    _checks.between("method.lr_factor", config.lr_factor, 0, 1)
    _checks.between("method.momentum", config.momentum, 0, 1, include="low")
    _checks.at_least("method.weight_decay", config.weight_decay, 0)


def learning_rate(config: ml_collections.ConfigDict, epoch: jax.Array) -> jax.Array:
    """Learning rate of an epoch counted from 0.

    `step` multiplies by `lr_factor` after each epoch of `lr_drops` (so 251 is the first epoch of
    the drop at 250); `cosine` falls from the start value to a thousandth of it over `num_epochs`.
    """
    start = jnp.float32(config.learning_rate)
    if config.lr_schedule == "step":
        drops = jnp.asarray(config.lr_drops, jnp.int32)
        return start * jnp.float32(config.lr_factor) ** jnp.sum(epoch > drops)
    if config.lr_schedule == "cosine":
        floor = start * 1e-3
        return floor + (start - floor) * (1 + jnp.cos(jnp.pi * epoch / config.num_epochs)) / 2
    return start


def transformation(config: ml_collections.ConfigDict) -> optax.GradientTransformation:
    """The update direction before the learning rate: L2 into the gradient, then the momentum sum.

    The rate is applied by `apply`, from the epoch: a skipped step must not delay the schedule.
    """
    return optax.chain(
        optax.add_decayed_weights(config.weight_decay), optax.trace(decay=config.momentum)
    )


def apply(params: optax.Params, direction: optax.Updates, rate: jax.Array) -> optax.Params:
    """`params - rate * direction`."""
    return jax.tree.map(lambda p, d: p - rate * d, params, direction)
