"""LaGAM's label update (paper section 3.3): gradient of the labels, projection, moving average."""

import bisect
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from pujax import meta, risks
from pujax.arrays import mean_where

Scores = Callable[[chex.ArrayTree], jax.Array]
"""Scores `[batch]` of some examples, a function of the parameters that a virtual step moves."""
_LONGEST = 1_000_000  # epochs


def label_loss(scores: jax.Array, labels: jax.Array, *, form: str, clip: float = 1e-4) -> jax.Array:
    """Classification loss on soft labels: class-balanced (the code) or plain mean (paper Eq. 1).

    Args:
      scores: `[batch]`.
      labels: `[batch]` positive mass, or `[batch, 2]` (negative, positive).
      form: 'balanced' or 'mean'.
      clip: smallest probability of 'balanced'; beyond it an example has no gradient.

    Returns:
      A scalar.
    """
    if form == "balanced":
        return meta.balanced_bce(scores, labels, clip=clip)
    if labels.ndim == 1:
        labels = jnp.stack([1 - labels, labels], axis=-1)
    return jnp.mean(
        labels[:, 1] * risks.logistic_loss(scores) + labels[:, 0] * risks.logistic_loss(-scores)
    )


def update_labels(
    classifier: Any,
    features: jax.Array,
    labels: jax.Array,
    support_features: jax.Array,
    support_labels: jax.Array,
    *,
    pinned: jax.Array,
    rho: jax.Array,
    learning_rate: float,
    form: str = "balanced",
    rule: str = "projected",
) -> jax.Array:
    """One label update of a batch (paper Eq. 8-11): virtual step, label gradient, projection, EMA.

    Only the classifier's weight vector moves in the virtual step, so features are constants: they
    come from a training-mode pass whose running statistics are dropped. A support batch of one
    class says nothing about the other and leaves the labels as they are.

    Args:
      classifier: `{'kernel': [dim, 1], 'bias': [1]}`.
      features: `[batch, dim]` of the training batch.
      labels: `[batch]`, stored positive mass.
      support_features: `[support_batch, dim]`.
      support_labels: `[support_batch]`, 0 or 1.
      pinned: bool `[batch]`, examples whose label stays 1.
      rho: share of the old label.
      learning_rate: of the virtual step.
      form: as in `label_loss`.
      rule: as in `moved_labels`.

    Returns:
      `[batch]`, the new positive mass.
    """
    gradient = label_gradient(
        lambda params: linear_scores(params, features),
        lambda params: linear_scores(params, support_features),
        classifier,
        labels,
        support_labels,
        form=form,
        learning_rate=learning_rate,
        trainable=lambda path: path[-1].key == "kernel",
    )
    return moved_labels(labels, gradient, support_labels, pinned=pinned, rho=rho, rule=rule)


def linear_scores(classifier: Any, features: jax.Array) -> jax.Array:
    """Scores `[batch]` of features `[batch, dim]`; `{'kernel': [dim, 1], 'bias': [1]}`."""
    product = jnp.dot(features, classifier["kernel"][:, 0], precision="highest")
    return product + classifier["bias"][0]


def label_gradient(
    batch_scores: Scores,
    support_scores: Scores,
    params: chex.ArrayTree,
    labels: jax.Array,
    support_labels: jax.Array,
    *,
    form: str,
    margin: float = 0.0,
    **virtual: Any,
) -> jax.Array:
    """Gradient of the support loss with respect to the label masses, through virtual steps.

    Args:
      batch_scores: of the training batch, `[batch]`.
      support_scores: of the support batch, `[support_batch]`.
      params: what both take.
      labels: `[batch]`, stored positive mass.
      support_labels: `[support_batch]`, 0 or 1.
      form: of both losses, as in `label_loss`.
      margin: by how much a support example's score must exceed what the loss asks of it, in no
        paper; above 0 the support loss vanishes later, and its probabilities are not clipped.
      **virtual: which parameters move, by how many steps of which optimizer, and the estimator:
        arguments of `meta.meta_gradient`.

    Returns:
      `[batch, 2]`, with respect to the masses (negative, positive).
    """

    def inner_loss(params, shift):
        both = jnp.stack([1 - labels, labels], axis=-1) + shift
        return label_loss(batch_scores(params), both, form=form)

    def outer_loss(params):
        scores = support_scores(params)
        if not margin:
            return label_loss(scores, support_labels, form=form)
        scores -= margin * (2 * support_labels - 1)
        return label_loss(scores, support_labels, form=form, clip=0.0)

    shift = jnp.zeros([labels.shape[0], 2], labels.dtype)
    return meta.meta_gradient(inner_loss, outer_loss, params, shift, **virtual)


def pull(gradient: jax.Array) -> jax.Array:
    """How strongly each label is drawn towards positive, `[batch]`, from a gradient `[batch, 2]`.

    Above 0 where more positive mass lowers the support loss faster than more negative mass does.
    """
    return gradient[:, 0] - gradient[:, 1]


