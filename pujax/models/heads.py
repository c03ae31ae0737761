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

PROJECTIONS = ("lagam", "impulses", "dcl")
DCL_WIDTH = 512
ALIGNED_WIDTH = 2048
PREDICTOR_WIDTH = 512


class Outputs(NamedTuple):
    """What a `PUNet` puts out, all in float32.

    Attributes:
      logits: raw scores [batch], positive iff > 0.
      features: what the backbone puts out [batch, d].
      embedding: unit vectors [batch, embedding_dim], or None if not asked for.
      aligned: unit vectors [batch, aligned_dim] of the heads for alignment, or None likewise.
      prediction: unit vectors [batch, aligned_dim] that are predicted from these, or None likewise.
    """

    logits: jax.Array
    features: jax.Array
    embedding: jax.Array | None
    aligned: jax.Array | None = None
    prediction: jax.Array | None = None


_dense = functools.partial(layers.dense, precision=jax.lax.Precision.HIGHEST)


def unit_vectors(vectors: jax.Array) -> jax.Array:
    """Divides vectors [..., d] by their Euclidean length; the zero vector stays zero.

    Args:
      vectors: [..., d] of a floating-point type, computed in at least float32, in which those
        longer than 1e19 have no length and become zero.

    Returns:
      Vectors of length 1 [..., d] of the same type; those shorter than 1e-6 (float16: 6.1e-5)
      become shorter than 1 instead. The gradient is finite everywhere.
    """
    wide = vectors.astype(jnp.promote_types(vectors.dtype, jnp.float32))
    square = jnp.sum(jnp.square(wide), axis=-1, keepdims=True)
    # The gradient at the zero vector is one over this length, which float16 must hold, too.
    least = max(MIN_LENGTH, float(jnp.finfo(vectors.dtype).tiny))
    return (wide * jax.lax.rsqrt(jnp.maximum(square, least**2))).astype(vectors.dtype)


def check_projection(name: str) -> None:
    """Raises a ValueError unless `name` is one of `PROJECTIONS`."""
    if name not in PROJECTIONS:
        raise ValueError(f"projection is {name!r}; accepted: {', '.join(PROJECTIONS)}")


class PUNet(nn.Module):
    """A backbone with a linear classifier and, for contrastive losses, a projection head.

    The projection is dense, ReLU, dense and L2 normalisation, in one of three published forms:

    - "lagam": d -> d -> embedding_dim, both with bias (Long et al., CVPR 2024);
    - "impulses": d -> d -> embedding_dim, both without bias (ImPULSeS, Dorigatti et al., 2022);
    - "dcl": d -> 512 without bias, batch norm before ReLU, -> embedding_dim with bias (Chuang et
      al., 2020, https://arxiv.org/abs/2007.00224).

    For losses that align the views of two networks there are two more heads, as in BYOL (Grill et
    al., 2020, https://arxiv.org/abs/2006.07733): d -> 2048 -> aligned_dim, and a predictor
    aligned_dim -> 512 -> aligned_dim on what that puts out before its normalisation. All layers
    have biases, and batch norm before ReLU; the widths are those of Zhao et al., ICLR 2026.

    The heads multiply in full float32 for every type of the backbone, since their outputs decide
    labels. Classifier parameters are at `params['classifier']`: `kernel` [d, 1] and `bias` [1].

    Attributes:
      backbone: module called as `(inputs, train)` that gives features [batch, d].
      embedding_dim: width of the embedding; 0 leaves the projection out.
      projection: layers of the projection, "lagam", "impulses" or "dcl".
      aligned_dim: width of the heads for alignment; 0 leaves them out.
    """

    backbone: nn.Module
    embedding_dim: int = 128
    projection: str = "lagam"
    aligned_dim: int = 0

    @nn.compact
    def __call__(
        self,
        inputs: jax.Array,
        train: bool,
        with_embedding: bool = True,
        with_prediction: bool = False,
    ) -> Outputs:
        """Logits, features and embedding of a batch.

        Args:
          inputs: what the backbone accepts, usually images [batch, height, width, channels].
          train: True normalises by the batch and moves `batch_stats`, which must be mutable then.
          with_embedding: False skips the projection; its parameters exist all the same, and its
            running statistics stay.
          with_prediction: whether the heads for alignment are needed, which exist likewise. They
            normalise by the batch whatever `train` says, and `batch_stats` must be mutable.

        Returns:
          `Outputs`, in which what is skipped or has the width 0 is None.

        Raises:
          ValueError: if `projection` is unknown.
        """
        check_projection(self.projection)
        features = self.backbone(inputs, train).astype(jnp.float32)
        logits = _dense(features, 1, name="classifier")[:, 0]
        embedding = aligned = prediction = None
        if self.embedding_dim and (with_embedding or self.is_initializing()):
            embedding = unit_vectors(self._project(features, train))
        if self.aligned_dim and (with_prediction or self.is_initializing()):
            out = self._aligned(features, ALIGNED_WIDTH, "aligned")
            aligned = unit_vectors(out)
            prediction = unit_vectors(self._aligned(out, PREDICTOR_WIDTH, "predictor"))
        if not with_embedding:
            embedding = None
        if not with_prediction:
            aligned = prediction = None
        return Outputs(logits, features, embedding, aligned, prediction)

    def _aligned(self, inputs: jax.Array, width: int, name: str) -> jax.Array:
        """A head for alignment before normalisation, [batch, aligned_dim].

        Nothing but training needs it, and it is new where the backbone is not: it normalises by the
        batch, also where the backbone's statistics are frozen.
        """
        hidden = _dense(inputs, width, name=f"{name}_hidden")
        norm = layers.BatchNorm(name=f"{name}_norm")
        hidden = nn.relu(norm(hidden, not self.is_initializing()))
        return _dense(hidden, self.aligned_dim, name=f"{name}_out")

    def _project(self, features: jax.Array, train: bool) -> jax.Array:
        """The projection before normalisation, [batch, embedding_dim]."""
        is_lagam, is_dcl = self.projection == "lagam", self.projection == "dcl"
        width = DCL_WIDTH if is_dcl else features.shape[-1]
        hidden = _dense(features, width, use_bias=is_lagam, name="projection_hidden")
        if is_dcl:
            hidden = layers.BatchNorm(name="projection_norm")(hidden, train)
        use_bias = is_lagam or is_dcl
        return _dense(nn.relu(hidden), self.embedding_dim, use_bias=use_bias, name="projection_out")
