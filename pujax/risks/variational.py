"""VPU: the variational PU risk and its mixup consistency, which need no class prior."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax import arrays, checks
from pujax.risks import _arrays, surrogates


def vpu(scores: ArrayLike, labeled: ArrayLike, *, include_positives: bool = False) -> jax.Array:
    """Variational PU risk: `log(mean_X Phi) - mean_P(log Phi)` with `Phi = sigmoid(g)`.

    Its minimiser is P(positive | x) up to a factor, so no class prior enters; predictions compare
    `Phi` with half its largest value. X must follow the population: U for two-sample data, P and U
    together for one-sample data. Source: Chen, Liu, Wang, Zhao, Wu, "A variational approach for
    learning from positive and unlabeled data", NeurIPS 2020; `Phi` is that of its code, a sigmoid.

    Args:
      scores: raw scores, `[batch]`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
      include_positives: whether X is the whole batch instead of its unlabeled examples.

    Returns:
      The scalar risk; the term of an empty group is 0, its logarithm included.

    Raises:
      ValueError: if the shapes of `scores` and `labeled` differ, `labeled` holds other codes, or
        `include_positives` is not a boolean.
    """
    checks.one_of("include_positives", include_positives, (True, False))
    scores, is_positive = _arrays.checked(scores, labeled)
    population = jnp.ones_like(is_positive) if include_positives else ~is_positive
    positive_term = arrays.mean_where(surrogates.logistic_loss(scores), is_positive)
    return _arrays.log_mean_sigmoid(scores, population) + positive_term


def vpu_mixup(mixed_scores: ArrayLike, targets: ArrayLike) -> jax.Array:
    """Mixup consistency of VPU: mean of `(log t - log Phi)^2` over the mixed examples.

    The mixed example should get the mixed probability `t = mix * Phi(x) + (1 - mix) * 1` of an
    unlabeled example and a labelled positive. The targets are not detached, as in the authors'
    code, so the network moves them too; detach them with `jax.lax.stop_gradient` if that is not
    wanted. Source: Chen et al., NeurIPS 2020, whose regulariser this is, and its code.

    Args:
      mixed_scores: raw scores of the mixed inputs, `[batch]`.
      targets: mixed probabilities in [0, 1], same shape; below 1e-31 (1e-292 in float64) they
        count as that number, without gradient. Their second derivative is finite from the root
        of the smallest number on, 1e-19 (1e-154).

    Returns:
      The scalar mean, 0 for an empty batch.

    Raises:
      ValueError: if the shapes differ.
    """
    mixed_scores = arrays.full_precision(mixed_scores, "mixed_scores")
    targets = arrays.full_precision(targets, "targets")
    _arrays.check_shape("targets", targets, mixed_scores.shape, "the shape of mixed_scores")
    # A slope of the logarithm at the floor must not overflow, not even times the gap.
    smallest = jnp.finfo(targets.dtype).tiny / jnp.finfo(targets.dtype).eps
    floored = jnp.where(targets > smallest, targets, smallest)
    gap = jnp.log(floored) - jax.nn.log_sigmoid(mixed_scores)
    return jnp.sum(gap**2) / max(gap.size, 1)
