"""Heads on a backbone: a linear PU classifier and a projection to the unit sphere."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from pujax.models import layers

# Shorter vectors are divided by this length instead of their own, so that the gradient at the zero
# vector is finite.
MIN_LENGTH = 1e-6

PROJECTIONS = ("lagam", "impulses", "dcl", "byol")
DCL_WIDTH = 512
BYOL_WIDTH = 2048
PREDICTOR_WIDTH = 512


class Outputs(NamedTuple):
    """What a `PUNet` puts out, all in float32.

    Attributes:
      logits: raw scores [batch], positive iff > 0.
      features: what the backbone puts out [batch, d].
      embedding: unit vectors [batch, embedding_dim], or None if not asked for.
      prediction: unit vectors [batch, embedding_dim] of the predictor, which "byol" alone has.
    """

    logits: jax.Array
    features: jax.Array
    embedding: jax.Array | None
    prediction: jax.Array | None = None


_dense = functools.partial(layers.dense, precision=jax.lax.Precision.HIGHEST)


def unit_vectors(vectors: jax.Array) -> jax.Array:
    """Divides vectors [..., d] by their Euclidean length; the zero vector stays zero.

    Args:
      vectors: [..., d].

    Returns:
      Vectors of length 1 [..., d]; those shorter than 1e-6 become shorter than 1 instead. The
      gradient is finite everywhere.
    """
    square = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(square, MIN_LENGTH**2))


def check_projection(name: str) -> None:
    """Raises a ValueError unless `name` is one of `PROJECTIONS`."""
    if name not in PROJECTIONS:
        raise ValueError(f"projection is {name!r}; accepted: {', '.join(PROJECTIONS)}")


class PUNet(nn.Module):
    """A backbone with a linear classifier and, for contrastive losses, a projection head.

    The projection is dense, ReLU, dense and L2 normalisation, in one of four published forms:

    - "lagam": d -> d -> embedding_dim, both with bias (Long et al., CVPR 2024);
    - "impulses": d -> d -> embedding_dim, both without bias (ImPULSeS, Dorigatti et al., 2022);
    - "dcl": d -> 512 without bias, batch norm before ReLU, -> embedding_dim with bias (Chuang et
      al., 2020, https://arxiv.org/abs/2007.00224);
    - "byol": d -> 2048 -> embedding_dim with biases, batch norm before ReLU. A predictor of the
      same layers, with 512 in the middle, follows on the projection before its normalisation (Grill
      et al., 2020, https://arxiv.org/abs/2006.07733; widths of Zhao et al., ICLR 2026).

    The heads multiply in full float32 for every type of the backbone, since their outputs decide
    labels. Classifier parameters are at `params['classifier']`: `kernel` [d, 1] and `bias` [1].

    Attributes:
      backbone: module called as `(inputs, train)` that gives features [batch, d].
      embedding_dim: width of the embedding; 0 leaves the projection out.
      projection: layers of the projection, one of `PROJECTIONS`.
    """

    backbone: nn.Module
    embedding_dim: int = 128
    projection: str = "lagam"

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool, with_embedding: bool = True) -> Outputs:
        """Logits, features and embedding of a batch.

        Args:
          inputs: what the backbone accepts, usually images [batch, height, width, channels].
          train: True normalises by the batch and moves `batch_stats`, which must be mutable then.
          with_embedding: False skips the projection; its parameters exist all the same, and its
            running statistics stay.

        Returns:
          `Outputs`, whose `embedding` is None when skipped or `embedding_dim` is 0.

        Raises:
          ValueError: if `projection` is unknown.
        """
        check_projection(self.projection)
        features = self.backbone(inputs, train).astype(jnp.float32)
        logits = _dense(features, 1, name="classifier")[:, 0]
        embedding = prediction = None
        if self.embedding_dim and (with_embedding or self.is_initializing()):
            projected = self._project(features, train)
            embedding = unit_vectors(projected)
            if self.projection == "byol":
                hidden = self._hidden(projected, PREDICTOR_WIDTH, train, "predictor")
                out = _dense(hidden, self.embedding_dim, name="predictor_out")
                prediction = unit_vectors(out)
        if not with_embedding:
            return Outputs(logits, features, None)
        return Outputs(logits, features, embedding, prediction)

    def _hidden(self, inputs: jax.Array, width: int, train: bool, name: str) -> jax.Array:
        """A layer of BYOL's heads: dense with bias, batch norm, ReLU."""
        hidden = _dense(inputs, width, name=f"{name}_hidden")
        return nn.relu(layers.BatchNorm(name=f"{name}_norm")(hidden, train))

    def _project(self, features: jax.Array, train: bool) -> jax.Array:
        """The projection before normalisation, [batch, embedding_dim]."""
        if self.projection == "byol":
            hidden = self._hidden(features, BYOL_WIDTH, train, "projection")
            return _dense(hidden, self.embedding_dim, name="projection_out")
        is_lagam, is_dcl = self.projection == "lagam", self.projection == "dcl"
        width = DCL_WIDTH if is_dcl else features.shape[-1]
        hidden = _dense(features, width, use_bias=is_lagam, name="projection_hidden")
        if is_dcl:
            hidden = layers.BatchNorm(name="projection_norm")(hidden, train)
        use_bias = is_lagam or is_dcl
        return _dense(nn.relu(hidden), self.embedding_dim, use_bias=use_bias, name="projection_out")
