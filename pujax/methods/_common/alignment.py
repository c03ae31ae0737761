"""Representations pulled together within the predicted classes: the target network and its loss.

An online network with a predictor looks at one strong view of a batch, and a slowly moving copy of
its backbone and projection, the target, at another one. Source: Zhao et al., "Noisy-pair robust
representation alignment for positive-unlabeled learning", ICLR 2026, on the networks of BYOL.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax

from pujax import checks, contrastive
from pujax.contrastive.alignment import CLAMPS
from pujax.methods._common.network import Network
from pujax.models import heads

PROJECTION = "byol"


class Target(NamedTuple):
    """The copy that online views are compared with; no gradient reaches it.

    Attributes:
      params: of the backbone and the projection.
      batch_stats: their running statistics, which nothing but the copy's own passes moves. It
        always normalises by its batch, so that they are only kept for the module.
    """

    params: Any
    batch_stats: Any


def default_config() -> dict[str, Any]:
    """Fields of the target network and of the loss, with the published values."""
    return {
        "align_weight": 50.0,
        "align_clamp": "components",  # or 'none', see `contrastive.noise_robust_alignment`
        "pair_threshold": 0.5,  # of the products of two predicted distributions
        "target_momentum": 0.99,
        "embedding_dim": 128,
    }


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    checks.at_least("method.align_weight", config.align_weight, 0)
    checks.one_of("method.align_clamp", config.align_clamp, CLAMPS)
    checks.between("method.pair_threshold", config.pair_threshold, 0, 1)
    checks.between("method.target_momentum", config.target_momentum, 0, 1)
    checks.at_least("method.embedding_dim", config.embedding_dim, 1)


def fresh(params: Any, batch_stats: Any) -> Target:
    """A target that is a copy of the online network."""
    # Copies: a training step gives its buffers back, and may not do so twice.
    return jax.tree.map(jnp.copy, Target(_shared(params), _shared(batch_stats)))


def follow(target: Target, params: Any, *, momentum: float) -> Target:
    """The target a little nearer to the online network: `momentum` of it stays."""
    moved = optax.incremental_update(_shared(params), target.params, 1 - momentum)
    return target._replace(params=moved)


def embed(
    network: Network, target: Target, params: Any, batch_stats: Any, images: jax.Array
) -> tuple[jax.Array, Target]:
    """The target's unit vectors of a view, `[batch, embedding_dim]`, as constants.

    Args:
      network: with the projection 'byol'.
      target: the target.
      params: of the online network; its other heads are computed by nobody and fill the module.
      batch_stats: likewise.
      images: normalised images or rows `[batch, ...]`.

    Returns:
      The embedding, and the target with the running statistics after this pass.
    """
    outputs, moved = network.train_pass(
        jax.lax.stop_gradient({**params, **target.params}),
        {**batch_stats, **target.batch_stats},
        images,
        with_embedding=True,
    )
    kept = {name: moved[name] for name in target.batch_stats}
    return jax.lax.stop_gradient(outputs.embedding), target._replace(batch_stats=kept)


def same_class(probabilities: jax.Array, *, threshold: float) -> jax.Array:
    """Which pairs count: those whose predicted distributions have a product of at least so much.

    With two classes the product is `1/2 + (2 p_i - 1) (2 p_j - 1) / 2`, so that 0.5 asks for the
    same predicted class and for no confidence.

    Args:
      probabilities: `[batch]`, of the positive class.
      threshold: in [0, 1].

    Returns:
      bool `[batch, batch]`.
    """
    sides = 2 * probabilities - 1
    return (1 + sides[:, None] * sides[None, :]) / 2 >= threshold


def loss(
    config: ml_collections.ConfigDict,
    outputs: heads.Outputs,
    target: jax.Array,
    scores: jax.Array,
    *,
    uses_pairs: jax.Array | bool,
) -> jax.Array:
    """The alignment loss of a batch, without its weight.

    Args:
      config: a section with the fields of `default_config`.
      outputs: of the online network's pass over a strong view.
      target: `[batch, embedding_dim]`, from `embed`, of another strong view.
      scores: `[batch]`, of the weak view; they choose the pairs, as constants.
      uses_pairs: False for nothing but the two views of every example.

    Returns:
      A scalar.
    """
    assert outputs.prediction is not None
    probabilities = jax.nn.sigmoid(jax.lax.stop_gradient(scores))
    pairs = same_class(probabilities, threshold=config.pair_threshold) & uses_pairs
    return contrastive.noise_robust_alignment(
        outputs.prediction, target, pairs, clamp=config.align_clamp
    )


def _shared(tree: Any) -> dict[str, Any]:
    """What a target has of the online network: the backbone and the projection."""
    return {
        name: part
        for name, part in tree.items()
        if name == "backbone" or name.startswith("projection")
    }
