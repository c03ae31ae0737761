"""Implicit differentiation at a minimum of the inner loss: conjugate gradients, Neumann series."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax.scipy.sparse import linalg

from pujax import checks
from pujax.arrays import check_number, on_host
from pujax.meta import leaves
from pujax.meta.estimates import Estimate
from pujax.meta.inner_loop import Carry, InnerLoop

Product = Callable[[chex.ArrayTree], chex.ArrayTree]


def conjugate_gradient(
    loop: InnerLoop,
    outer_loss: Callable[..., jax.Array],
    meta: chex.ArrayTree,
    *,
    damping: float | jax.Array = 0.0,
    tolerance: float = 1e-6,
    max_iterations: int = 100,
    max_residual: float = 1e-2,
) -> Estimate:
    """Implicit gradient with the inverse curvature by conjugate gradients.

    At a minimum `w*(m)` of the inner loss its gradient is zero for all m, hence
    `dF/dm = -v' d2L/dw dm` with `(d2L/dw2 + damping) v = dF/dw`. Sources: Pedregosa,
    "Hyperparameter optimization with approximate gradient", ICML 2016, Algorithm 1; the
    damping as in Rajeswaran et al., "Meta-learning with implicit gradients", NeurIPS 2019.

    Args:
      loop: the inner problem. Its steps run first and are not differentiated; K = 0 takes the
        parameters as they are for the minimum.
      outer_loss: of the parameters after the steps.
      meta: the meta-parameters.
      damping: added to the curvature, at least 0.
      tolerance: residual, relative to the right side, at which the iteration ends.
      max_iterations: largest number of products with the curvature.
      max_residual: largest relative residual that is accepted; infinity accepts any, as one
        needs to stop early on purpose.

    Returns:
      The estimate, with the relative residual.

    Raises:
      ValueError: for an argument out of range, and for a residual above `max_residual` where
        it is known. Inside `jit` the gradient is then NaN.
    """
    checks.positive("tolerance", tolerance)
    checks.whole_number("max_iterations", max_iterations, 1)

    def solve(product: Product, right: chex.ArrayTree) -> tuple[chex.ArrayTree, jax.Array]:
        solution, _ = linalg.cg(product, right, tol=tolerance, maxiter=max_iterations)
        left = product(solution)
        missing = jax.tree_util.tree_map(lambda r, found: r - found, right, left)
        return solution, _relative(missing, right)

    return _estimate(loop, outer_loss, meta, solve, damping, max_residual)


def neumann(
    loop: InnerLoop,
    outer_loss: Callable[..., jax.Array],
    meta: chex.ArrayTree,
    *,
    num_terms: int = 10,
    step_size: float | jax.Array | None = None,
    damping: float | jax.Array = 0.0,
    max_residual: float = 1.0,
) -> Estimate:
    """Implicit gradient with the inverse curvature by a Neumann series.

    `v = a sum_{j < J} (I - a H)^j dF/dw`, which is what a truncated derivative through J plain
    steps of size a gives at the minimum. Source: Lorraine, Vicol & Duvenaud, "Optimizing millions
    of hyperparameters by implicit differentiation", AISTATS 2020, Algorithm 3. It
    converges where a times every eigenvalue of H lies between 0 and 2.

    Args:
      loop: the inner problem. Its steps run first and are not differentiated; K = 0 takes the
        parameters as they are for the minimum.
      outer_loss: of the parameters after the steps.
      meta: the meta-parameters.
      num_terms: J.
      step_size: a; None for the inner learning rate.
      damping: added to the curvature, at least 0.
      max_residual: largest residual `|(I - a H)^J dF/dw|`, relative to `dF/dw`, that is
        accepted. Above 1 the series grows.

    Returns:
      The estimate, with the relative residual.

    Raises:
      ValueError: for an argument out of range, and for a residual above `max_residual` where
        it is known. Inside `jit` the gradient is then NaN.
    """
    checks.whole_number("num_terms", num_terms, 1)
    rate = loop.learning_rate if step_size is None else step_size
    checks.require(
        rate is not None,
        "step_size",
        step_size,
        "a positive number where there is no learning_rate",
    )
    if step_size is not None:
        check_number("step_size", step_size, lambda a: a > 0, "a positive number")

    def solve(product: Product, right: chex.ArrayTree) -> tuple[chex.ArrayTree, jax.Array]:
        def add(_: int, sums: tuple[Any, Any]) -> tuple[Any, Any]:
            total, term = sums
            total = jax.tree_util.tree_map(jnp.add, total, term)
            curved = product(term)
            return total, jax.tree_util.tree_map(
                lambda t, c: leaves.like(t - rate * c, t), term, curved
            )

        zeros = jax.tree_util.tree_map(jnp.zeros_like, right)
        total, term = jax.lax.fori_loop(0, num_terms, add, (zeros, right))
        solution = jax.tree_util.tree_map(lambda t: leaves.like(rate * t, t), total)
        return solution, _relative(term, right)

    return _estimate(loop, outer_loss, meta, solve, damping, max_residual)


def _estimate(
    loop: InnerLoop,
    outer_loss: Callable[..., jax.Array],
    meta: chex.ArrayTree,
    solve: Callable[[Product, chex.ArrayTree], tuple[chex.ArrayTree, jax.Array]],
    damping: float | jax.Array,
    max_residual: float,
) -> Estimate:
    """The implicit gradient for a way to solve the linear system."""
    check_number("damping", damping, lambda number: number >= 0, "a number from 0")
    checks.between("max_residual", max_residual, 0, float("inf"), include="high")
    checks.require(
        loop.stats_update != "carried",
        "stats_update",
        loop.stats_update,
        "'frozen' or 'stopped' with an implicit estimator, which takes statistics for constants",
    )
    after = loop.run(meta, loop.start())
    moving, stats, inputs = after.moving, after.batch_stats, loop.last_inputs()

    def slopes(moving: chex.ArrayTree, meta: chex.ArrayTree) -> chex.ArrayTree:
        return loop.gradient(moving, meta, stats, inputs)[1]

    def outer(moving: chex.ArrayTree) -> jax.Array:
        return loop.outer(outer_loss, Carry(moving, after.opt_state, stats))

    value, right = jax.value_and_grad(outer)(moving)
    _, curvature = jax.linearize(lambda moving: slopes(moving, meta), moving)

    def product(vector: chex.ArrayTree) -> chex.ArrayTree:
        curved = curvature(vector)
        return jax.tree_util.tree_map(lambda c, v: leaves.like(c + damping * v, v), curved, vector)

    solution, residual = solve(product, right)
    # Forward over reverse: the derivative of dL/dm in the direction of the solution.
    along = jax.jvp(
        lambda moving: jax.grad(lambda m: loop.loss(moving, m, stats, inputs)[0])(meta),
        (moving,),
        (solution,),
    )[1]
    known = on_host(residual)
    if known is not None and not known <= max_residual:
        raise ValueError(
            "the linear system is not solved, its matrix, the curvature of the inner loss, may be "
            f"singular or indefinite: the relative residual is {float(known):.3g}; accepted: up to "
            f"max_residual = {max_residual} (damping, more iterations, fewer moving parameters or, "
            "for a series that grows, a smaller step_size may help)"
        )
    gradient = jax.tree_util.tree_map(
        lambda a: jnp.where(residual <= max_residual, -a, jnp.nan).astype(a.dtype), along
    )
    return Estimate(gradient, value, after, residual)


def _relative(missing: chex.ArrayTree, right: chex.ArrayTree) -> jax.Array:
    """Norm of what is missing, relative to the right side; 0 where both are."""
    size = jnp.sqrt(leaves.dot(right, right))
    norm = jnp.sqrt(leaves.dot(missing, missing))
    return jnp.where(size > 0, norm / jnp.where(size > 0, size, 1), norm)
