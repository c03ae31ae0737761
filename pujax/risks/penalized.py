"""GradPU: absolute loss with upweighted positives, and a gradient penalty between P and U."""

import numbers
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import arrays, checks
from pujax.risks import _arrays


def gradpu(
    scores: ArrayLike,
    labeled: ArrayLike,
    *,
    beta: float | jax.Array,
    stop_weight_gradient: bool = True,
) -> jax.Array:
    """Data terms of GradPU: `E_P[w (1 - tanh h)] + E_U[1 + tanh h]`, without a class prior.

    Labelled positives that the model misses weigh more, `w = 1 - beta log((1 + tanh h) / 2)`, which
    is `1 + beta softplus(-2 h)` and computed so. The weights are not normalised. The paper does not
    say whether they are differentiated: by default they are constant in the scores, since
    differentiating them pulls a missed positive with a slope near `4 beta`, far above the slope 1
    of an unlabeled example. In `beta` they never are. Source: Dai et al., "GradPU:
    positive-unlabeled learning via gradient penalty and positive upweighting", AAAI 2023, Eqs. 6
    and 7.

    Args:
      scores: scores `h` before the tanh, `[batch]`.
      labeled: 1 for labelled positives and 0 for unlabeled examples, same shape as `scores`.
      beta: strength of the upweighting, 0 or more; 0 gives every positive the weight 1.
      stop_weight_gradient: whether the weights are constants for the gradient by the scores.

    Returns:
      The scalar risk; add the gradient penalty times its factor.

    Raises:
      ValueError: if the shapes of `scores` and `labeled` differ, `labeled` holds other codes, or
        an option is not accepted.
    """
    arrays.check_number("beta", beta, lambda b: b >= 0, "0 or more")
    checks.one_of("stop_weight_gradient", stop_weight_gradient, (True, False))
    scores, is_positive = _arrays.checked(scores, labeled)
    # An unlabeled row has no weight, also where that would be infinite.
    missed = jax.nn.softplus(-2 * jnp.where(is_positive, scores, 0))
    if stop_weight_gradient:
        missed = jax.lax.stop_gradient(missed)
    weights = 1 + _arrays.weighted(missed, jnp.asarray(beta, missed.dtype))
    as_positive = weights * 2 * _arrays.sigmoid(-2 * scores)
    as_negative = 2 * _arrays.sigmoid(2 * scores)
    positive_term = arrays.mean_where(as_positive, is_positive)
    return positive_term + arrays.mean_where(as_negative, ~is_positive)


def gradient_penalty(
    score_fn: Callable[[jax.Array], jax.Array],
    positives: ArrayLike,
    unlabeled: ArrayLike,
    mix: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Mean squared norm of the score's input gradient between positive and unlabeled examples.

    It keeps the score smooth where P and U meet, so that the network cannot single out individual
    labelled positives. The norm is taken at `mix * positive + (1 - mix) * unlabeled`, squared,
    centred at zero and summed over all input dimensions. Nothing is detached: `jax.grad` over the
    parameters that `score_fn` holds goes through the input gradient. A network with batch
    statistics has no gradient of one example; leave it, and dropout, out of `score_fn`. Source: Dai
    et al., AAAI 2023, Eq. 5, on the score before the tanh.

    Args:
      score_fn: maps one example `[...]` to a scalar score.
      positives: labelled positives, `[batch, ...]`.
      unlabeled: unlabeled examples, one partner for each positive, `[batch, ...]`.
      mix: share of the positive in each pair, `[batch]`, drawn uniformly in [0, 1].
      weights: weight of each pair, `[batch]`, 0 for padding, at which the score must have a slope
        as well; None weighs all alike.

    Returns:
      The scalar weighted mean, 0 where nothing has weight.

    Raises:
      ValueError: if the shapes do not fit, or `score_fn` is no function or gives no scalar.
    """
    checks.require(callable(score_fn), "score_fn", score_fn, "a function of one example")
    positives = arrays.full_precision(positives, "positives")
    unlabeled = arrays.full_precision(unlabeled, "unlabeled")
    mix = arrays.full_precision(mix, "mix")
    if not positives.ndim:
        raise ValueError("positives has shape (), but must have one entry per pair, [batch, ...]")
    _arrays.check_shape("unlabeled", unlabeled, positives.shape, "the shape of positives")
    _arrays.check_shape("mix", mix, positives.shape[:1], "one entry per pair")
    if mix.size == 0:
        return jnp.zeros((), positives.dtype)
    share = mix.reshape(mix.shape + (1,) * (positives.ndim - 1))

    def score(example: jax.Array) -> jax.Array:
        value = score_fn(example)
        shown, accepted = type(value).__name__, "one real number, of one example without a batch"
        is_array = isinstance(value, jax.Array | np.ndarray | numbers.Number)
        checks.require(is_array, "what score_fn returns", shown, accepted)
        found = f"{jnp.result_type(value).name} of shape {jnp.shape(value)}"
        is_score = jnp.shape(value) == () and jnp.issubdtype(jnp.result_type(value), jnp.floating)
        if not is_score:
            raise ValueError(f"what score_fn returns is {found}; accepted: {accepted}")
        return value

    slopes = jax.vmap(jax.grad(score))(share * positives + (1 - share) * unlabeled)
    squared_norms = jnp.sum(slopes**2, axis=tuple(range(1, slopes.ndim)))
    return _arrays.weighted_mean(squared_norms, weights)