def share_by_size(gradient: jax.Array, pinned: jax.Array) -> jax.Array:
    """Share of an update that each example takes under the rule 'weighted', `[batch]` in [0, 1].

    The size of the pull, divided by its mean over the examples that are not pinned, at most 1:
    small gradients have the sign of the truth less often than large ones.

    Args:
      gradient: `[batch, 2]`, of `label_gradient`.
      pinned: bool `[batch]`, examples whose label stays 1.
    """
    size = jnp.abs(pull(gradient))
    mean = mean_where(size, jnp.logical_not(pinned))
    return jnp.minimum(size / jnp.where(mean > 0, mean, 1), 1)


def loss_left(support_scores: jax.Array, support_labels: jax.Array, *, form: str) -> jax.Array:
    """The support loss as a share of that of scores that are all 0, a scalar in [0, 1].

    Args:
      support_scores: `[support_batch]`.
      support_labels: `[support_batch]`, 0 or 1, of both classes.
      form: as in `label_loss`.
    """
    unknown = label_loss(jnp.zeros_like(support_scores), support_labels, form=form)
    return jnp.minimum(label_loss(support_scores, support_labels, form=form) / unknown, 1)


def moved_labels(
    labels: jax.Array,
    gradient: jax.Array,
    support_labels: jax.Array,
    *,
    pinned: jax.Array,
    rho: jax.Array,
    rule: str = "projected",
) -> jax.Array:
    """Labels after a step towards what the gradient asks for.

    Args:
      labels: `[batch]`, stored positive mass.
      gradient: `[batch, 2]`, of `label_gradient`.
      support_labels: `[support_batch]`; if all are of one class the labels stay.
      pinned: bool `[batch]`, examples whose label stays 1.
      rho: share of the old label.
      rule: 'projected' takes the sign of the gradient (the method); 'normalized' is the soft
        update of Table 4: the gradient difference, scaled to a largest magnitude of 1 over the
        batch, places the target linearly between 0 and 1. 'weighted', in no paper, takes the
        sign as the method does, and of the step what `share_by_size` says.

    Returns:
      `[batch]`, the new positive mass.
    """
    if rule == "weighted":
        rho = 1 - (1 - rho) * share_by_size(gradient, pinned)
    if rule in ("projected", "weighted"):
        targets = meta.project_labels(gradient)
    else:
        towards = pull(gradient)
        largest = jnp.max(jnp.abs(towards))
        targets = (1 + towards / jnp.where(largest > 0, largest, 1)) / 2
    updated = meta.ema_labels(labels, targets, rho=rho, pinned=pinned)
    return jnp.where(has_both_classes(support_labels), updated, labels)


def kept_share(config: ml_collections.ConfigDict, done: Any) -> Any:
    """Share rho of the old label that an update keeps, where a share of the epochs is done.

    Args:
      config: the method's section.
      done: epochs done as a share of the run's, a number or an array.

    Returns:
      Like `done`.
    """
    return config.rho_start + (config.rho_end - config.rho_start) * done


def epochs_to_turn(config: ml_collections.ConfigDict) -> int | None:
    """Length of the shortest run in which a label can come from 0 to one half.

    That is with an update towards positive in every epoch after the warm-up. With the rule
    'weighted' or a memory by the support loss updates are smaller, and a run needs more.

    Args:
      config: the method's section.

    Returns:
      Epochs, the warm-up among them; None where a million are too few.
    """

    def turns(length: int) -> bool:
        done = np.arange(config.warmup_epochs, length) / length
        return bool(np.prod(kept_share(config, done)) <= 0.5)

    # A longer run has one factor more, and none of the others is larger than in a shorter one.
    found = bisect.bisect_left(range(_LONGEST + 1), True, lo=1, key=turns)
    return found if found <= _LONGEST else None


def too_short(config: ml_collections.ConfigDict) -> str | None:
    """What to say of a run in which no label of U can come to one half, else None."""
    needed = epochs_to_turn(config)
    if needed is not None and needed <= config.num_epochs:
        return None
    length = f"{needed}" if needed else f"more than {_LONGEST:,}"
    return (
        f"method.num_epochs is {config.num_epochs}, and soft labels of unlabeled examples need "
        f"{length} to come to one half (method.warmup_epochs={config.warmup_epochs}, "
        f"method.rho_start={config.rho_start:g}, method.rho_end={config.rho_end:g}): none can be "
        "learned as positive"
    )


def has_both_classes(support_labels: jax.Array) -> jax.Array:
    """Whether labels of 0 and 1 `[support_batch]` are of both classes."""
    # A mean of ones may be rounded to less than 1.
    return jnp.any(support_labels > 0) & jnp.any(support_labels < 1)
