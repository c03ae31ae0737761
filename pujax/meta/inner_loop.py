"""The inner problem: K steps of an optimizer as one function of the meta-parameters.

All estimators share it. It is differentiable in every mode; how the derivative of the inner
gradient is taken, and what the backward pass keeps, are arguments of `run`.
"""

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from pujax import checks
from pujax.arrays import check_key, full_precision, is_real, on_host
from pujax.meta import leaves, mixed_mode

STATS_UPDATES = ("frozen", "carried", "stopped")
RANDOMNESS = ("none", "fresh", "common")


class Carry(NamedTuple):
    """What an inner step changes.

    Attributes:
      moving: the parameters that move, see `leaves.split`.
      opt_state: of the optimizer; `()` for plain steps.
      batch_stats: running statistics, or None.
    """

    moving: chex.ArrayTree
    opt_state: chex.ArrayTree
    batch_stats: chex.ArrayTree


class Inputs(NamedTuple):
    """What one inner step is given.

    Attributes:
      key: its random key, or None.
      batch: its slice of the batches, or None.
    """

    key: jax.Array | None
    batch: chex.ArrayTree


# (moving, meta, batch_stats, inputs) -> ((loss, new batch_stats), gradient like moving)
Gradient = Callable[
    [chex.ArrayTree, chex.ArrayTree, chex.ArrayTree, Inputs],
    tuple[tuple[jax.Array, chex.ArrayTree], chex.ArrayTree],
]


