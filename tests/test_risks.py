"""Risks: hand-worked numbers, identities, the value/gradient split of nnPU, and awkward batches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from tests.x64 import x64

LOSSES = [risks.sigmoid_loss, risks.logistic_loss]
RISKS = {
    "naive": risks.naive,
    "weighted_bce": functools.partial(risks.weighted_bce, positive_weight=3.0),
    "upu": functools.partial(risks.upu, prior=0.4),
    "nnpu": functools.partial(risks.nnpu, prior=0.4),
    "upu_logistic": functools.partial(risks.upu, prior=0.4, loss=risks.logistic_loss),
    "nnpu_logistic": functools.partial(risks.nnpu, prior=0.4, loss=risks.logistic_loss),
    "nnpu_clamped": functools.partial(risks.nnpu, prior=0.4, ascent=False),
}
# sigmoid(-ln 3) = 1/4 and sigmoid(ln 3) = 3/4, so sigmoid losses are exact fractions.
LN3 = float(np.log(3.0))


def random_batch(seed=0, size=12):
    rng = np.random.default_rng(seed)
    labeled = np.arange(size) < size // 3
    return 3 * rng.normal(size=size), rng.permutation(labeled).astype(int)


def overfitted_batch():
    """Scores that rank P and U perfectly apart, so that the negative part is below zero."""
    return np.array([LN3, LN3, -3.0, -4.0, -5.0]), np.array([1, 1, 0, 0, 0])


def test_surrogate_losses_match_hand_values():
    with x64():
        margins = jnp.array([0.0, LN3, -LN3])
        np.testing.assert_allclose(risks.sigmoid_loss(margins), [0.5, 0.25, 0.75], rtol=1e-14)
        expected = np.log([2.0, 4 / 3, 4.0])
        np.testing.assert_allclose(risks.logistic_loss(margins), expected, rtol=1e-14)


def test_surrogate_losses_satisfy_their_symmetry():
    with x64():
        z = jnp.linspace(-8, 8, 33)
        np.testing.assert_allclose(risks.sigmoid_loss(z) + risks.sigmoid_loss(-z), 1, rtol=1e-14)
        difference = risks.logistic_loss(z) - risks.logistic_loss(-z)
        np.testing.assert_allclose(difference, -z, atol=1e-14)


def test_risks_match_a_batch_worked_by_hand():
    # P scores ln 3 and 0: E_P l(g) = (1/4 + 1/2)/2 = 3/8 and E_P l(-g) = 5/8.
    # U scores -ln 3, -ln 3, ln 3, 0: E_U l(-g) = (1/4 + 1/4 + 3/4 + 1/2)/4 = 7/16.
    scores, labeled = np.array([LN3, 0, -LN3, -LN3, LN3, 0]), np.array([1, 1, 0, 0, 0, 0])
    with x64():
        parts = risks.pu_parts(scores, labeled, prior=0.4)
        assert float(parts.positive) == pytest.approx(0.4 * 3 / 8, abs=1e-14)
        assert float(parts.negative) == pytest.approx(7 / 16 - 0.4 * 5 / 8, abs=1e-14)
        assert float(risks.upu(scores, labeled, prior=0.4)) == pytest.approx(0.3375, abs=1e-14)
        assert float(risks.nnpu(scores, labeled, prior=0.4)) == pytest.approx(0.3375, abs=1e-14)
        naive = risks.naive(scores, labeled, loss=risks.sigmoid_loss)
        assert float(naive) == pytest.approx(3 / 8 + 7 / 16, abs=1e-14)
        # Logistic losses: P log(4/3) + log 2; U 2 log(4/3) + log 4 + log 2.
        positives = np.log(4 / 3) + np.log(2)
        unlabeled = 2 * np.log(4 / 3) + np.log(4) + np.log(2)
        bce = risks.weighted_bce(scores, labeled, positive_weight=2.5)
        assert float(bce) == pytest.approx((2.5 * positives + unlabeled) / 6, abs=1e-14)
        logistic_naive = risks.naive(scores, labeled)
        assert float(logistic_naive) == pytest.approx(positives / 2 + unlabeled / 4, abs=1e-14)


def test_logistic_upu_has_its_convex_form():
    scores, labeled = random_batch()
    with x64():
        value = risks.upu(scores, labeled, prior=0.3, loss=risks.logistic_loss)
        positive, unlabeled = scores[labeled == 1], scores[labeled == 0]
        expected = -0.3 * positive.mean() + np.logaddexp(0, unlabeled).mean()
        np.testing.assert_allclose(value, expected, rtol=1e-13)


def test_negative_part_can_fall_below_zero():
    scores, labeled = overfitted_batch()
    parts = risks.pu_parts(scores, labeled, prior=0.4)
    assert float(parts.negative) < -0.2


def test_one_sample_calibration_is_the_mean_over_both_groups():
    scores, labeled = random_batch()
    num_positive, num_unlabeled = labeled.sum(), (1 - labeled).sum()
    size = num_positive + num_unlabeled
    prior = 0.5
    unlabeled_prior = (prior * size - num_positive) / num_unlabeled
    with x64():
        as_negative = np.asarray(risks.sigmoid_loss(-scores))
        value = risks.upu(
            scores,
            labeled,
            prior=prior,
            unlabeled_prior=unlabeled_prior,
            unlabeled_weight=num_unlabeled / size,
        )
        positive = np.asarray(risks.sigmoid_loss(scores))[labeled == 1].mean()
        negative = as_negative.mean() - prior * as_negative[labeled == 1].mean()
        np.testing.assert_allclose(value, prior * positive + negative, rtol=1e-13)


def test_unlabeled_prior_defaults_to_the_prior():
    scores, labeled = random_batch()
    default = risks.pu_parts(scores, labeled, prior=0.3)
    explicit = risks.pu_parts(scores, labeled, prior=0.3, unlabeled_prior=0.3)
    assert default == explicit
    other = risks.pu_parts(scores, labeled, prior=0.3, unlabeled_prior=0.1)
    assert float(other.negative) > float(default.negative)
    assert float(other.positive) == float(default.positive)


def test_nnpu_equals_upu_when_the_negative_part_is_positive():
    scores, labeled = random_batch()
    with x64():
        assert float(risks.pu_parts(scores, labeled, prior=0.2).negative) > 0
        upu = jax.value_and_grad(risks.upu)(scores, labeled, prior=0.2)
        for ascent in (True, False):
            nnpu = jax.value_and_grad(risks.nnpu)(scores, labeled, prior=0.2, ascent=ascent)
            np.testing.assert_allclose(nnpu[0], upu[0], rtol=1e-14)
            np.testing.assert_allclose(nnpu[1], upu[1], rtol=1e-14)


@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_nnpu_value_is_the_clamped_risk_and_gradient_the_ascent(beta):
    scores, labeled = overfitted_batch()
    with x64():

        def part(name):
            return lambda g: getattr(risks.pu_parts(g, labeled, prior=0.4), name)

        positive, positive_gradient = jax.value_and_grad(part("positive"))(scores)
        negative_gradient = jax.grad(part("negative"))(scores)
        options = {"prior": 0.4, "beta": beta, "gamma": 0.7}
        value, gradient = jax.value_and_grad(risks.nnpu)(scores, labeled, **options)
        np.testing.assert_allclose(value, positive - beta, rtol=1e-14)
        np.testing.assert_allclose(gradient, -0.7 * negative_gradient, rtol=1e-14)

        value, gradient = jax.value_and_grad(risks.nnpu)(scores, labeled, **options, ascent=False)
        np.testing.assert_allclose(value, positive - beta, rtol=1e-14)
        np.testing.assert_allclose(gradient, positive_gradient, rtol=1e-14)


def test_nnpu_rule_uses_the_weighted_negative_part_and_a_strict_comparison():
    scores, labeled = overfitted_batch()
    with x64():
        negative = float(risks.pu_parts(scores, labeled, prior=0.4).negative)
        plain = jax.grad(risks.upu)(scores, labeled, prior=0.4)
        at_limit = jax.grad(risks.nnpu)(scores, labeled, prior=0.4, beta=-negative)
        np.testing.assert_allclose(at_limit, plain, rtol=1e-14)
        # Half the weight halves the negative part, which then stays above -beta.
        beta = -0.75 * negative
        options = {"prior": 0.4, "unlabeled_weight": 0.5}
        weighted = jax.grad(risks.nnpu)(scores, labeled, beta=beta, **options)
        np.testing.assert_allclose(weighted, jax.grad(risks.upu)(scores, labeled, **options))
        assert not np.allclose(jax.grad(risks.nnpu)(scores, labeled, prior=0.4, beta=beta), plain)


@pytest.mark.parametrize("name", sorted(set(RISKS) - {"nnpu", "nnpu_logistic"}))
def test_gradient_is_the_derivative_of_the_value(name):
    # nnPU with ascent is left out: there the two differ by design, see above.
    scores, labeled = random_batch(seed=3)
    with x64():
        gradient = jax.jit(jax.grad(RISKS[name]))(scores, labeled)
        risk = jax.jit(jax.vmap(RISKS[name], in_axes=(0, None)))
        steps = 1e-6 * np.eye(scores.size)
        slopes = (risk(scores + steps, labeled) - risk(scores - steps, labeled)) / 2e-6
        # Central differences err by step^2 and by rounding / step, both below 1e-9.
        np.testing.assert_allclose(gradient, slopes, atol=1e-8)


@pytest.mark.parametrize("name", sorted(RISKS))
def test_label_codings_compile_and_map_to_the_same_result(name):
    scores, labeled = random_batch()
    risk = RISKS[name]
    expected = risk(scores, labeled)
    for dtype in (bool, np.int8, np.int32, np.float32):
        np.testing.assert_array_equal(risk(scores, labeled.astype(dtype)), expected)
    # Compilation reorders sums: a few float32 roundings.
    np.testing.assert_allclose(jax.jit(risk)(scores, labeled), expected, rtol=1e-5)
    mapped = jax.vmap(risk)(np.stack([scores, -scores]), np.stack([labeled, labeled]))
    np.testing.assert_allclose(mapped, [expected, risk(-scores, labeled)], rtol=1e-5)


@pytest.mark.parametrize("name", sorted(RISKS))
def test_batches_of_one_group_one_example_or_nothing_are_finite(name):
    compiled = jax.jit(jax.value_and_grad(RISKS[name]))
    for labeled in ([0, 0, 0], [1, 1, 1], [0], [1], []):
        scores = jnp.linspace(-60, 60, len(labeled))
        value, gradient = compiled(scores, jnp.array(labeled, int))
        assert np.isfinite(value) and np.isfinite(gradient).all(), labeled


@pytest.mark.parametrize("name", sorted(RISKS))
def test_extreme_scores_are_exact_in_float32(name):
    scores, labeled = np.array([60.0, -60, 60, -60]), np.array([1, 1, 0, 0])
    value, gradient = jax.value_and_grad(RISKS[name])(scores, labeled)
    assert value.dtype == jnp.float32
    with x64():
        exact, exact_gradient = jax.value_and_grad(RISKS[name])(scores, labeled)
    np.testing.assert_allclose(value, exact, rtol=1e-6)
    np.testing.assert_allclose(gradient, exact_gradient, rtol=1e-6, atol=1e-12)


def test_a_mean_over_an_empty_group_is_zero():
    scores = jnp.array([LN3, -LN3])
    none_labeled = risks.pu_parts(scores, jnp.zeros(2), prior=0.4)
    assert float(none_labeled.positive) == 0
    assert float(none_labeled.negative) == pytest.approx(0.5, rel=1e-6)
    all_labeled = risks.pu_parts(scores, jnp.ones(2), prior=0.4)
    assert float(all_labeled.negative) == pytest.approx(-0.2, rel=1e-6)


@pytest.mark.parametrize("name", sorted(RISKS))
def test_bfloat16_scores_are_summed_in_float32(name):
    scores, labeled = random_batch()
    scores = jnp.asarray(scores, jnp.bfloat16)
    value = RISKS[name](scores, labeled)
    assert value.dtype == jnp.float32
    np.testing.assert_array_equal(value, RISKS[name](scores.astype(jnp.float32), labeled))
    assert jax.grad(RISKS[name])(scores, labeled).dtype == jnp.bfloat16
    assert all(loss(scores).dtype == jnp.float32 for loss in LOSSES)


def test_float64_is_kept_and_prior_may_be_traced():
    scores, labeled = random_batch()
    with x64():
        slope = jax.jit(jax.grad(lambda prior: risks.upu(scores, labeled, prior=prior)))(0.4)
        assert slope.dtype == jnp.float64
        parts = risks.pu_parts(scores, labeled, prior=1.0)
        unlabeled = risks.sigmoid_loss(-scores)[labeled == 0].mean()
        np.testing.assert_allclose(slope, parts.positive + parts.negative - unlabeled, rtol=1e-12)


@pytest.mark.parametrize("name", sorted(RISKS))
def test_mismatched_shapes_are_refused(name):
    with pytest.raises(ValueError, match=r"labeled has shape \(3,\).*\(3, 1\)"):
        RISKS[name](jnp.zeros((3, 1)), jnp.zeros(3))
