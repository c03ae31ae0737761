"""What every risk needs: checked arguments, means over groups, exact sigmoids."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import checks
from pujax.arrays import check_labeled, full_precision, mean_where, weighted


def checked(
    scores: ArrayLike, labeled: ArrayLike, *, name: str = "scores"
) -> tuple[jax.Array, jax.Array]:
    """Scores in full precision and a boolean mask of the labelled positives, of one shape.

    `name` is what the function that is called says to the scores.
    """
    check_labeled(labeled)
    scores, labeled = full_precision(scores, name), jnp.asarray(labeled)
    check_shape("labeled", labeled, scores.shape, f"the shape of {name}")
    return scores, labeled > 0


def of_type(dtype: np.dtype, *numbers: float | jax.Array) -> list[jax.Array]:
    """The numbers in the type of the scores, which those of NumPy would widen where x64 is on.

    A loop could then not carry the risk.
    """
    return [jnp.asarray(number, dtype) for number in numbers]


def check_shape(name: str, values: jax.Array, expected: tuple[int, ...], meaning: str) -> None:
    """Requires the shape `expected`, described as `meaning`."""
    if values.shape != expected:
        raise ValueError(f"{name} has shape {values.shape}, but must have {meaning}, {expected}")


def losses(loss: Callable[[jax.Array], jax.Array], *margins: jax.Array) -> list[jax.Array]:
    """The loss of each of several arrays of margins; it must be elementwise.

    One that returns its mean, or a column, would broadcast into the masks of another function,
    whose result looks like a risk.
    """
    checks.require(callable(loss), "loss", loss, "a function of the margin, elementwise")
    values = [loss(margin) for margin in margins]
    for margin, value in zip(margins, values, strict=True):
        shape = jnp.shape(value)
        accepted = f"that of the margin, {margin.shape}, since it is elementwise"
        checks.require(shape == margin.shape, "the shape of loss", shape, accepted)
    # One that computes in bfloat16 would leave the mean over the batch three digits.
    return [full_precision(value, "what loss returns") for value in values]


def weighted_mean(values: jax.Array, weights: ArrayLike | None) -> jax.Array:
    """Mean of `values` with `weights` of the same shape; 0 where nothing has weight."""
    if weights is None:
        return jnp.sum(values) / max(values.size, 1)
    weights = full_precision(weights, "weights")
    check_shape("weights", weights, values.shape, "one entry per example")
    total = jnp.sum(weights)
    return weighted_sum(values, weights) / jnp.where(total == 0, 1, total)


def weighted_sum(values: jax.Array, weights: jax.Array) -> jax.Array:
    """Sum of the products, 0 where an infinite value has no weight."""
    return jnp.sum(weighted(values, weights))


@jax.custom_jvp
def sigmoid(x: jax.Array) -> jax.Array:
    """Logistic function whose derivative stays exact where the function rounds to 1."""
    return jax.nn.sigmoid(x)


@sigmoid.defjvp
def _sigmoid_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return sigmoid(x), dx * sigmoid(x) * sigmoid(-x)


def log_mean_sigmoid(scores: jax.Array, mask: jax.Array, axis: int | None = None) -> jax.Array:
    """Log of the mean of `sigmoid(scores)` where `mask` holds; 0 where it holds nowhere.

    Exact at both ends: small means are summed as logarithms, means near 1 by their distance from 1.
    """
    count = jnp.sum(mask, axis).astype(scores.dtype)
    log_p = jnp.where(mask, jax.nn.log_sigmoid(scores), -jnp.inf)
    largest = jnp.max(jax.lax.stop_gradient(log_p), axis, initial=-jnp.inf, keepdims=True)
    largest = jnp.where(jnp.isfinite(largest), largest, 0)
    total = jnp.sum(jnp.exp(log_p - largest), axis)
    # With a count of 0 the total is 0 as well; the other branch then holds the answer.
    # Where every sigmoid is exactly 0 so is the total, and the logarithm has no derivative.
    mean = total / jnp.maximum(count, 1)
    below = jnp.log(jnp.where(mean == 0, 1, mean))
    below = jnp.where((mean == 0) & (count > 0), -jnp.inf, below)
    lacking = mean_where(sigmoid(-scores), mask, axis)
    near_one = jnp.log1p(-jnp.minimum(lacking, 0.5))
    return jnp.where(lacking < 0.5, near_one, below + largest.reshape(below.shape))
