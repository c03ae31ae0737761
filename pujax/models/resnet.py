"""Pre-activation residual networks for small images (LaGAM's backbones)."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from pujax.models import layers, lgconv

BOTTLENECK_EXPANSION = 4
POOLINGS = ("max", "average")


class Block(nn.Module):
    """What all residual blocks have in common.

    Attributes:
      width: channels inside the block: a bottleneck puts out four times as many, a basic block
        these.
      stride: of the block's first 3x3 convolution and of the shortcut.
      dtype: compute type.
      lgconv: whether the 3x3 convolutions are local-global ones.
      initializer: of the kernels of pre-activation blocks, see `layers.conv`.
    """

    width: int
    stride: int = 1
    dtype: Any = jnp.float32
    lgconv: bool = False
    initializer: str = "torch"


def blocks(
    block: Callable[..., Any],
    stage_sizes: Sequence[int],
    *,
    width: int,
    dtype: Any,
    lgconv: bool,
    initializer: str = "torch",
) -> Iterator[Any]:
    """The blocks of all stages in order; call it inside a compact method.

    The width doubles from each stage to the next, whose first block has the stride 2.
    """
    for stage, num_blocks in enumerate(stage_sizes):
        for index in range(num_blocks):
            yield block(
                width * 2**stage,
                stride=2 if stage > 0 and index == 0 else 1,
                dtype=dtype,
                lgconv=lgconv,
                initializer=initializer,
                name=f"stage{stage + 1}_block{index + 1}",
            )


def conv3x3(
    block: Block, inputs: jax.Array, *, stride: int = 1, initializer: str = "torch", name: str
) -> jax.Array:
    """A 3x3 convolution inside of `block`, or the `LgConv` of the same name in its place."""
    options = {"initializer": initializer, "dtype": block.dtype, "name": name}
    if block.lgconv:
        return lgconv.LgConv(block.width, stride, **options)(inputs)
    return layers.conv(inputs, block.width, 3, stride=stride, padding=1, use_bias=False, **options)


class PreActBlock(Block):
    """Two 3x3 convolutions, each after batch norm and ReLU, added to a shortcut.

    He et al., 2016, https://arxiv.org/abs/1603.05027, Fig. 1b. Where the shape changes, the
    shortcut is a bare 1x1 convolution of the *activated* input; else it is the raw input.
    """

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool) -> jax.Array:
        """Maps [batch, height, width, channels] to [batch, height', width', self.width]."""
        conv = functools.partial(
            layers.conv, use_bias=False, initializer=self.initializer, dtype=self.dtype
        )
        norm = functools.partial(layers.BatchNorm, dtype=self.dtype)

        active = nn.relu(norm(name="norm1")(inputs, train))
        shortcut = inputs
        if self.stride != 1 or inputs.shape[-1] != self.width:
            shortcut = conv(active, self.width, 1, stride=self.stride, name="shortcut")
        out = conv3x3(self, active, stride=self.stride, initializer=self.initializer, name="conv1")
        out = nn.relu(norm(name="norm2")(out, train))
        return conv3x3(self, out, initializer=self.initializer, name="conv2") + shortcut


class PreActBottleneck(Block):
    """Convolutions 1x1, 3x3, 1x1, each after batch norm and ReLU, added to a shortcut.

    The last convolution widens to four times `width`; the 3x3 convolution has the stride. The
    shortcut is that of `PreActBlock`.
    """

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool) -> jax.Array:
        """Maps [batch, height, width, channels] to [batch, height', width', 4 * self.width]."""
        conv = functools.partial(
            layers.conv, use_bias=False, initializer=self.initializer, dtype=self.dtype
        )
        norm = functools.partial(layers.BatchNorm, dtype=self.dtype)
        out_width = BOTTLENECK_EXPANSION * self.width

        active = nn.relu(norm(name="norm1")(inputs, train))
        shortcut = inputs
        if self.stride != 1 or inputs.shape[-1] != out_width:
            shortcut = conv(active, out_width, 1, stride=self.stride, name="shortcut")
        out = conv(active, self.width, 1, name="conv1")
        out = nn.relu(norm(name="norm2")(out, train))
        out = conv3x3(self, out, stride=self.stride, initializer=self.initializer, name="conv2")
        out = nn.relu(norm(name="norm3")(out, train))
        return conv(out, out_width, 1, name="conv3") + shortcut


class PreActResNet(nn.Module):
    """Pre-activation residual network with a 3x3 stem of stride 1 and a global pool.

    The width doubles and the side halves from each stage to the next. By default the stem has no
    batch norm or ReLU, and the largest value of every channel of the last block's output is taken
    as it is: so it is in LaGAM's published networks (Long et al., CVPR 2024, and their code). Those
    of NcPU (Zhao et al., ICLR 2026) have `stem_norm=True`, `pooling='average'` and
    `initializer='he_normal_fan_out'`.

    Attributes:
      stage_sizes: number of blocks in each stage.
      block: `PreActBlock` or `PreActBottleneck`.
      width: channels of the stem and of the blocks in the first stage.
      dtype: compute type, float32 or bfloat16.
      lgconv: whether all 3x3 convolutions but the stem are local-global ones (`lgconv.LgConv`,
        PU-MLC); the width must be a multiple of 8 then.
      stem_norm: whether batch norm and ReLU follow the stem.
      pooling: "max" or "average".
      initializer: of all kernels, see `layers.conv`.
      pool: whether the last block's output is pooled.
    """

    stage_sizes: Sequence[int]
    block: type[nn.Module] = PreActBlock
    width: int = 64
    dtype: Any = jnp.float32
    lgconv: bool = False
    stem_norm: bool = False
    pooling: str = "max"
    initializer: str = "torch"
    pool: bool = True

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool) -> jax.Array:
        """Features [batch, d] in float32 of images [batch, height, width, channels].

        Without `pool`, the last block's output [batch, height', width', d] in float32.
        """
        layers.check_images(inputs)
        options: dict[str, Any] = {"initializer": self.initializer, "dtype": self.dtype}
        out = layers.conv(inputs, self.width, 3, padding=1, use_bias=False, name="stem", **options)
        if self.stem_norm:
            out = nn.relu(layers.BatchNorm(dtype=self.dtype, name="stem_norm")(out, train))
        for block in blocks(
            self.block, self.stage_sizes, width=self.width, lgconv=self.lgconv, **options
        ):
            out = block(out, train)
        out = out.astype(jnp.float32)
        if not self.pool:
            return out
        return (jnp.max if self.pooling == "max" else jnp.mean)(out, axis=(1, 2))


class ResNet18(PreActResNet):
    """LaGAM's ResNet-18 for CIFAR and STL: basic blocks 2-2-2-2, 512 features."""

    stage_sizes: Sequence[int] = (2, 2, 2, 2)


class ResNet50(PreActResNet):
    """LaGAM's ResNet-50 for the Alzheimer images: bottlenecks 3-4-6-3, 2048 features."""

    stage_sizes: Sequence[int] = (3, 4, 6, 3)
    block: type[nn.Module] = PreActBottleneck


class ResNetSmall(PreActResNet):
    """One basic block of 16, 32 and 64 channels each: 64 features, for CPUs and small images."""

    stage_sizes: Sequence[int] = (1, 1, 1)
    width: int = 16
