"""Residual networks of the ImageNet kind ("v1.5"), the encoders of contrastive pretraining."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from pujax.models import layers
from pujax.models.resnet import BOTTLENECK_EXPANSION, Block, blocks, conv3x3

STEMS = ("imagenet", "cifar")
_INITIALIZER = "he_normal_fan_out"
_conv3x3 = functools.partial(conv3x3, initializer=_INITIALIZER)


def _conv(dtype: Any):
    """`layers.conv` without bias, with torchvision's initial values."""
    return functools.partial(layers.conv, use_bias=False, initializer=_INITIALIZER, dtype=dtype)


def _shortcut(block: Block, inputs: jax.Array, width: int, train: bool) -> jax.Array:
    """A block's input, brought to the shape of its output where that differs."""
    if block.stride == 1 and inputs.shape[-1] == width:
        return inputs
    out = _conv(block.dtype)(inputs, width, 1, stride=block.stride, name="shortcut")
    return layers.BatchNorm(dtype=block.dtype, name="shortcut_norm")(out, train)


class PostActBlock(Block):
    """Two 3x3 convolutions, each before batch norm, added to a shortcut, then ReLU.

    He et al., 2015, https://arxiv.org/abs/1512.03385, Fig. 2. Where the shape changes, the shortcut
    is a 1x1 convolution with batch norm; else it is the input.
    """

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool) -> jax.Array:
        """Maps [batch, height, width, channels] to [batch, height', width', self.width]."""
        norm = functools.partial(layers.BatchNorm, dtype=self.dtype)

        out = _conv3x3(self, inputs, stride=self.stride, name="conv1")
        out = nn.relu(norm(name="norm1")(out, train))
        out = norm(name="norm2")(_conv3x3(self, out, name="conv2"), train)
        return nn.relu(out + _shortcut(self, inputs, out.shape[-1], train))


class PostActBottleneck(Block):
    """Convolutions 1x1, 3x3, 1x1, each before batch norm, added to a shortcut, then ReLU.

    The last convolution widens to four times `width`. The 3x3 convolution has the stride ("v1.5"),
    and not the first 1x1 convolution as in the paper, which would drop three quarters of the
    pixels unseen. The shortcut is that of `PostActBlock`.
    """

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool) -> jax.Array:
        """Maps [batch, height, width, channels] to [batch, height', width', 4 * self.width]."""
        conv = _conv(self.dtype)
        norm = functools.partial(layers.BatchNorm, dtype=self.dtype)
        out_width = BOTTLENECK_EXPANSION * self.width

        out = nn.relu(norm(name="norm1")(conv(inputs, self.width, 1, name="conv1"), train))
        out = _conv3x3(self, out, stride=self.stride, name="conv2")
        out = nn.relu(norm(name="norm2")(out, train))
        out = norm(name="norm3")(conv(out, out_width, 1, name="conv3"), train)
        return nn.relu(out + _shortcut(self, inputs, out.shape[-1], train))


class PostActResNet(nn.Module):
    """Residual network that pools the mean of the last block, as torchvision's.

    The width doubles and the side halves from each stage to the next. Kernels start at He's normal
    values with the fan-out, batch norm scales at 1, those of the last batch norm in a block too
    (torchvision's `zero_init_residual=False`).

    Attributes:
      stage_sizes: number of blocks in each stage.
      block: `PostActBlock` or `PostActBottleneck`.
      width: channels of the stem and, inside the blocks, of the first stage.
      stem: "imagenet", a 7x7 convolution of stride 2 and a 3x3 max pool of stride 2, for images of
        about 224 pixels; or "cifar", a 3x3 convolution of stride 1, for about 32 (Chen et al.,
        2020, https://arxiv.org/abs/2002.05709, appendix B.9). Both have batch norm and ReLU after
        the convolution.
      dtype: compute type, float32 or bfloat16.
      lgconv: whether all 3x3 convolutions in the blocks are local-global ones (`lgconv.LgConv`,
        PU-MLC); the width must be a multiple of 8 then.
      pool: whether the last block's output is pooled.
    """

    stage_sizes: Sequence[int]
    block: type[nn.Module] = PostActBlock
    width: int = 64
    stem: str = "imagenet"
    dtype: Any = jnp.float32
    lgconv: bool = False
    pool: bool = True

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool) -> jax.Array:
        """Features [batch, d] in float32 of images [batch, height, width, channels].

        Without `pool`, the last block's output [batch, height', width', d] in float32.
        """
        layers.check_images(inputs)
        if self.stem not in STEMS:
            raise ValueError(f"stem is {self.stem!r}; accepted: {', '.join(STEMS)}")
        is_large = self.stem == "imagenet"
        kernel, stride = (7, 2) if is_large else (3, 1)
        out = _conv(self.dtype)(
            inputs, self.width, kernel, stride=stride, padding=kernel // 2, name="stem"
        )
        out = nn.relu(layers.BatchNorm(dtype=self.dtype, name="stem_norm")(out, train))
        if is_large:
            out = nn.max_pool(out, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        for block in blocks(
            self.block, self.stage_sizes, width=self.width, dtype=self.dtype, lgconv=self.lgconv
        ):
            out = block(out, train)
        out = out.astype(jnp.float32)
        return jnp.mean(out, axis=(1, 2)) if self.pool else out


class ResNet18V1(PostActResNet):
    """ResNet-18: basic blocks 2-2-2-2, 512 features, 11,176,512 parameters."""

    stage_sizes: Sequence[int] = (2, 2, 2, 2)


class ResNet50V1(PostActResNet):
    """ResNet-50 v1.5, the encoder of ImPULSeS: 3-4-6-3, 2048 features, 23,508,032 parameters."""

    stage_sizes: Sequence[int] = (3, 4, 6, 3)
    block: type[nn.Module] = PostActBottleneck


class ResNet101V1(PostActResNet):
    """ResNet-101 v1.5, the backbone of PU-MLC: 3-4-23-3, 2048 features, 42,500,160 parameters."""

    stage_sizes: Sequence[int] = (3, 4, 23, 3)
    block: type[nn.Module] = PostActBottleneck
