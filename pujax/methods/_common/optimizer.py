"""SGD, Adam, AdaGrad and LARS with the schedules of the PU papers, shared by all methods.

The learning rate follows the epoch that a batch belongs to and not a count of updates: a step that
is skipped or undone must not delay the schedule.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import ml_collections
import optax

from pujax import checks
from pujax.methods._common import freezing, schedules

OPTIMIZERS = ("sgd", "adam", "adagrad", "lars")
SCHEDULES = ("multistep", "cosine", "exponential", "step", "constant", "one_cycle", "fixmatch")
RENAMED = {
    "lr_warm_share": "pct_start",
    "beta1_low": "base_momentum",
    "beta1_high": "max_momentum",
}
"""Fields of the method's section that had another name, and their names since."""
_DROPS = (250, 300, 350)

Optimizer: TypeAlias = optax.GradientTransformationExtraArgs


class State(NamedTuple):
    """What an optimizer remembers.

    Attributes:
      moments: momentum sums or Adam's moments.
      drops: how often the schedule `step` has dropped the rate; None unless that resets moments.
    """

    moments: Any
    drops: jax.Array | None


def default_config(**changes: Any) -> ml_collections.ConfigDict:
    """Settings of every optimizer; the values are LaGAM's (SGD) unless changed.

    Args:
      **changes: fields to set.

    Returns:
      A new `ConfigDict`.
    """
    config = ml_collections.ConfigDict(
        {
            "optimizer": "sgd",
            "learning_rate": 1e-3,
            "weight_decay": 1e-4,  # L2, added to the gradient before momentum or moments
            "momentum": 0.9,
            "beta1": 0.9,
            "beta2": 0.999,
            "trust_coefficient": 1e-3,  # of LARS
            "lr_schedule": "multistep",
            "lr_drops": _DROPS,  # epochs of `multistep`
            "lr_factor": 0.1,
            "lr_every": 20,  # epochs of `step`
            "lr_floor": 1e-3,
            "lr_resets": False,
            "lr_warmup": 0.0,  # epochs of linear warm-up
            "pct_start": 0.2,  # share of the steps of `one_cycle` before its peak
            "lr_cycle_epochs": 0,  # length of `one_cycle`; 0 is that of the training
            "base_momentum": 0.85,  # Adam's beta1 at the peak of `one_cycle`
            "max_momentum": 0.95,  # and at both of its ends
            "average_decay": 0.0,  # of the averaged weights that predict; 0: those of the last step
            **freezing.default_config(),
        }
    )
    config.update(changes)
    return config


def adam_config(**changes: Any) -> ml_collections.ConfigDict:
    """Settings of Adam at a constant rate, which most baselines start from."""
    return default_config(**({"optimizer": "adam", "lr_schedule": "constant"} | changes))


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for a setting that cannot be."""
    checks.one_of("method.optimizer", config.optimizer, OPTIMIZERS)
    checks.positive("method.learning_rate", config.learning_rate)
    checks.at_least("method.weight_decay", config.weight_decay, 0)
    for name in ("momentum", "beta1", "beta2"):
        checks.between(f"method.{name}", config[name], 0, 1, include="low")
    checks.positive("method.trust_coefficient", config.trust_coefficient)
    _check_schedule(config)
    _check_drops(tuple(config.lr_drops))
    checks.between("method.lr_factor", config.lr_factor, 0, 1)
    checks.at_least("method.lr_every", config.lr_every, 1)
    checks.between("method.lr_floor", config.lr_floor, 0, 1)
    checks.at_least("method.lr_warmup", config.lr_warmup, 0)
    if config.lr_schedule == "exponential":
        checks.positive("method.lr_floor", config.lr_floor)
    schedules.check(config)


def _check_drops(drops: Sequence[int]) -> None:
    """Raises a ValueError for epochs that do not follow one another."""
    ascending = all(a < b for a, b in zip(drops, drops[1:], strict=False))
    accepted = "epochs from 0, each later than the one before"
    checks.require(ascending and min(drops, default=0) >= 0, "method.lr_drops", drops, accepted)


def _check_schedule(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for a schedule that there is not, or one by its old name."""
    name = config.lr_schedule
    renamed = "'step', which is the new name of 'halve'"
    checks.require(name != "halve", "method.lr_schedule", name, renamed)
    checks.one_of("method.lr_schedule", name, SCHEDULES)
    checks.require(
        name != "step" or tuple(config.lr_drops) == _DROPS,
        "method.lr_schedule",
        name,
        "'multistep' for drops after the epochs of method.lr_drops, which was called 'step' before;"
        " 'step' drops the rate every method.lr_every epochs",
    )


