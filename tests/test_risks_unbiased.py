"""Risks with a class prior: identities, the value/gradient split of nnPU, the balanced target."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from tests.pu_batches import LN3, overfitted_batch, random_batch
from tests.x64 import x64

# Compiled, since operations one by one cost a program each.
pu_parts = jax.jit(risks.pu_parts)
upu = jax.jit(risks.upu)
upu_slope = jax.jit(jax.grad(risks.upu))
nnpu_slope = jax.jit(jax.grad(risks.nnpu))
nnpu_and_slope = jax.jit(
    jax.value_and_grad(risks.nnpu), static_argnames=("ascent", "keep_positive")
)
imbalanced_and_slope = jax.jit(jax.value_and_grad(risks.imbalanced_nnpu), static_argnames="ascent")


def test_negative_part_can_fall_below_zero():
    scores, labeled = overfitted_batch()
    parts = risks.pu_parts(scores, labeled, prior=0.4)
    assert float(parts.negative) < -0.2


def test_logistic_upu_has_its_convex_form():
    scores, labeled = random_batch()
    with x64():
        risk = functools.partial(risks.upu, prior=0.3, loss=risks.logistic_loss)
        value = jax.jit(risk)(scores, labeled)
        positive, unlabeled = scores[labeled == 1], scores[labeled == 0]
        expected = -0.3 * positive.mean() + np.logaddexp(0, unlabeled).mean()
        np.testing.assert_allclose(value, expected, rtol=1e-13)


def test_one_sample_calibration_is_the_mean_over_both_groups():
    scores, labeled = random_batch()
    num_positive, num_unlabeled = labeled.sum(), (1 - labeled).sum()
    size = num_positive + num_unlabeled
    prior = 0.5
    unlabeled_prior = (prior * size - num_positive) / num_unlabeled
    with x64():
        as_negative = np.asarray(risks.sigmoid_loss(-scores))
        value = upu(
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
    default = pu_parts(scores, labeled, prior=0.3)
    explicit = pu_parts(scores, labeled, prior=0.3, unlabeled_prior=0.3)
    assert default == explicit
    other = pu_parts(scores, labeled, prior=0.3, unlabeled_prior=0.1)
    assert float(other.negative) > float(default.negative)
    assert float(other.positive) == float(default.positive)


def test_nnpu_equals_upu_when_the_negative_part_is_positive():
    scores, labeled = random_batch()
    with x64():
        assert float(pu_parts(scores, labeled, prior=0.2).negative) > 0
        plain = jax.jit(jax.value_and_grad(risks.upu))(scores, labeled, prior=0.2)
        for options in ({"ascent": True}, {"ascent": False}, {"keep_positive": True}):
            nnpu = nnpu_and_slope(scores, labeled, prior=0.2, **options)
            np.testing.assert_allclose(nnpu[0], plain[0], rtol=1e-14)
            np.testing.assert_allclose(nnpu[1], plain[1], rtol=1e-14)


@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_nnpu_value_is_the_clamped_risk_and_gradient_the_ascent(beta):
    scores, labeled = overfitted_batch()
    with x64():

        def part(name):
            return jax.value_and_grad(lambda g: getattr(pu_parts(g, labeled, prior=0.4), name))

        both = jax.jit(lambda g: (part("positive")(g), part("negative")(g)))
        (positive, positive_gradient), (_, negative_gradient) = both(scores)
        options = {"prior": 0.4, "beta": beta, "gamma": 0.7}
        value, gradient = nnpu_and_slope(scores, labeled, **options, ascent=True)
        np.testing.assert_allclose(value, positive - beta, rtol=1e-14)
        np.testing.assert_allclose(gradient, -0.7 * np.asarray(negative_gradient), rtol=1e-14)

        value, gradient = nnpu_and_slope(scores, labeled, **options, keep_positive=True)
        np.testing.assert_allclose(value, positive - beta, rtol=1e-14)
        both_parts = np.asarray(positive_gradient) - 0.7 * np.asarray(negative_gradient)
        np.testing.assert_allclose(gradient, both_parts, rtol=1e-13)

        for kept in (False, True):
            options |= {"ascent": False, "keep_positive": kept}
            value, gradient = nnpu_and_slope(scores, labeled, **options)
            np.testing.assert_allclose(value, positive - beta, rtol=1e-14)
            np.testing.assert_allclose(gradient, positive_gradient, rtol=1e-14)


def test_correction_steps_at_saturated_u_push_p_down_unless_the_positive_part_stays():
    # All of U far below 0, where the loss is flat, and P at 0.
    scores, labeled = np.array([0.0, -9.0, -9.0, -9.0]), np.array([1, 0, 0, 0])
    with x64():
        plain = np.asarray(nnpu_and_slope(scores, labeled, prior=0.5)[1])
        kept = np.asarray(nnpu_and_slope(scores, labeled, prior=0.5, keep_positive=True)[1])
        # With the prior 1/2 in U, too, the two pulls on P cancel: sigmoid slopes are 1/4.
        assert plain[0] == pytest.approx(1 / 8, rel=1e-12) and abs(kept[0]) < 1e-12
        np.testing.assert_allclose(plain[1:], kept[1:], rtol=1e-12)
        assert (abs(plain[1:]) < 1e-4).all()


def test_nnpu_rule_uses_the_weighted_negative_part_and_a_strict_comparison():
    scores, labeled = overfitted_batch()
    with x64():
        negative = float(pu_parts(scores, labeled, prior=0.4).negative)
        plain = upu_slope(scores, labeled, prior=0.4)
        at_limit = nnpu_slope(scores, labeled, prior=0.4, beta=-negative)
        np.testing.assert_allclose(at_limit, plain, rtol=1e-14)
        # Half the weight halves the negative part, which then stays above -beta.
        beta = -0.75 * negative
        options = {"prior": 0.4, "unlabeled_weight": 0.5}
        weighted = nnpu_slope(scores, labeled, beta=beta, **options)
        np.testing.assert_allclose(weighted, upu_slope(scores, labeled, **options))
        assert not np.allclose(nnpu_slope(scores, labeled, prior=0.4, beta=beta), plain)


def test_a_mean_over_an_empty_group_is_zero():
    scores = np.array([LN3, -LN3])
    none_labeled = pu_parts(scores, np.zeros(2), prior=0.4)
    assert float(none_labeled.positive) == 0
    assert float(none_labeled.negative) == pytest.approx(0.5, rel=1e-6)
    all_labeled = pu_parts(scores, np.ones(2), prior=0.4)
    assert float(all_labeled.negative) == pytest.approx(-0.2, rel=1e-6)


def test_prior_may_be_traced_and_differentiated():
    scores, labeled = random_batch()
    with x64():
        slope = jax.jit(jax.grad(lambda prior: risks.upu(scores, labeled, prior=prior)))(0.4)
        # upu is linear in the prior.
        low, high = (float(upu(scores, labeled, prior=prior)) for prior in (0.1, 0.9))
        rise = high - low
        np.testing.assert_allclose(slope, rise / 0.8, rtol=1e-12)


def test_the_unlabeled_term_has_the_sign_that_lets_the_rule_fire():
    # Written with l(g) instead of l(-g), low scores on U would raise the risk and never fire.
    scores, labeled = overfitted_batch()
    with x64():
        gradient = np.asarray(upu_slope(scores, labeled, prior=0.4))
        assert (gradient[labeled == 0] > 0).all() and (gradient[labeled == 1] < 0).all()
        # The ascent step raises the scores of U again and lowers those of P.
        gradient = np.asarray(nnpu_slope(scores, labeled, prior=0.4))
        assert (gradient[labeled == 0] < 0).all() and (gradient[labeled == 1] > 0).all()


def test_imbalanced_nnpu_matches_a_batch_worked_by_hand():
    # E_P l(g) = 1/4 and E_P l(-g) = 3/4; E_U l(-g) = (1/4 + 1/2) / 2 = 3/8; w = (1/2) / (3/4).
    scores, labeled = np.array([LN3, -LN3, 0.0]), np.array([1, 0, 0])
    with x64():
        value, gradient = imbalanced_and_slope(scores, labeled, prior=0.25)
        assert float(value) == pytest.approx(1 / 8 + 2 / 3 * (3 / 8 - 3 / 16), abs=1e-14)
        # Sigmoid slopes are 3/16, 3/16 and 1/4.
        expected = [-(1 / 2 + 2 / 3 / 4) * 3 / 16, 2 / 3 * 3 / 32, 2 / 3 / 8]
        np.testing.assert_allclose(gradient, expected, rtol=1e-13)
        value, _ = imbalanced_and_slope(scores, labeled, prior=0.25, target_prior=0.8)
        assert float(value) == pytest.approx(1 / 5 + 4 / 15 * 3 / 16, abs=1e-14)


@pytest.mark.parametrize("batch", [random_batch, overfitted_batch])
@pytest.mark.parametrize("options", [{}, {"beta": 0.05, "gamma": 0.7}, {"ascent": False}])
def test_imbalanced_nnpu_with_its_own_prior_is_nnpu(batch, options):
    scores, labeled = batch()
    with x64():
        expected = nnpu_and_slope(scores, labeled, prior=0.4, **options)
        priors = {"prior": 0.4, "target_prior": 0.4}
        value, gradient = imbalanced_and_slope(scores, labeled, **priors, **options)
        np.testing.assert_allclose(value, expected[0], rtol=1e-14)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-14)


def test_imbalanced_nnpu_applies_the_sign_rule_to_the_weighted_part():
    scores, labeled = overfitted_batch()
    weight = 0.5 / 0.6
    with x64():

        def unweighted(g):
            return risks.pu_parts(g, labeled, prior=0.4).negative

        negative, slope = jax.jit(jax.value_and_grad(unweighted))(scores)
        risk = functools.partial(imbalanced_and_slope, prior=0.4, gamma=2.0)
        value, gradient = risk(scores, labeled)
        assert float(value) == pytest.approx(0.5 / 4, abs=1e-14)
        np.testing.assert_allclose(gradient, -2 * weight * np.asarray(slope), rtol=1e-13)
        # beta between the weighted and the plain part: only the plain part would fire.
        beta = -0.95 * float(negative)
        value, gradient = risk(scores, labeled, beta=beta)
        assert float(value) == pytest.approx(0.5 / 4 + weight * float(negative), abs=1e-14)
        assert gradient[0] < 0


def test_traced_target_priors_give_the_same_number():
    scores, labeled = random_batch()
    traced = jax.jit(
        lambda prior, target: risks.imbalanced_nnpu(
            scores, labeled, prior=prior, target_prior=target
        )
    )
    expected = risks.imbalanced_nnpu(scores, labeled, prior=0.1, target_prior=0.3)
    np.testing.assert_allclose(traced(0.1, 0.3), expected, rtol=1e-6)


@pytest.mark.parametrize("prior", [0.0, 1.0, -0.1, 1.5, float("nan"), np.float32(1)])
def test_a_prior_outside_zero_and_one_is_refused(prior):
    scores, labeled = random_batch()
    for risk in (risks.pu_parts, risks.upu, risks.nnpu, risks.imbalanced_nnpu, risks.dist_pu):
        with pytest.raises(ValueError, match="^prior is .* strictly between 0 and 1"):
            risk(scores, labeled, prior=prior)
        with pytest.raises(ValueError, match="^prior is "):
            jax.jit(functools.partial(risk, prior=jnp.asarray(prior)))(scores, labeled)
    with pytest.raises(ValueError, match="^target_prior is "):
        risks.imbalanced_nnpu(scores, labeled, prior=0.3, target_prior=prior)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("unlabeled_prior", (1.5, -0.1, np.nan)),
        ("unlabeled_weight", (-1.0, np.inf)),
        ("beta", (-1.0, np.nan)),
        ("gamma", (-1.0, "much")),
        ("ascent", ("no", None)),
        ("keep_positive", ("no",)),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"^{name} is "):
            risks.nnpu(np.zeros(3), np.array([1, 0, 0]), prior=0.3, **{name: value})


def test_an_infinite_risk_of_the_ascent_leaves_the_value_a_number():
    """The value was that plus a difference of infinities."""
    scores, labeled = jnp.array([jnp.inf, -jnp.inf, 1.0, 2.0]), np.array([1, 0, 1, 0])
    call = functools.partial(risks.nnpu, labeled=labeled, prior=0.4, loss=risks.logistic_loss)
    value, slope = jax.jit(jax.value_and_grad(call))(scores)
    assert float(value) == pytest.approx(float(call(scores, ascent=False)), rel=1e-6)
    assert np.isfinite(value) and np.isfinite(slope).all() and slope[3] != 0


@pytest.mark.parametrize("name", ["beta", "gamma"])
def test_a_number_of_a_wider_type_than_the_scores_is_taken(name):
    labeled = np.array([1, 0, 1, 0])
    with x64():
        scores = jnp.array([0.3, -1.0, 1.0, 2.0], jnp.float32)
        call = jax.value_and_grad(functools.partial(risks.nnpu, labeled=labeled, prior=0.9))
        wide, narrow = call(scores, **{name: np.float64(0.5)}), call(scores, **{name: 0.5})
        np.testing.assert_allclose(wide[0], narrow[0], rtol=1e-6)
        np.testing.assert_allclose(wide[1], narrow[1], rtol=1e-6)
        assert wide[1].dtype == jnp.float32


def test_the_second_derivative_of_nnpu_is_that_of_what_is_descended():
    rng = np.random.default_rng(0)
    scores, labeled = rng.normal(size=12), np.arange(12) < 4
    with x64():
        for beta in (0.0, 10.0):  # the rule fires, and does not

            def call(scores, beta=beta):
                return risks.nnpu(scores, labeled, prior=0.9, beta=beta)

            slope, direction = jax.grad(call), rng.normal(size=12)
            found = jax.jvp(slope, (scores,), (direction,))[1]
            step = 1e-6 * direction
            difference = (slope(scores + step) - slope(scores - step)) / 2e-6
            np.testing.assert_allclose(found, difference, rtol=1e-6, atol=1e-9)


def test_with_an_infinite_beta_nnpu_is_upu():
    scores, labeled = overfitted_batch()
    with x64():
        found = jax.value_and_grad(risks.nnpu)(scores, labeled, prior=0.5, beta=np.inf)
        expected = jax.value_and_grad(risks.upu)(scores, labeled, prior=0.5)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize("prior", ["0.3", None])
def test_a_prior_that_is_no_number_is_refused(prior):
    with pytest.raises(ValueError, match=f"^prior is {prior!r}, but must lie strictly between"):
        risks.upu(np.zeros(2), np.array([1, 0]), prior=prior)


@pytest.mark.parametrize("codes", [["a", "b"], [None, 1]])
def test_labels_that_are_no_numbers_are_refused_by_name(codes):
    with pytest.raises(ValueError, match="^labeled has type .*0/1 or -1/1"):
        risks.upu(np.zeros(2), codes, prior=0.3)
