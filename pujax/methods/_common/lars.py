"""LARS: each tensor's step is proportional to the tensor's own length."""

from typing import Any

import jax
import ml_collections
import optax


def build(config: ml_collections.ConfigDict) -> optax.GradientTransformationExtraArgs:
    """The change of the parameters, for `update(gradients, state, params, rate=rate)`.

    With `d = gradient + weight_decay * w` and `trust = trust_coefficient * |w| / |d|` (1 where a
    length is 0), `velocity = momentum * velocity + rate * trust * d` is what `w` loses. The rate is
    inside the velocity: a change of it reaches old gradients only as they fade. `|d|` is SimCLR's
    denominator; the paper's `|gradient| + weight_decay * |w|` bounds it from above.

    Biases and the parameters of batch norm (all tensors with fewer than two axes) are neither
    decayed nor rescaled, as in SimCLR.

    You et al., 2017, https://arxiv.org/abs/1708.03888, algorithm 1; Chen et al., 2020,
    https://arxiv.org/abs/2002.05709.

    Args:
      config: a section with the fields of `_optimizer.default_config`.

    Returns:
      A transformation whose result is to be subtracted from the parameters.
    """

    def is_adapted(params: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    def scale_by_rate(updates, state, params=None, *, rate, **extra_args):
        del params, extra_args
        return jax.tree.map(lambda update: rate * update, updates), state

    # Not `optax.lars`, which takes its rate from a count of updates.
    return optax.chain(
        optax.add_decayed_weights(config.weight_decay, mask=is_adapted),
        optax.masked(
            optax.scale_by_trust_ratio(trust_coefficient=config.trust_coefficient), is_adapted
        ),
        optax.GradientTransformationExtraArgs(optax.init_empty_state, scale_by_rate),
        optax.trace(decay=config.momentum),
    )
