"""Mixup, shared by the methods that train on mixed examples (Zhang et al., ICLR 2018)."""

import jax
import jax.numpy as jnp


def mix(first: jax.Array, second: jax.Array, lam: jax.Array) -> jax.Array:
    """`lam * first + (1 - lam) * second`; a `lam` per row spreads over the other axes.

    Args:
      first: `[batch, ...]`.
      second: like `first`.
      lam: share of the first, scalar or `[batch]`.

    Returns:
      Like `first`.
    """
    lam = jnp.asarray(lam)
    lam = lam.reshape(lam.shape + (1,) * (first.ndim - lam.ndim))
    return lam * first + (1 - lam) * second


def larger_lam(key: jax.Array, alpha: float, shape: tuple[int, ...] = ()) -> jax.Array:
    """`max(b, 1 - b)` of `b ~ Beta(alpha, alpha)`: the first example keeps the larger share."""
    lam = jax.random.beta(key, alpha, alpha, shape)
    return jnp.maximum(lam, 1 - lam)
