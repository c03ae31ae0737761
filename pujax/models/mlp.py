"""Multilayer perceptron for vectors and small images."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from pujax.models import layers


class MLP(nn.Module):
    """Dense layers with ReLU on the flattened input.

    The defaults are GradPU's net for MNIST; `batch_norm=True` makes it that of nnPU (Kiryo et al.,
    2017), whose dense layers have no bias since batch norm follows. No hidden layer at all leaves
    the flattened input as features, so that the classifier is a linear model.

    Attributes:
      hidden: widths of the layers; the last is the feature width.
      batch_norm: whether batch norm comes between a dense map and its ReLU.
      dropout: share of every hidden layer's outputs that are 0, the others divided by what is left;
        only where the pass is given a random key named "dropout".
      initializer: "torch" or "he_normal", see `layers.conv`.
      dtype: compute type, float32 or bfloat16.
    """

    hidden: Sequence[int] = (300, 300, 300, 300)
    batch_norm: bool = False
    dropout: float = 0.0
    initializer: str = "torch"
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool) -> jax.Array:
        """Features [batch, d] in float32 of inputs [batch, ...]."""
        out = layers.flatten(inputs)
        for index, width in enumerate(self.hidden, start=1):
            out = layers.dense(
                out,
                width,
                use_bias=not self.batch_norm,
                initializer=self.initializer,
                dtype=self.dtype,
                name=f"dense{index}",
            )
            if self.batch_norm:
                out = layers.BatchNorm(dtype=self.dtype, name=f"norm{index}")(out, train)
            out = nn.relu(out)
            if self.dropout and self.has_rng("dropout"):
                out = nn.Dropout(self.dropout, deterministic=False)(out)
        return out.astype(jnp.float32)