def learning_rate(
    config: ml_collections.ConfigDict,
    epoch: jax.Array,
    *,
    num_epochs: int,
    steps_per_epoch: int | None = None,
) -> jax.Array:
    """Learning rate of an epoch counted from 0.

    Within an epoch only `exponential`, `one_cycle`, `fixmatch` and the warm-up change it.

    - `multistep` multiplies by `lr_factor` after each epoch of `lr_drops` (so 251 is the first
      epoch of the drop at 250);
    - `step` multiplies by `lr_factor` after every `lr_every` epochs (20 is the first epoch of the
      first drop at 20);
    - `cosine` and `exponential` fall from the start to `lr_floor` times it over `num_epochs`;
    - `fixmatch` falls along 7/16 of half a wave, `cos(7 pi epoch / (16 num_epochs))`, to 0.195 of
      the start, as in FixMatch (Sohn et al., NeurIPS 2020);
    - `one_cycle` rises to `learning_rate` and falls again over `lr_cycle_epochs`, see
      `schedules.learning_rate`;
    - `constant` stays.

    In the first `lr_warmup` epochs the rate of every schedule is multiplied by `epoch / lr_warmup`,
    so that the first step has rate 0, as in SimCLR; the schedule itself is not shifted.

    Args:
      config: a section with the fields of `default_config`.
      epoch: from the start of the stage, a fraction within an epoch.
      num_epochs: length that `cosine`, `exponential` and `fixmatch` stretch over.
      steps_per_epoch: updates in an epoch, which makes `one_cycle` exact to the step.

    Returns:
      A scalar in float32.
    """
    if config.lr_schedule == "one_cycle":
        rate = schedules.learning_rate(
            config, epoch, num_epochs=num_epochs, steps_per_epoch=steps_per_epoch
        )
    else:
        rate = _scheduled(config, epoch, num_epochs=num_epochs)
    if config.lr_warmup:
        rate = rate * jnp.minimum(1, epoch / jnp.float32(config.lr_warmup))
    return rate


def _scheduled(
    config: ml_collections.ConfigDict, epoch: jax.Array, *, num_epochs: int
) -> jax.Array:
    """Learning rate of the schedules that need no count of steps, without the warm-up."""
    start = jnp.float32(config.learning_rate)
    if config.lr_schedule == "exponential":
        return start * jnp.float32(config.lr_floor) ** (epoch / num_epochs)
    if config.lr_schedule == "fixmatch":
        return start * jnp.cos(7 * jnp.pi / 16 * epoch / num_epochs)
    epoch = jnp.floor(epoch)
    if config.lr_schedule == "multistep":
        drops = jnp.asarray(config.lr_drops, jnp.int32)
        return start * jnp.float32(config.lr_factor) ** jnp.sum(epoch > drops)
    if config.lr_schedule == "step":
        return start * jnp.float32(config.lr_factor) ** _drops(config, epoch).astype(jnp.float32)
    if config.lr_schedule == "cosine":
        floor = start * config.lr_floor
        # (1 + cos(pi * epoch / num_epochs)) / 2, which as a sum loses digits in the last epochs.
        left = (num_epochs - epoch) / num_epochs
        return floor + (start - floor) * jnp.square(jnp.sin(jnp.pi / 2 * left))
    return start


def build(
    config: ml_collections.ConfigDict, *, num_epochs: int, steps_per_epoch: int | None = None
) -> Optimizer:
    """Binds an optimizer and a schedule to the length of a stage.

    With `one_cycle`, Adam's `beta1` runs between `max_momentum` and `base_momentum` instead, and
    its bias correction takes the value of the step, `1 - beta1**t` in the t-th update, as PyTorch's
    does. The other optimizers keep their momentum.

    Args:
      config: a section with the fields of `default_config`.
      num_epochs: length that `cosine`, `exponential` and `fixmatch` stretch over.
      steps_per_epoch: updates in an epoch, which makes `one_cycle` exact to the step.

    Returns:
      A transformation as of optax: `update(gradient, opt_state, params, progress=progress)` gives
      `(updates, opt_state)`, where `progress` counts epochs from the start of the stage and may be
      a fraction, and `optax.apply_updates` adds the updates to the parameters.

    Raises:
      ValueError: for a setting that cannot be.
    """
    check(config)
    is_cycle = config.lr_schedule == "one_cycle"
    if is_cycle:
        schedules.check_length(config, num_epochs, steps_per_epoch)
    length: dict[str, Any] = {"num_epochs": num_epochs, "steps_per_epoch": steps_per_epoch}
    is_lars = config.optimizer == "lars"
    rule = _lars(config) if is_lars else _rule(config, config.beta1)
    resets = config.lr_schedule == "step" and config.lr_resets

    def init(params: Any) -> State:
        return State(rule.init(params), jnp.zeros([], jnp.int32) if resets else None)

    def update(gradient: Any, state: State, params: Any = None, *, progress: jax.Array, **extra):
        del extra
        moments, drops = state
        if resets:
            drops = _drops(config, progress)
            is_new = drops != state.drops
            fresh = rule.init(params)
            moments = jax.tree.map(lambda new, old: jnp.where(is_new, new, old), fresh, moments)
        rate = learning_rate(config, progress, **length)
        if is_lars:
            change, moments = rule.update(gradient, moments, params, rate=rate)
            return jax.tree.map(jnp.negative, change), State(moments, drops)
        step_rule = rule
        if is_cycle:
            step_rule = _rule(config, schedules.beta1(config, progress, **length))
        direction, moments = step_rule.update(gradient, moments, params)
        return jax.tree.map(lambda d: -rate * d, direction), State(moments, drops)

    return freezing.freeze(Optimizer(init, update), config.frozen_stages)


