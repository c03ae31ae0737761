"""`meta_gradient`: the derivative of an outer loss through inner steps, by any estimator."""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import numpy as np
import optax

from pujax import checks
from pujax.arrays import full_precision, on_host
from pujax.meta import evolution, implicit, leaves, unrolled
from pujax.meta.estimates import Estimate
from pujax.meta.inner_loop import InnerLoop, check_function


class Estimator(NamedTuple):
    """An estimator of meta-gradients.

    Attributes:
      run: `(loop, outer_loss, meta, **options) -> Estimate`.
      options: names of its options.
      required: those of them without a default.
      fewest_steps: smallest number of inner steps.
    """

    run: Callable[..., Estimate]
    options: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    fewest_steps: int = 1


_SYSTEM = ("damping", "max_residual")
_PAIRS = ("num_pairs", "sigma", "chunk_size")
_ESTIMATORS: Mapping[str, Estimator] = {
    "reverse": Estimator(unrolled.reverse, ("segment",)),
    "mixed": Estimator(functools.partial(unrolled.reverse, mixed=True), ("segment",)),
    "forward": Estimator(unrolled.forward, ("chunk_size",)),
    "truncated": Estimator(unrolled.reverse, ("window", "segment"), ("window",)),
    "one_step": Estimator(functools.partial(unrolled.reverse, window=1)),
    "implicit_cg": Estimator(
        implicit.conjugate_gradient,
        (*_SYSTEM, "tolerance", "max_iterations"),
        fewest_steps=0,
    ),
    "implicit_neumann": Estimator(
        implicit.neumann, (*_SYSTEM, "num_terms", "step_size"), fewest_steps=0
    ),
    "es": Estimator(evolution.es, _PAIRS),
    "pes": Estimator(evolution.pes, (*_PAIRS, "particles")),
    "finite_difference": Estimator(unrolled.finite_difference, ("epsilon", "chunk_size")),
}
ESTIMATORS = tuple(_ESTIMATORS)
"""Names of the estimators that `meta_gradient` knows."""


class GradientInfo(NamedTuple):
    """What `meta_gradient` found besides the gradient; None where an estimator has no such thing.

    Attributes:
      outer_loss: scalar, after the inner steps; for 'pes' the mean over its particles.
      params: a tree like `params`, after the inner steps; None for 'pes'.
      opt_state: of the optimizer after the inner steps.
      batch_stats: after the inner steps.
      residual: of the implicit estimators: that of the linear system, relative to its
        right side.
      particles: of 'pes', for its next truncation.
    """

    outer_loss: jax.Array | None
    params: chex.ArrayTree
    opt_state: chex.ArrayTree
    batch_stats: chex.ArrayTree
    residual: jax.Array | None
    particles: evolution.Particles | None


