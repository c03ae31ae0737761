"""What PURL minimises: the squared error of a density ratio, its linear head, noisy gradients."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy


def ratio_objective(
    ratios: jax.Array, labeled: jax.Array, *, positive_share: float = 0.0
) -> jax.Array:
    """What the ratio `p(x | +1) / q(x)` minimises: `E_q[w^2] / 2 - E_P[w]`.

    `q` is the mixture of P, with `positive_share`, and U. Without P in it this is J_PU of PURL;
    with the share of P among all examples it is the supervised objective that takes U for the
    negatives, of PNRL. A mean over an empty group is 0.

    Args:
      ratios: `[batch]`, outputs w of the model.
      labeled: `[batch]`, above 0 for labelled positives.
      positive_share: share of P in `q`.

    Returns:
      A scalar.
    """
    square = _mixed_mean(jnp.square(ratios), labeled, positive_share)
    return square / 2 - _mean_where(ratios, labeled > 0)


def mean_ratio(ratios: jax.Array, labeled: jax.Array, *, positive_share: float = 0.0) -> jax.Array:
    """`E_q[w]`, which is 1 for the true ratio; see `ratio_objective`."""
    return _mixed_mean(ratios, labeled, positive_share)


def fit_head(
    features: jax.Array,
    labeled: jax.Array,
    *,
    positive_share: float,
    ridge: float,
    counted: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Kernel and bias of the linear head that minimises `ratio_objective` plus a ridge.

    The ridge is on all coefficients, the bias included, as `ridge / 2` times their squared sum.

    Args:
      features: `[batch, m]`.
      labeled: `[batch]`, above 0 for labelled positives.
      positive_share: see `ratio_objective`.
      ridge: above 0, so that the system can be solved whatever the batch.
      counted: bool `[batch]`, the rows to look at; None is all.

    Returns:
      Kernel `[m, 1]` and bias `[1]`, differentiable in the features.
    """
    basis = jnp.concatenate([features, jnp.ones([features.shape[0], 1])], axis=1)
    counted = jnp.ones(labeled.shape, bool) if counted is None else counted
    positive = _weights(counted & (labeled > 0))
    unlabeled = _weights(counted & (labeled <= 0))
    mixture = positive_share * positive + (1 - positive_share) * unlabeled
    # In full precision: rounded to the bfloat16 of matrix units, the Gram matrix of more features
    # than rows has negative eigenvalues beyond the ridge.
    product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    gram = product(basis.T, basis * mixture[:, None])
    mean = product(basis.T, positive)
    solved = jax.scipy.linalg.solve(gram + ridge * jnp.eye(gram.shape[0]), mean, assume_a="pos")
    return solved[:-1, None], solved[-1:]


def _weights(mask: jax.Array) -> jax.Array:
    """Weights of a mean over the rows of a mask; all 0 where it is empty."""
    return mask / jnp.maximum(jnp.sum(mask), 1)


def _mean_where(values: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.sum(values * _weights(mask))


def _mixed_mean(values: jax.Array, labeled: jax.Array, positive_share: float) -> jax.Array:
    is_positive = labeled > 0
    over_unlabeled = (1 - positive_share) * _mean_where(values, ~is_positive)
    return positive_share * _mean_where(values, is_positive) + over_unlabeled


def add_noise(key: jax.Array, gradient: Any, *, eta: float, updates: jax.Array) -> Any:
    """The gradient plus noise N(0, eta / (1 + updates)^0.55) on every number.

    The schedule of Neelakantan et al. (2015), https://arxiv.org/abs/1511.06807, as Chainer's hook
    has it.

    Args:
      key: random key.
      gradient: a tree.
      eta: variance at the first update; 0 for no noise.
      updates: how many updates there have been.
    """
    scale = jnp.sqrt(eta / (1 + updates) ** 0.55)
    leaves, structure = jax.tree.flatten(gradient)
    keys = jax.random.split(key, len(leaves))
    noisy = [x + scale * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noisy)