@dataclasses.dataclass(frozen=True, eq=False)
class InnerLoop:
    """The inner problem; fields are the arguments of `meta_gradient` of the same names."""

    inner_loss: Callable[..., Any]
    params: chex.ArrayTree
    learning_rate: float | jax.Array | None = None
    trainable: Callable[[leaves.KeyPath], bool] | None = None
    num_steps: int = 1
    optimizer: optax.GradientTransformation | None = None
    opt_state: chex.ArrayTree = None
    key: jax.Array | None = None
    randomness: str = "none"
    batches: chex.ArrayTree = None
    batch_stats: chex.ArrayTree = None
    stats_update: str = "frozen"
    rolled: bool = False
    moving: chex.ArrayTree = dataclasses.field(init=False)
    join: Callable[[chex.ArrayTree], chex.ArrayTree] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        moving, join = leaves.split(self.params, self.trainable)
        object.__setattr__(self, "moving", moving)
        object.__setattr__(self, "join", join)

    def check(self, *, fewest_steps: int) -> None:
        """Raises a ValueError for what cannot be, before anything is compiled."""
        check_function("inner_loss", self.inner_loss)
        checks.whole_number("num_steps", self.num_steps, fewest_steps)
        checks.one_of("randomness", self.randomness, RANDOMNESS)
        checks.one_of("stats_update", self.stats_update, STATS_UPDATES)
        if self.randomness != "none":
            check_key(self.key, f" with randomness {self.randomness!r}")
        # Without a step there is nothing that a step size would be of.
        takes_none = self.num_steps == 0 and self.optimizer is None and self.learning_rate is None
        checks.require(
            takes_none or (self.optimizer is None) != (self.learning_rate is None),
            "learning_rate",
            self.learning_rate,
            "a step size without optimizer, None with one, which has its own",
        )
        if self.learning_rate is not None:
            check_rate(self.learning_rate)
        checks.require(isinstance(self.rolled, bool), "rolled", self.rolled, "True or False")
        checks.require(
            self.opt_state is None or self.optimizer is not None,
            "opt_state",
            type(self.opt_state).__name__,
            "None without optimizer",
        )
        checks.require(
            self.batch_stats is not None or self.stats_update == "frozen",
            "stats_update",
            self.stats_update,
            "'frozen' without batch_stats",
        )
        for name, leaf in leaves.named(self.batches):
            shape = jnp.shape(leaf)
            checks.require(
                len(shape) > 0 and shape[0] == max(self.num_steps, 1),
                f"the shape of batches{name}",
                shape,
                f"one slice per step, a first axis of {max(self.num_steps, 1)}",
            )
        if self.optimizer is not None:
            check_update(self.optimizer, self.opt_state, self.moving)

    def start(self) -> Carry:
        """The carry before the first step."""
        opt_state = self.opt_state
        if self.optimizer is None:
            opt_state = ()
        elif opt_state is None:
            opt_state = self.optimizer.init(self.moving)
        return Carry(self.moving, opt_state, self.batch_stats)

    def loss(
        self,
        moving: chex.ArrayTree,
        meta: chex.ArrayTree,
        batch_stats: chex.ArrayTree,
        inputs: Inputs,
    ) -> tuple[jax.Array, chex.ArrayTree]:
        """The inner loss and the running statistics after it (None without them)."""
        given: dict[str, Any] = {}
        if self.randomness != "none":
            given["key"] = inputs.key
        if self.batches is not None:
            given["batch"] = inputs.batch
        if self.batch_stats is None:
            value, stats = self.inner_loss(self.join(moving), meta, **given), None
        else:
            found = self.inner_loss(self.join(moving), meta, batch_stats=batch_stats, **given)
            is_pair = isinstance(found, tuple) and len(found) == 2
            accepted = "(loss, batch_stats), as batch_stats are given"
            checks.require(is_pair, "what the inner loss returns", type(found).__name__, accepted)
            value, stats = found
        check_loss("inner", value)
        return value, stats

    def outer(
        self, outer_loss: Callable[..., jax.Array], carry: Carry, *, may_be_count: bool = False
    ) -> jax.Array:
        """The outer loss after some steps; without a derivative it may be a count."""
        given = {} if self.batch_stats is None else {"batch_stats": carry.batch_stats}
        value = outer_loss(self.join(carry.moving), **given)
        check_loss("outer", value, may_be_count=may_be_count)
        return value

    def compared(self, outer_loss: Callable[..., jax.Array], carry: Carry) -> jax.Array:
        """The outer loss for estimators that subtract such values: a floating-point number.

        It may be a count; what is unsigned would wrap around.
        """
        return full_precision(self.outer(outer_loss, carry, may_be_count=True))

    def check_compares(self) -> None:
        """Requires statistics of which an estimator that compares losses gives the derivative."""
        checks.require(
            self.batch_stats is None or self.stats_update != "stopped",
            "stats_update",
            self.stats_update,
            "'frozen' or 'carried' with an estimator that compares outer losses, for which nothing "
            "is a constant of the derivative",
        )

    def inputs(self, step: int | jax.Array, batch: chex.ArrayTree) -> Inputs:
        """What step number `step` is given, with its slice of the batches."""
        if self.randomness == "none":
            return Inputs(None, batch)
        assert self.key is not None
        key = self.key if self.randomness == "common" else jax.random.fold_in(self.key, step)
        return Inputs(key, batch)

    def last_inputs(self) -> Inputs:
        """What the last step is given."""
        last = max(self.num_steps - 1, 0)
        return self.inputs(last, jax.tree_util.tree_map(lambda leaf: leaf[last], self.batches))

    def advance(
        self, gradient: Gradient, meta: chex.ArrayTree, carry: Carry, inputs: Inputs
    ) -> Carry:
        """One step of the optimizer."""
        moving, opt_state, stats = carry
        (value, new_stats), slopes = gradient(moving, meta, stats, inputs)
        if self.optimizer is None:
            assert self.learning_rate is not None  # there is one or the other
            moved = leaves.descend(moving, slopes, self.learning_rate)
        else:
            updates, opt_state = update_by(
                self.optimizer,
                slopes,
                opt_state,
                moving,
                value,
                lambda other: self.loss(other, meta, stats, inputs)[0],
            )
            moved = optax.apply_updates(moving, updates)
        if self.stats_update == "frozen":
            new_stats = stats
        elif self.stats_update == "stopped":
            new_stats = leaves.stop(new_stats)
        moved_carry = Carry(moved, opt_state, new_stats)
        if self.rolled:
            # A loop has one type; a step size of a wider one would change the parameters'.
            moved_carry = jax.tree_util.tree_map(leaves.like, moved_carry, carry)
        return moved_carry

    def run(
        self,
        meta: chex.ArrayTree,
        carry: Carry,
        *,
        first: int = 0,
        last: int | None = None,
        offset: int | jax.Array = 0,
        mixed: bool = False,
        segment: int | None = None,
    ) -> Carry:
        """The carry after the steps `first` to `last` (excluded; None for all).

        Args:
          meta: the meta-parameters.
          carry: before the first of these steps.
          first: number of the first step.
          last: number of the step after the last.
          offset: added to a step's number where its key is drawn.
          mixed: whether the inner gradient's own derivative is forward over reverse.
          segment: steps that the backward pass computes again at once from the carry before
            them; None keeps everything.

        Returns:
          The carry after the last step.
        """
        last = self.num_steps if last is None else last

        def gradient_at(carry: Carry, inputs: Inputs) -> Gradient:
            """That of the inner loss for arguments like these."""
            if not mixed:
                return self.gradient
            return mixed_mode.gradient(self.loss, (carry.moving, meta, carry.batch_stats, inputs))

        def steps(carry: Carry, meta: chex.ArrayTree, numbers: Any, batches: Any) -> Carry:
            if self.rolled:
                batch = jax.tree_util.tree_map(lambda leaf: leaf[0], self.batches)
                gradient = gradient_at(carry, self.inputs(0, batch))

                def body(carry: Carry, given: tuple[Any, Any]) -> tuple[Carry, None]:
                    inputs = self.inputs(given[0] + offset, given[1])
                    return self.advance(gradient, meta, carry, inputs), None

                return jax.lax.scan(body, carry, (numbers, batches))[0]
            for i in range(len(numbers)):
                batch = jax.tree_util.tree_map(lambda leaf, i=i: leaf[i], batches)
                inputs = self.inputs(numbers[i] + offset, batch)
                # Statistics may get another type, or first leaves, in a step.
                carry = self.advance(gradient_at(carry, inputs), meta, carry, inputs)
            return carry

        def part(low: int, high: int) -> tuple[Any, Any]:
            numbers = jnp.arange(low, high) if self.rolled else range(low, high)
            return numbers, jax.tree_util.tree_map(lambda leaf: leaf[low:high], self.batches)

        if first >= last:
            return carry
        if self.rolled:
            carry = jax.tree_util.tree_map(jnp.asarray, carry)
        if segment is None:
            return steps(carry, meta, *part(first, last))
        return self._in_segments(steps, part, carry, meta, first, last, segment)

    def _in_segments(
        self,
        steps: Callable[..., Carry],
        part: Callable[[int, int], tuple[Any, Any]],
        carry: Carry,
        meta: chex.ArrayTree,
        first: int,
        last: int,
        segment: int,
    ) -> Carry:
        """As `run`, the backward pass keeping the carries between segments only."""
        if not self.rolled:
            for low in range(first, last, segment):
                numbers, batches = part(low, min(low + segment, last))
                kept = jax.checkpoint(
                    lambda carry, meta, batches, numbers=numbers: steps(
                        carry, meta, numbers, batches
                    )
                )
                carry = kept(carry, meta, batches)
            return carry
        whole = (last - first) // segment
        kept = jax.checkpoint(steps, prevent_cse=False)
        if whole:
            middle = first + whole * segment
            grouped = jax.tree_util.tree_map(
                lambda leaf: leaf.reshape(whole, segment, *leaf.shape[1:]), part(first, middle)
            )
            carry, _ = jax.lax.scan(lambda c, given: (kept(c, meta, *given), None), carry, grouped)
            first = middle
        return kept(carry, meta, *part(first, last)) if first < last else carry

    def gradient(
        self,
        moving: chex.ArrayTree,
        meta: chex.ArrayTree,
        batch_stats: chex.ArrayTree,
        inputs: Inputs,
    ) -> tuple[tuple[jax.Array, chex.ArrayTree], chex.ArrayTree]:
        """Inner loss and new statistics, and the gradient for the moving parameters."""
        return jax.value_and_grad(self.loss, has_aux=True)(moving, meta, batch_stats, inputs)