def meta_gradient(
    inner_loss: Callable[..., Any],
    outer_loss: Callable[..., jax.Array],
    params: chex.ArrayTree,
    meta_params: chex.ArrayTree,
    *,
    learning_rate: float | jax.Array | None = None,
    trainable: Callable[[leaves.KeyPath], bool] | None = None,
    estimator: str = "reverse",
    num_steps: int = 1,
    optimizer: optax.GradientTransformation | None = None,
    opt_state: chex.ArrayTree = None,
    key: jax.Array | None = None,
    randomness: str = "none",
    batches: chex.ArrayTree = None,
    batch_stats: chex.ArrayTree = None,
    stats_update: str = "frozen",
    rolled: bool = False,
    return_info: bool = False,
    **options: Any,
) -> Any:
    """Gradient of the outer loss with respect to the meta-parameters, through inner steps.

    `d/dm outer_loss(w_K(m))`, where `w_K` are the parameters after K steps of `inner_loss(., m)`
    from `params`. The defaults are one plain step: `d/dm outer_loss(virtual_step(inner_loss(., m),
    params))`, the meta update of LaGAM (Long et al., CVPR 2024), where `m` are the label masses of
    a batch and only the classifier's weight vector moves.

    | estimator | what it computes |
    |---|---|
    | 'reverse' | exact: reverse mode through all steps; what a loss stops stays constant |
    | 'mixed' | exact: the same, inner gradients differentiated forward over reverse |
    | 'forward' | exact: one forward derivative per meta-parameter |
    | 'truncated' | reverse mode through the last steps |
    | 'one_step' | reverse mode through the last step (T1-T2) |
    | 'implicit_cg' | at a minimum, by conjugate gradients |
    | 'implicit_neumann' | at a minimum, by a Neumann series |
    | 'es' | of the smoothed loss, from random antithetic pairs |
    | 'pes' | the same over several truncations, without their bias |
    | 'finite_difference' | central differences, a check of the others |

    Options by name; another estimator refuses them:

    | option | of | meaning |
    |---|---|---|
    | `segment=None` | reverse, mixed, truncated | steps between two kept states; None keeps all |
    | `window` | truncated | steps that are differentiated |
    | `chunk_size=None` | forward, es, pes, finite_difference | directions or pairs run at once |
    | `damping=0.0` | implicit_cg, implicit_neumann | added to the curvature |
    | `max_residual` | implicit_cg (0.01), implicit_neumann (1.0) | largest accepted residual |
    | `tolerance=1e-6`, `max_iterations=100` | implicit_cg | where the iteration ends |
    | `num_terms=10` | implicit_neumann | terms of the series |
    | `step_size=None` | implicit_neumann | of the series; None for the learning rate |
    | `num_pairs=16`, `sigma=0.01` | es, pes | how many perturbations, and how large |
    | `particles=None` | pes | those of the truncation before, from its `GradientInfo` |
    | `epsilon=None` | finite_difference | half the distance of two points |

    docs/meta_gradients.md has definitions, costs and errors.

    Args:
      inner_loss: scalar loss of `(params, meta_params)`. It is also given, by keyword, `key`
        unless `randomness` is 'none', `batch` if there are `batches`, and `batch_stats` if
        there are any, and then returns `(loss, new batch_stats)`.
      outer_loss: scalar loss of the parameters after the steps; it is also given
        `batch_stats` by keyword if there are any.
      params: any pytree of arrays.
      meta_params: any pytree of real floating-point arrays. 'reverse' takes integers as float32.
      learning_rate: step size of plain steps; None with an optimizer, and where K is 0.
      trainable: which leaves of `params` move, see `virtual_step`.
      estimator: one of `ESTIMATORS`.
      num_steps: K, at least 1; the implicit estimators take 0, for parameters that are a
        minimum already.
      optimizer: any optax transformation; None for plain gradient steps. It sees a tree like
        `params` with None in place of the leaves that stay, and, where it asks for them, the
        loss (`value`), `grad` and `value_fn`, as line searches do.
      opt_state: its state before the first step; None for a new one.
      key: for inner randomness, and for the perturbations of 'es' and 'pes'.
      randomness: 'none'; 'fresh', every step has a key of its own, `fold_in(key, step)`; or
        'common', all have `key`.
      batches: pytree of arrays `[num_steps, ...]`, one slice per step (one slice where K is 0).
        The implicit estimators take the system of the last.
      batch_stats: running statistics of the network, any pytree; None without.
      stats_update: 'frozen', all steps and the outer loss see those handed in; 'carried', each
        step hands its own to the next and the last to the outer loss, differentiated; or
        'stopped', the same as constants of the derivative, which 'es', 'pes' and
        'finite_difference' cannot know.
      rolled: whether the steps are a compiled loop. Without it every step is compiled by itself,
        which takes longer to compile and, with convolutions on CPUs, far less time to run.
      return_info: whether to return a `GradientInfo` as well.
      **options: of the estimator.

    Returns:
      A tree like `meta_params`, of at least float32; with `return_info`, `(gradient, info)`.

    Raises:
      ValueError: if no leaf of `params` moves or one is no array of numbers, for a loss that is no
        function, for an argument or option out of range, for an optimizer that the estimator
        cannot differentiate, for meta-parameters of integers (but with 'reverse'), and for an
        implicit system that cannot be solved, with its residual, where that is known; inside
        `jit` the gradient is then NaN.

    Warns:
        UserWarning: where the gradient of some leaves is known to be exactly zero, naming them.
    """
    checks.one_of("estimator", estimator, ESTIMATORS)
    chosen = _ESTIMATORS[estimator]
    checks.require(isinstance(return_info, bool), "return_info", return_info, "True or False")
    _check_options(estimator, options)
    _check_meta(estimator, meta_params)
    check_function("outer_loss", outer_loss)
    meta = jax.tree_util.tree_map(full_precision, meta_params)
    loop = InnerLoop(
        inner_loss=inner_loss,
        params=params,
        learning_rate=learning_rate,
        trainable=trainable,
        num_steps=num_steps,
        optimizer=optimizer,
        opt_state=opt_state,
        key=key,
        randomness=randomness,
        batches=batches,
        batch_stats=batch_stats,
        stats_update=stats_update,
        rolled=rolled,
    )
    loop.check(fewest_steps=chosen.fewest_steps)
    estimate = chosen.run(loop, outer_loss, meta, **options)
    _warn_of_no_influence(estimate.gradient)
    if not return_info:
        return estimate.gradient
    return estimate.gradient, _info(estimate, loop, outer_loss, meta)


