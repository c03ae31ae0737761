"""Mixup, shared by the methods that train on mixed examples (Zhang et al., ICLR 2018)."""

import jax
import jax.numpy as jnp

_MAX_UNIFORMS = 16


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
    lam = draw_lam(key, alpha, shape)
    return jnp.maximum(lam, 1 - lam)


def draw_lam(key: jax.Array, alpha: float, shape: tuple[int, ...] = ()) -> jax.Array:
    """`b ~ Beta(alpha, alpha)`.

    For a whole `alpha` that is the middle one of `2 alpha - 1` uniform numbers. Rejection sampling,
    which other values need, is a loop of unknown length, at every turn of which an accelerator
    waits for the host.

    Args:
      key: random key.
      alpha: positive.
      shape: of the result.
    """
    if float(alpha).is_integer() and alpha <= _MAX_UNIFORMS:
        middle = int(alpha) - 1
        uniform = jax.random.uniform(key, (*shape, 2 * middle + 1))
        return jnp.sort(uniform, axis=-1)[..., middle]
    return jax.random.beta(key, alpha, alpha, shape)
