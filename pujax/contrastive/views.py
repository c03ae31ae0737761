"""NT-Xent and the debiased contrastive loss: every view of every image is an anchor."""

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax.contrastive import _inputs
from pujax.contrastive._log_sums import log_sums


def nt_xent(
    first: ArrayLike,
    second: ArrayLike,
    *,
    temperature: float | jax.Array,
    block_size: int = 0,
) -> jax.Array:
    """NT-Xent, the contrastive loss of SimCLR.

    Every one of the `2 * batch` vectors is an anchor that must find its partner among all vectors
    but itself. Source: Chen et al., "A simple framework for contrastive learning of visual
    representations", ICML 2020, Eq. 1.

    Args:
      first: unit vectors of the first view, `[batch, dim]`, batch at least 2.
      second: unit vectors of the second view, `[batch, dim]`.
      temperature: divisor of the cosine similarities, positive.
      block_size: anchors per block of the similarity matrix, see `multiview_debiased`.

    Returns:
      The scalar mean over all anchors.

    Raises:
      ValueError: if the two arrays are not matrices of one shape with two or more rows, or a
        number is out of its range.
    """
    _inputs.check_temperature(temperature)
    views = jnp.stack(_inputs.pair(first=first, second=second))
    return _mean_loss(views, temperature, None, block_size)


def debiased(
    first: ArrayLike,
    second: ArrayLike,
    *,
    temperature: float | jax.Array,
    tau_plus: float | jax.Array,
    block_size: int = 0,
) -> jax.Array:
    """Debiased contrastive loss: NT-Xent corrected for negatives that share the anchor's class.

    With `pos` the exponential of an anchor's similarity to its partner and `S` the sum over the
    `R = 2 * batch - 2` views of other images, the negatives weigh
    `max((S - tau_plus R pos) / (1 - tau_plus), R exp(-1 / temperature))` and the loss is
    `log(pos + negatives) - log(pos)`. Where the floor binds, the vectors of other images get no
    gradient and the partner only that of `pos`. `tau_plus=0` is `nt_xent`. Source: Chuang et al.,
    "Debiased contrastive learning", NeurIPS 2020; it is Eqs. 1-4 of ImPULSeS (temperature 0.5,
    tau_plus 0.1) with their misprints corrected.

    Args:
      first: unit vectors of the first view, `[batch, dim]`, batch at least 2.
      second: unit vectors of the second view, `[batch, dim]`.
      temperature: divisor of the cosine similarities, positive.
      tau_plus: assumed probability that a random other image has the anchor's class, in [0, 1).
      block_size: anchors per block of the similarity matrix, see `multiview_debiased`.

    Returns:
      The scalar mean over all `2 * batch` anchors.

    Raises:
      ValueError: if the two arrays are not matrices of one shape with two or more rows, or a
        number is out of its range.
    """
    _inputs.check_temperature(temperature)
    _inputs.check_tau_plus(tau_plus)
    views = jnp.stack(_inputs.pair(first=first, second=second))
    return _mean_loss(views, temperature, tau_plus, block_size)


def multiview_debiased(
    views: ArrayLike,
    *,
    temperature: float | jax.Array,
    tau_plus: float | jax.Array,
    block_size: int = 0,
) -> jax.Array:
    """Debiased contrastive loss of any number of views.

    With `s_kl` the exponential of the similarity of views `k` and `l` of one image, `posbar` its
    mean over the other views `l`, and `S` the sum over the `R = M (batch - 1)` views of other
    images, an anchor's negatives weigh
    `R g = max((S - tau_plus R posbar) / (1 - tau_plus), R exp(-1 / temperature))`, and the loss is
    the mean of `log(s_kl + R g) - log s_kl` over all images and all ordered pairs `k != l`. Two
    views give `debiased`; `tau_plus=0` is NT-Xent for M views, which has no function of its own.
    Source: Dorigatti et al., ImPULSeS, Eqs. 1-4, with their misprints corrected.

    With a `block_size` only that many rows of the similarity matrix exist at a time, in the
    forward and in the backward pass: memory of the order `block_size * M * batch` instead of
    `(M * batch)^2`, for one more matrix product. Values and gradients are the same. Derivatives of
    any order can be taken with `jax.grad` and `jax.hessian`, but not in forward mode alone
    (`jax.jvp`, `jax.jacfwd` of the loss itself). Over a mesh choose a size that divides the batch
    and is a multiple of the number of devices, so that blocks are shared evenly.

    Args:
      views: unit vectors, `[M, batch, dim]`, M and batch at least 2.
      temperature: divisor of the cosine similarities, positive.
      tau_plus: assumed probability that a random other image has the anchor's class, in [0, 1).
      block_size: anchors per block, static; it need not divide the batch. 0 computes the whole
        similarity matrix at once.

    Returns:
      The scalar mean over all `M (M - 1) batch` pairs.

    Raises:
      ValueError: if `views` has another shape or a number is out of its range.
    """
    _inputs.check_temperature(temperature)
    _inputs.check_tau_plus(tau_plus)
    return _mean_loss(_inputs.several(views), temperature, tau_plus, block_size)


def _mean_loss(
    views: jax.Array,
    temperature: float | jax.Array,
    tau_plus: float | jax.Array | None,
    block_size: int,
) -> jax.Array:
    """The loss of `multiview_debiased`, in logarithms throughout; None for NT-Xent."""
    _inputs.check_batch(views.shape[1])
    block_size = _inputs.checked_block_size(block_size)
    temperature = jnp.asarray(temperature, views.dtype)
    # With this scale the products of points are similarities divided by the temperature, and the
    # derivative with respect to the temperature follows from that of the points.
    points = views / jnp.sqrt(temperature)
    num_views, batch = views.shape[:2]
    # Shift s pairs view k with view k - s: every ordered pair once, `[M - 1, M, batch]`.
    partners = [jnp.roll(points, shift, axis=0) for shift in range(1, num_views)]
    log_positive = jnp.stack([jnp.sum(points * partner, axis=-1) for partner in partners])
    log_negatives = log_sums(points, block_size)
    if tau_plus is not None:
        log_mean_positive = jax.nn.logsumexp(log_positive, axis=0) - math.log(num_views - 1)
        log_negatives = _debiased_log_negatives(
            log_negatives,
            log_mean_positive,
            num_others=num_views * (batch - 1),
            temperature=temperature,
            tau_plus=jnp.asarray(tau_plus, views.dtype),
        )
    return jnp.mean(jax.nn.softplus(log_negatives - log_positive))


def _debiased_log_negatives(
    log_sum: jax.Array,
    log_mean_positive: jax.Array,
    *,
    num_others: int,
    temperature: jax.Array,
    tau_plus: jax.Array,
) -> jax.Array:
    """Log of `max((S - tau_plus R posbar) / (1 - tau_plus), R exp(-1 / temperature))`."""
    log_others = math.log(num_others)
    # The share of the sum that is expected to be positives. How far it exceeds 1 does not matter,
    # so it is capped: at tau_plus = 0 an infinite exponential would give NaN.
    cap = 0.9 * jnp.log(jnp.finfo(log_sum.dtype).max)
    share = tau_plus * jnp.exp(jnp.minimum(log_others + log_mean_positive - log_sum, cap))
    # Where no negatives are left the logarithm is not used, and must not be infinite.
    left = jnp.log1p(-jnp.where(share < 1, share, 0)) - jnp.log1p(-tau_plus)
    floor = log_others - 1 / temperature
    return jnp.where((share < 1) & (log_sum + left > floor), log_sum + left, floor)