def _info(
    estimate: Estimate, loop: InnerLoop, outer_loss: Callable[..., jax.Array], meta: chex.ArrayTree
) -> GradientInfo:
    value, carry = estimate.value, estimate.carry
    if estimate.particles is not None:
        return GradientInfo(value, None, None, None, None, estimate.particles)
    if carry is None:
        carry = loop.run(meta, loop.start())
        value = loop.outer(outer_loss, carry)
    state = None if loop.optimizer is None else carry.opt_state
    params = loop.join(carry.moving)
    return GradientInfo(value, params, state, carry.batch_stats, estimate.residual, None)


def _check_options(estimator: str, options: Mapping[str, Any]) -> None:
    """Requires options that the estimator has, and those without which it cannot be."""
    chosen = _ESTIMATORS[estimator]
    for name, value in options.items():
        having = [repr(other) for other, e in _ESTIMATORS.items() if name in e.options]
        if not having:
            raise ValueError(
                f"{name} is no option of meta_gradient; accepted: "
                f"{', '.join(chosen.options) or 'none'} with estimator {estimator!r}"
            )
        checks.require(
            name in chosen.options,
            name,
            value,
            f"only with estimator {', '.join(having)}, not with {estimator!r}",
        )
    for name in chosen.required:
        if name not in options:
            raise ValueError(f"{name} is missing; accepted: an integer from 1 to num_steps")


def _check_meta(estimator: str, meta_params: chex.ArrayTree) -> None:
    """Requires meta-parameters that have a derivative."""
    entries = leaves.named(meta_params)
    checks.require(bool(entries), "meta_params", meta_params, "a pytree with at least one array")
    leaves.check_arrays("meta_params", meta_params)
    for name, leaf in entries:
        kind = jax.numpy.result_type(leaf)
        other = jax.dtypes.extended, jax.numpy.complexfloating
        convertible = estimator == "reverse" and not any(
            jax.dtypes.issubdtype(kind, one) for one in other
        )
        checks.require(
            leaves.is_floating(leaf) or convertible,
            f"the type of meta_params{name}",
            str(kind),
            f"floating-point numbers with estimator {estimator!r}",
        )


def _warn_of_no_influence(gradient: chex.ArrayTree) -> None:
    """Warns of leaves whose gradient is known to be exactly zero."""
    zero = []
    for name, leaf in leaves.named(gradient):
        known = on_host(leaf)
        if known is not None and known.size and not np.any(known):
            zero.append(f"meta_params{name}")
    if zero:
        warnings.warn(
            f"the meta-gradient of {', '.join(zero)} is exactly zero: no influence on the inner "
            "loss where it was differentiated, or an optimizer that passes none on",
            stacklevel=3,
        )
