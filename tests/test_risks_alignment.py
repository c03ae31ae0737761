"""PULDA's risks: the smooth distance, the margin's bump, moving averages, and what is left out."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from tests.pu_batches import LN3, random_batch, sigmoid
from tests.x64 import x64

alignment = jax.jit(risks.label_alignment, static_argnames="prior")
margin_risk = jax.jit(risks.two_way_margin, static_argnames="prior")
SCORES, LABELED = np.array([LN3, -LN3, -LN3, 0.0]), np.array([1, 0, 0, 0])


def distance(u, v, b):
    return (np.log1p(np.exp(b * (u - v))) + np.log1p(np.exp(b * (v - u)))) / b


def started(*values):
    """Moving averages that have begun."""
    means = tuple(risks.MovingMean(np.float64(value), np.array(True)) for value in values)
    return means if len(means) > 1 else means[0]


@pytest.mark.parametrize("shape", [(1,), (2,), (4, 1)])
def test_an_average_of_several_seeds_is_refused(shape):
    """It would make a vector of the risk, which a mean then trains on."""
    several = risks.MovingMean(np.full(shape, 0.5), np.full(shape, True))
    said = r"value of the moving average has shape \(.*but must be a single number"
    with pytest.raises(ValueError, match=said):
        risks.label_alignment(SCORES, LABELED, prior=0.4, average=several)
    for pair in ((several, None), (None, several)):
        with pytest.raises(ValueError, match=said):
            risks.two_way_margin(SCORES, LABELED, prior=0.4, averages=pair)
    each = jax.vmap(lambda x: risks.label_alignment(SCORES, LABELED, prior=0.4, average=x)[0])
    flat = jax.tree.map(np.ravel, several)
    assert each(flat).shape == flat.value.shape


def test_distance_floor_slope_symmetry_and_limit():
    with x64():
        compared = functools.partial(jax.value_and_grad(risks.softplus_distance), sharpness=3.5)
        value, slope = jax.jit(jax.vmap(compared, in_axes=(0, None)))(np.array([0.4, 0.9]), 0.4)
        assert float(value[0]) == pytest.approx(2 * np.log(2) / 3.5, abs=1e-15)
        assert float(slope[0]) == pytest.approx(0, abs=1e-15)
        assert float(slope[1]) == pytest.approx(np.tanh(3.5 * 0.5 / 2), abs=1e-15)
        assert float(value[1]) == pytest.approx(distance(0.9, 0.4, 3.5), abs=1e-15)
        swapped = risks.softplus_distance(0.4, 0.9, sharpness=3.5)
        assert float(swapped) == pytest.approx(float(value[1]), abs=1e-15)
        for b in (10.0, 1e3):
            excess = float(risks.softplus_distance(0.9, 0.4, sharpness=b)) - 0.5
            assert 0 <= excess <= 2 * np.log(2) / b


def test_margin_loss_is_a_bump_about_half_the_margin():
    with x64():
        z = np.linspace(-8, 8, 33)
        bump = jax.jit(lambda z: risks.two_way_sigmoid_loss(z, margin=0.6))
        np.testing.assert_allclose(bump(z), sigmoid(z) * sigmoid(0.6 - z), rtol=1e-13)
        np.testing.assert_allclose(bump(0.3 + z), bump(0.3 - z), rtol=1e-12)
        assert float(bump(np.array(0.3))) == pytest.approx(sigmoid(0.3) ** 2, abs=1e-15)
        assert (np.asarray(bump(np.append(z, [0.25, 0.35]))) < sigmoid(0.3) ** 2).all()
        ends = bump(np.array([-60.0, 60.0]))
        assert (np.asarray(ends) < 1e-25).all()


def test_first_batch_is_not_divided_and_starts_the_average():
    # p is 3/4 on P, and 1/4, 1/4, 1/2 on U, of mean 1/3.
    with x64():
        value, average = alignment(SCORES, LABELED, prior=0.4)
        wanted = 0.8 / 4 + distance(1 / 3, 0.4, 3.5)
        assert float(value) == pytest.approx(wanted, abs=1e-14)
        assert float(average.value) == pytest.approx(1 / 3, abs=1e-15) and average.started


def test_a_later_batch_has_the_closed_form_gradient_and_the_published_value():
    with x64():
        call = functools.partial(risks.label_alignment, prior=0.4, average=started(0.5))
        (value, average), gradient = jax.jit(jax.value_and_grad(call, has_aux=True))(
            SCORES, LABELED
        )
        m = 0.85 * 0.5 + 0.15 / 3
        assert float(average.value) == pytest.approx(m, abs=1e-15)
        assert float(value) == pytest.approx(0.2 + distance(m, 0.4, 3.5) / 0.15, abs=1e-13)
        # tanh(1.75 (m - prior)) times the gradient of the batch's mean: the division cancels.
        slope = np.tanh(1.75 * (m - 0.4))
        wanted = [-0.8 * 3 / 16, slope / 16, slope / 16, slope / 12]
        np.testing.assert_allclose(gradient, wanted, rtol=1e-12)


def test_equal_batches_move_the_average_geometrically():
    with x64():
        average = started(0.9)
        for _ in range(5):
            _, average = alignment(SCORES, LABELED, prior=0.4, average=average)
        assert float(average.value) == pytest.approx(1 / 3 + 0.85**5 * (0.9 - 1 / 3), abs=1e-14)


def test_margin_risk_matches_hand_values_and_its_closed_form_gradient():
    def minus(z):
        return sigmoid(-z) * sigmoid(0.6 + z)

    p, u = SCORES[:1], SCORES[1:]
    c_p, c_u = minus(p).mean(), minus(u).mean()
    plus = 0.4 * np.mean(sigmoid(p) * sigmoid(0.6 - p))
    with x64():
        value, averages = margin_risk(SCORES, LABELED, prior=0.4)
        assert float(value) == pytest.approx(plus + distance(c_u, 0.4 * c_p, 1), abs=1e-14)
        np.testing.assert_allclose([x.value for x in averages], [c_u, c_p], rtol=1e-14)
        old = started(0.2, 0.1)
        call = functools.partial(risks.two_way_margin, prior=0.4, averages=old)
        (value, _), gradient = jax.jit(jax.value_and_grad(call, has_aux=True))(SCORES, LABELED)
        m_u, m_p = (0.2 + c_u) / 2, (0.1 + c_p) / 2
        wanted = plus + distance(m_u, 0.4 * m_p, 1) / 0.5
        assert float(value) == pytest.approx(wanted, abs=1e-13)
        slope = np.tanh((m_u - 0.4 * m_p) / 2)
        step = 1e-6
        d_minus = (minus(SCORES + step) - minus(SCORES - step)) / (2 * step)
        # l_+(z) is l_-(-z).
        d_plus = (minus(-p - step) - minus(-p + step)) / (2 * step)
        wanted = np.append(0.4 * d_plus - slope * 0.4 * d_minus[:1], slope * d_minus[1:] / 3)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-8)


def test_margin_risk_is_flat_where_u_explains_itself_by_p():
    """At c_U = prior c_P the distance is at its floor, without gradient."""
    with x64():
        # All scores 0 but one far away: c_U is half of c_P.
        scores, labeled = np.array([0.0, 0.0, -80.0]), np.array([1, 0, 0])
        call = functools.partial(risks.two_way_margin, prior=0.5)
        (value, _), gradient = jax.value_and_grad(call, has_aux=True)(scores, labeled)
        plus = 0.5 * 0.5 * sigmoid(0.6)
        assert float(value) == pytest.approx(plus + 2 * np.log(2), abs=1e-14)
        np.testing.assert_allclose(gradient[1:], 0, atol=1e-15)


@pytest.mark.parametrize("group", [0, 1])
def test_a_group_that_is_missing_leaves_its_average_and_is_a_constant(group):
    """The published benchmark that shows P and U in turn counts the constant and the distance."""
    labeled = np.full(3, group)
    with x64():
        old = started(0.2, 0.1)
        call = functools.partial(risks.two_way_margin, prior=0.4, averages=old)
        (value, (of_u, of_p)), gradient = jax.value_and_grad(call, has_aux=True)(
            np.array([LN3, 0.0, -LN3]), labeled
        )
        kept = of_u if group else of_p
        assert float(kept.value) == (0.2 if group else 0.1)
        assert np.isfinite(float(value)) and np.abs(gradient).min() > 0
        share, average = alignment(SCORES[:3], labeled, prior=0.4, average=started(0.5))
        if group:
            missed = np.mean(1 - sigmoid(SCORES[:3]))
            assert float(share) == pytest.approx(0.8 * missed, abs=1e-14)
            assert float(average.value) == 0.5
        else:  # without an average there is nothing to compare with
            value, (_, of_p) = margin_risk(SCORES[:3], labeled, prior=0.4)
            assert float(value) == 0 and not of_p.started


def test_until_both_averages_have_started_each_is_the_mean_of_the_last_batch():
    """An average of U alone was mixed with the next batch, and its gradient halved."""

    def minus(z):
        return sigmoid(-z) * sigmoid(0.6 + z)

    with x64():
        _, before = margin_risk(np.array([2.0, 1.5]), np.zeros(2, int), prior=0.4)
        assert before[0].started and not before[1].started
        call = functools.partial(risks.two_way_margin, prior=0.4, averages=before)
        (value, after), gradient = jax.value_and_grad(call, has_aux=True)(SCORES, LABELED)
        expected, averages = margin_risk(SCORES, LABELED, prior=0.4)
        assert float(value) == pytest.approx(float(expected), abs=1e-15)
        found = [float(x.value) for x in after]
        assert found == pytest.approx([float(x.value) for x in averages], abs=1e-15)
        c_u, c_p = minus(SCORES[1:]).mean(), minus(SCORES[:1]).mean()
        step = 1e-6
        slope = (minus(SCORES[1:] + step) - minus(SCORES[1:] - step)) / (2 * step) / 3
        np.testing.assert_allclose(gradient[1:], np.tanh((c_u - 0.4 * c_p) / 2) * slope, rtol=1e-7)


def test_without_averages_and_sharp_the_risk_is_that_of_dist_pu():
    scores, labeled = random_batch(seed=4)
    with x64():
        value, _ = risks.label_alignment(
            scores, labeled, prior=0.3, average=started(0.9), decay=0.0, sharpness=1e6
        )
        # The paper's scale of Dist-PU is 2 prior times that of its code.
        wanted = 2 * 0.3 * risks.dist_pu(scores, labeled, prior=0.3)
        assert float(value) == pytest.approx(float(wanted), abs=1e-5)


def test_margin_breaks_the_solution_in_which_all_of_u_gets_the_prior():
    """There the alignment is at its floor; a step down the margin's gradient spreads U's scores."""
    with x64():
        center = np.log(0.4 / 0.6)
        scores = np.append(np.full(4, 3.0), center + np.linspace(-0.1, 0.1, 16))
        labeled = (np.arange(20) < 4).astype(int)
        value, average = alignment(scores, labeled, prior=0.4)
        assert abs(float(average.value) - 0.4) < 1e-3
        gradient = jax.grad(lambda s: risks.two_way_margin(s, labeled, prior=0.4)[0])(scores)
        after = scores - 5 * np.asarray(gradient)
        assert after[4:].std() > scores[4:].std()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prior": 1.0}, "prior is 1.0"),
        ({"decay": 1.0}, "decay is 1.0, but must be from 0 and below 1"),
        ({"sharpness": 0.0}, "sharpness is 0.0, but must be above 0$"),
        ({"sharpness": math.inf}, "sharpness is inf, but must be above 0 and finite$"),
    ],
)
def test_numbers_that_cannot_be_are_refused(changes, message):
    for risk in (risks.label_alignment, risks.two_way_margin):
        with pytest.raises(ValueError, match=message):
            risk(jnp.zeros(2), jnp.ones(2), **({"prior": 0.5} | changes))
    with pytest.raises(ValueError, match=r"margin is -0.1, but must be 0 or more"):
        risks.two_way_sigmoid_loss(jnp.zeros(2), margin=-0.1)


def test_a_distance_is_taken_in_full_precision_whatever_the_type():
    def of(first, second, dtype):
        return float(
            risks.softplus_distance(
                jnp.array([first], dtype), jnp.array([second], dtype), sharpness=1.0
            )[0]
        )

    assert of(0, 1, jnp.uint8) == pytest.approx(distance(0, 1, 1.0), rel=1e-6)
    near = float(jnp.bfloat16(0.002))
    assert of(1, 0.002, jnp.bfloat16) == pytest.approx(distance(1, near, 1.0), rel=1e-6)
    assert np.shape(risks.softplus_distance([1.0, 2.0], 0.5, sharpness=1.0)) == (2,)
    with pytest.raises(ValueError, match=r"second has shape \(2,\).*\(3,\)"):
        risks.softplus_distance(np.zeros(3), np.zeros(2), sharpness=1.0)
    for name in ("first", "second"):
        for wrong in (1j, "0.4", None):
            values = {"first": 0.4, "second": 0.4, name: wrong}
            with pytest.raises(ValueError, match=f"{name} is .*; accepted: an array of real"):
                risks.softplus_distance(**values, sharpness=1.0)


def test_a_decay_of_a_wider_type_leaves_the_type_of_the_average():
    with x64():
        scores, start = np.float32(SCORES), jax.tree.map(np.float32, started(0.5))
        start = start._replace(started=np.array(True))

        def step(average, decay):
            return risks.label_alignment(scores, LABELED, prior=0.4, average=average, decay=decay)[
                ::-1
            ]

        average, _ = jax.lax.scan(step, start, np.array([0.5, 0.5]))
        assert average.value.dtype == np.float32
        np.testing.assert_allclose(average.value, 0.25 * 0.5 + 0.75 / 3, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_averages_are_carried_by_a_loop_over_batches(dtype):
    batches = np.random.default_rng(0).normal(size=(3, 4)).astype(dtype)

    def pulda(averages, scores):
        aligned, labels = risks.label_alignment(scores, LABELED, prior=0.3, average=averages[0])
        kept, margins = risks.two_way_margin(scores, LABELED, prior=0.3, averages=averages[1:])
        return (labels, *margins), aligned + kept

    with x64():
        averages = (risks.MovingMean.start(),) * 3
        (last, *_), losses = jax.lax.scan(pulda, averages, batches)
        assert losses.dtype == dtype
        for scores, loss in zip(batches, losses, strict=True):
            averages, expected = pulda(averages, scores)
            assert float(loss) == pytest.approx(float(expected), rel=1e-6)
        assert float(last.value) == pytest.approx(float(averages[0].value), rel=1e-6)


@pytest.mark.parametrize(
    "risk, average, said",
    [
        (risks.label_alignment, {"average": 0.5}, "average is 0.5; accepted: a MovingMean"),
        (risks.two_way_margin, {"averages": started(0.5)}, "averages is .*; accepted: a pair of"),
        (risks.two_way_margin, {"averages": (0.5, 0.5)}, "averages is .*; accepted: a pair of"),
    ],
)
def test_averages_of_another_kind_are_named(risk, average, said):
    with pytest.raises(ValueError, match=said):
        risk(SCORES, LABELED, prior=0.4, **average)
