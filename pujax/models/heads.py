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


class Outputs(NamedTuple):
    """What a `PUNet` puts out, all in float32.

    Attributes:
      logits: raw scores [batch], positive iff > 0.
      features: what the backbone puts out [batch, d].
      embedding: unit vectors [batch, embedding_dim], or None if not asked for.
    """

    logits: jax.Array
    features: jax.Array
    embedding: jax.Array | None


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


class PUNet(nn.Module):
    """A backbone with a linear classifier and, for contrastive losses, a projection head.

    The projection is dense, ReLU, dense and L2 normalisation, as in LaGAM (Long et al., CVPR 2024).
    The heads multiply in full float32 whatever the backbone computes in, since their outputs decide
    labels. Classifier parameters are at `params['classifier']`: `kernel` [d, 1] and `bias` [1].

    Attributes:
      backbone: module called as `(inputs, train)` that gives features [batch, d].
      embedding_dim: width of the embedding; 0 leaves the projection out.
    """

    backbone: nn.Module
    embedding_dim: int = 128

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool, with_embedding: bool = True) -> Outputs:
        """Logits, features and embedding of a batch.

        Args:
          inputs: what the backbone accepts, usually images [batch, height, width, channels].
          train: True normalises by the batch and moves `batch_stats`, which must be mutable then.
          with_embedding: False skips the projection; its parameters exist all the same.

        Returns:
          `Outputs`, whose `embedding` is None when skipped or `embedding_dim` is 0.
        """
        dense = functools.partial(layers.dense, precision=jax.lax.Precision.HIGHEST)
        features = self.backbone(inputs, train).astype(jnp.float32)
        logits = dense(features, 1, name="classifier")[:, 0]
        embedding = None
        if self.embedding_dim and (with_embedding or self.is_initializing()):
            hidden = nn.relu(dense(features, features.shape[-1], name="projection_hidden"))
            embedding = unit_vectors(dense(hidden, self.embedding_dim, name="projection_out"))
        return Outputs(logits, features, embedding if with_embedding else None)
