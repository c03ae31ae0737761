"""Evolution strategies: gradients from the outer losses of perturbed meta-parameters alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from pujax import checks
from pujax.arrays import check_key, check_number
from pujax.meta import leaves
from pujax.meta.estimates import Estimate, map_rows
from pujax.meta.inner_loop import Carry, InnerLoop

# Separates the key of the perturbations from those of the steps, whose numbers stay below it.
_PERTURBATIONS = 2**32 - 1


class Particles(NamedTuple):
    """Inner problems that `pes` carries from one truncation to the next.

    Attributes:
      first: their carries at positive perturbations, `[num_pairs, ...]`.
      second: their carries at negative perturbations, `[num_pairs, ...]`.
      perturbations: sum of each pair's positive perturbations so far, a tree like the
        meta-parameters of arrays `[num_pairs, ...]`.
      step: int32 scalar, inner steps so far.
    """

    first: Carry
    second: Carry
    perturbations: chex.ArrayTree
    step: jax.Array


def es(
    loop: InnerLoop,
    outer_loss: Callable[..., jax.Array],
    meta: chex.ArrayTree,
    *,
    num_pairs: int = 16,
    sigma: float = 0.01,
    chunk_size: int | None = None,
) -> Estimate:
    """Evolution strategies with antithetic pairs through all K steps.

    `mean_i e_i (F(m + e_i) - F(m - e_i)) / (2 sigma^2)` with normal `e_i` of deviation sigma: in
    expectation the gradient of F smoothed by that normal distribution. Sources: Salimans et al.,
    "Evolution strategies as a scalable alternative to reinforcement learning", 2017;
    Nesterov & Spokoiny, "Random gradient-free minimization of convex functions", 2017.
    The variance grows with the number of meta-parameters: for a few scalars.

    Args:
      loop: the inner problem, with a key. All particles share the keys of the steps.
      outer_loss: of the parameters after the steps.
      meta: the meta-parameters.
      num_pairs: pairs of runs.
      sigma: standard deviation of the perturbations, in units of the meta-parameters. For a number
        m so large that 8 eps |m| exceeds it, eps being the precision of its type, that is used.
      chunk_size: pairs that run at once; None for all.

    Returns:
      The estimate.

    Raises:
      ValueError: for an argument out of range.
    """
    _check(loop, num_pairs, sigma, chunk_size)
    drawn = perturbations(loop.key, meta, num_pairs, sigma)

    def value(perturbation: chex.ArrayTree, sign: int) -> jax.Array:
        return loop.compared(outer_loss, loop.run(_moved(meta, perturbation, sign), loop.start()))

    above, below = map_rows(lambda e: (value(e, 1), value(e, -1)), drawn, chunk_size)
    return Estimate(_weighted(drawn, above - below, _widths(meta, sigma)))


def pes(
    loop: InnerLoop,
    outer_loss: Callable[..., jax.Array],
    meta: chex.ArrayTree,
    *,
    num_pairs: int = 16,
    sigma: float = 0.01,
    chunk_size: int | None = None,
    particles: Particles | None = None,
) -> Estimate:
    """Persistent evolution strategies: one truncation of K steps of an inner problem that goes on.

    Each particle keeps its own inner problem and the sum of all its perturbations, which takes the
    place of `e_i` as the factor in `es`. Over the truncations of a whole inner problem the
    gradients add up, in expectation, to that of the sum of the outer losses after each
    truncation, smoothed: no bias from truncation, unlike 'truncated' or `es` on each truncation.
    Source: Vicol, Metz & Sohl-Dickstein, "Unbiased gradient estimation in unrolled computation
    graphs with persistent evolution strategies", ICML 2021, Algorithm 2.

    Args:
      loop: the inner problem, with a key, the same one in all truncations.
      outer_loss: of the parameters after the truncation.
      meta: the meta-parameters.
      num_pairs: pairs of particles.
      sigma: standard deviation of the perturbations, as in `es`.
      chunk_size: pairs that run at once; None for all.
      particles: those that the truncation before returned; None starts the inner problem.

    Returns:
      The estimate, with the particles for the next truncation.

    Raises:
      ValueError: for an argument out of range, and particles of another number of pairs or of
        another inner problem.
    """
    _check(loop, num_pairs, sigma, chunk_size)
    if particles is None:
        particles = _begin(loop, meta, num_pairs)
    accepted = "None, or the particles of a GradientInfo"
    kind = type(particles).__name__
    checks.require(isinstance(particles, Particles), "particles", kind, accepted)
    for leaf in jax.tree_util.tree_leaves(particles.perturbations):
        checks.require(
            leaf.shape[0] == num_pairs,
            "num_pairs",
            num_pairs,
            f"the {leaf.shape[0]} pairs of particles",
        )
    _check_particles(particles, jax.eval_shape(lambda: _begin(loop, meta, num_pairs)))
    step = particles.step
    drawn = perturbations(loop.key, meta, num_pairs, sigma, step=step)

    def pair(rows: tuple[Carry, Carry, chex.ArrayTree]) -> Any:
        first, second, perturbation = rows
        carries = tuple(
            loop.run(_moved(meta, perturbation, sign), carry, offset=step)
            for sign, carry in ((1, first), (-1, second))
        )
        return carries, tuple(loop.compared(outer_loss, carry) for carry in carries)

    rows = (particles.first, particles.second, drawn)
    (first, second), (above, below) = map_rows(pair, rows, chunk_size)
    total = jax.tree_util.tree_map(jnp.add, particles.perturbations, drawn)
    return Estimate(
        _weighted(total, above - below, _widths(meta, sigma)),
        value=jnp.mean(above + below) / 2,
        particles=Particles(first, second, total, step + loop.num_steps),
    )


def perturbations(
    key: jax.Array | None,
    meta: chex.ArrayTree,
    num_pairs: int,
    sigma: float,
    *,
    step: int | jax.Array = 0,
) -> chex.ArrayTree:
    """Normal perturbations of the meta-parameters, leaves `[num_pairs, ...]`.

    Args:
      key: of the inner problem; the perturbations' own is folded out of it.
      meta: the meta-parameters.
      num_pairs: how many.
      sigma: their standard deviation, and that of `_widths` where it is larger.
      step: inner steps before, so that every truncation has its own.
    """
    assert key is not None
    key = jax.random.fold_in(jax.random.fold_in(key, _PERTURBATIONS), step)
    entries, treedef = jax.tree_util.tree_flatten(meta)
    drawn = [
        width * jax.random.normal(jax.random.fold_in(key, i), (num_pairs, *leaf.shape), leaf.dtype)
        for i, (leaf, width) in enumerate(
            zip(entries, jax.tree_util.tree_leaves(_widths(meta, sigma)), strict=True)
        )
    ]
    return jax.tree_util.tree_unflatten(treedef, drawn)


def _check(loop: InnerLoop, num_pairs: int, sigma: float, chunk_size: int | None) -> None:
    check_key(loop.key, " for perturbations")
    loop.check_compares()
    checks.whole_number("num_pairs", num_pairs, 1)
    check_number("sigma", sigma, lambda s: s > 0, "a positive number")
    if chunk_size is not None:
        checks.whole_number("chunk_size", chunk_size, 1)


def _check_particles(particles: Particles, new: Particles) -> None:
    """Requires particles of the same inner problem and meta-parameters as new ones."""

    def shapes(one: Particles) -> Any:
        parts = [(side.moving, side.opt_state) for side in (one.first, one.second)]
        return leaves.shapes((parts, one.perturbations))

    checks.require(
        shapes(particles) == shapes(new),
        "particles",
        shapes(particles),
        f"those of this inner problem and its meta-parameters, of shapes {shapes(new)}",
    )


def _begin(loop: InnerLoop, meta: chex.ArrayTree, num_pairs: int) -> Particles:
    """Particles before the first step, all alike."""

    def repeat(leaf: Any) -> jax.Array:
        return jnp.broadcast_to(leaf, (num_pairs, *jnp.shape(leaf)))

    carry = jax.tree_util.tree_map(repeat, loop.start())
    nothing = jax.tree_util.tree_map(lambda leaf: repeat(jnp.zeros_like(leaf)), meta)
    return Particles(carry, carry, nothing, jnp.zeros([], jnp.int32))


def _moved(meta: chex.ArrayTree, perturbation: chex.ArrayTree, sign: int) -> chex.ArrayTree:
    return jax.tree_util.tree_map(lambda m, e: m + sign * e, meta, perturbation)


def _widths(meta: chex.ArrayTree, sigma: float) -> chex.ArrayTree:
    """Standard deviations of the perturbations of every number, sigma but for large ones.

    Less than a few roundings of a number would not move it, and what the losses were compared at
    would not be what they are weighted with.
    """

    def width(leaf: jax.Array) -> jax.Array:
        roundings = 8 * float(jnp.finfo(leaf.dtype).eps) * jnp.abs(jax.lax.stop_gradient(leaf))
        return jnp.maximum(jnp.asarray(sigma, leaf.dtype), roundings)

    return jax.tree_util.tree_map(width, meta)


def _weighted(
    directions: chex.ArrayTree, differences: jax.Array, widths: chex.ArrayTree
) -> chex.ArrayTree:
    """Mean over pairs of `direction * difference / (2 width^2)`."""

    def mean(direction: jax.Array, width: jax.Array) -> jax.Array:
        total = jnp.tensordot(differences, direction / width, axes=1, precision="highest")
        return (total / (2 * width * differences.shape[0])).astype(direction.dtype)

    return jax.tree_util.tree_map(mean, directions, widths)
