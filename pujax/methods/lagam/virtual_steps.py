"""What a configuration says of LaGAM's virtual steps: what moves, how often, by which estimator."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import ml_collections
import optax

from pujax import checks, meta

SUBSETS = ("kernel", "head", "last_block", "all")
OPTIMIZERS = ("sgd", "momentum", "adam")
LOSSES = ("same", "balanced", "mean")
ESTIMATORS = tuple(name for name in meta.ESTIMATORS if name != "pes")
"""All but 'pes', which is for an inner problem that goes on from one update to the next."""
_MOMENTUM = 0.9
# Keeps the derivative of Adam's root finite where a gradient is exactly 0, as behind a dead ReLU.
_EPS_ROOT = 1e-8
_HEAD = "classifier"
_BACKBONE = "backbone"
_NUMBERED = re.compile(r"(stage|conv|dense|norm)(\d+)(?:_block(\d+))?$")


def default_config() -> dict[str, Any]:
    """One plain step of the classifier's weights, differentiated exactly (paper section 3.3)."""
    return {
        "meta_learning_rate": 1e-3,
        "meta_num_steps": 1,
        "meta_trainable": "kernel",
        "meta_optimizer": "sgd",
        "meta_loss": "same",
        "meta_estimator": "reverse",
        "meta_window": 1,
        "meta_num_pairs": 16,
        "meta_sigma": 0.1,
        "meta_terms": 10,
        "meta_damping": 0.0,
    }


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be, before anything is compiled."""
    c = config
    checks.positive("method.meta_learning_rate", c.meta_learning_rate)
    checks.whole_number("method.meta_num_steps", c.meta_num_steps, 1)
    checks.one_of("method.meta_trainable", c.meta_trainable, SUBSETS)
    checks.one_of("method.meta_optimizer", c.meta_optimizer, OPTIMIZERS)
    checks.one_of("method.meta_loss", c.meta_loss, LOSSES)
    checks.one_of("method.meta_estimator", c.meta_estimator, ESTIMATORS)
    for name in ("meta_window", "meta_num_pairs", "meta_terms"):
        checks.whole_number(f"method.{name}", c[name], 1)
    checks.positive("method.meta_sigma", c.meta_sigma)
    checks.at_least("method.meta_damping", c.meta_damping, 0)
    if c.meta_estimator == "truncated":
        window, steps = c.meta_window, c.meta_num_steps
        accepted = f"1 to {steps}, the steps of method.meta_num_steps"
        checks.require(window <= steps, "method.meta_window", window, accepted)


def arguments(config: ml_collections.ConfigDict, key: jax.Array) -> dict[str, Any]:
    """Arguments of `meta.meta_gradient`, but for which parameters move.

    Args:
      config: the method's section.
      key: for the perturbations of 'es'; the other estimators draw nothing.
    """
    rate = config.meta_learning_rate
    found: dict[str, Any] = {"learning_rate": rate}
    if config.meta_optimizer == "momentum":
        found = {"optimizer": optax.sgd(rate, momentum=_MOMENTUM)}
    elif config.meta_optimizer == "adam":
        found = {"optimizer": optax.adam(rate, eps_root=_EPS_ROOT)}
    return found | {
        "estimator": config.meta_estimator,
        "num_steps": config.meta_num_steps,
        **_options(config, key),
    }


def _options(config: ml_collections.ConfigDict, key: jax.Array) -> Mapping[str, Any]:
    """Options of the estimator."""
    # Parameters in the middle of a training are no minimum: the linear system is solved as far as
    # the terms go, on purpose.
    system = {"damping": config.meta_damping, "max_residual": float("inf")}
    options: dict[str, Mapping[str, Any]] = {
        "truncated": {"window": config.meta_window},
        "implicit_cg": {"max_iterations": config.meta_terms, **system},
        "implicit_neumann": {
            "num_terms": config.meta_terms,
            "step_size": config.meta_learning_rate,
            **system,
        },
        "es": {"num_pairs": config.meta_num_pairs, "sigma": config.meta_sigma, "key": key},
    }
    return options.get(config.meta_estimator, {})


def is_published(config: ml_collections.ConfigDict) -> bool:
    """Whether the gradient is that of the paper, whatever the step size and the loss."""
    names = ("meta_num_steps", "meta_trainable", "meta_optimizer", "meta_estimator")
    default = default_config()
    return all(config[name] == default[name] for name in names)


def moves_features(config: ml_collections.ConfigDict) -> bool:
    """Whether parameters below the classifier move, so that features change with them."""
    return config.meta_trainable in ("last_block", "all")


def trainable(
    config: ml_collections.ConfigDict,
    params: Mapping[str, Any],
    is_trainable: Callable[[tuple[Any, ...]], bool] | None = None,
) -> Callable[[tuple[Any, ...]], bool]:
    """Which parameters of a network move in a virtual step, a function of their key path.

    The projection of the contrastive loss and the heads for alignment never do: scores do not
    depend on them.

    Args:
      config: the method's section.
      params: of the network, or their shapes: `{'backbone': ..., 'classifier': ...}`.
      is_trainable: which parameters train at all, see `Network.is_trainable`; None for all.
    """
    subset, last = config.meta_trainable, last_block(params.get(_BACKBONE, {}))

    def moves(path: tuple[Any, ...]) -> bool:
        names = [entry.key for entry in path]
        if is_trainable is not None and not is_trainable(path):
            return False
        if names[0] == _HEAD:
            return subset != "kernel" or names[-1] == "kernel"
        below = subset == "all" or (subset == "last_block" and names[1] in last)
        return names[0] == _BACKBONE and below

    return moves


def last_block(backbone: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the layers that make up the last block of a backbone.

    That is the last residual block; of other networks the last dense layer, or the last
    convolution where there is none, with its batch norm. A network without layers has none.

    Args:
      backbone: its parameters by the names of layers, or their shapes.
    """
    found = {name: _NUMBERED.match(name) for name in backbone}
    numbers = {
        name: (match[1], int(match[2]), int(match[3] or 0))
        for name, match in found.items()
        if match
    }
    kinds = {kind for kind, *_ in numbers.values()}
    for kind in ("stage", "dense", "conv"):
        if kind not in kinds:
            continue
        last = max(number for number in numbers.values() if number[0] == kind)
        # Batch norm has the number of the layer before it: a convolution, if there are any.
        is_normed = kind == "conv" or (kind == "dense" and "conv" not in kinds)
        norm = f"norm{last[1]}"
        extra = (norm,) if is_normed and norm in backbone else ()
        return (*(name for name, number in numbers.items() if number == last), *extra)
    return ()
