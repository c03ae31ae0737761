"""Evolution strategies against NumPy, and in the mean against exact gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pujax import meta
from pujax.meta import evolution
from tests import meta_problems as quadratic
from tests.x64 import x64

thorough = pytest.mark.thorough
KEY = jax.random.key(5)
SIGMA = 0.1


def value(w):
    return np.sum((w - quadratic.TARGET) ** 2) / 2


def drawn(num_pairs, key=KEY, step=0):
    return np.asarray(evolution.perturbations(key, quadratic.META, num_pairs, SIGMA, step=step))


@pytest.mark.parametrize("options", [{}, pytest.param({"chunk_size": 3}, marks=thorough)])
def test_es_is_the_mean_of_antithetic_differences(options):
    with x64():
        found, info = quadratic.estimate(
            "es", key=KEY, num_pairs=7, sigma=SIGMA, return_info=True, **options
        )
        noise = drawn(7)
        np.testing.assert_allclose(info.params, quadratic.after(5), rtol=1e-12)
    # The outer loss is quadratic in m, so a pair gives exactly e (e' gradient) / sigma^2.
    expected = np.mean([e * (e @ quadratic.gradient(5)) for e in noise], axis=0) / SIGMA**2
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_perturbations_are_normal_and_differ_by_leaf_key_and_step():
    # Of leaves of one shape the draws would be the same by one key.
    tree = {"a": np.zeros(2, np.float32), **dict.fromkeys("bc", np.zeros([], np.float32))}
    noise = evolution.perturbations(KEY, tree, 4000, SIGMA)
    columns = np.column_stack([noise[name] for name in "abc"])
    # Five standard errors of a covariance of 4,000 pairs.
    np.testing.assert_allclose(np.cov(columns.T) / SIGMA**2, np.eye(4), atol=5 * (2 / 4000) ** 0.5)
    np.testing.assert_allclose(columns.mean(0) / SIGMA, 0, atol=5 / 4000**0.5)
    with x64():
        draws = [drawn(3), drawn(3, step=5), drawn(3, key=jax.random.key(6))]
    assert len({draw.tobytes() for draw in draws}) == 3


def particles_by_hand(noises, num_steps):
    """Gradients of each truncation, and the final parameters, in NumPy."""
    pairs = noises[0].shape[0]
    states = np.tile(quadratic.START, (2, pairs, 1))
    total, gradients = np.zeros_like(noises[0]), []
    for noise in noises:
        total = total + noise
        for side, sign in enumerate((1, -1)):
            for i in range(pairs):
                m = quadratic.META + sign * noise[i]
                states[side, i] = quadratic.after(num_steps, m, states[side, i])
        losses = np.array([[value(w) for w in side] for side in states])
        weights = (losses[0] - losses[1]) / (2 * SIGMA**2)
        gradients.append(np.mean(total * weights[:, None], axis=0))
    return gradients, states


def pes(num_pairs, particles, **options):
    return quadratic.estimate(
        "pes",
        num_steps=2,
        key=KEY,
        num_pairs=num_pairs,
        sigma=SIGMA,
        particles=particles,
        return_info=True,
        **options,
    )


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"chunk_size": 2, "rolled": True}, marks=thorough)]
)
def test_pes_carries_particles_and_the_sum_of_their_perturbations(options):
    with x64():
        noises, particles, found = [], None, []
        for truncation in range(2):
            noises.append(drawn(3, step=2 * truncation))
            gradient, info = pes(3, particles, **options)
            particles = info.particles
            found.append(gradient)
        expected, states = particles_by_hand(noises, 2)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        np.testing.assert_allclose(particles.first.moving, states[0], rtol=1e-11)
        np.testing.assert_allclose(particles.second.moving, states[1], rtol=1e-11)
        assert int(particles.step) == 4
        losses = [value(w) for side in states for w in side]
        np.testing.assert_allclose(info.outer_loss, np.mean(losses), rtol=1e-11)


@thorough
def test_pes_has_no_bias_from_truncation_where_es_on_each_truncation_has():
    pairs, truncations = 4000, 3
    with x64():
        noises, particles, total = [], None, 0
        for truncation in range(truncations):
            noises.append(drawn(pairs, step=2 * truncation))
            gradient, info = pes(pairs, particles)
            total, particles = total + gradient, info.particles
    exact = sum(quadratic.gradient(2 * (t + 1)) for t in range(truncations))
    truncated = sum(quadratic.gradient(2 * (t + 1), 2) for t in range(truncations))
    # Two halves of the pairs tell how far the mean of all may be off.
    halves = [
        np.sum(particles_by_hand([n[half] for n in noises], 2)[0], axis=0)
        for half in (slice(0, pairs, 2), slice(1, pairs, 2))
    ]
    error = np.linalg.norm(halves[0] - halves[1]) / 2
    total = np.asarray(total)
    assert np.linalg.norm(total - exact) < 4 * error
    assert np.linalg.norm(total - truncated) > 8 * error


@thorough
def test_the_steps_of_a_later_truncation_have_later_keys():
    def inner(w, m, *, key):
        return w * (m + jax.random.normal(key, dtype=jnp.float64))

    def one(steps, particles):
        return meta.meta_gradient(
            inner,
            lambda w: w,
            np.float64(0),
            np.float64(1),
            learning_rate=1.0,
            estimator="pes",
            num_steps=steps,
            key=KEY,
            randomness="fresh",
            num_pairs=2,
            sigma=1e-9,
            particles=particles,
            return_info=True,
        )[1].particles

    with x64():
        in_two = one(1, one(2, None))
        noise = sum(
            float(jax.random.normal(jax.random.fold_in(KEY, i), dtype=float)) for i in range(3)
        )
        np.testing.assert_allclose(in_two.first.moving, -(3 + noise), atol=1e-7)


@thorough
def test_pes_from_the_start_is_es():
    with x64():
        both = [
            quadratic.estimate(estimator, key=KEY, num_pairs=7, sigma=SIGMA)
            for estimator in ("es", "pes")
        ]
    np.testing.assert_allclose(*both, rtol=1e-12)


@pytest.mark.parametrize("kind", [jnp.bool_, jnp.uint8, jnp.int32, jnp.float32])
@pytest.mark.parametrize("estimator", ["es", "pes", "finite_difference"])
def test_a_count_as_the_outer_loss_is_one_in_every_type(estimator, kind):
    """`w` goes from 0 to `-m`, and the count falls from 1 to 0 where that passes -1."""
    options = {"epsilon": 0.5} if estimator == "finite_difference" else {"key": KEY, "sigma": 0.5}
    found = meta.meta_gradient(
        lambda w, m: w * m,
        lambda w: (w > -1).astype(kind),
        jnp.float32(0),
        jnp.float32(1),
        learning_rate=1.0,
        estimator=estimator,
        **options,
    )
    if estimator == "finite_difference":
        assert float(found) == -1
    else:
        # Of pairs `e` all have one count of 1 and one of 0: -mean |e| / (2 sigma^2).
        noise = evolution.perturbations(KEY, jnp.float32(1), 16, 0.5)
        np.testing.assert_allclose(found, -np.mean(np.abs(noise)) / 0.5, rtol=1e-5)


def test_particles_of_another_problem_are_refused():
    def total(tree):
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree))

    def particles(params, m, **options):
        return meta.meta_gradient(
            lambda w, m: total(w) * total(m),
            total,
            params,
            m,
            estimator="pes",
            key=KEY,
            return_info=True,
            **({"learning_rate": 0.1} | options),
        )[1].particles

    @jax.tree_util.register_pytree_node_class
    class Own:
        """A tree that compares by identity."""

        def __init__(self, leaf):
            self.leaf = leaf

        def tree_flatten(self):
            return (self.leaf,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    own = Own(jnp.float32(1))
    assert particles(own, own, particles=particles(own, own)).step == 2
    kept = particles(jnp.float32(1), jnp.float32(1))
    assert particles(jnp.float32(1), jnp.float32(1), particles=kept).step == 2
    for params, m, options in (
        (jnp.ones(2), jnp.float32(1), {}),
        (jnp.float32(1), jnp.ones(2), {}),
        (jnp.float32(1), {"m": jnp.float32(1)}, {}),
        (jnp.float32(1), jnp.float32(1), {"optimizer": optax.adam(0.1), "learning_rate": None}),
    ):
        with pytest.raises(ValueError, match="accepted: those of this inner problem"):
            particles(params, m, particles=kept, **options)


def test_the_width_of_perturbations_may_be_mapped_and_keeps_the_type():
    widths = np.array([0.05, 0.2])
    found = jax.vmap(
        lambda sigma: quadratic.estimate("es", key=KEY, num_pairs=3, sigma=sigma, jit=False)
    )(jnp.asarray(widths, jnp.float32))
    for row, width in zip(found, widths, strict=True):
        alone = quadratic.estimate("es", key=KEY, num_pairs=3, sigma=float(width))
        np.testing.assert_allclose(row, alone, rtol=1e-3)
    with x64():
        single = quadratic.META.astype(np.float32)
        found = quadratic.estimate("es", m=single, key=KEY, sigma=np.float64(0.1))
        assert found.dtype == jnp.float32


@pytest.mark.parametrize("size", [1.0, 1e5, 1e7])
def test_a_number_that_sigma_would_not_move_is_moved_by_several_roundings(size):
    """At 1e7 the next float32 is 1 away; by a sigma of 0.01 all losses would be the same."""
    found = meta.meta_gradient(
        lambda w, m: -w * (m - size),  # one step goes to m - size
        lambda w: w,
        jnp.float32(0),
        jnp.float32(size),
        learning_rate=1.0,
        estimator="es",
        key=KEY,
        num_pairs=4000,
        sigma=0.01,
    )
    # Of a linear loss the mean of e^2 / width^2, whose deviation is the root of 2 / 4000.
    np.testing.assert_allclose(found, 1, atol=4 * (2 / 4000) ** 0.5)
