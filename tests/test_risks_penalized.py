"""GradPU: the published slopes, and the gradient penalty against explicit Jacobians."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from tests.pu_batches import LN3, random_batch
from tests.x64 import x64

# Slope of one positive in its score, (beta, differentiate through the weight): at these scores.
SCORES = [-4, -2, -1, 0, 1, 2]
SLOPES = {
    (30, False): [0.32, 8.6, 27.2, 21.8, 2.0, 0.11],
    (30, True): [120.2, 124.3, 120.3, 51.8, 3.7, 0.15],
    (3, False): [0.03, 0.92, 3.1, 3.1, 0.58, 0.07],
    (3, True): [12.0, 12.5, 12.4, 6.1, 0.75, 0.08],
}


gradpu = jax.jit(risks.gradpu, static_argnames="stop_weight_gradient")


def test_gradpu_matches_a_batch_worked_by_hand():
    # 2 h = ln 3, -ln 3 on P: 2 sigmoid(-2h) = 1/2, 3/2 and w = 1 + 2 log(4/3), 1 + 2 log 4.
    scores, labeled = np.array([LN3, -LN3, LN3, 0.0]) / 2, np.array([1, 1, 0, 0])
    with x64():
        value = gradpu(scores, labeled, beta=2.0)
        positives = (1 + 2 * np.log(4 / 3)) / 2 + (1 + 2 * np.log(4)) * 3 / 2
        assert float(value) == pytest.approx(positives / 2 + (3 / 2 + 1) / 2, abs=1e-14)
        plain = gradpu(scores, labeled, beta=0.0)
        assert float(plain) == pytest.approx(1 + 5 / 4, abs=1e-14)


@pytest.mark.parametrize("beta", [0.0, 3.0, 30.0])
def test_gradpu_is_the_weighted_absolute_loss_of_a_tanh(beta):
    scores, labeled = random_batch(seed=1)
    g = np.tanh(scores)
    weights = 1 - beta * np.log((1 + g[labeled == 1]) / 2)
    expected = np.mean(weights * np.abs(1 - g[labeled == 1])) + np.mean(
        np.abs(-1 - g[labeled == 0])
    )
    with x64():
        for stop in (True, False):
            value = gradpu(scores, labeled, beta=beta, stop_weight_gradient=stop)
            # 1 + tanh cancels up to ten digits at scores of -5, which enter as a logarithm.
            np.testing.assert_allclose(value, expected, rtol=1e-9)


@pytest.mark.parametrize("stop", [True, False])
def test_the_derivative_by_beta_is_that_of_the_value(stop):
    """What is constant in the scores is none in the number that the user chose."""
    scores, labeled = random_batch(seed=2)
    with x64():

        def risk(beta):
            return risks.gradpu(scores, labeled, beta=beta, stop_weight_gradient=stop)

        assert float(jax.grad(lambda b: risks.gradpu([0.0, 0.0], [1, 0], beta=b))(3.0)) == (
            pytest.approx(np.log(2), rel=1e-12)
        )
        slope = (risk(3 + 1e-5) - risk(3 - 1e-5)) / 2e-5
        np.testing.assert_allclose(jax.grad(risk)(3.0), slope, rtol=1e-9)


@pytest.mark.parametrize(("beta", "through"), sorted(SLOPES))
def test_slopes_of_a_positive_are_the_published_table(beta, through):
    risk = functools.partial(risks.gradpu, beta=beta, stop_weight_gradient=not through)
    with x64():
        slope = jax.jit(jax.vmap(jax.grad(lambda h: risk(h[None], np.ones(1)))))
        found = -slope(np.array(SCORES, float))
    # The table has two to four digits and is rounded to two decimals at least.
    np.testing.assert_allclose(found, SLOPES[beta, through], rtol=0.02, atol=0.006)


def test_an_unlabeled_example_pulls_with_at_most_one():
    with x64():
        risk = functools.partial(risks.gradpu, labeled=np.zeros(1), beta=30.0)
        slope = jax.jit(jax.vmap(jax.grad(lambda h: risk(h[None]))))
        h = np.linspace(-4, 4, 9)
        np.testing.assert_allclose(slope(h), 1 / np.cosh(h) ** 2, rtol=1e-12)


def test_stopping_drops_the_slope_of_the_weight_only():
    scores, labeled = random_batch(seed=1)
    positive = labeled == 1
    with x64():
        stopped, through = (
            jax.jit(jax.grad(functools.partial(risks.gradpu, beta=5.0, stop_weight_gradient=stop)))(
                scores, labeled
            )
            for stop in (True, False)
        )
        weight = 1 + 5 * np.log1p(np.exp(-2 * scores))
        pull = 1 / np.cosh(scores) ** 2
        expected = np.where(positive, -weight * pull / positive.sum(), pull / (~positive).sum())
        np.testing.assert_allclose(stopped, expected, rtol=1e-12)
        added = -10 * 2 / (1 + np.exp(2 * scores)) ** 2 / positive.sum()
        np.testing.assert_allclose(through - stopped, np.where(positive, added, 0), atol=1e-12)


def test_without_upweighting_gradpu_is_twice_naive_at_doubled_scores():
    scores, labeled = random_batch(seed=1)
    with x64():
        naive = risks.naive(2 * scores, labeled, loss=risks.sigmoid_loss)
        np.testing.assert_allclose(gradpu(scores, labeled, beta=0.0), 2 * naive, rtol=1e-13)


def two_layers(activation):
    def score(params, x):
        return activation(x.ravel() @ params["w"] + params["b"]) @ params["v"] + 0.3

    return score


def random_net(inputs=5, hidden=7):
    rng = np.random.default_rng(0)
    shapes = {"w": (inputs, hidden), "b": (hidden,), "v": (hidden,)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def pairs(batch=4, shape=(5,)):
    rng = np.random.default_rng(1)
    return rng.normal(size=(batch, *shape)), rng.normal(size=(batch, *shape)), rng.random(batch)


ACTIVATIONS = {
    "relu": (jax.nn.relu, lambda z: (z > 0) * 1.0),
    "tanh": (jnp.tanh, lambda z: 1 - np.tanh(z) ** 2),
}


def explicit_norms(params, points, derivative):
    """Squared norms of the Jacobian `w diag(s'(z)) v` at each point."""
    slopes = derivative(points @ params["w"] + params["b"]) * params["v"]
    return np.sum((slopes @ params["w"].T) ** 2, axis=1)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_penalty_matches_the_explicit_jacobian_and_its_parameter_slopes(name):
    activation, derivative = ACTIVATIONS[name]
    params = random_net()
    positives, unlabeled, mix = pairs()
    points = mix[:, None] * positives + (1 - mix[:, None]) * unlabeled
    score = two_layers(activation)

    def penalty(params):
        return risks.gradient_penalty(functools.partial(score, params), positives, unlabeled, mix)

    with x64():
        value, gradient = jax.jit(jax.value_and_grad(penalty))(params)
        expected = explicit_norms(params, points, derivative).mean()
        np.testing.assert_allclose(value, expected, rtol=1e-12)
    for leaf, size in (("w", 35), ("b", 7), ("v", 7)):
        for index in range(0, size, 3):
            step = np.zeros(size)
            step[index] = 1e-6
            step = step.reshape(params[leaf].shape)
            up, down = (
                explicit_norms({**params, leaf: params[leaf] + s}, points, derivative).mean()
                for s in (step, -step)
            )
            # Rounding of values of size 100 over the step.
            slope = np.asarray(gradient[leaf]).ravel()[index]
            assert slope == pytest.approx((up - down) / 2e-6, abs=2e-7, rel=1e-7)
    # A ReLU is linear in between, so biases do not matter there, but weights do.
    assert (name == "relu") == (np.abs(gradient["b"]).max() == 0)
    assert np.abs(gradient["w"]).max() > 0.1


def test_penalty_of_a_linear_score_is_its_squared_norm():
    with x64():
        w = np.array([1.0, -2.0, 0.5, 0.0, 3.0])
        value, gradient = jax.value_and_grad(
            lambda w: risks.gradient_penalty(lambda x: x @ w + 7, *pairs())
        )(w)
        assert float(value) == pytest.approx(14.25, abs=1e-13)
        np.testing.assert_allclose(gradient, 2 * w, rtol=1e-13)


def test_penalty_is_taken_between_the_two_examples():
    # grad of sum(x^2) is 2 x: the squared norm tells the point.
    positives, unlabeled = np.full((3, 2), 4.0), np.zeros((3, 2))
    for mix, expected in ((0.0, 0), (1.0, 128), (0.25, 8)):
        value = risks.gradient_penalty(
            lambda x: jnp.sum(x**2), positives, unlabeled, np.full(3, mix)
        )
        assert float(value) == pytest.approx(expected)


def test_penalty_weighs_and_masks_pairs():
    positives, unlabeled, mix = pairs(batch=4)
    params = random_net()
    score = functools.partial(two_layers(jnp.tanh), params)
    points = mix[:, None] * positives + (1 - mix[:, None]) * unlabeled
    norms = explicit_norms(params, points, ACTIVATIONS["tanh"][1])
    with x64():
        penalty = jax.jit(
            functools.partial(risks.gradient_penalty, score, positives, unlabeled, mix)
        )
        mask = np.array([True, False, True, False])
        np.testing.assert_allclose(penalty(weights=mask), norms[mask].mean(), rtol=1e-12)
        weights = np.array([1.0, 2.0, 0.0, 4.0])
        expected = np.average(norms, weights=weights)
        np.testing.assert_allclose(penalty(weights=weights), expected, rtol=1e-12)
        np.testing.assert_allclose(penalty(weights=np.ones(4)), penalty(), rtol=1e-14)
        assert float(penalty(weights=np.zeros(4))) == 0


def test_penalty_without_weight_or_pairs_has_no_gradient():
    positives, unlabeled, mix = pairs()

    def penalty(params, size, weights):
        score = functools.partial(two_layers(jnp.tanh), params)
        batch = positives[:size], unlabeled[:size], mix[:size]
        return risks.gradient_penalty(score, *batch, weights=weights)

    for size, weights in ((4, np.zeros(4)), (0, None), (0, np.zeros(0))):
        compiled = jax.jit(jax.value_and_grad(penalty), static_argnums=1)
        value, gradient = compiled(random_net(), size, weights)
        assert value == 0
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("beta", [-1.0, np.nan, "much"])
def test_an_upweighting_out_of_range_is_refused(beta):
    with pytest.raises(ValueError, match="^beta is .*0 or more"):
        risks.gradpu(np.zeros(2), np.array([1, 0]), beta=beta)


def test_penalty_takes_inputs_of_any_rank():
    params = random_net(inputs=6)
    score = functools.partial(two_layers(jnp.tanh), params)
    positives, unlabeled, mix = pairs(shape=(1, 2, 3))
    flat = risks.gradient_penalty(
        score, positives.reshape(4, 6), unlabeled.reshape(4, 6), mix, weights=np.arange(4)
    )
    shaped = risks.gradient_penalty(score, positives, unlabeled, mix, weights=np.arange(4))
    np.testing.assert_allclose(shaped, flat, rtol=1e-6)
    scalars = risks.gradient_penalty(lambda x: 3 * x, np.ones(4), np.zeros(4), mix)
    assert float(scalars) == pytest.approx(9)


@pytest.mark.parametrize(
    "wrong, said",
    [
        (lambda x: x[:1], r"float32 of shape \(1,\)"),
        (lambda x: jnp.sum(x > 0), r"int32 of shape \(\)"),
        (lambda x: (jnp.sum(x), x), "'tuple'"),
    ],
)
def test_a_score_that_is_not_one_number_is_named(wrong, said):
    """Such as that of a last layer with one unit, which gives `[1]` for one example."""
    positives, unlabeled, mix = pairs()
    with pytest.raises(ValueError, match=f"what score_fn returns is {said}; accepted: one real nu"):
        risks.gradient_penalty(wrong, positives, unlabeled, mix)


def test_penalty_maps_over_networks_and_computes_low_precision_in_float32():
    batch = pairs()
    nets = {name: np.stack([leaf, 2 * leaf]) for name, leaf in random_net().items()}

    def penalty(params, *batch):
        return risks.gradient_penalty(functools.partial(two_layers(jnp.tanh), params), *batch)

    mapped = jax.jit(jax.vmap(lambda params: penalty(params, *batch)))(nets)
    single = [penalty({k: leaf[i] for k, leaf in nets.items()}, *batch) for i in range(2)]
    np.testing.assert_allclose(mapped, single, rtol=1e-5)

    half = [jnp.asarray(values, jnp.bfloat16) for values in batch]
    compiled = jax.jit(penalty)
    value = compiled(random_net(), *half)
    assert value.dtype == jnp.float32
    full = compiled(random_net(), *(values.astype(jnp.float32) for values in half))
    np.testing.assert_array_equal(value, full)
    counts = np.arange(8, dtype=jnp.uint8).reshape(4, 2)
    assert float(risks.gradient_penalty(jnp.sum, counts, counts, np.ones(4))) == 2


def test_penalty_names_the_argument_that_does_not_fit():
    def penalty(positives, unlabeled, mix, weights=None):
        shapes = (np.zeros(shape) for shape in (positives, unlabeled, mix))
        return risks.gradient_penalty(jnp.sum, *shapes, weights=weights)

    with pytest.raises(ValueError, match=r"unlabeled has shape \(3, 2\).*\(4, 2\)"):
        penalty((4, 2), (3, 2), (4,))
    with pytest.raises(ValueError, match=r"mix has shape \(4, 1\).*\(4,\)"):
        penalty((4, 2), (4, 2), (4, 1))
    with pytest.raises(ValueError, match=r"mix has shape \(\).*\(4,\)"):
        penalty((4, 2), (4, 2), ())
    with pytest.raises(ValueError, match=r"weights has shape \(2,\).*\(4,\)"):
        penalty((4, 2), (4, 2), (4,), weights=np.ones(2))
    for score_fn in (None, "ab"):
        with pytest.raises(ValueError, match=f"score_fn is {score_fn!r}; accepted: a function of"):
            risks.gradient_penalty(score_fn, np.ones(2), np.ones(2), np.ones(2))


@pytest.mark.parametrize("beta", [0.0, 3.0])
def test_infinite_scores_have_the_values_and_slopes_of_large_ones(beta):
    labeled = np.array([1, 0, 1, 0])

    def risk(large, beta):
        return risks.gradpu(jnp.array([1.0, -large, large, large]), labeled, beta=beta)

    at, by = jax.value_and_grad(risk, argnums=(0, 1))(1e4, beta)
    value, slopes = jax.value_and_grad(risk, argnums=(0, 1))(jnp.inf, beta)
    np.testing.assert_allclose(value, at, rtol=1e-6)
    np.testing.assert_allclose(slopes, by, atol=1e-7)
    # A missed positive costs all of its loss, and without upweighting no more than 2.
    missed = risks.gradpu([-jnp.inf, 1.0], [1, 0], beta=beta)
    assert float(missed) == (jnp.inf if beta else pytest.approx(2 + 2 / (1 + np.exp(-2))))


def test_a_penalty_of_no_batch_is_refused():
    with pytest.raises(ValueError, match=r"^positives has shape \(\), but must have one entry per"):
        risks.gradient_penalty(jnp.sum, jnp.float32(1), jnp.float32(1), jnp.float32(0.5))