def apply(optimizer: Optimizer, state: Any, gradient: Any, progress: jax.Array) -> Any:
    """One update of the `params` and the `opt_state` of a state that has both.

    Args:
      optimizer: from `build`.
      state: a NamedTuple.
      gradient: a tree like `state.params`.
      progress: epochs from the start of the stage.

    Returns:
      The state with the two fields replaced.
    """
    updates, opt_state = optimizer.update(
        gradient, state.opt_state, state.params, progress=progress
    )
    params = optax.apply_updates(state.params, updates)
    return state._replace(params=params, opt_state=opt_state)


def descend(
    optimizer: Optimizer,
    state: Any,
    loss_of: Callable[[Any], tuple[jax.Array, Any]],
    progress: jax.Array,
) -> tuple[Any, jax.Array, Any]:
    """One update against the gradient of a loss.

    Args:
      optimizer: from `build`.
      state: a NamedTuple with `params` and `opt_state`.
      loss_of: `params -> (loss, aux)`.
      progress: epochs from the start of the stage.

    Returns:
      `(state, loss, aux)`, the last two of the parameters before the update.
    """
    (loss, aux), gradient = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    return apply(optimizer, state, gradient, progress), loss, aux


def _rule(
    config: ml_collections.ConfigDict, beta1: float | jax.Array
) -> optax.GradientTransformation:
    """Directions of SGD, Adam or AdaGrad, with L2 in the gradient; `beta1` is Adam's."""
    if config.optimizer == "adam":
        rule = optax.scale_by_adam(b1=beta1, b2=config.beta2)
    elif config.optimizer == "adagrad":
        rule = _adagrad()
    else:
        rule = optax.trace(decay=config.momentum)  # without Nesterov
    return optax.chain(optax.add_decayed_weights(config.weight_decay), rule)


def _adagrad() -> optax.GradientTransformation:
    """A gradient over the root of the sum of all squares so far, plus 1e-10.

    The small number stands outside of the root, as in the paper (Duchi et al., 2011, figure 1)
    and in PyTorch. `optax.scale_by_rss` has it inside, where the same number hardly moves a
    parameter whose gradients are below 1e-5.
    """

    def init(params: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, params)

    def update(gradients: Any, squares: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        squares = jax.tree.map(lambda total, x: total + x * x, squares, gradients)
        directions = jax.tree.map(
            lambda x, total: x / (jnp.sqrt(total) + 1e-10), gradients, squares
        )
        return directions, squares

    return optax.GradientTransformation(init, update)


def _lars(config: ml_collections.ConfigDict) -> optax.GradientTransformationExtraArgs:
    """LARS: each tensor's step is proportional to the tensor's own length.

    The change of the parameters is that of `update(gradients, state, params, rate=rate)`.

    With `d = gradient + weight_decay * w` and `trust = trust_coefficient * |w| / |d|` (1 where a
    length is 0), `velocity = momentum * velocity + rate * trust * d` is what `w` loses. The rate is
    inside the velocity: a change of it reaches old gradients only as they fade. `|d|` is SimCLR's
    denominator; the paper's `|gradient| + weight_decay * |w|` bounds it from above.

    Biases and the parameters of batch norm (all tensors with fewer than two axes) are neither
    decayed nor rescaled, as in SimCLR.

    You et al., 2017, https://arxiv.org/abs/1708.03888, algorithm 1; Chen et al., 2020,
    https://arxiv.org/abs/2002.05709.

    Args:
      config: a section with the fields of `default_config`.

    Returns:
      A transformation whose result is to be subtracted from the parameters.
    """

    def is_adapted(params: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    def scale_by_rate(updates, state, params=None, *, rate, **extra_args):
        del params, extra_args
        return jax.tree.map(lambda update: rate * update, updates), state

    # Not `optax.lars`, which takes its rate from a count of updates.
    return optax.chain(
        optax.add_decayed_weights(config.weight_decay, mask=is_adapted),
        optax.masked(
            optax.scale_by_trust_ratio(trust_coefficient=config.trust_coefficient), is_adapted
        ),
        optax.GradientTransformationExtraArgs(optax.init_empty_state, scale_by_rate),
        optax.trace(decay=config.momentum),
    )


def _drops(config: ml_collections.ConfigDict, epoch: jax.Array) -> jax.Array:
    """How often `step` has dropped the rate by an epoch."""
    # Of whole numbers: XLA divides by a constant as it multiplies by its rounded reciprocal, and
    # 41 / 41 would be below 1.
    return jnp.floor(epoch).astype(jnp.int32) // config.lr_every
