"""A network as functions of parameter trees, with batch statistics kept per view."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections

from pujax import augment, models
from pujax.data.dataset import DataInfo

# Share of the new batch in the running averages of every batch norm of `pujax.models`.
_NEW_SHARE = 0.1


class Network(NamedTuple):
    """A Linen module bound to a data set's normalisation.

    Attributes:
      module: a `models.heads.PUNet`.
      mean: per channel, of pixels in 0-1.
      std: per channel, of pixels in 0-1.
    """

    module: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalize(self, images: jax.Array) -> jax.Array:
        """uint8 images to normalised float32."""
        return augment.normalize(images, mean=self.mean, std=self.std)

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[Any, Any]:
        """Fresh parameters and batch statistics for raw inputs `[batch, ...]`."""
        variables = self.module.init(key, self.normalize(inputs), False)
        return variables["params"], variables.get("batch_stats", {})

    def infer(self, params: Any, batch_stats: Any, inputs: jax.Array, *, with_embedding=False):
        """Outputs on raw inputs with running statistics and no augmentation."""
        variables = {"params": params, "batch_stats": batch_stats}
        return self.module.apply(
            variables, self.normalize(inputs), False, with_embedding=with_embedding
        )

    def train_views(self, params, batch_stats, views: jax.Array, *, with_embedding=True):
        """Training-mode outputs of several views, each with batch statistics of its own.

        The views go through the network side by side (one call, one batch-norm group per view),
        which fills a device better than separate passes. The running averages are then updated
        view by view in the given order, exactly as separate passes would: the update is linear in
        the old value, so each view's share is read off a pass that starts from zero.

        Args:
          params: parameters.
          batch_stats: running statistics.
          views: normalised images `[views, batch, height, width, channels]`.
          with_embedding: whether the projection head is needed.

        Returns:
          `(outputs, batch_stats)`; every output has a leading axis `views`.
        """
        zeros = jax.tree.map(jnp.zeros_like, batch_stats)

        def one_view(images):
            outputs, updated = self.module.apply(
                {"params": params, "batch_stats": zeros},
                images,
                True,
                with_embedding=with_embedding,
                mutable=["batch_stats"],
            )
            return outputs, updated.get("batch_stats", {})

        outputs, shares = jax.vmap(one_view)(views)
        for view in range(views.shape[0]):
            batch_stats = jax.tree.map(
                lambda old, share, v=view: (1 - _NEW_SHARE) * old + share[v], batch_stats, shares
            )
        return outputs, batch_stats


def build(config: ml_collections.ConfigDict, info: DataInfo, *, embedding_dim: int) -> Network:
    """Builds the network that `config.model` names for the data set `info` describes."""
    module = models.build(
        config.model.name,
        embedding_dim=embedding_dim,
        dtype=config.model.dtype,
        **config.model.options.to_dict(),
    )
    return Network(module, info.mean, info.std)
