"""The inner gradient for mixed mode: a `custom_vjp` whose backward pass is forward over reverse."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax.extend import core as jax_core

from pujax.meta import leaves


def gradient(loss: Callable[..., Any], example: tuple[Any, ...]) -> Callable[..., Any]:
    """The gradient of a loss, with a backward pass that is forward over reverse.

    The backward pass of a gradient needs `v' d2L/dw2` and `v' d2L/dwdm`. Differentiating the
    gradient in reverse builds them out of the whole reverse pass, whose every intermediate value
    is kept. Second derivatives commute, so both are also the derivative of `(dL/dw, dL/dm)` in
    the direction v: one forward derivative of one reverse pass, which keeps nothing but what went
    in. Source: MixFlow-MG (Kemaev et al., "Scalable meta-learning via mixed-mode differentiation",
    ICML 2025, Eq. 4 and Algorithm 2). The loss and the statistics, which are results as well, get
    their part in the same pass.

    Args:
      loss: `(moving, meta, batch_stats, inputs) -> (loss, new batch_stats)`; it may close over
        anything.
      example: arguments that have the shapes of later ones.

    Returns:
      `(moving, meta, batch_stats, inputs) -> ((loss, new batch_stats), gradient like moving)`,
      which reverse mode differentiates for the first three.
    """
    loss, captured, (_, new_like) = _without_closure(loss, example)

    def compute(moving, meta, stats, inputs, captured):
        return jax.value_and_grad(loss, has_aux=True)(moving, meta, stats, inputs, captured)

    def forward(*given):
        return compute(*given), given

    def backward(given, cotangents):
        moving, meta, stats, inputs, captured = given
        (along_loss, along_stats), along_slopes = cotangents
        float_stats, join_stats = _floating_part(stats, stats)

        # The derivative at s = 0 of the gradient, at w + s * along_slopes, of
        # (1 + s * along_loss) * L + s * <new statistics, along_stats>.
        def slopes_of(moving, of_loss, of_stats):
            def both(moving, meta, float_stats):
                value, new_stats = loss(moving, meta, join_stats(float_stats), inputs, captured)
                return value, _floating_part(new_stats, new_like)[0]

            return jax.vjp(both, moving, meta, float_stats)[1]((of_loss, of_stats))

        of_stats = _floating_part(along_stats, new_like)[0]
        zeros = jax.tree_util.tree_map(jnp.zeros_like, of_stats)
        _, products = jax.jvp(
            slopes_of,
            (moving, jnp.ones_like(along_loss), zeros),
            (along_slopes, along_loss, of_stats),
        )
        to_moving, to_meta, to_stats = products
        return to_moving, to_meta, _with_none(to_stats, stats), None, None

    custom = jax.custom_vjp(compute)
    custom.defvjp(forward, backward)
    return lambda moving, meta, stats, inputs: custom(moving, meta, stats, inputs, captured)


def _without_closure(
    function: Callable[..., Any], example: tuple[Any, ...]
) -> tuple[Callable[..., Any], list[Any], Any]:
    """A function that takes everything it depends on as arguments, and what it had closed over.

    A `custom_vjp` inside a loop cannot close over values of an outer transformation.
    `jax.closure_convert` turns floating-point values into arguments only; images and labels are
    often integers.

    Args:
      function: any function of pytrees.
      example: arguments that have the shapes of later ones.

    Returns:
      `(converted, captured, shapes)`: `converted(*arguments, captured)` is
      `function(*arguments)`, a tree like `shapes`.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*example)
    out_tree = jax.tree_util.tree_structure(shapes)

    def converted(*arguments: Any) -> Any:
        *given, captured = arguments
        call = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(closed.jaxpr, captured))
        return jax.tree_util.tree_unflatten(out_tree, call(*jax.tree_util.tree_leaves(given)))

    return converted, list(closed.consts), shapes


def _floating_part(
    tree: chex.ArrayTree, like: chex.ArrayTree
) -> tuple[list[Any], Callable[[list[Any]], chex.ArrayTree]]:
    """The leaves of `tree` that are floating-point in `like`, and how to put others in place."""
    entries, treedef = jax.tree_util.tree_flatten(tree)
    floats = [leaves.is_floating(leaf) for leaf in jax.tree_util.tree_leaves(like)]

    def join(values: list[Any]) -> chex.ArrayTree:
        rest = iter(values)
        joined = [next(rest) if f else leaf for f, leaf in zip(floats, entries, strict=True)]
        return jax.tree_util.tree_unflatten(treedef, joined)

    return [leaf for f, leaf in zip(floats, entries, strict=True) if f], join


def _with_none(values: list[Any], like: chex.ArrayTree) -> chex.ArrayTree:
    """A tree like `like` of the floating-point values, None elsewhere: no derivative."""
    entries, treedef = jax.tree_util.tree_flatten(like)
    rest = iter(values)
    joined = [next(rest) if leaves.is_floating(leaf) else None for leaf in entries]
    return jax.tree_util.tree_unflatten(treedef, joined)
