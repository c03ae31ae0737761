"""LaGAM's loss on soft labels and its rules that move them by a meta-gradient."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax.arrays import check_number, full_precision, real, weighted


def balanced_bce(
    scores: ArrayLike, soft_labels: ArrayLike, *, clip: float | jax.Array = 1e-4
) -> jax.Array:
    """Class-balanced binary cross-entropy with soft labels.

    With `p_1 = sigmoid(z)` and `p_0 = sigmoid(-z)` clipped to `[clip, 1 - clip]`, the loss is the
    sum over both classes of `sum_i y_ic (-log p_ic) / sum_i y_ic`: the classes weigh 1 : 1
    whatever their mass. The gradient is zero where the clip is active. The normalisers are
    differentiated, so a label's gradient compares its example with the average of its class. A
    class without mass drops its term. Source: the code of LaGAM (Long et al., CVPR 2024), which
    replaces the plain mean of the paper's Eq. 1.

    Args:
      scores: raw scores `z`, `[batch]`.
      soft_labels: positive mass `y_1` in [0, 1], `[batch]`, with `y_0 = 1 - y_1`; or both columns
        `(y_0, y_1)`, `[batch, 2]`, which can then be differentiated apart.
      clip: smallest probability, in [0, 0.5].

    Returns:
      The scalar loss.

    Raises:
      ValueError: if the shapes do not fit, or `clip` is out of range.
    """
    check_number("clip", clip, lambda share: (share >= 0) & (share <= 0.5), "in [0, 0.5]")
    scores = full_precision(scores, "scores")
    soft_labels = full_precision(soft_labels, "soft_labels")
    if scores.ndim != 1 or soft_labels.shape not in (scores.shape, (*scores.shape, 2)):
        raise ValueError(
            "scores must be [batch] and soft_labels [batch] or [batch, 2], "
            f"got {scores.shape} and {soft_labels.shape}"
        )
    if soft_labels.ndim == 1:
        soft_labels = jnp.stack([1 - soft_labels, soft_labels], axis=1)
    losses = jnp.stack([_clipped_log_loss(-scores, clip), _clipped_log_loss(scores, clip)], axis=1)
    mass = jnp.sum(soft_labels, axis=0)
    empty = mass <= 0
    terms = jnp.sum(weighted(losses, soft_labels), axis=0) / jnp.where(empty, 1, mass)
    return jnp.sum(jnp.where(empty, 0, terms))


def project_labels(label_gradient: ArrayLike) -> jax.Array:
    """Hard labels from the sign of the gradient with respect to label masses.

    An example becomes positive if more positive mass lowers the outer loss faster than more
    negative mass does. A tie, and a gradient that is not a number, give 0. Source: LaGAM (Long et
    al., CVPR 2024), in the two-column form of its code; the paper's rule gives 1 on a tie.

    Args:
      label_gradient: gradient with respect to the masses `(negative, positive)`, `[batch, 2]`,
        or with respect to the positive mass alone, `[batch]`.

    Returns:
      Labels 0 or 1 as floating-point numbers, `[batch]`.

    Raises:
      ValueError: if the gradient has another shape.
    """
    gradient = full_precision(label_gradient, "label_gradient")
    if gradient.ndim == 1:
        positive = -gradient > 0
    elif gradient.ndim == 2 and gradient.shape[1] == 2:
        positive = -gradient[:, 1] > -gradient[:, 0]
    else:
        raise ValueError(
            f"label_gradient has shape {gradient.shape}, but must be [batch] or [batch, 2]"
        )
    return positive.astype(gradient.dtype)


def ema_labels(
    labels: ArrayLike, targets: ArrayLike, *, rho: float | jax.Array, pinned: ArrayLike
) -> jax.Array:
    """Exponential moving average of soft labels, with the known positives pinned to 1.

    `rho * labels + (1 - rho) * targets`. Source: LaGAM (Long et al., CVPR 2024). Its code pins only
    while the stored label equals 1 exactly, which is no longer so after rounding; here a mask says
    what is pinned, in all steps.

    Args:
      labels: stored soft labels, `[batch]`.
      targets: labels they move towards, `[batch]`.
      rho: share of the old label that stays, in [0, 1], one number or one per example.
      pinned: which examples are labelled positives, `[batch]` booleans.

    Returns:
      The new soft labels, `[batch]`, exactly 1 where `pinned`.

    Raises:
      ValueError: if the three arrays differ in shape or hold no real numbers, or `rho` is out of
        range.
    """
    labels, targets = full_precision(labels, "labels"), full_precision(targets, "targets")
    in_range, shapes = "in [0, 1]", ((), labels.shape)
    check_number("rho", rho, lambda share: (share >= 0) & (share <= 1), in_range, shapes=shapes)
    pinned = real("pinned", pinned)
    if not labels.shape == targets.shape == pinned.shape:
        raise ValueError(
            "labels, targets and pinned must have one shape, "
            f"got {labels.shape}, {targets.shape} and {pinned.shape}"
        )
    rho = rho if jnp.isscalar(rho) else jnp.asarray(rho)
    moved = rho * labels + (1 - rho) * targets
    # A rho of a wider type would change that of the labels, which a loop carries.
    return jnp.where(pinned > 0, 1, moved.astype(jnp.result_type(labels, targets)))


def _clipped_log_loss(scores: jax.Array, clip: float | jax.Array) -> jax.Array:
    """`-log(clip(sigmoid(scores), clip, 1 - clip))`, the boundary itself counting as unclipped.

    The logarithm is taken of the scores and not of the probabilities, which round to 0 and 1.
    """
    probabilities = jax.lax.stop_gradient(jax.nn.sigmoid(scores))
    below, above = probabilities < clip, probabilities > 1 - clip
    # Nothing is below a clip of 0, whose logarithm has no finite slope.
    lowest = -jnp.log(jnp.where(clip == 0, 1, clip))
    limit = jnp.where(below, lowest, -jnp.log1p(-clip))
    return jnp.where(below | above, limit, jax.nn.softplus(-scores))
