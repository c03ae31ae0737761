"""Settings of the stage that learns PURL's features, and what it holds out."""

from typing import Any

import jax
import ml_collections

from pujax import checks
from pujax.data.pu_dataset import DataInfo
from pujax.methods.purl import holdout


def default_config() -> dict[str, Any]:
    """Fields of the stage: the paper's values but for its unknown length.

    `inner` says what the four updates move: 'head' is g alone, 'all' is the whole network. `head`
    is trained ('sgd') or solved for in every batch ('closed_form'; then each update moves v).
    `output` 'softplus' keeps w above 0. `pre_activation` makes v what comes before the last batch
    norm and ReLU, which then belong to g. Held out are at most a fifth of P, and of U.
    """
    return {
        "representation_epochs": 300,
        "representation_learning_rate": 1e-3,
        "representation_weight_decay": 5e-4,
        "gradient_noise": 0.01,
        "inner": "head",
        "inner_steps": 4,
        "head": "sgd",
        "head_ridge": 1e-2,
        "output": "linear",
        "pre_activation": False,
        "validation_positives": 50,
        "validation_unlabeled": 200,
    }


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    c = config.method
    checks.between("method.representation_epochs", c.representation_epochs, 1, c.num_epochs - 1)
    checks.positive("method.representation_learning_rate", c.representation_learning_rate)
    checks.at_least("method.representation_weight_decay", c.representation_weight_decay, 0)
    checks.at_least("method.gradient_noise", c.gradient_noise, 0)
    checks.one_of("method.inner", c.inner, ("head", "all"))
    checks.at_least("method.inner_steps", c.inner_steps, 1)
    checks.one_of("method.head", c.head, ("sgd", "closed_form"))
    checks.positive("method.head_ridge", c.head_ridge)
    checks.one_of("method.output", c.output, ("linear", "softplus"))
    for name in ("validation_positives", "validation_unlabeled"):
        checks.at_least(f"method.{name}", c[name], 1)
    if c.head == "closed_form":
        accepted = "'linear' while method.head is 'closed_form'"
        checks.require(c.output == "linear", "method.output", c.output, accepted)
    if c.pre_activation:
        accepted = "'mlp' while method.pre_activation is True"
        checks.require(config.model.name == "mlp", "model.name", config.model.name, accepted)


def hold_out(
    key: jax.Array, labeled: jax.Array, config: ml_collections.ConfigDict, info: DataInfo
) -> jax.Array:
    """The examples held out, bool `[n]`; see `default_config`."""
    num_positives, num_unlabeled = num_held_out(config, info)
    return holdout.choose(key, labeled, num_positives=num_positives, num_unlabeled=num_unlabeled)


def num_held_out(config: ml_collections.ConfigDict, info: DataInfo) -> tuple[int, int]:
    """How many of P and of U are held out."""
    return (
        max(min(config.validation_positives, info.n_p // 5), 1),
        max(min(config.validation_unlabeled, info.n_u // 5), 1),
    )
