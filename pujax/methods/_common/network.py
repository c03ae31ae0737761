"""A network as functions of parameter trees and batch statistics."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections

from pujax import augment, checks, models
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.data.pu_dataset import DataInfo
from pujax.models import encoder as encoder_lib
from pujax.models.encoder import Encoder


class Network(NamedTuple):
    """A Linen module bound to a data set's normalisation.

    Attributes:
      module: a `models.heads.PUNet`.
      mean: per channel, of pixels in 0-1; per feature of a table.
      std: likewise.
      image_size: side in pixels that images are resized to; 0 keeps theirs.
    """

    module: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_size: int = 0

    def normalize(self, inputs: jax.Array) -> jax.Array:
        """Raw inputs to normalised float32.

        Bytes are images: resized, brought to 0-1, less mean, over std. The rest is a table's rows.
        """
        if inputs.dtype == jnp.uint8:
            side = self.image_size
            if side and inputs.shape[1:3] != (side, side):
                inputs = augment.resize(inputs, side, side)
            return augment.normalize(inputs, mean=self.mean, std=self.std)
        mean, std = (jnp.asarray(number, jnp.float32) for number in (self.mean, self.std))
        return (inputs - mean) / std

    def init(
        self, key: jax.Array, inputs: jax.Array, encoder: Encoder | None = None
    ) -> tuple[Any, Any]:
        """Parameters and batch statistics to start from.

        Args:
          key: random key.
          inputs: raw inputs `[batch, ...]`.
          encoder: backbone to start from, usually `TrainingData.encoder`; None makes a fresh one.

        Returns:
          `(params, batch_stats)`; heads are always fresh.

        Raises:
          ValueError: if the encoder is of another architecture.
        """
        variables = self.module.init(key, self.normalize(inputs), False)
        fresh = variables["params"], variables.get("batch_stats", {})
        return fresh if encoder is None else encoder_lib.put(encoder, *fresh)

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


def build(
    config: ml_collections.ConfigDict,
    info: DataInfo,
    *,
    embedding_dim: int,
    projection: str = "lagam",
) -> Network:
    """Builds the network that `config.model` names for the data set `info` describes.

    Every method builds its network here, before anything is compiled, so this is where a table of
    numbers is told from images.

    Args:
      config: the resolved configuration, with the sections `model` and `method`.
      info: what the data set is.
      embedding_dim: width of the projection head's embedding; 0 leaves that head out.
      projection: layers of that head, one of `models.heads.PROJECTIONS`.

    Returns:
      A `Network`.

    Raises:
      ValueError: if the network, or the method's random views, do not go with such data.
    """
    check(config, info)
    module = models.build(
        config.model.name,
        embedding_dim=embedding_dim,
        projection=projection,
        dtype=config.model.dtype,
        **config.model.options.to_dict(),
    )
    return Network(module, info.mean, info.std, config.model.image_size)


def check(config: ml_collections.ConfigDict, info: DataInfo | MultilabelInfo) -> None:
    """Raises a ValueError if the network, or the method's random views, do not go with the data."""
    if info.is_table:
        table = f"the data ({info.name}) are a table of {info.input_shape[0]} numbers a row"
        checks.require(
            config.model.name in models.FOR_TABLES,
            "model.name",
            config.model.name,
            f"{', '.join(map(repr, models.FOR_TABLES))}, since {table}",
        )
        checks.require(
            not config.method.get("augment", False),
            "method.augment",
            True,
            f"False, since {table}; there is nothing to flip or shift",
        )
