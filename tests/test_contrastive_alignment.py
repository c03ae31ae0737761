"""NoiSNCL: a naive version, the identities of its two forms, clamped components, refused input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import contrastive
from tests.x64 import x64


def unit(*shape, seed=0):
    points = np.random.default_rng(seed).normal(size=shape)
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def naive(online, target, same_class, clamp):
    if clamp == "components":
        online, target = (np.clip(x, 1e-4, 1 - 1e-4) for x in (online, target))
    rows = []
    for i, q in enumerate(online):
        pulls = [2 * (1 - q @ target[i])]
        for j, k in enumerate(target):
            if j != i and same_class[i, j]:
                pulls.append(2 * np.sqrt(1 - q @ k))
        rows.append(np.mean(pulls))
    return np.mean(rows)


@x64()
@pytest.mark.parametrize("clamp", ["components", "none"])
def test_it_is_the_mean_over_the_pairs_of_a_class(clamp):
    online, target = unit(6, 4), unit(6, 4, seed=1)
    same_class = np.random.default_rng(2).random((6, 6)) < 0.4  # neither diagonal nor symmetric
    assert not same_class.diagonal().all()
    found = contrastive.noise_robust_alignment(online, target, same_class, clamp=clamp)
    assert found.dtype == jnp.float64
    np.testing.assert_allclose(found, naive(online, target, same_class, clamp), rtol=1e-12)
    compiled = jax.jit(lambda *x: contrastive.noise_robust_alignment(*x, clamp=clamp))
    np.testing.assert_allclose(compiled(online, target, same_class), found, rtol=1e-12)


@x64()
def test_of_unit_vectors_the_diagonal_is_the_squared_distance_and_a_pair_the_distance():
    online, target = unit(2, 5), unit(2, 5, seed=3)

    def loss(pairs):
        return contrastive.noise_robust_alignment(online, target, pairs, clamp="none")

    own = np.sum((online - target) ** 2, axis=1)
    np.testing.assert_allclose(loss(np.zeros((2, 2), bool)), own.mean(), rtol=1e-12)
    across = np.sqrt(2) * np.linalg.norm(online - target[::-1], axis=1)
    np.testing.assert_allclose(loss(np.ones((2, 2), bool)), np.mean((own + across) / 2), rtol=1e-12)


@x64()
@pytest.mark.parametrize("angle", [0.1, 1.0, 2.5])
def test_a_far_pair_pulls_hardest_on_the_diagonal_and_a_near_one_beside_it(angle):
    near, far = np.array([1.0, 0.0]), np.array([np.cos(angle), np.sin(angle)])

    def pull(is_own):
        """Length of the gradient at a vector of length 2, of the one pair that matters."""

        def loss(raw):
            row = raw / jnp.linalg.norm(raw)
            if is_own:
                args = row[None], far[None], np.ones((1, 1), bool)
                return contrastive.noise_robust_alignment(*args, clamp="none")
            # Row 0 meets `far` in column 1; what its own column gives is subtracted.
            online = jnp.stack([row, near])
            target, pairs = np.stack([near, far]), np.array([[False, True], [False, False]])
            both = contrastive.noise_robust_alignment(online, target, pairs, clamp="none")
            alone = contrastive.noise_robust_alignment(
                online, target, np.zeros((2, 2), bool), clamp="none"
            )
            return 4 * both - 2 * alone  # the mean over two rows, and over two columns of row 0

        return float(jnp.linalg.norm(jax.grad(loss)(2 * near)))

    np.testing.assert_allclose(pull(is_own=True), 2 * np.sin(angle) / 2, rtol=1e-9)
    np.testing.assert_allclose(pull(is_own=False), np.sqrt(1 + np.cos(angle)) / 2, rtol=1e-9)


@x64()
def test_negative_components_are_clamped_and_get_no_gradient():
    online, target = np.array([[-0.6, 0.8]]), np.array([[0.8, -0.6]])
    pairs = np.zeros((1, 1), bool)
    # 1 - (1e-4 * 0.8 + 0.8 * 1e-4), twice.
    found = contrastive.noise_robust_alignment(online, target, pairs)
    np.testing.assert_allclose(found, 2 * (1 - 1.6e-4), rtol=1e-12)
    grads = jax.grad(contrastive.noise_robust_alignment, argnums=(0, 1))(
        jnp.asarray(online), jnp.asarray(target), pairs
    )
    np.testing.assert_allclose(grads[0], [[0, -2e-4]], atol=1e-12)
    np.testing.assert_allclose(grads[1], [[-2e-4, 0]], atol=1e-12)


@x64()
def test_the_distance_under_the_root_is_at_least_1e_8():
    rows, pairs = np.array([[1.0, 0.0]] * 2), np.ones((2, 2), bool)
    loss = functools.partial(contrastive.noise_robust_alignment, clamp="none")
    np.testing.assert_allclose(jax.jit(loss)(rows, rows, pairs), np.sqrt(1e-8), rtol=1e-9)


@x64()
def test_components_are_clamped_below_one_and_get_no_gradient_there():
    row, pairs = np.array([[1.0, 0.0]]), np.ones((1, 1), bool)
    both = jax.jit(jax.value_and_grad(contrastive.noise_robust_alignment))
    value, slope = both(row, row, pairs)
    np.testing.assert_allclose(value, 2 * (1 - (1 - 1e-4) ** 2 - 1e-8), rtol=1e-9)
    np.testing.assert_array_equal(slope, 0)


def test_equal_vectors_have_a_finite_gradient():
    rows = jnp.asarray(np.tile(unit(1, 3), (4, 1)))
    value, grads = jax.value_and_grad(contrastive.noise_robust_alignment)(
        rows, rows, np.ones((4, 4), bool), clamp="none"
    )
    assert abs(value) < 1e-2 and np.isfinite(grads).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clamp": "cosine"}, "clamp is 'cosine'; accepted: 'components', 'none'"),
        ({"same_class": np.ones((3, 3))}, r"same_class is float32 of shape \(3, 3\); accepted: bo"),
        ({"same_class": np.ones(3, bool)}, r"same_class is bool of shape \(3,\); accepted: bool"),
        (
            {"same_class": [["word"] * 3] * 3},
            r"same_class is \[\['word', .*; accepted: an array of real",
        ),
        ({"target": np.ones((3, 2)) * 1j}, "target is complex64; accepted: an array of real"),
        ({"online": np.ones((0, 2)), "target": np.ones((0, 2))}, r"online is \(0, 2\); accepted"),
        ({"target": np.ones((3, 4))}, r"online and target must be \[batch, dim\] and of one shape"),
    ],
)
def test_bad_input_is_refused_by_name(changes, said):
    known = {"online": unit(3, 2), "target": unit(3, 2), "same_class": np.ones((3, 3), bool)}
    known |= {"clamp": "none"} | changes
    clamp = known.pop("clamp")
    with pytest.raises(ValueError, match=said):
        contrastive.noise_robust_alignment(*known.values(), clamp=clamp)