def check_loss(which: str, value: Any, *, may_be_count: bool = False) -> None:
    """Raises a ValueError for what is no loss: one real floating-point number, or a count.

    Args:
      which: of the losses.
      value: what it returned, traced or not.
      may_be_count: whether it may be an integer or boolean, which has no derivative.
    """
    accepted = "one real number"
    is_array = isinstance(value, jax.Array | np.ndarray | numbers.Number)
    checks.require(is_array, f"what the {which} loss returns", type(value).__name__, accepted)
    shape, dtype = jnp.shape(value), jnp.result_type(value)
    checks.require(shape == (), f"the shape of the {which} loss", shape, "(), one number")
    known = (jnp.floating, jnp.integer, jnp.bool_) if may_be_count else (jnp.floating,)
    is_real = any(jnp.issubdtype(dtype, kind) for kind in known)
    checks.require(is_real, f"the type of the {which} loss", dtype.name, "real floating point")


def check_function(name: str, value: Any) -> None:
    """Requires a loss that can be called; what it returns is looked at by `check_loss`."""
    checks.require(callable(value), name, value, "a function that returns a scalar loss")


def check_rate(rate: Any) -> None:
    """Requires one number, and one from 0 where its value is known."""
    number = isinstance(rate, numbers.Real) or getattr(rate, "shape", None) == ()
    number = number and is_real(jnp.result_type(rate))
    checks.require(number, "learning_rate", rate, "one number")
    known = on_host(rate)
    if known is not None:
        checks.at_least("learning_rate", float(known), 0)


