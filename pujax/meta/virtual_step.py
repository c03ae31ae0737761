"""One differentiable gradient step, the smallest inner problem."""

from collections.abc import Callable

import chex
import jax

from pujax.meta import leaves
from pujax.meta.inner_loop import check_function, check_loss, check_rate


def virtual_step(
    inner_loss: Callable[[chex.ArrayTree], jax.Array],
    params: chex.ArrayTree,
    *,
    learning_rate: float | jax.Array,
    trainable: Callable[[leaves.KeyPath], bool] | None = None,
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
      learning_rate: step size, one number, 0 or more.
      trainable: takes the `jax.tree_util` key path of a leaf and tells whether it moves; None
        moves all. Leaves of integers or booleans never move.

    Returns:
      A tree like `params`. Frozen leaves are the same objects; moved leaves below float32 become
      float32, because a small step would be lost to rounding.

    Raises:
      ValueError: if no leaf moves, one is no array of numbers, the learning rate is not one number
        from 0, or the loss is no function or not one real number.
    """
    check_function("inner_loss", inner_loss)
    check_rate(learning_rate)
    current, join = leaves.split(params, trainable)

    def loss(moving: chex.ArrayTree) -> jax.Array:
        value = inner_loss(join(moving))
        check_loss("inner", value)
        return value

    slopes = jax.grad(loss)(current)
    return join(leaves.descend(current, slopes, learning_rate))
