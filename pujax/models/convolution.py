"""Convolution that is fast on a CPU where XLA's is not.

XLA computes the derivative by the kernel as a convolution with a kernel as large as the image,
which its CPU routines are not made for: it takes more than ten times as long as the convolution
itself. Here it is a matrix product over patches, a few images at a time, so that the patches stay
in the cache.

Layers of few channels are mostly slow in XLA altogether, since a matrix product needs some tens of
columns to be fast. They, too, are matrix products here, with several neighbouring places in one
row.

Values and derivatives are those of XLA up to rounding, as far as all numbers are finite.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

_DIMENSIONS = ("NHWC", "HWIO", "NHWC")
_PATCHES_BYTES = 2**19  # what the cache of a core holds beside the rest
# Below either little is gained, and XLA's own derivative compiles faster.
_LEAST_POSITIONS = 64
_LEAST_PRODUCTS = 2**23
# Above either XLA's convolution is as fast as one over blocks of places, or faster. Between 17 and
# 20 features blocks are about as fast in training, and up to half as fast in evaluation.
_MOST_CHANNELS = 15
_MOST_FEATURES = 20

_Pair = tuple[int, int]
_Pairs = tuple[_Pair, _Pair]

# Of what it decorates only the arguments are kept for the backward pass: no patches of a batch.
_forget = functools.partial(jax.checkpoint, prevent_cse=False)


def conv_general_dilated(
    lhs: jax.Array,
    rhs: jax.Array,
    window_strides: Any,
    padding: Any,
    *,
    precision: Any = None,
    **others: Any,
) -> jax.Array:
    """`jax.lax.conv_general_dilated` as `flax.linen.Conv` calls it for images, same derivatives.

    Args:
      lhs: images [batch, height, width, channels].
      rhs: kernel [kernel_height, kernel_width, channels, features].
      window_strides: two steps, in pixels.
      padding: two pairs of numbers of zeros.
      precision: as in `jax.lax`.
      **others: likewise; the layout is the one above.

    Returns:
      [batch, new_height, new_width, features].
    """
    strides = (window_strides[0], window_strides[1])
    zeros = (tuple(padding[0]), tuple(padding[1]))
    steps = [*(others.get("lhs_dilation") or ()), *(others.get("rhs_dilation") or ())]
    is_plain = set(steps) <= {1} and rhs.shape[2] == lhs.shape[3]  # one group
    if is_plain and _pays(lhs, rhs, strides, zeros):
        if _is_narrow(lhs, rhs, strides, zeros):
            return _narrow(lhs, rhs, padding=zeros, precision=precision)
        return _with_own_rule(lhs, rhs, strides, zeros, precision)
    return jax.lax.conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, **others
    )


def _plain(
    images: jax.Array,
    kernel: jax.Array,
    strides: _Pair,
    padding: _Pairs,
    precision: Any = None,
) -> jax.Array:
    return jax.lax.conv_general_dilated(
        images, kernel, strides, padding, dimension_numbers=_DIMENSIONS, precision=precision
    )


# A rule for tangents, not for cotangents, so that forward mode goes through as well.
_with_own_rule = jax.custom_jvp(_plain, nondiff_argnums=(2, 3, 4))


@functools.partial(_with_own_rule.defjvp, symbolic_zeros=True)
def _tangent(
    strides: _Pair, padding: _Pairs, precision: Any, primals: Any, tangents: Any
) -> tuple[jax.Array, jax.Array]:
    """A convolution is linear in its images and in its kernel; a constant one adds nothing."""
    (images, kernel), (of_images, of_kernel) = primals, tangents
    plain = functools.partial(_plain, strides=strides, padding=padding, precision=precision)
    in_kernel = functools.partial(_in_kernel, strides=strides, padding=padding, precision=precision)
    outputs = plain(images, kernel)
    if isinstance(of_images, SymbolicZero):
        return outputs, in_kernel(images, of_kernel)
    if isinstance(of_kernel, SymbolicZero):
        return outputs, plain(of_images, kernel)
    return outputs, plain(of_images, kernel) + in_kernel(images, of_kernel)


# Compiled as a function of its own, so that a call outside of `jax.jit` does not compile each time.
@functools.partial(jax.jit, static_argnames=("strides", "padding", "precision"))
def _in_kernel(
    images: jax.Array, of_kernel: jax.Array, *, strides: _Pair, padding: _Pairs, precision: Any
) -> jax.Array:
    """The convolution with a tangent of the kernel: by patches on a CPU."""
    by_patches = functools.partial(_by_patches, strides=strides, padding=padding)
    plain = functools.partial(_plain, strides=strides, padding=padding, precision=precision)

    @_forget
    def convolve(images, of_kernel):
        return jax.lax.platform_dependent(images, of_kernel, cpu=by_patches, default=plain)

    return convolve(images, of_kernel)


def _pays(images: jax.Array, kernel: jax.Array, strides: _Pair, padding: _Pairs) -> bool:
    """Whether matrix products over patches or blocks are faster than XLA's routines.

    Several devices share a batch: images taken in turn would be gathered from all of them. A
    number of images that is left open (`jax.export`) has no divisors.
    """
    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        return False
    is_known = all(isinstance(side, int) for side in images.shape)
    # By the user's choice, be it over a mesh of one device: a loop can't go over a split axis.
    is_split = any(jax.typeof(images).sharding.spec)
    if is_split or not is_known or images.shape[0] < 2 or images.dtype.itemsize < 4:
        return False
    positions = math.prod(_size(images, kernel, strides, padding))
    products = len(images) * positions * kernel.size
    return positions >= _LEAST_POSITIONS and products >= _LEAST_PRODUCTS


def _is_narrow(images: jax.Array, kernel: jax.Array, strides: _Pair, padding: _Pairs) -> bool:
    """Whether a layer has so few channels that blocks of places are faster than XLA."""
    _, width, channels, features = kernel.shape
    _, columns = _size(images, kernel, strides, padding)
    is_few = channels <= _MOST_CHANNELS and features <= _MOST_FEATURES
    return is_few and strides == (1, 1) and 1 < width <= columns + 1  # a whole block


def _size(images: jax.Array, kernel: jax.Array, strides: _Pair, padding: _Pairs) -> list[int]:
    """Height and width of the outputs."""
    sides = zip(images.shape[1:3], padding, kernel.shape[:2], strides, strict=True)
    return [
        max((side + sum(zeros) - window) // stride + 1, 0) for side, zeros, window, stride in sides
    ]


def _by_patches(
    images: jax.Array, kernel: jax.Array, *, strides: _Pair, padding: _Pairs
) -> jax.Array:
    """The convolution as matrix products, some images at a time.

    In reverse mode only its transpose by `kernel` is computed, which sums over the pieces.
    """
    height, width, channels, features = kernel.shape
    size = _size(images, kernel, strides, padding)
    matrix = kernel.reshape(-1, features)

    @_forget
    def convolve(piece, matrix):
        patches = _patches(piece, (height, width), size, strides, padding)
        outputs = patches.reshape(-1, len(matrix)) @ matrix
        return outputs.reshape(-1, *size, features)

    return _in_pieces(convolve, images, matrix, math.prod(size))


@functools.partial(jax.jit, static_argnames=("padding", "precision"))
def _narrow(images: jax.Array, kernel: jax.Array, *, padding: _Pairs, precision: Any) -> jax.Array:
    """The convolution of a layer of few channels: by blocks of places on a CPU."""
    by_blocks = functools.partial(_by_blocks, padding=padding)
    plain = functools.partial(_plain, strides=(1, 1), padding=padding, precision=precision)

    @_forget
    def convolve(images, kernel):
        return jax.lax.platform_dependent(images, kernel, cpu=by_blocks, default=plain)

    return convolve(images, kernel)


def _by_blocks(images: jax.Array, kernel: jax.Array, *, padding: _Pairs) -> jax.Array:
    """The convolution with stride 1 as matrix products, some images at a time.

    A row of the product is a block of neighbouring places, one less than the kernel is wide, so
    that all that the block sees lies in two blocks of the image. The matrix has the kernel once for
    every place of a block, and zeros elsewhere: three eighths of it for a width of 5.
    """
    height, width, channels, features = kernel.shape
    rows, columns = _size(images, kernel, (1, 1), padding)
    block = width - 1
    count = -(-columns // block)
    # Place `at` of a block has column `at + shift` of the kernel at pixel `at + shift`.
    pixel, at, shift = np.ogrid[: 2 * block, :block, :width]
    shifted = jnp.asarray(pixel == at + shift, kernel.dtype)
    matrix = jnp.einsum("pas,hscf->hpcaf", shifted, kernel).reshape(-1, block * features)
    left = padding[1][0]
    sides = (left, (count + 1) * block - left - images.shape[2])

    @_forget
    def convolve(piece, matrix):
        padded = jnp.pad(piece, ((0, 0), padding[0], sides, (0, 0)))
        blocks = padded.reshape(*padded.shape[:2], count + 1, block * channels)
        pairs = jnp.concatenate([blocks[:, :, :-1], blocks[:, :, 1:]], axis=-1)
        patches = jnp.concatenate([pairs[:, row : row + rows] for row in range(height)], axis=-1)
        outputs = patches.reshape(-1, len(matrix)) @ matrix
        return outputs.reshape(-1, rows, count * block, features)[:, :, :columns]

    return _in_pieces(convolve, images, matrix, rows * count)


def _patches(
    images: jax.Array, window: _Pair, size: list[int], strides: _Pair, padding: _Pairs
) -> jax.Array:
    """What is under the kernel at every place: [batch, *size, window * channels]."""
    count, _, _, channels = images.shape
    padded = jnp.pad(images, ((0, 0), *padding, (0, 0)))
    reach = [stride * (side - 1) + 1 for side, stride in zip(size, strides, strict=True)]

    def under(place):
        start = (0, place // window[1], place % window[1], 0)
        seen = jax.lax.dynamic_slice(padded, start, (count, *reach, channels))
        return seen[:, :: strides[0], :: strides[1]]

    # A loop over the places in the kernel compiles in half the time of as many slices.
    def put(patches, place):
        start = (0, 0, 0, place * channels)
        return jax.lax.dynamic_update_slice(patches, under(place), start), None

    places = math.prod(window)
    patches = jnp.tile(under(0), places)
    return jax.lax.scan(put, patches, jnp.arange(1, places))[0]


def _in_pieces(
    convolve: Callable[[jax.Array, jax.Array], jax.Array],
    images: jax.Array,
    matrix: jax.Array,
    num_rows: int,
) -> jax.Array:
    """The outputs of as many images at a time as fill the cache, `num_rows` of patches each."""
    itemsize = images.dtype.itemsize
    count = _piece(len(images), num_rows * len(matrix) * itemsize, matrix.size * itemsize)
    pieces = images.reshape(-1, count, *images.shape[1:])
    outputs = jax.lax.map(lambda piece: convolve(piece, matrix), pieces)
    return outputs.reshape(len(images), *outputs.shape[2:])


def _piece(num_images: int, patches_bytes: int, kernel_bytes: int) -> int:
    """How many images to take at a time, a divisor of their number: what the cache holds.

    More where the kernel is large, since every piece adds to all of its derivative.
    """
    most = max(_PATCHES_BYTES, kernel_bytes // 2) // patches_bytes
    return max(n for n in range(1, num_images + 1) if num_images % n == 0 and n <= max(most, 1))
