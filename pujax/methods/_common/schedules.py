"""The one-cycle schedule: the rate rises, then falls below its start, and Adam's beta1 mirrors it.

Smith and Topin, 2017, https://arxiv.org/abs/1708.07120, in the form and with the constants of
PyTorch's `OneCycleLR`. Both curves are pieces of a cosine. The cycle may be longer than the
training: PU-MLC stops after 41 or 56 of 80 epochs, so that its rate never comes to the end.
"""

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks

# The first rate is the peak divided by the one, the last rate is the first divided by the other.
START_DIVISOR = 25.0
END_DIVISOR = 1e4


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for a setting that cannot be."""
    checks.between("method.pct_start", config.pct_start, 0, 1)
    checks.at_least("method.lr_cycle_epochs", config.lr_cycle_epochs, 0)
    checks.between("method.base_momentum", config.base_momentum, 0, 1, include="low")
    checks.between(
        "method.max_momentum", config.max_momentum, config.base_momentum, 1, include="low"
    )


def check_length(
    config: ml_collections.ConfigDict, num_epochs: int, steps_per_epoch: int | None
) -> None:
    """Raises a ValueError for a cycle that ends before the training, or an epoch without steps."""
    if steps_per_epoch is not None:
        checks.at_least("steps_per_epoch", steps_per_epoch, 1)
    checks.require(
        config.lr_cycle_epochs == 0 or config.lr_cycle_epochs >= num_epochs,
        "method.lr_cycle_epochs",
        config.lr_cycle_epochs,
        f"at least the {num_epochs} epochs that are trained, or 0 for as many",
    )


def learning_rate(
    config: ml_collections.ConfigDict,
    epoch: jax.Array,
    *,
    num_epochs: int,
    steps_per_epoch: int | None = None,
) -> jax.Array:
    """Learning rate at a point of the cycle.

    With `steps_per_epoch` the cycle has T = `steps_per_epoch` * its epochs; the rate peaks in step
    `pct_start * T - 1` and ends in step T - 1, counted from 0. Without, the cycle is the limit
    of short steps: it peaks after that share of its epochs.

    Args:
      config: a section with the fields of `optimizer.default_config`; its `learning_rate` is the
        peak.
      epoch: from the start of the stage, a fraction within an epoch.
      num_epochs: length of the cycle where `lr_cycle_epochs` is 0.
      steps_per_epoch: updates in an epoch, or None.

    Returns:
      A scalar in float32.
    """
    height, falls = _height(config, epoch, num_epochs, steps_per_epoch)
    peak = jnp.float32(config.learning_rate)
    start = peak / START_DIVISOR
    bottom = jnp.where(falls, start / END_DIVISOR, start)
    return bottom + (peak - bottom) * height


def beta1(
    config: ml_collections.ConfigDict,
    epoch: jax.Array,
    *,
    num_epochs: int,
    steps_per_epoch: int | None = None,
) -> jax.Array:
    """Adam's first decay: `max_momentum` at both ends of the cycle, `base_momentum` at its peak.

    Args:
      config: as in `learning_rate`.
      epoch: as in `learning_rate`.
      num_epochs: as in `learning_rate`.
      steps_per_epoch: as in `learning_rate`.

    Returns:
      A scalar in float32.
    """
    height, _ = _height(config, epoch, num_epochs, steps_per_epoch)
    high = jnp.float32(config.max_momentum)
    return high + (jnp.float32(config.base_momentum) - high) * height


def _height(config, epoch, num_epochs, steps_per_epoch):
    """Height in the cycle, from 0 at both ends to 1 at the peak, and whether the peak is past."""
    length = float(config.lr_cycle_epochs or num_epochs)
    if steps_per_epoch is None:
        step, peak, end = jnp.asarray(epoch, jnp.float32), config.pct_start * length, length
    else:
        # `epoch` is a sum of floats; the steps themselves are whole.
        step = jnp.round(jnp.asarray(epoch, jnp.float32) * steps_per_epoch)
        total = length * steps_per_epoch
        peak, end = config.pct_start * total - 1, total - 1
    # A cycle of so few steps that none of them rises has its peak before the first.
    falls = step > peak if peak > 0 else jnp.ones_like(step, bool)
    rising = step / peak if peak > 0 else jnp.ones_like(step)
    falling = (end - step) / (end - peak) if end > peak else jnp.zeros_like(step)
    share = jnp.clip(jnp.where(falls, falling, rising), 0, 1)
    # (1 - cos(pi * share)) / 2, without the difference of two near numbers at the ends.
    return jnp.square(jnp.sin(jnp.pi / 2 * share)), falls
