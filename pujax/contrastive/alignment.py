"""Alignment of the representations of pairs that are predicted in one class."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from pujax import arrays, checks
from pujax.contrastive import _inputs

CLAMPS = ("components", "none")
_LEAST = 1e-4
"""Components of unit vectors are kept this far from 0 and from 1 by 'components'."""
_LEAST_DISTANCE = 1e-8
"""Of `1 - <q, k>` under the root, whose gradient has no bound at 0."""


def noise_robust_alignment(
    online: ArrayLike, target: ArrayLike, same_class: ArrayLike, *, clamp: str = "components"
) -> jax.Array:
    """NoiSNCL, which pulls an example towards all others of its predicted class.

    With `q` the rows of `online`, `k` those of `target`, and `M` the pairs that count,

        mean_i [ sum_j M_ij g_ij / sum_j M_ij ],   g_ii = 2 (1 - <q_i, k_i>),
                                            g_ij = 2 sqrt(max(1 - <q_i, k_j>, 1e-8)).

    The two views of an example are surely of one class, and a distant pair of them pulls hardest.
    Of two different examples a distant pair is likely to be a wrong one: the root makes the near
    pairs pull hardest. For unit vectors `g_ij` is `sqrt(2) ||q_i - k_j||`. The floor of 1e-8, which
    the authors' code lacks, keeps its gradient finite for equal rows. Source: Zhao et al.,
    "Noisy-pair robust representation alignment for positive-unlabeled learning", ICLR 2026.

    Args:
      online: `[batch, dim]`, unit vectors of the network that learns.
      target: `[batch, dim]`, unit vectors of its averaged copy, of another view. Gradients pass;
        stop them where the copy is not to be trained.
      same_class: bool `[batch, batch]`, whether row `i` of `online` and row `j` of `target` are
        predicted in one class; the diagonal always counts, whatever it says.
      clamp: 'components' moves every component of both into [1e-4, 1 - 1e-4] before the products,
        as the authors' code does, so that negative components get no gradient and the product
        is no cosine; 'none' takes the vectors as they are.

    Returns:
      The scalar mean over the rows of `online`: 0 or more, but that 'components', which makes
      vectors a little longer than 1, can bring it below 0 by about 2e-8 per dimension.

    Raises:
      ValueError: if the views are not two matrices of one shape with at least one row,
        `same_class` is not bool of their batch, or `clamp` is unknown.
    """
    checks.one_of("clamp", clamp, CLAMPS)
    online, target = _inputs.pair(online=online, target=target)
    same_class = _inputs.real("same_class", same_class)
    batch = len(online)
    checks.require(batch > 0, "online", online.shape, "[batch, dim] with at least one row")
    if same_class.shape != (batch, batch) or same_class.dtype != jnp.bool_:
        raise ValueError(
            f"same_class is {same_class.dtype} of shape {same_class.shape}; accepted: bool of "
            f"shape {(batch, batch)}"
        )
    if clamp == "components":
        online, target = (arrays.clipped(x, _LEAST, 1 - _LEAST) for x in (online, target))
    distances = 1 - jnp.matmul(online, target.T, precision="highest")
    own = jnp.eye(batch, dtype=bool)
    pulls = 2 * jnp.where(own, distances, jnp.sqrt(jnp.maximum(distances, _LEAST_DISTANCE)))
    counted = same_class | own
    sums = jnp.sum(jnp.where(counted, pulls, 0), axis=1)
    return jnp.mean(sums / jnp.sum(counted, axis=1))
