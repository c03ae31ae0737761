"""Log-sum of each anchor's similarities to the other images, as one matrix or in blocks of anchors.

With `points[k, i]` view `k` of image `i`, divided by the root of the temperature, this is

    L_ki = log sum over l and over j != i of exp(points[k, i] . points[l, j]).

In blocks the matrix of products never exists, neither in the forward nor in the backward pass,
where each block is computed again. The products are symmetric, so with `w` the cotangent of `L`
the row of the gradient that belongs to an anchor needs nothing from other blocks,

    d points_a = sum over c of (w_a exp(s_ac - L_a) + w_c exp(s_ac - L_c)) points_c,

`s` being the products: one matrix product per block instead of the two of automatic
differentiation, and no gradient of the whole pool carried from block to block.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

_EXACT = jax.lax.Precision.HIGHEST


def log_sums(points: jax.Array, block_size: int) -> jax.Array:
    """The logarithms `L` above.

    Args:
      points: `[M, batch, dim]`, views of at least two images.
      block_size: anchors per block; 0 takes all at once.

    Returns:
      `[M, batch]`.
    """
    if block_size:
        return _in_blocks(points, block_size)
    images = jnp.arange(points.shape[1])
    return jnp.stack([_log_sums_of(images, view, points) for view in points])


def _log_sums_of(images: jax.Array, anchors: jax.Array, points: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(_products(images, anchors, points), axis=(1, 2))


def _block_log_sums(points: jax.Array, block_size: int) -> jax.Array:
    return _map_blocks(functools.partial(_log_sums_of, points=points), block_size, points)


def _forward(points: jax.Array, block_size: int) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    totals = _block_log_sums(points, block_size)
    return totals, (points, totals)


def _backward(
    block_size: int, residuals: tuple[jax.Array, jax.Array], weights: jax.Array
) -> tuple[jax.Array]:
    points, totals = residuals

    def block_gradients(images, anchors, own_totals, own_weights):
        products = _products(images, anchors, points)
        pulls = own_weights[:, None, None] * jnp.exp(products - own_totals[:, None, None])
        pulls += weights * jnp.exp(products - totals)
        return jnp.einsum("bmj,mjd->bd", pulls, points, precision=_EXACT)

    return (_map_blocks(block_gradients, block_size, points, totals, weights),)


_in_blocks = jax.custom_vjp(_block_log_sums, nondiff_argnums=(1,))
_in_blocks.defvjp(_forward, _backward)


def _products(images: jax.Array, anchors: jax.Array, points: jax.Array) -> jax.Array:
    """Products of anchors `[b, dim]` with all points, minus infinity for an anchor's own image."""
    products = jnp.einsum("bd,mjd->bmj", anchors, points, precision=_EXACT)
    same_image = images[:, None] == jnp.arange(points.shape[1])
    return jnp.where(same_image[:, None], -jnp.inf, products)


def _map_blocks(
    function: Callable[..., jax.Array], block_size: int, *arrays: jax.Array
) -> jax.Array:
    """Applies `function` to blocks of rows of one view at a time.

    Args:
      function: takes the images of the rows `[b]` and the rows of each array `[b, ...]`.
      block_size: most rows per block.
      *arrays: `[M, batch, ...]`.

    Returns:
      The results in the order of the rows, `[M, batch, ...]`.
    """
    num_views, batch = arrays[0].shape[:2]
    num_blocks = -(-batch // block_size)
    rows = -(-batch // num_blocks)
    # Block c holds the rows c, c + num_blocks, c + 2 num_blocks, ... Of a batch that is split over
    # devices each device holds consecutive rows, so each block has rows on every device and all
    # devices work in each step of the scan. Blocks of consecutive rows would each be on one device,
    # and the scan would first gather the whole array on all of them. Short blocks are filled with
    # the first images, whose results are finite, and these results are dropped.
    images = (jnp.arange(rows) * num_blocks + jnp.arange(num_blocks)[:, None]) % batch

    def split(array):
        missing = rows * num_blocks - batch
        if missing:
            array = jnp.concatenate([array, array[:, :missing]], axis=1)
        array = array.reshape(num_views, rows, num_blocks, *array.shape[2:])
        return jnp.swapaxes(array, 1, 2).reshape(num_views * num_blocks, rows, *array.shape[3:])

    # Blocks are recomputed, not stored, also when the gradient is differentiated again.
    recomputed = jax.checkpoint(lambda block: function(*block), prevent_cse=False)
    results = jax.lax.map(recomputed, (jnp.tile(images, (num_views, 1)), *map(split, arrays)))
    results = results.reshape(num_views, num_blocks, rows, *results.shape[2:])
    results = jnp.swapaxes(results, 1, 2)
    return results.reshape(num_views, rows * num_blocks, *results.shape[3:])[:, :batch]
