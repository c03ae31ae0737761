"""A network as functions of parameter trees and batch statistics."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections

from pujax import augment, models
from pujax.data.dataset import DataInfo
from pujax.methods import _checks


class Network(NamedTuple):
    """A Linen module bound to a data set's normalisation.

    Attributes:
      module: a `models.heads.PUNet`.
      mean: per channel, of pixels in 0-1; per feature of a table.
      std: likewise.
    """

    module: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalize(self, inputs: jax.Array) -> jax.Array:
        """Raw inputs to normalised float32: bytes to pixels in 0-1, then less mean, over std."""
        if inputs.dtype == jnp.uint8:
            return augment.normalize(inputs, mean=self.mean, std=self.std)
        mean, std = (jnp.asarray(number, jnp.float32) for number in (self.mean, self.std))
        return (inputs - mean) / std

    def init(self, key: jax.Array, inputs: jax.Array) -> tuple[Any, Any]:
        """Fresh parameters and batch statistics for raw inputs `[batch, ...]`."""
        variables = self.module.init(key, self.normalize(inputs), False)
        return variables["params"], variables.get("batch_stats", {})

    def has_batch_stats(self, info: DataInfo) -> bool:
        """True where the network normalises by batch statistics; nothing is computed."""
        inputs = jax.ShapeDtypeStruct((2, *info.input_shape), info.input_dtype)
        return bool(jax.eval_shape(self.init, jax.eval_shape(jax.random.key, 0), inputs)[1])

    def infer(self, params: Any, batch_stats: Any, inputs: jax.Array, *, with_embedding=False):
        """Outputs on raw inputs with running statistics and no augmentation."""
        variables = {"params": params, "batch_stats": batch_stats}
        return self.module.apply(
            variables, self.normalize(inputs), False, with_embedding=with_embedding
        )

    def train_pass(self, params, batch_stats, images: jax.Array, *, with_embedding=False):
        """Training-mode outputs of one view, normalised by its own batch statistics.

        Every view of a batch is a pass of its own, as in the papers: on a CPU that is also a third
        faster than one pass over all views (ResNet-18, 3 views of 64), and on a mesh no view has to
        be moved between devices.

        Args:
          params: parameters.
          batch_stats: running statistics.
          images: normalised images `[batch, height, width, channels]` or rows `[batch, features]`.
          with_embedding: whether the projection head is needed.

        Returns:
          `(outputs, batch_stats)` with the running statistics moved towards this view's.
        """
        outputs, updated = self.module.apply(
            {"params": params, "batch_stats": batch_stats},
            images,
            True,
            with_embedding=with_embedding,
            mutable=["batch_stats"],
        )
        return outputs, updated.get("batch_stats", {})


def build(config: ml_collections.ConfigDict, info: DataInfo, *, embedding_dim: int) -> Network:
    """Builds the network that `config.model` names for the data set `info` describes.

    Every method builds its network here, before anything is compiled, so this is where a table of
    numbers is told from images.

    Raises:
      ValueError: if the network, or the method's random views, do not go with such data.
    """
    if info.is_table:
        table = f"the data ({info.name}) are a table of {info.input_shape[0]} numbers a row"
        _checks.require(
            config.model.name in models.FOR_TABLES,
            "model.name",
            config.model.name,
            f"{', '.join(map(repr, models.FOR_TABLES))}, since {table}",
        )
        _checks.require(
            not config.method.get("augment", False),
            "method.augment",
            True,
            f"False, since {table}; there is nothing to flip or shift",
        )
    module = models.build(
        config.model.name,
        embedding_dim=embedding_dim,
        dtype=config.model.dtype,
        **config.model.options.to_dict(),
    )
    return Network(module, info.mean, info.std)
