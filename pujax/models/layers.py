"""Layers that every network is made of: initialisation, convolution, dense map, batch norm.

All follow PyTorch's conventions, because nearly all published figures were obtained with them:
initial values, explicit symmetric padding, the running variance of batch norm. Those of nnPU and
uPU were not, but with Chainer's: weights of variance 1 / inputs, three times as much, biases of 0,
and 2e-5 added to the variance of batch norm. Parameters and statistics are float32; `dtype` is the
type computed in.
"""

import contextlib
import contextvars
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from pujax.models import convolution

_num_views: contextvars.ContextVar[int] = contextvars.ContextVar("num_views", default=1)


@contextlib.contextmanager
def interleaved_views(count: int) -> Iterator[None]:
    """While a network is applied, row `i` of its batch is view `i % count` of an example.

    Batch norm then treats every view as a batch of its own. Views of an example are neighbours, so
    that a batch split over devices keeps them together.
    """
    token = _num_views.set(count)
    try:
        yield
    finally:
        _num_views.reset(token)


def _torch_init(fan_in: int) -> tuple[nn.initializers.Initializer, nn.initializers.Initializer]:
    bound = 1 / math.sqrt(fan_in)

    def uniform(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return uniform, uniform


def _he_normal_init(fan_in: int) -> tuple[nn.initializers.Initializer, nn.initializers.Initializer]:
    return nn.initializers.normal(math.sqrt(2 / fan_in)), nn.initializers.zeros


def _he_normal_fan_out_init(
    fan_in: int,
) -> tuple[nn.initializers.Initializer, nn.initializers.Initializer]:
    del fan_in  # the fan-out is read from the kernel's shape
    kernel_init = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
    return kernel_init, nn.initializers.zeros


# Each takes the fan-in and gives the initialisers of kernel and bias.
INITIALIZERS = {
    "torch": _torch_init,
    "he_normal": _he_normal_init,
    "he_normal_fan_out": _he_normal_fan_out_init,
}


def _initializers(name: str, fan_in: int) -> dict[str, Any]:
    if name not in INITIALIZERS:
        raise ValueError(f"initializer is {name!r}; accepted: {', '.join(INITIALIZERS)}")
    if fan_in == 0:
        raise ValueError("inputs of a layer have 0 features; accepted: at least 1")
    kernel_init, bias_init = INITIALIZERS[name](fan_in)
    return {"kernel_init": kernel_init, "bias_init": bias_init}


def conv(
    inputs: jax.Array,
    features: int,
    kernel_size: int,
    *,
    stride: int = 1,
    padding: int = 0,
    use_bias: bool = True,
    initializer: str = "torch",
    dtype: Any = jnp.float32,
    name: str | None = None,
) -> jax.Array:
    """Square convolution with `padding` zeros on every side; call it inside a compact method.

    The padding is the same on both sides. XLA's SAME puts the odd zero of a strided convolution
    at the end only, which shifts the sampled grid by one pixel against PyTorch.

    Args:
      inputs: images [batch, height, width, channels].
      features: number of output channels.
      kernel_size: side of the kernel in pixels.
      stride: step in pixels.
      padding: zeros added on each of the four sides.
      use_bias: whether a bias is added.
      initializer: "torch", U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for kernel and bias (PyTorch's
        default); "he_normal", N(0, 2/fan_in) and zero bias (He et al., 2015); or
        "he_normal_fan_out", N(0, 2/fan_out) and zero bias, with fan_out = features * kernel_size^2
        (torchvision's residual networks).
      dtype: compute type; parameters are float32.
      name: name of the layer in the parameter tree.

    Returns:
      Images [batch, new_height, new_width, features] in `dtype`.

    Raises:
      ValueError: if `initializer` is unknown, or the padded images are smaller than the kernel.
    """
    side = min(inputs.shape[1:3])
    if side + 2 * padding < kernel_size:
        raise ValueError(
            f"inputs of a convolution have shape {inputs.shape}; accepted: images with sides of at"
            f" least {kernel_size - 2 * padding} (is the net too deep for these images?)"
        )
    return nn.Conv(
        features,
        (kernel_size, kernel_size),
        strides=(stride, stride),
        padding=((padding, padding), (padding, padding)),
        use_bias=use_bias,
        dtype=dtype,
        conv_general_dilated=convolution.conv_general_dilated,
        name=name,
        **_initializers(initializer, inputs.shape[-1] * kernel_size**2),
    )(inputs)


def dense(
    inputs: jax.Array,
    features: int,
    *,
    use_bias: bool = True,
    initializer: str = "torch",
    dtype: Any = jnp.float32,
    precision: jax.lax.Precision | None = None,
    name: str | None = None,
) -> jax.Array:
    """Affine map of the last axis; call it inside a compact method.

    Args:
      inputs: vectors [batch, d].
      features: number of outputs.
      use_bias: whether a bias is added.
      initializer: as in `conv`.
      dtype: compute type; parameters are float32.
      precision: of the matrix product; None is the default of the device, which on an accelerator
        may round float32 factors to fewer bits.
      name: name of the layer in the parameter tree.

    Returns:
      Vectors [batch, features] in `dtype`.

    Raises:
      ValueError: if `initializer` is unknown or the inputs have no features.
    """
    return nn.Dense(
        features,
        use_bias=use_bias,
        dtype=dtype,
        precision=precision,
        name=name,
        **_initializers(initializer, inputs.shape[-1]),
    )(inputs)


class BatchNorm(nn.Module):
    """Batch normalisation over all axes but the last, with PyTorch's running statistics.

    In training a batch is normalised by its own mean and (biased) variance, and the running values
    move to `momentum * old + (1 - momentum) * batch`, where the batch variance is the *unbiased*
    one, n / (n - 1) times the biased one; `flax.linen.BatchNorm` stores the biased one. The
    collection `batch_stats` holds the plain leaves `mean` and `var`, linear in their old values.

    Ioffe and Szegedy, 2015, https://arxiv.org/abs/1502.03167, algorithms 1 and 2.

    Attributes:
      momentum: share of the old running value that is kept.
      epsilon: added to the variance.
      dtype: type of the output; everything inside is float32.
    """

    momentum: float = 0.9
    epsilon: float = 1e-5
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool) -> jax.Array:
        """Normalises `inputs` [batch, ..., channels]; `train` chooses batch or running values."""
        shape = (inputs.shape[-1],)
        scale = self.param("scale", nn.initializers.ones, shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, shape, jnp.float32)
        running_mean = self.variable("batch_stats", "mean", jnp.zeros, shape, jnp.float32)
        running_var = self.variable("batch_stats", "var", jnp.ones, shape, jnp.float32)

        inputs = inputs.astype(jnp.float32)
        views = _num_views.get()
        if train and views > 1:
            running = (running_mean, running_var)
            return self._each_view(inputs, views, scale, bias, *running).astype(self.dtype)
        if train:
            axes = tuple(range(inputs.ndim - 1))
            # Both sums in one pass over the data (and one reduction between devices). Centring on
            # the running mean keeps the difference of squares accurate when the mean is large.
            center = jax.lax.stop_gradient(running_mean.value)
            shift = jnp.mean(inputs - center, axes)
            var = jnp.mean(jnp.square(inputs - center), axes) - jnp.square(shift)
            mean, var = center + shift, jnp.maximum(var, 0)
            if not self.is_initializing():
                count = inputs.size // inputs.shape[-1]
                unbiased = var * (count / max(count - 1, 1))
                keep, move = self.momentum, 1 - self.momentum
                running_mean.value = keep * running_mean.value + move * mean
                running_var.value = keep * running_var.value + move * unbiased
        else:
            mean, var = running_mean.value, running_var.value
        outputs = (inputs - mean) * (jax.lax.rsqrt(var + self.epsilon) * scale) + bias
        return outputs.astype(self.dtype)

    def _each_view(
        self,
        inputs: jax.Array,
        views: int,
        scale: jax.Array,
        bias: jax.Array,
        running_mean: nn.Variable,
        running_var: nn.Variable,
    ) -> jax.Array:
        """Every view by its own statistics; the running values move once per view, in order."""
        apart = inputs.reshape(-1, views, *inputs.shape[1:])
        axes = (0, *range(2, apart.ndim - 1))
        center = jax.lax.stop_gradient(running_mean.value)
        shift = jnp.mean(apart - center, axes)
        var = jnp.mean(jnp.square(apart - center), axes) - jnp.square(shift)
        mean, var = center + shift, jnp.maximum(var, 0)
        count = inputs.size // inputs.shape[-1] // views
        unbiased = var * (count / max(count - 1, 1))
        keep, move = self.momentum, 1 - self.momentum
        if not self.is_initializing():
            for view in range(views):
                running_mean.value = keep * running_mean.value + move * mean[view]
                running_var.value = keep * running_var.value + move * unbiased[view]
        spread = (views, *[1] * (apart.ndim - 3), inputs.shape[-1])
        factor = (jax.lax.rsqrt(var + self.epsilon) * scale).reshape(spread)
        return ((apart - mean.reshape(spread)) * factor + bias).reshape(inputs.shape)


