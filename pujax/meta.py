"""Bi-level updates: derivatives through a virtual gradient step, and LaGAM's label rules.

A bi-level problem has an inner loss that trains parameters and depends on meta-parameters (soft
labels, example weights, a temperature, ...), and an outer loss that judges the trained parameters
on clean data. `virtual_step` is one differentiable gradient step of the inner loss, an ordinary
function of a parameter tree, and `meta_gradient` the derivative of the outer loss through it.
Nothing here is specific to labels; `balanced_bce`, `project_labels` and `ema_labels` are the
pieces that LaGAM puts around it.
"""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax.arrays import full_precision

KeyPath = tuple[Any, ...]


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
        clip: smallest probability, in [0, 0.5).

    Returns:
        The scalar loss.

    Raises:
        ValueError: if the shapes do not fit.
    """
    scores, soft_labels = full_precision(scores), full_precision(soft_labels)
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
    terms = jnp.sum(soft_labels * losses, axis=0) / jnp.where(empty, 1, mass)
    return jnp.sum(jnp.where(empty, 0, terms))


def virtual_step(
    inner_loss: Callable[[chex.ArrayTree], jax.Array],
    params: chex.ArrayTree,
    *,
    learning_rate: float | jax.Array,
    trainable: Callable[[KeyPath], bool] | None = None,
) -> chex.ArrayTree:
    """Parameters after one plain gradient step, `w - learning_rate * d inner_loss / d w`.

    No momentum and no weight decay. The result is a differentiable function of everything that
    went in: `params`, `learning_rate`, and whatever `inner_loss` closes over, to any order.
    Frozen leaves are constants of the inner derivative, which therefore costs only what the
    moving leaves cost.

    Example: `virtual_step(loss, params, learning_rate=1e-3, trainable=lambda path: path[-1].key ==
    'kernel')` moves the leaves that a nested dict stores under `kernel`.

    Args:
        inner_loss: scalar loss of a parameter tree.
        params: any pytree of arrays.
        learning_rate: step size.
        trainable: takes the `jax.tree_util` key path of a leaf and tells whether it moves; None
            moves all. Leaves of integers or booleans never move.

    Returns:
        A tree like `params`. Frozen leaves are the same objects; moved leaves below float32 become
        float32, because a small step would be lost to rounding.

    Raises:
        ValueError: if no leaf moves.
    """
    entries, treedef = jax.tree_util.tree_flatten_with_path(params)
    leaves = [leaf for _, leaf in entries]
    moving = [
        i
        for i, (path, leaf) in enumerate(entries)
        if _is_floating(leaf) and (trainable is None or trainable(path))
    ]
    if not moving:
        paths = [jax.tree_util.keystr(path) for path, leaf in entries if _is_floating(leaf)]
        raise ValueError(
            f"trainable selects no floating-point leaf of params; their paths are {paths}"
        )

    def join(moved: list[jax.Array]) -> chex.ArrayTree:
        joined = list(leaves)
        for i, leaf in zip(moving, moved, strict=True):
            joined[i] = leaf
        return jax.tree_util.tree_unflatten(treedef, joined)

    current = [full_precision(leaves[i]) for i in moving]
    slopes = jax.grad(lambda moved: inner_loss(join(moved)))(current)
    return join([w - learning_rate * slope for w, slope in zip(current, slopes, strict=True)])


def meta_gradient(
    inner_loss: Callable[[chex.ArrayTree, chex.ArrayTree], jax.Array],
    outer_loss: Callable[[chex.ArrayTree], jax.Array],
    params: chex.ArrayTree,
    meta_params: chex.ArrayTree,
    *,
    learning_rate: float | jax.Array,
    trainable: Callable[[KeyPath], bool] | None = None,
) -> chex.ArrayTree:
    """Gradient of the outer loss with respect to the meta-parameters, through one virtual step.

    `d/dm outer_loss(virtual_step(inner_loss(., m), params))`. Source: the meta update of LaGAM
    (Long et al., CVPR 2024), where `m` are the label masses of a batch and only the classifier's
    weight vector moves; the function takes any losses, any subset of parameters and any tree of
    meta-parameters.

    Args:
        inner_loss: scalar loss of `(params, meta_params)`.
        outer_loss: scalar loss of the stepped parameters.
        params: any pytree of arrays.
        meta_params: any pytree of floating-point arrays.
        learning_rate: step size of the virtual step.
        trainable: which leaves of `params` move, see `virtual_step`.

    Returns:
        A tree like `meta_params`.

    Raises:
        ValueError: if no leaf of `params` moves.
    """

    def outer_after_step(meta: chex.ArrayTree) -> jax.Array:
        stepped = virtual_step(
            lambda tree: inner_loss(tree, meta),
            params,
            learning_rate=learning_rate,
            trainable=trainable,
        )
        return outer_loss(stepped)

    return jax.grad(outer_after_step)(jax.tree_util.tree_map(full_precision, meta_params))


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
    gradient = full_precision(label_gradient)
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
        rho: share of the old label that stays, in [0, 1].
        pinned: which examples are labelled positives, `[batch]` booleans.

    Returns:
        The new soft labels, `[batch]`, exactly 1 where `pinned`.

    Raises:
        ValueError: if the three arrays differ in shape.
    """
    labels, targets = full_precision(labels), full_precision(targets)
    pinned = jnp.asarray(pinned)
    if not labels.shape == targets.shape == pinned.shape:
        raise ValueError(
            "labels, targets and pinned must have one shape, "
            f"got {labels.shape}, {targets.shape} and {pinned.shape}"
        )
    return jnp.where(pinned > 0, 1, rho * labels + (1 - rho) * targets)


def _clipped_log_loss(scores: jax.Array, clip: float | jax.Array) -> jax.Array:
    """`-log(clip(sigmoid(scores), clip, 1 - clip))`, the boundary itself counting as unclipped.

    The logarithm is taken of the scores and not of the probabilities, which round to 0 and 1.
    """
    probabilities = jax.lax.stop_gradient(jax.nn.sigmoid(scores))
    below, above = probabilities < clip, probabilities > 1 - clip
    limit = jnp.where(below, -jnp.log(clip), -jnp.log1p(-clip))
    return jnp.where(below | above, limit, jax.nn.softplus(-scores))


def _is_floating(leaf: chex.ArrayTree) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
