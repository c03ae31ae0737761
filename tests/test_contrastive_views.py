"""Losses over views: naive versions, numbers by hand, the floor, extreme and refused numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import contrastive
from pujax.contrastive import views
from tests.x64 import x64


def unit_views(seed=0, views=2, batch=5, dim=4):
    points = np.random.default_rng(seed).normal(size=(views, batch, dim))
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def naive(views, temperature, tau_plus):
    num_views, batch, _ = views.shape
    losses = []
    for i in range(batch):
        for k in range(num_views):
            anchor = views[k, i]
            negatives = [
                np.exp(anchor @ views[m, j] / temperature)
                for j in range(batch)
                for m in range(num_views)
                if j != i
            ]
            partners = [m for m in range(num_views) if m != k]
            positives = [np.exp(anchor @ views[m, i] / temperature) for m in partners]
            mean = (np.mean(negatives) - tau_plus * np.mean(positives)) / (1 - tau_plus)
            weight = len(negatives) * max(mean, np.exp(-1 / temperature))
            losses += [np.log(positive + weight) - np.log(positive) for positive in positives]
    return np.mean(losses)


@pytest.mark.thorough
@pytest.mark.parametrize("num_views", [2, 3, 4])
@pytest.mark.parametrize("temperature", [0.5, 0.1])
@pytest.mark.parametrize("tau_plus", [0.0, 0.1, 0.6])
def test_every_number_of_views_matches_the_naive_version(num_views, temperature, tau_plus):
    views = unit_views(2, num_views)
    options = {"temperature": temperature, "tau_plus": tau_plus}
    expected = naive(views, temperature, tau_plus)
    with x64():
        value = contrastive.multiview_debiased(views, **options)
        assert value.dtype == jnp.float64 and value.shape == ()
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        if num_views == 2:
            np.testing.assert_allclose(
                contrastive.debiased(*views, **options), expected, rtol=1e-12
            )
            if tau_plus == 0:
                value = contrastive.nt_xent(*views, temperature=temperature)
                np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_nt_xent_is_the_cross_entropy_of_finding_the_partner():
    views = unit_views(batch=6, dim=3)
    points = views.reshape(12, 3)
    logits = points @ points.T / 0.2
    np.fill_diagonal(logits, -np.inf)
    log_p = logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
    anchors = np.arange(12)
    with x64():
        np.testing.assert_allclose(
            contrastive.nt_xent(*views, temperature=0.2),
            -np.mean(log_p[anchors, (anchors + 6) % 12]),
            rtol=1e-13,
        )


def test_two_orthogonal_images_worked_by_hand():
    # All views of image 1 are e1, of image 2 e2: partners have cosine 1, the others cosine 0.
    two, three = np.stack([np.eye(2)] * 2), np.stack([np.eye(2)] * 3)
    positive, options = np.exp(2.0), {"temperature": 0.5, "tau_plus": 0.1}
    with x64():
        value = contrastive.nt_xent(*two, temperature=0.5)
        np.testing.assert_allclose(value, np.log(positive + 2) - 2, rtol=1e-14)
        # (1 - 0.1 e^2) / 0.9 = 0.290..., above the floor e^-2 = 0.135; R is 2, then 3.
        negative = (1 - 0.1 * positive) / 0.9
        for count, views in ((2, two), (3, three)):
            np.testing.assert_allclose(
                contrastive.multiview_debiased(views, **options),
                np.log(positive + count * negative) - 2,
                rtol=1e-14,
            )


@pytest.mark.thorough
def test_order_of_views_and_images_does_not_matter():
    views = unit_views(3, views=3)
    options = {"temperature": 0.3, "tau_plus": 0.2}
    with x64():
        value = contrastive.multiview_debiased(views, **options)
        for changed in (views[[2, 0, 1]], views[:, ::-1]):
            np.testing.assert_allclose(
                contrastive.multiview_debiased(changed, **options), value, rtol=1e-13
            )


@pytest.mark.thorough
@pytest.mark.parametrize("num_views", [2, 3])
@pytest.mark.parametrize("block_size", [0, 1])
def test_a_binding_floor_sends_gradient_through_the_partners_only(num_views, block_size):
    # Opposite images: all other views have cosines near -1, so that the floor binds.
    angles = 0.3 * np.arange(num_views)[:, None] + [0, np.pi]
    views = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    temperature, floor = 0.5, num_views * np.exp(-2.0)

    def partners_only(views):
        cosines = jnp.einsum("kid,mid->kmi", views, views)
        losses = jnp.log1p(floor * jnp.exp(-cosines / temperature))
        return jnp.mean(losses[~np.eye(num_views, dtype=bool)])

    with x64():
        options = {"temperature": temperature, "tau_plus": 0.1, "block_size": block_size}
        loss = functools.partial(contrastive.multiview_debiased, **options)
        value, gradient = jax.jit(jax.value_and_grad(loss))(views)
        np.testing.assert_allclose(value, partners_only(views), rtol=1e-13)
        np.testing.assert_allclose(gradient, jax.grad(partners_only)(views), rtol=1e-12)
        if num_views == 2:
            # d loss / d cosine = (pos / (pos + floor) - 1) / t for each of the 4 anchors; the
            # cosine of image i belongs to two of them, its derivative by first_i is second_i.
            positive = np.exp(np.cos(0.3) / temperature)
            slope = (positive / (positive + floor) - 1) / temperature
            np.testing.assert_allclose(gradient[0], 2 * slope * views[1] / 4, rtol=1e-12)


@pytest.mark.parametrize("tau_plus", [0.1, 0.6])
def test_derivatives_by_temperature_and_tau_plus_match_finite_differences(tau_plus):
    views = unit_views(5, views=3)

    @jax.jit
    def loss(numbers):
        return contrastive.multiview_debiased(views, temperature=numbers[0], tau_plus=numbers[1])

    with x64():
        at = np.array([0.4, tau_plus])
        steps = 1e-6 * np.eye(2)
        slopes = [(loss(at + step) - loss(at - step)) / 2e-6 for step in steps]
        np.testing.assert_allclose(jax.jit(jax.grad(loss))(at), slopes, rtol=1e-6, atol=1e-9)
        ahead = (loss(np.array([0.4, 1e-7])) - loss(np.array([0.4, 0]))) / 1e-7
        np.testing.assert_allclose(jax.jit(jax.grad(loss))(np.array([0.4, 0]))[1], ahead, rtol=1e-5)


def awkward_views():
    """Stacks of three views of four images in three dimensions."""
    axes = np.concatenate([np.eye(3), -np.eye(3)[:1]])
    opposite = axes[[0, 3, 0, 3]]
    return {
        "random": unit_views(batch=4, dim=3, views=3),
        "aligned": np.stack([axes] * 3),
        "all the same": np.stack([axes[[0, 0, 0, 0]]] * 3),
        "one partner near, one opposite": np.stack([axes, axes, -axes]),
        "other images nearer": np.stack([axes, -axes, np.roll(axes, 1, axis=0)]),
        "other images opposite": np.stack([opposite] * 3),
    }


@pytest.mark.parametrize("block_size", [0, 2])
@pytest.mark.parametrize("tau_plus", [0.0, 0.1])
def test_extreme_temperatures_are_exact_in_single_precision(tau_plus, block_size):
    views = np.stack(list(awkward_views().values()))

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    @jax.value_and_grad
    def derive(views, temperature):
        return contrastive.multiview_debiased(
            views, temperature=temperature, tau_plus=tau_plus, block_size=block_size
        )

    for temperature in (0.01, 100.0):
        with x64():
            exact, slopes = derive(views, temperature)
        values, gradients = derive(views.astype(np.float32), temperature)
        assert values.dtype == jnp.float32
        np.testing.assert_allclose(values, exact, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradients, slopes, rtol=1e-3, atol=2e-4)


@pytest.mark.thorough
def test_numbers_in_double_precision_leave_single_precision_views_alone():
    first, second = unit_views().astype(np.float32)
    with x64():
        options = {"temperature": np.float64(0.5), "tau_plus": jnp.float64(0.1)}
        assert contrastive.debiased(first, second, **options).dtype == jnp.float32
        assert contrastive.nt_xent(first, second, temperature=0.5).dtype == jnp.float32


def nt_xent(views, *, tau_plus, **rest):
    del tau_plus  # it has none
    return contrastive.nt_xent(*views, **rest)


CALLS = {
    "debiased": lambda views, **rest: contrastive.debiased(*views, **rest),
    "multiview_debiased": contrastive.multiview_debiased,
}
GOOD = {"temperature": 0.5, "tau_plus": 0.1}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"temperature": 0}, "temperature is 0.0, but must be above 0 and finite"),
        ({"temperature": np.float32(-1)}, "temperature is -1.0, but must be above 0"),
        ({"temperature": jnp.float32(jnp.nan)}, "temperature is nan, but must be above 0"),
        ({"temperature": np.inf}, "temperature is inf, but must be above 0 and finite"),
        ({"temperature": False}, "temperature is 0.0, but must be above 0"),
        ({"temperature": np.ones(2)}, r"temperature has shape \(2,\), but must be a single"),
        ({"temperature": "x"}, "temperature is 'x', but must be a single number"),
        ({"temperature": "0.5"}, "temperature is '0.5', but must be a single number"),
        ({"tau_plus": None}, "tau_plus is None, but must be a single number"),
        ({"tau_plus": 0.1j}, "tau_plus is 0.1j, but must be a single number"),
        ({"tau_plus": 1}, r"tau_plus is 1.0, but must lie in \[0, 1\)"),
        ({"tau_plus": True}, r"tau_plus is 1.0, but must lie in \[0, 1\)"),
        ({"tau_plus": -1e-3}, "tau_plus is -0.001, but must lie"),
        ({"tau_plus": jnp.float32(jnp.nan)}, "tau_plus is nan, but must lie"),
        ({"block_size": -1}, "block_size is -1, but must be an integer, 0 or more"),
        ({"block_size": 2.5}, "block_size is 2.5, but must be an integer, 0 or more"),
        ({"block_size": True}, "block_size is True, but must be an integer, 0 or more"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(changed, message):
    views, options = unit_views(), {**GOOD, **changed}
    for call in [*CALLS.values()] + [nt_xent] * ("tau_plus" not in changed):
        with pytest.raises(ValueError, match=message):
            call(views, **options)
        # Constants inside a compiled function are known as well.
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(functools.partial(call, **options), views)


@pytest.mark.parametrize("call", [nt_xent, *CALLS.values()])
def test_one_image_is_refused_and_any_kind_of_number_taken(call):
    with pytest.raises(ValueError, match="batch is 1, but must be at least 2"):
        call(unit_views(batch=1), **GOOD)
    views = unit_views()
    expected = call(views, temperature=1.0, tau_plus=0.0)
    for kind in (bool, int, np.float64, np.array, jnp.float32, jnp.bfloat16):
        value = call(views, temperature=kind(1), tau_plus=kind(0))
        np.testing.assert_array_equal(value, expected)
    traced = jax.jit(lambda t: call(views, temperature=t, tau_plus=t - 1))(1.0)
    np.testing.assert_allclose(traced, expected, rtol=1e-6)


def test_views_of_wrong_shapes_are_named():
    views = unit_views()
    for call in (nt_xent, CALLS["debiased"]):
        with pytest.raises(ValueError, match=r"\(5, 4\) and \(4, 4\)"):
            call((views[0], views[1, :4]), **GOOD)
    for wrong in (views[:1], views[0]):
        with pytest.raises(ValueError, match=r"views has shape .* with at least 2 views M"):
            contrastive.multiview_debiased(wrong, **GOOD)


@pytest.mark.parametrize("call", [nt_xent, *CALLS.values()])
def test_views_of_no_real_numbers_are_named(call):
    views = unit_views()
    with pytest.raises(ValueError, match="(views|first) is complex64; accepted: an array of real"):
        call(views + 1j, **GOOD)
    with pytest.raises(ValueError, match="(views|first) is complex64; accepted: an array of real"):
        jax.eval_shape(lambda x: call(x, **GOOD), views + 1j)
    words = np.full(views.shape, "word").tolist()
    with pytest.raises(
        ValueError, match=r"(views|first) is \[.*'word'.*; accepted: an array of real"
    ):
        call(words, **GOOD)


def test_lists_of_traced_rows_are_views():
    views = unit_views()
    expected = contrastive.nt_xent(*views, temperature=0.5)
    found = jax.jit(lambda *x: contrastive.nt_xent(x[:5], x[5:], temperature=0.5))(
        *views[0], *views[1]
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_gradient_is_finite_where_the_expected_positives_are_the_whole_sum():
    def negatives(log_sum):
        numbers = {"temperature": jnp.float32(0.5), "tau_plus": jnp.float32(0.5)}
        mean = jnp.log(jnp.float32(2))  # the share is 0.5 exp(log 2) = 1
        return views._debiased_log_negatives(log_sum, mean, num_others=1, **numbers)

    value, slope = jax.value_and_grad(negatives)(jnp.float32(0))
    assert (value, slope) == (-2, 0)  # the floor, exp(-1 / temperature)


def test_views_of_more_axes_are_refused():
    with pytest.raises(ValueError, match=r"views has shape \(2, 3, 4, 5\), but must be \[M, batch"):
        contrastive.multiview_debiased(jnp.zeros((2, 3, 4, 5)), temperature=0.5, tau_plus=0.1)
