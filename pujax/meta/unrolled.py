"""Derivatives through the inner steps: reverse, mixed and forward mode, truncated, differences."""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from pujax import checks
from pujax.arrays import check_number
from pujax.meta import leaves
from pujax.meta.estimates import Estimate, slopes_along_units
from pujax.meta.inner_loop import InnerLoop, first_line, update_of

OuterLoss = Callable[..., jax.Array]


def reverse(
    loop: InnerLoop,
    outer_loss: OuterLoss,
    meta: chex.ArrayTree,
    *,
    mixed: bool = False,
    segment: int | None = None,
    window: int | None = None,
) -> Estimate:
    """Reverse mode through the last `window` steps, exact for all of them.

    Sources: Maclaurin, Duvenaud & Adams, "Gradient-based hyperparameter optimization through
    reversible learning", ICML 2015, for the unrolled derivative; Shaban et al., "Truncated
    back-propagation for bilevel optimization", AISTATS 2019, for the truncated one;
    Luketina et al., "Scalable gradient-based tuning of continuous regularization
    hyperparameters", ICML 2016 (T1-T2), for a window of one step; Griewank & Walther, "Revolve",
    2000, for segments.

    Args:
      loop: the inner problem.
      outer_loss: of the parameters after the steps.
      meta: the meta-parameters.
      mixed: whether the inner gradient is differentiated forward over reverse.
      segment: steps between two kept carries, from 1 to K; about the square root of K needs
        least memory. None keeps everything.
      window: steps that are differentiated, from 1 to K; None for all.

    Returns:
      The estimate.

    Raises:
      ValueError: for a segment or window out of range, and for an optimizer without a
        derivative in reverse mode, such as one that searches along a line.
    """
    for name, value in (("segment", segment), ("window", window)):
        if value is not None:
            checks.whole_number(name, value, 1)
            checks.between(name, value, 1, loop.num_steps)
    if loop.optimizer is not None:
        _check_reverse(loop)
    from_step = loop.num_steps - (loop.num_steps if window is None else window)
    # Without derivative, so this part keeps nothing.
    carry = loop.run(meta, loop.start(), last=from_step)

    def outer_after_steps(meta: chex.ArrayTree):
        after = loop.run(meta, carry, first=from_step, mixed=mixed, segment=segment)
        return loop.outer(outer_loss, after), after

    (value, after), gradient = jax.value_and_grad(outer_after_steps, has_aux=True)(meta)
    return Estimate(gradient, value, after)


def forward(
    loop: InnerLoop,
    outer_loss: OuterLoss,
    meta: chex.ArrayTree,
    *,
    chunk_size: int | None = None,
) -> Estimate:
    """Forward mode: one derivative per meta-parameter, carried along with the steps; exact.

    Source: Franceschi et al., "Forward and reverse gradient-based hyperparameter optimization",
    ICML 2017, section 3.2. Memory does not grow with the number of steps, and the cost
    grows with the number of meta-parameters.

    Args:
      loop: the inner problem.
      outer_loss: of the parameters after the steps.
      meta: the meta-parameters.
      chunk_size: derivatives that run at once; None for all.

    Returns:
      The estimate.
    """
    _check_chunk(chunk_size)

    def slope(direction: chex.ArrayTree) -> jax.Array:
        return jax.jvp(lambda m: _value(loop, outer_loss, m), (meta,), (direction,))[1]

    return Estimate(slopes_along_units(slope, meta, chunk_size))


def finite_difference(
    loop: InnerLoop,
    outer_loss: OuterLoss,
    meta: chex.ArrayTree,
    *,
    epsilon: float | None = None,
    chunk_size: int | None = None,
) -> Estimate:
    """Central differences, two runs per meta-parameter; the check of all others.

    The error is `epsilon^2 / 6` times the third derivative, and the rounding of the outer loss
    divided by `epsilon`: about the rounding to the power 2/3 at the default.

    Args:
      loop: the inner problem.
      outer_loss: of the parameters after the steps.
      meta: the meta-parameters.
      epsilon: half the distance of both points, at least two roundings of m; None for the cube
        root of the type's rounding, times `max(1, |m|)`.
      chunk_size: pairs of runs at once; None for all.

    Returns:
      The estimate.
    """
    _check_chunk(chunk_size)
    loop.check_compares()
    if epsilon is not None:
        check_number("epsilon", epsilon, lambda e: e > 0, "a positive number")

    def width(leaf: jax.Array) -> jax.Array:
        rounding = jnp.finfo(leaf.dtype).eps
        if epsilon is not None:
            return jnp.maximum(jnp.asarray(epsilon, leaf.dtype), 2 * rounding * jnp.abs(leaf))
        return rounding ** (1 / 3) * jnp.maximum(1, jnp.abs(leaf))

    widths = jax.tree_util.tree_map(width, meta)

    def slope(direction: chex.ArrayTree) -> jax.Array:
        def moved(sign: int) -> chex.ArrayTree:
            # What is infinite, and is not asked for, stays.
            return jax.tree_util.tree_map(
                lambda m, d, w: jnp.where(d != 0, m + sign * w, m), meta, direction, widths
            )

        add, take = moved(1), moved(-1)
        # The distance of the rounded points, which is not twice the width.
        apart = jax.tree_util.tree_map(
            lambda d, a, b: jnp.where(d != 0, a - b, 0), direction, add, take
        )
        distance = leaves.dot(apart, direction)
        difference = _compared(loop, outer_loss, add) - _compared(loop, outer_loss, take)
        return difference / distance

    return Estimate(slopes_along_units(slope, meta, chunk_size))


def _value(loop: InnerLoop, outer_loss: OuterLoss, meta: chex.ArrayTree) -> jax.Array:
    return loop.outer(outer_loss, loop.run(meta, loop.start()))


def _compared(loop: InnerLoop, outer_loss: OuterLoss, meta: chex.ArrayTree) -> jax.Array:
    return loop.compared(outer_loss, loop.run(meta, loop.start()))


def _check_chunk(chunk_size: int | None) -> None:
    if chunk_size is not None:
        checks.whole_number("chunk_size", chunk_size, 1)


def _check_reverse(loop: InnerLoop) -> None:
    """Requires an optimizer that reverse mode can differentiate."""
    update = update_of(loop.optimizer, loop.opt_state)

    def pulled(slopes: chex.ArrayTree, moving: chex.ArrayTree) -> chex.ArrayTree:
        updates, pull = jax.vjp(update, slopes, moving)
        return pull(updates)

    try:
        jax.eval_shape(pulled, loop.moving, loop.moving)
    except Exception as error:
        raise ValueError(
            f"optimizer is {type(loop.optimizer).__name__}; accepted: one that reverse mode can "
            "differentiate; estimators 'forward', 'implicit_cg', 'implicit_neumann', 'es', 'pes' "
            f"and 'finite_difference' take others ({first_line(error)})"
        ) from error
