"""What an ensemble agrees on: uncertainty, the choice of pseudo-labels, their loss (PUUPL)."""

import jax
import jax.numpy as jnp

from pujax.arrays import mean_where
from pujax.methods._common import losses


def pseudo_loss(scores: jax.Array, targets: jax.Array, is_pseudo: jax.Array) -> jax.Array:
    """Mean cross-entropy of the pseudo-labelled examples against their soft labels.

    Args:
      scores: `[batch]`.
      targets: `[batch]`, probabilities of the positive class.
      is_pseudo: bool `[batch]`, which rows count.

    Returns:
      A scalar, 0 where no row counts.
    """
    return mean_where(losses.soft_cross_entropy(scores, targets), is_pseudo)


def mutual_information(scores: jax.Array) -> jax.Array:
    """How much an ensemble disagrees: entropy of the mean prediction less the mean entropy.

    Args:
      scores: `[nets, batch]`.

    Returns:
      `[batch]`, nats, from 0 where all networks say the same to log 2.
    """
    mean_entropy = jnp.mean(losses.entropy(scores), axis=0)
    p = jnp.mean(jax.nn.sigmoid(scores), axis=0)
    q = jnp.mean(jax.nn.sigmoid(-scores), axis=0)
    total = -jax.scipy.special.xlogy(p, p) - jax.scipy.special.xlogy(q, q)
    return jnp.maximum(total - mean_entropy, 0)  # rounding may leave it just below


def mean_score(scores: jax.Array) -> jax.Array:
    """Logit of the mean probability of an ensemble, exact where that rounds to 0 or 1.

    Args:
      scores: `[nets, batch]`.

    Returns:
      `[batch]`.
    """
    positive = jax.nn.logsumexp(jax.nn.log_sigmoid(scores), axis=0)
    return positive - jax.nn.logsumexp(jax.nn.log_sigmoid(-scores), axis=0)


def select(
    key: jax.Array,
    uncertainty: jax.Array,
    score: jax.Array,
    is_pseudo: jax.Array,
    *,
    labeled: jax.Array,
    label_below: float,
    withdraw_above: float,
    max_new: int,
) -> tuple[jax.Array, jax.Array]:
    """Which examples have a pseudo-label in the next round.

    Pseudo-labels with an uncertainty above `withdraw_above` go. Of the unlabeled examples without
    one and with an uncertainty below `label_below`, the least uncertain get one, equally many that
    the ensemble calls positive as negative and at most `max_new` in all.

    Args:
      key: decides among examples of the same uncertainty.
      uncertainty: `[n]`.
      score: `[n]`, positive where the ensemble predicts positive.
      is_pseudo: bool `[n]`, pseudo-labels of the last round.
      labeled: bool `[n]`, labelled positives, which never get one.
      label_below: largest uncertainty to give a label for.
      withdraw_above: uncertainty above which a label is withdrawn.
      max_new: labels to give.

    Returns:
      `(is_pseudo, is_new)`, bool `[n]` twice; the first includes the second.
    """
    kept = is_pseudo & (uncertainty <= withdraw_above)
    candidates = ~labeled & ~is_pseudo & (uncertainty < label_below)
    sides = [candidates & (score > 0), candidates & (score <= 0)]
    each = jnp.minimum(jnp.minimum(jnp.sum(sides[0]), jnp.sum(sides[1])), max_new // 2)
    # Networks that are sure agree exactly in floating point: without a draw among equals the order
    # of the data would choose.
    draw = jax.random.permutation(key, uncertainty.shape[0])
    is_new = jnp.zeros_like(is_pseudo)
    for side in sides:
        order = jnp.lexsort((draw, jnp.where(side, uncertainty, jnp.inf)))
        place = jnp.zeros_like(draw).at[order].set(jnp.arange(draw.shape[0], dtype=draw.dtype))
        is_new |= side & (place < each)
    return kept | is_new, is_new
