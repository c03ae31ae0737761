"""Mixup, shared by the methods that train on mixed examples (Zhang et al., ICLR 2018)."""

import jax
import jax.numpy as jnp


def mix(first: jax.Array, second: jax.Array, share: jax.Array) -> jax.Array:
    """`share * first + (1 - share) * second`; a share per row spreads over the other axes.

    Args:
      first: `[batch, ...]`.
      second: like `first`.
      share: scalar, or `[batch]`.

    Returns:
      Like `first`.
    """
    share = jnp.asarray(share)
    share = share.reshape(share.shape + (1,) * (first.ndim - share.ndim))
    return share * first + (1 - share) * second


def larger_share(key: jax.Array, alpha: float, shape: tuple[int, ...] = ()) -> jax.Array:
    """`max(b, 1 - b)` of `b ~ Beta(alpha, alpha)`: the first example keeps the larger share."""
    share = jax.random.beta(key, alpha, alpha, shape)
    return jnp.maximum(share, 1 - share)