def check_images(inputs: jax.Array) -> None:
    """Raises a ValueError unless `inputs` has the four axes [batch, height, width, channels]."""
    if inputs.ndim != 4:
        raise ValueError(
            f"inputs have shape {inputs.shape}; accepted: [batch, height, width, channels]"
            " (a grey image has channels = 1)"
        )


def max_pool(inputs: jax.Array, side: int) -> jax.Array:
    """Largest values of windows that do not overlap.

    Values and derivatives are those of `flax.linen.max_pool` with `side` as window and stride;
    where several are largest, the first in row order has the derivative. A selection, where
    Flax's derivative is a scatter: LeNet's gradient takes 30 % less time on a CPU.

    Args:
      inputs: [batch, height, width, channels].
      side: of the windows. Rows and columns left over at the end are dropped.

    Returns:
      [batch, height // side, width // side, channels].
    """
    batch, height, width, channels = inputs.shape
    rows, columns = height // side, width // side
    windows = inputs[:, : rows * side, : columns * side]
    # One axis after the other: the derivative of both at once copies more strided pieces on a CPU.
    beside = windows.reshape(batch, rows * side * columns, side, channels)
    below = _largest(beside).reshape(batch, rows, side, columns * channels)
    return _largest(below).reshape(batch, rows, columns, channels)


def _largest(values: jax.Array) -> jax.Array:
    """Largest values along axis 2, the first of those that are equal."""
    largest = values[:, :, 0]
    for place in range(1, values.shape[2]):
        value = values[:, :, place]
        takes_over = (value > largest) | jnp.isnan(value)  # so that NaN is not lost
        largest = jnp.where(takes_over, value, largest)
    return largest


def flatten(inputs: jax.Array) -> jax.Array:
    """Joins all axes but the first: [batch, ...] -> [batch, d], the channel running fastest."""
    return inputs.reshape(inputs.shape[0], math.prod(inputs.shape[1:]))
