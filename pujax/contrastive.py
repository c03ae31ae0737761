"""Contrastive losses between two views of a batch of images.

All functions take two arrays of unit vectors `[batch, dim]`: row `i` of both belongs to image
`i`. The anchors of the instance and group losses are the first array only, the queries; they are
compared with the pool `concat(queries, keys)` of `2 * batch` vectors, so columns `j` and
`batch + j` of every matrix below stand for the two views of image `j`.

Similarities are computed in float32 (or float64) with exact matrix products also on accelerators,
whose default products keep about three digits: neighbours are ranked and labels are decided by
them. Calls on the same arrays inside one compiled function share one matrix product.
"""

import jax
import jax.numpy as jnp


def nt_xent(first: jax.Array, second: jax.Array, *, temperature: float | jax.Array) -> jax.Array:
    """NT-Xent, the contrastive loss of SimCLR.

    Every one of the `2 * batch` vectors is an anchor that must find its partner among all vectors
    but itself. Source: Chen et al., "A simple framework for contrastive learning of visual
    representations", ICML 2020, Eq. 1.

    Args:
        first: unit vectors of the first view, `[batch, dim]`.
        second: unit vectors of the second view, `[batch, dim]`.
        temperature: divisor of the cosine similarities, positive.

    Returns:
        The scalar mean over all anchors.

    Raises:
        ValueError: if the two arrays are not matrices of one shape.
    """
    forward = instance_discrimination(first, second, temperature=temperature)
    backward = instance_discrimination(second, first, temperature=temperature)
    return (forward + backward) / 2


def debiased(
    first: jax.Array,
    second: jax.Array,
    *,
    temperature: float | jax.Array,
    tau_plus: float | jax.Array,
) -> jax.Array:
    """Debiased contrastive loss: NT-Xent corrected for negatives that share the anchor's class.

    With `pos` the exponential of an anchor's similarity to its partner and `S` the sum over the
    `R = 2 * batch - 2` views of other images, the negatives weigh
    `max((S - tau_plus R pos) / (1 - tau_plus), R exp(-1 / temperature))` and the loss is
    `log(pos + negatives) - log(pos)`. Where the floor binds it is a constant without gradient.
    `tau_plus=0` is `nt_xent`. Source: Chuang et al., "Debiased contrastive learning", NeurIPS
    2020; it is Eqs. 1-4 of ImPULSeS (temperature 0.5, tau_plus 0.1) with their misprints
    corrected.

    Args:
        first: unit vectors of the first view, `[batch, dim]`.
        second: unit vectors of the second view, `[batch, dim]`.
        temperature: divisor of the cosine similarities, positive.
        tau_plus: assumed probability that a random other image has the anchor's class, in [0, 1).

    Returns:
        The scalar mean over all `2 * batch` anchors.

    Raises:
        ValueError: if the two arrays are not matrices of one shape.
    """
    forward = _debiased_one_way(first, second, temperature, tau_plus)
    backward = _debiased_one_way(second, first, temperature, tau_plus)
    return (forward + backward) / 2


def instance_discrimination(
    queries: jax.Array, keys: jax.Array, *, temperature: float | jax.Array
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
        The scalar mean over the queries.

    Raises:
        ValueError: if the two arrays are not matrices of one shape.
    """
    log_p = log_probabilities(queries, keys, temperature=temperature)
    return -jnp.mean(jnp.diagonal(log_p, offset=log_p.shape[0]))


def group_contrast(
    queries: jax.Array,
    keys: jax.Array,
    positives: jax.Array,
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
        positives: mask of the positives of each query, `[batch, 2 * batch]`, without gradient.
        temperature: divisor of the cosine similarities, positive.

    Returns:
        The scalar mean over the queries.

    Raises:
        ValueError: if the first two arrays are not matrices of one shape or the mask does not fit
            them.
    """
    log_p = log_probabilities(queries, keys, temperature=temperature)
    positives = jnp.asarray(positives)
    if positives.shape != log_p.shape:
        raise ValueError(
            f"positives has shape {positives.shape}, but must be [batch, 2 * batch] = {log_p.shape}"
        )
    chosen = (positives > 0) & ~_own_entries(log_p.shape)
    totals = jnp.sum(jnp.where(chosen, log_p, 0), axis=1)
    return -jnp.mean(totals / jnp.maximum(jnp.sum(chosen, axis=1), 1))


def latent_group_positives(
    queries: jax.Array,
    keys: jax.Array,
    *,
    clusters: jax.Array | None = None,
    sides: jax.Array | None = None,
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
        ValueError: if shapes do not fit or `num_neighbors` is negative.
    """
    if num_neighbors < 0:
        raise ValueError(f"num_neighbors is {num_neighbors}, but must be 0 or more")
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
    queries: jax.Array, keys: jax.Array, *, temperature: float | jax.Array
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
        ValueError: if the two arrays are not matrices of one shape.
    """
    cosines = _similarities(queries, keys)
    logits = jnp.where(_own_entries(cosines.shape), -jnp.inf, cosines / temperature)
    return jax.nn.log_softmax(logits, axis=1)


def _debiased_one_way(
    anchors: jax.Array,
    partners: jax.Array,
    temperature: float | jax.Array,
    tau_plus: float | jax.Array,
) -> jax.Array:
    """Debiased loss of one view's anchors, scaled by the largest term against overflow."""
    cosines = _similarities(anchors, partners)
    batch = cosines.shape[0]
    own = _own_entries(cosines.shape)
    logits = jnp.where(own, -jnp.inf, cosines / temperature)
    scale = jax.lax.stop_gradient(jnp.max(logits, axis=1))
    terms = jnp.exp(logits - scale[:, None])
    positive = jnp.diagonal(terms, offset=batch)
    others = jnp.sum(jnp.where(jnp.roll(own, batch, axis=1), 0, terms), axis=1)

    num_others = 2 * batch - 2
    unbiased = (others - tau_plus * num_others * positive) / (1 - tau_plus)
    negatives = jnp.maximum(unbiased, num_others * jnp.exp(-1 / temperature - scale))
    log_positive = jnp.diagonal(logits, offset=batch)
    return jnp.mean(jnp.log(positive + negatives) + scale - log_positive)


def _similarities(queries: jax.Array, keys: jax.Array) -> jax.Array:
    """Inner products of the queries with the pool `concat(queries, keys)`, `[batch, 2 * batch]`."""
    queries, keys = jnp.asarray(queries), jnp.asarray(keys)
    if queries.ndim != 2 or queries.shape != keys.shape:
        raise ValueError(
            "both views must be [batch, dim] and of one shape, "
            f"got {queries.shape} and {keys.shape}"
        )
    dtype = jnp.promote_types(jnp.promote_types(queries.dtype, keys.dtype), jnp.float32)
    queries, keys = queries.astype(dtype), keys.astype(dtype)
    pool = jnp.concatenate([queries, keys])
    return jnp.matmul(queries, pool.T, precision=jax.lax.Precision.HIGHEST)


def _own_entries(shape: tuple[int, int]) -> jax.Array:
    """Mask of the entry that each query has for itself in the pool."""
    return jnp.eye(*shape, dtype=bool)


def _same_in_pool(name: str, ids: jax.Array, batch: int) -> jax.Array:
    """Whether query and pool entry carry equal ids, `[batch, 2 * batch]`."""
    ids = jnp.asarray(ids)
    if ids.shape != (batch,):
        raise ValueError(f"{name} has shape {ids.shape}, but must be [batch] = {(batch,)}")
    return jnp.tile(ids[:, None] == ids[None, :], (1, 2))
