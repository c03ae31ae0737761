"""The local-global convolution of PU-MLC: a 3x3 convolution that also sees the whole image."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from pujax.models import layers

GLOBAL_BRANCH = "global_branch"
"""Name, in parameter trees, of what an `LgConv` has besides its convolution."""


class GlobalBranch(nn.Module):
    """Attention over all pixels, gated and brought back to every pixel; nearly 0 at first.

    Each head takes one weighted mean of the image's values, softmax weights over all pixels, and
    each pixel takes that mean by its own gate:

        local = relu(reduce(x));  hidden = [local, mean of local over the pixels]
        context[h] = sum over pixels p of softmax_p(attention(hidden))[p, h] * value(x)[p, h]
        output = norm(project(x + sigmoid(gate(hidden))[h] * context[h]))

    where the channels of head h are a contiguous range, `[h * d, (h + 1) * d)`.

    Attributes:
      features: channels put out.
      strides: step in pixels.
      num_heads: weighted means per image; divides the channels of the inputs.
      reduction: how many times fewer channels the local features have than the inputs.
      dtype: compute type; softmax and means are at least float32.
    """

    features: int
    strides: int
    num_heads: int
    reduction: int
    dtype: Any

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Maps [batch, height, width, channels] to [batch, height', width', self.features]."""
        batch, height, width, channels = inputs.shape
        wide = jnp.promote_types(self.dtype, jnp.float32)

        def conv(inputs, features, name, stride=1):
            return layers.conv(inputs, features, 1, stride=stride, dtype=self.dtype, name=name)

        def by_head(images):
            return images.reshape(batch, height * width, self.num_heads)

        inputs = inputs.astype(self.dtype)
        local = nn.relu(conv(inputs, channels // self.reduction, "reduce"))
        mean = jnp.mean(local, (1, 2), dtype=wide, keepdims=True).astype(self.dtype)
        hidden = jnp.concatenate([local, jnp.broadcast_to(mean, local.shape)], axis=-1)
        scores = by_head(conv(hidden, self.num_heads, "attention")).astype(wide)
        gates = by_head(nn.sigmoid(conv(hidden, self.num_heads, "gate")))

        # The weights of a head sum to 1, so the mean of the values is the value of the mean, bias
        # included: `num_heads` pixels go through the convolution instead of all. It gives each of
        # these pixels the channels of all heads, and only those of its own are wanted.
        pixels = inputs.reshape(batch, height * width, channels)
        weights = nn.softmax(scores, axis=1).astype(self.dtype)
        means = jnp.einsum("bph,bpc->bhc", weights, pixels, preferred_element_type=wide)
        values = conv(means[:, :, None].astype(self.dtype), channels, "value")
        values = values.reshape(batch, self.num_heads, self.num_heads, -1)
        context = jnp.einsum("bhhd->bhd", values)

        shared = jnp.einsum("bph,bhd->bphd", gates, context).reshape(inputs.shape)
        out = conv(inputs + shared, self.features, "project", stride=self.strides)
        return nn.BatchNorm(
            use_running_average=True,
            epsilon=1e-5,
            scale_init=nn.initializers.normal(1e-4),
            dtype=self.dtype,
            name="norm",
        )(out)


class LgConv(nn.Module):
    """Local-global convolution: a 3x3 convolution plus a branch that sees the whole image.

    The branch ends in a batch norm whose scale starts at N(0, 1e-4), so that the layer starts as
    (almost) the convolution it replaces, and pretrained kernels stay useful. That batch norm is
    always evaluated with its running statistics, in training too: these keep their first values,
    mean 0 and variance 1, and its scale and bias are learned.

    Yuan et al., ICME 2024, https://arxiv.org/abs/2306.16016, Sec. III-C. The paper sets the scale
    to 0.0001 and does not say how batch norm runs; both are taken from the authors' code, and so is
    the mean over *reduced* features. The 1x1 convolutions of the branch have a bias and PyTorch's
    initial values.

    Attributes:
      features: channels put out.
      strides: step in pixels, one number for both directions or two equal ones.
      num_heads: weighted means per image; divides the channels of the inputs.
      reduction: how many times fewer channels the branch's local features have than the inputs.
      dtype: compute type; None is that of the inputs, at least float32.
      initializer: of the 3x3 convolution, one of `layers.INITIALIZERS`.
    """

    features: int
    strides: int | Sequence[int] = 1
    num_heads: int = 8
    reduction: int = 4
    dtype: Any = None
    initializer: str = "he_normal_fan_out"

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool = False) -> jax.Array:
        """Maps [batch, height, width, channels] to [batch, height', width', self.features].

        `train` changes nothing: the only batch norm in here is frozen.
        """
        del train
        layers.check_images(inputs)
        stride = self._stride()
        dtype = self.dtype or jnp.promote_types(inputs.dtype, jnp.float32)
        self._check_channels(inputs.shape[-1])
        local = layers.conv(
            inputs,
            self.features,
            3,
            stride=stride,
            padding=1,
            use_bias=False,
            initializer=self.initializer,
            dtype=dtype,
            name="conv",
        )
        branch = GlobalBranch(
            self.features, stride, self.num_heads, self.reduction, dtype, name=GLOBAL_BRANCH
        )
        return local + branch(inputs)

    def _stride(self) -> int:
        strides = (self.strides,) if isinstance(self.strides, int) else tuple(self.strides)
        if len(strides) > 2 or len(set(strides)) != 1 or strides[0] < 1:
            raise ValueError(
                f"strides is {self.strides!r}; accepted: a positive number, or two that are equal"
            )
        return strides[0]

    def _check_channels(self, channels: int) -> None:
        if self.num_heads < 1 or channels % self.num_heads:
            raise ValueError(
                f"num_heads is {self.num_heads!r} and the inputs of a local-global convolution have"
                f" {channels} channels; accepted: a divisor of the channels (for networks:"
                f" model.options.width a multiple of {max(self.num_heads, 1)})"
            )
        if not 1 <= self.reduction <= channels:
            raise ValueError(
                f"reduction is {self.reduction!r} and the inputs of a local-global convolution have"
                f" {channels} channels; accepted: 1 to {channels}"
            )
