"""Contrastive losses of LaGAM: queries against the pool of queries and keys."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pujax import checks
from pujax.arrays import on_host
from pujax.contrastive import _inputs


def instance_discrimination(
    queries: ArrayLike, keys: ArrayLike, *, temperature: float | jax.Array
) -> jax.Array:
    """Instance discrimination of LaGAM: each query must find its own key in the pool.

    The anchors are the queries (weak views) only. Source: Long et al., "Positive-unlabeled
    learning by latent group-aware meta disambiguation", CVPR 2024, and its code, which leaves the
    anchor's own entry out of the sum.

    Args:
      queries: unit vectors of the weak view, `[batch, dim]`.
      keys: unit vectors of the strong view, `[batch, dim]`.
      temperature: divisor of the cosine similarities, positive.

    Returns:
      The scalar mean over the queries, 0 without any.

    Raises:
      ValueError: if the two arrays are not matrices of one shape or the temperature is not
        positive.
    """
    log_p = log_probabilities(queries, keys, temperature=temperature)
    own = jnp.diagonal(log_p, offset=log_p.shape[0])
    return -jnp.sum(own) / max(own.size, 1)


def group_contrast(
    queries: ArrayLike,
    keys: ArrayLike,
    positives: ArrayLike,
    *,
    temperature: float | jax.Array,
) -> jax.Array:
    """Group contrast of LaGAM: each query must find all pool entries marked as its positives.

    `mean_i [ -(1 / |M_i|) sum over j in M_i of log p_ij ]`, `M_i` being row `i` of `positives`
    without the anchor's own entry; an anchor without positives contributes 0 to the mean. Source:
    Long et al., CVPR 2024; the set `M_i` is that of `latent_group_positives`.

    Args:
      queries: unit vectors of the weak view, `[batch, dim]`.
      keys: unit vectors of the strong view, `[batch, dim]`.
      positives: mask of the positives of each query, `[batch, 2 * batch]`, without gradient:
        booleans, or numbers that are above 0 where it is true.
      temperature: divisor of the cosine similarities, positive.

    Returns:
      The scalar mean over the queries, 0 without any.

    Raises:
      ValueError: if the first two arrays are not matrices of one shape, the mask does not fit
        them or is known to hold NaN, or the temperature is not positive.
    """
    given, positives = positives, _inputs.real("positives", positives)
    known = on_host(given if isinstance(given, np.ndarray) else positives)  # of constants in jit
    if known is not None and np.isnan(known).any():
        raise ValueError("positives holds NaN; accepted: booleans, or numbers above 0 where true")
    log_p = log_probabilities(queries, keys, temperature=temperature)
    if positives.shape != log_p.shape:
        raise ValueError(
            f"positives has shape {positives.shape}, but must be [batch, 2 * batch] = {log_p.shape}"
        )
    chosen = (positives > 0) & ~_own_entries(log_p.shape)
    totals = jnp.sum(jnp.where(chosen, log_p, 0), axis=1)
    means = totals / jnp.maximum(jnp.sum(chosen, axis=1), 1)
    return -jnp.sum(means) / max(means.size, 1)


def latent_group_positives(
    queries: ArrayLike,
    keys: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    sides: ArrayLike | None = None,
    num_neighbors: int = 0,
) -> jax.Array:
    """Positives of LaGAM's group contrast: latent groups and nearest neighbours within the batch.

    Pool entry `j` is a positive of query `i` if both images lie in the same cluster and on the
    same side of the classifier's cut-off, or if it is among the `num_neighbors` entries most
    similar to the query. A query's own key always is a positive, its own entry never. Source:
    Long et al., CVPR 2024, and its code, which takes neighbours from the batch and counts the
    query itself as the first of them.

    Args:
      queries: unit vectors of the weak view, `[batch, dim]`.
      keys: unit vectors of the strong view, `[batch, dim]`.
      clusters: cluster of each image, `[batch]` integers; None drops the condition.
      sides: side of the cut-off of each image, `[batch]` booleans; None drops the condition.
        Without clusters and sides there are no groups at all.
      num_neighbors: neighbours per query, the query itself included; at most the whole pool is
        used.

    Returns:
      The mask of positives, bool `[batch, 2 * batch]`, columns in the order queries, keys.

    Raises:
      ValueError: if shapes do not fit or `num_neighbors` is not a whole number from 0.
    """
    checks.whole_number("num_neighbors", num_neighbors, 0)
    cosines = jax.lax.stop_gradient(_similarities(queries, keys))
    batch, pool = cosines.shape
    positives = jnp.eye(batch, pool, k=batch, dtype=bool)

    partitions = {"clusters": clusters, "sides": sides}
    groups = [
        _same_in_pool(name, ids, batch) for name, ids in partitions.items() if ids is not None
    ]
    if groups:
        positives |= jnp.all(jnp.stack(groups), axis=0)

    own = _own_entries(cosines.shape)
    if num_neighbors > 0:
        # Rounding can put a duplicate above the query itself, which must stay the first neighbour.
        ranked = jnp.where(own, jnp.inf, cosines)
        _, nearest = jax.lax.top_k(ranked, min(num_neighbors, pool))
        positives |= jnp.zeros_like(own).at[jnp.arange(batch)[:, None], nearest].set(True)
    return positives & ~own


def log_probabilities(
    queries: ArrayLike, keys: ArrayLike, *, temperature: float | jax.Array
) -> jax.Array:
    """Log-probability with which each query picks each entry of the pool, itself left out.

    `log p_ij = q_i.a_j / t - log sum over m != i of exp(q_i.a_m / t)`: what
    `instance_discrimination` and `group_contrast` average over different entries, for callers
    that build losses of their own.

    Args:
      queries: unit vectors of the anchors, `[batch, dim]`.
      keys: unit vectors of the other view, `[batch, dim]`.
      temperature: divisor of the cosine similarities, positive.

    Returns:
      `[batch, 2 * batch]`, columns in the order queries, keys; the entry of the query itself is
      minus infinity, so select entries with `jnp.where` rather than by multiplication.

    Raises:
      ValueError: if the two arrays are not matrices of one shape or the temperature is not
        positive.
    """
    _inputs.check_temperature(temperature)
    cosines = _similarities(queries, keys)
    # A number of NumPy would make float64 of float32 where that is enabled.
    scaled = cosines / jnp.asarray(temperature, cosines.dtype)
    logits = jnp.where(_own_entries(cosines.shape), -jnp.inf, scaled)
    return jax.nn.log_softmax(logits, axis=1)


def _similarities(queries: ArrayLike, keys: ArrayLike) -> jax.Array:
    """Inner products of the queries with the pool `concat(queries, keys)`, `[batch, 2 * batch]`."""
    queries, keys = _inputs.pair(queries=queries, keys=keys)
    pool = jnp.concatenate([queries, keys])
    return jnp.matmul(queries, pool.T, precision=jax.lax.Precision.HIGHEST)


def _own_entries(shape: tuple[int, ...]) -> jax.Array:
    """Mask of the entry that each query has for itself in the pool."""
    batch, pool = shape
    return jnp.eye(batch, pool, dtype=bool)


def _same_in_pool(name: str, ids: ArrayLike, batch: int) -> jax.Array:
    """Whether query and pool entry carry equal ids, `[batch, 2 * batch]`."""
    ids = _inputs.real(name, ids)
    if ids.shape != (batch,):
        raise ValueError(f"{name} has shape {ids.shape}, but must be [batch] = {(batch,)}")
    return jnp.tile(ids[:, None] == ids[None, :], (1, 2))
