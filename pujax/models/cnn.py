"""Plain convolutional networks: the "7-layer" and "13-layer" nets of PU papers, and a small one."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from pujax.models import layers


class ConvNet(nn.Module):
    """Convolutions, then dense layers, each followed by ReLU.

    Attributes:
      channels: output channels of each convolution.
      layout: (side of the kernel, stride) of each convolution, as many as `channels`.
      hidden: widths of the dense layers after the convolutions; the last is the feature width.
      pad: whether each side is padded by half the kernel; without it the image shrinks.
      batch_norm: whether each convolution is followed by batch norm (before ReLU).
      max_pool: side and stride of a max pool between each convolution and its ReLU; 1 for none.
      initializer: "torch" or "he_normal", see `layers.conv`.
      dtype: compute type, float32 or bfloat16.
    """

    channels: Sequence[int]
    layout: Sequence[tuple[int, int]]
    hidden: Sequence[int] = (1000, 1000)
    pad: bool = True
    batch_norm: bool = True
    max_pool: int = 1
    initializer: str = "torch"
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool) -> jax.Array:
        """Features [batch, d] in float32 of images [batch, height, width, channels]."""
        layers.check_images(inputs)
        if len(self.channels) != len(self.layout):
            raise ValueError(
                f"channels is {tuple(self.channels)}; accepted: {len(self.layout)} numbers"
            )
        options = {"initializer": self.initializer, "dtype": self.dtype}

        out = inputs
        for index, (features, (kernel, stride)) in enumerate(
            zip(self.channels, self.layout, strict=True), start=1
        ):
            padding = kernel // 2 if self.pad else 0
            out = layers.conv(
                out,
                features,
                kernel,
                stride=stride,
                padding=padding,
                name=f"conv{index}",
                **options,
            )
            if self.batch_norm:
                out = layers.BatchNorm(dtype=self.dtype, name=f"norm{index}")(out, train)
            if self.max_pool > 1:
                out = layers.max_pool(out, self.max_pool)
            out = nn.relu(out)
        out = layers.flatten(out)
        for index, width in enumerate(self.hidden, start=1):
            out = nn.relu(layers.dense(out, width, name=f"dense{index}", **options))
        return out.astype(jnp.float32)


class CNN7(ConvNet):
    """LaGAM's "7-layer CNN": four convolutions without padding or batch norm, then 1000-1000.

    Two convolutions are 3x3 (the second with stride 2) and two 1x1; with the classifier these are
    seven weight layers. Images must be at least 5 x 5.
    """

    channels: Sequence[int] = (96, 96, 192, 10)
    layout: Sequence[tuple[int, int]] = ((3, 1), (3, 2), (1, 1), (1, 1))
    pad: bool = False
    batch_norm: bool = False


class LeNet(ConvNet):
    """PU-Bench's net for MNIST: two convolutions of 5x5 with max pools, then 50.

    No padding and no batch norm. Images must be at least 16 x 16.
    """

    channels: Sequence[int] = (10, 20)
    layout: Sequence[tuple[int, int]] = ((5, 1), (5, 1))
    hidden: Sequence[int] = (50,)
    pad: bool = False
    batch_norm: bool = False
    max_pool: int = 2


class CNN9(ConvNet):
    """PU-Bench's net for CIFAR-10 without its dropout: six convolutions of `CNN13`, 1000-1000."""

    channels: Sequence[int] = (96, 96, 96, 192, 192, 192)
    layout: Sequence[tuple[int, int]] = ((3, 1), (3, 1), (3, 2)) * 2


class CNN13(ConvNet):
    """The "13-layer CNN" of nnPU (Kiryo et al., 2017), with batch norm after each convolution.

    Seven convolutions of 3x3 (the third and sixth with stride 2), two of 1x1, then 1000-1000.
    GradPU uses it with `batch_norm=False`; "he_normal" then keeps the signal from fading.
    """

    channels: Sequence[int] = (96, 96, 96, 192, 192, 192, 192, 192, 10)
    layout: Sequence[tuple[int, int]] = (
        *((3, 1), (3, 1), (3, 2)),
        *((3, 1), (3, 1), (3, 2)),
        *((3, 1), (1, 1), (1, 1)),
    )


class SmallCNN(ConvNet):
    """Three convolutions of 3x3 (the last two with stride 2) and 128 features, for tiny images.

    Meant for CPUs: about 120,000 parameters on 8 x 8 digits, 490,000 on 28 x 28, heads included.
    """

    channels: Sequence[int] = (32, 64, 64)
    layout: Sequence[tuple[int, int]] = ((3, 1), (3, 2), (3, 2))
    hidden: Sequence[int] = (128,)