def check_update(
    optimizer: optax.GradientTransformation, opt_state: chex.ArrayTree, moving: chex.ArrayTree
) -> None:
    """Requires an optimizer that takes gradients, state and parameters, and fits the parameters."""
    accepted = "an optax transformation whose update takes gradients, state and params"
    try:
        updates = jax.eval_shape(update_of(optimizer, opt_state), moving, moving)
        # States of other shapes may broadcast, and would move something else.
        if leaves.shapes(updates) != leaves.shapes(moving):
            raise ValueError(f"updates of shapes {leaves.shapes(updates)[1]}")
        fresh = jax.eval_shape(optimizer.init, moving)
        if opt_state is not None and leaves.shapes(opt_state) != leaves.shapes(fresh):
            raise ValueError(f"an opt_state of shapes {leaves.shapes(opt_state)[1]}")
    except Exception as error:
        raise ValueError(
            f"optimizer is {type(optimizer).__name__}; accepted: {accepted}, and no more than "
            "value, grad and value_fn besides, with an opt_state of the parameters that move "
            f"({first_line(error)})"
        ) from error


def first_line(error: Exception) -> str:
    """The type of an error and the first line of its text."""
    return f"{type(error).__name__}: {' '.join(str(error).splitlines()[:1])}"


def update_of(
    optimizer: optax.GradientTransformation, opt_state: chex.ArrayTree
) -> Callable[[chex.ArrayTree, chex.ArrayTree], chex.ArrayTree]:
    """The optimizer's next update of some loss, a function of `(gradients, params)`."""

    def value_fn(moving: chex.ArrayTree) -> jax.Array:
        return leaves.dot(moving, moving)

    def update(slopes: chex.ArrayTree, moving: chex.ArrayTree) -> chex.ArrayTree:
        state = optimizer.init(moving) if opt_state is None else opt_state
        return update_by(optimizer, slopes, state, moving, value_fn(moving), value_fn)[0]

    return update


def update_by(
    optimizer: optax.GradientTransformation,
    slopes: chex.ArrayTree,
    opt_state: chex.ArrayTree,
    moving: chex.ArrayTree,
    value: jax.Array,
    value_fn: Callable[[chex.ArrayTree], jax.Array],
) -> tuple[chex.ArrayTree, chex.ArrayTree]:
    """Updates and the next state; optimizers that look at the loss itself are given it."""
    if isinstance(optimizer, optax.GradientTransformationExtraArgs):
        return optimizer.update(
            slopes, opt_state, moving, value=value, grad=slopes, value_fn=value_fn
        )
    return optimizer.update(slopes, opt_state, moving)
