"""AlphaMax: the curve against a general optimiser, its shape, toys with exact scores, bad input."""

import sys

import numpy as np
import pytest
from scipy import optimize

from pujax.priors.alphamax import SHARES, alphamax, elbow, likelihood_curve, likelihood_limit
from pujax.priors.base import ANYTHING


def oracle_scores(seed, prior, shift=3.0, num_p=500, num_u=800):
    """P(y = +1 | x) of unit Gaussians `shift` apart."""
    rng = np.random.default_rng(seed)
    p = rng.normal(size=num_p) + shift
    u = rng.normal(size=num_u) + shift * (rng.random(num_u) < prior)
    return tuple(prior / (prior + (1 - prior) * np.exp(-shift * (x - shift / 2))) for x in (p, u))


def greatest_likelihood(p, u, alpha):
    """The same maximum in the densities' own terms, by sequential quadratic programming."""

    def negative(c):
        densities = c / alpha
        return -np.sum(p * np.log(densities)) - np.sum(u * np.log(u - c + alpha * p))

    def slope(c):
        return -p / c + u / (u - c + alpha * p)

    found = optimize.minimize(
        negative,
        alpha * u,
        jac=slope,
        bounds=[(1e-12, top) for top in u],
        constraints={"type": "eq", "fun": lambda c: c.sum() - alpha},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    # Where it reports a failed last step it is at rounding; a true failure would miss the value.
    return -found.fun


@pytest.mark.parametrize("alpha", [0.01, 0.2, 0.5, 0.85, 0.99])
@pytest.mark.parametrize("seed", range(3))
def test_the_curve_is_the_maximum_that_a_general_optimiser_finds(seed, alpha):
    rng = np.random.default_rng(seed)
    counts_p, counts_u = rng.integers(1, 40, size=(2, 7))
    index = round(100 * alpha) - 1
    expected = greatest_likelihood(counts_p / counts_p.sum(), counts_u / counts_u.sum(), alpha)
    curve = likelihood_curve(counts_p, counts_u)
    assert SHARES[index] == alpha
    assert curve[index] == pytest.approx(expected, abs=1e-8)


def test_the_curve_equals_a_case_worked_by_hand():
    # P lies in the first of two bins, U half in each. Up to one half all of alpha fits under U and
    # U is explained exactly: log 1 + log(1/2). Beyond, c = (1/2, alpha - 1/2).
    curve = likelihood_curve(np.array([5, 0]), np.array([4, 4]))
    expected = np.where(
        SHARES <= 0.5,
        np.log(0.5),
        np.log(0.5 / SHARES) + 0.5 * np.log(SHARES) + 0.5 * np.log(np.maximum(1 - SHARES, 0)),
    )
    np.testing.assert_allclose(curve, expected, atol=1e-12)
    limit = likelihood_limit(np.array([5, 0]), np.array([4, 4]))
    assert elbow(curve[None], limit[None])[0] == pytest.approx(0.5, abs=0.03)


def test_the_curve_is_flat_up_to_the_smallest_ratio_and_falls_beyond():
    rng = np.random.default_rng(4)
    for _ in range(5):
        counts_p, counts_u = rng.integers(0, 30, size=(2, 12))
        counts_u += 1
        ratio = counts_u / counts_u.sum() / np.maximum(counts_p / counts_p.sum(), 1e-9)
        curve = likelihood_curve(counts_p, counts_u)
        allowed = ratio.min() >= SHARES
        shares = counts_p / counts_p.sum(), counts_u / counts_u.sum()
        entropy = sum(np.sum(x[x > 0] * np.log(x[x > 0])) for x in shares)
        np.testing.assert_allclose(curve[allowed], entropy, atol=1e-12)
        beyond = np.diff(curve[~allowed])
        assert len(beyond) and np.all(beyond < 0)


def test_bins_with_one_sample_only_give_finite_numbers():
    curve = likelihood_curve(np.array([0, 7, 3]), np.array([6, 0, 4]))
    assert np.isfinite(curve).all()
    # Samples apart: no share of positives explains anything, and all of alpha is lost.
    apart = likelihood_curve(np.array([9, 0]), np.array([0, 9]))
    np.testing.assert_allclose(apart, np.log(1 - SHARES), atol=1e-12)


def test_curves_of_many_resamples_are_those_of_each():
    counts = np.random.default_rng(5).integers(0, 20, size=(2, 3, 9)) + 1
    together = likelihood_curve(*counts)
    for index in range(3):
        alone = likelihood_curve(counts[0, index], counts[1, index])
        np.testing.assert_allclose(together[index], alone, rtol=1e-12)
        limits = likelihood_limit(*counts)
        assert elbow(together, limits)[index] == elbow(alone[None], limits[index, None])[0]


@pytest.mark.parametrize("bend", [0.05, 0.3, 0.75, 0.93])
def test_the_elbow_is_where_two_lines_meet(bend):
    curve = -np.maximum(SHARES - bend, 0) - 0.001 * SHARES
    if bend > 0.05:  # where a line has enough points before it the median removes one of noise
        curve[round(100 * bend) // 2 - 1] += 0.002
    curves = np.stack([curve, 7 * curve + 3, np.zeros(99)])
    found = elbow(curves, curves.max(axis=1))
    # The median of 5 rounds the corner by up to 2 points.
    np.testing.assert_allclose(found, [bend, bend, 1], atol=0.021)


@pytest.mark.parametrize("rare", [0, 0.01, 0.02])
@pytest.mark.parametrize("shapes", [(30, 2), (10, 2)])
def test_few_positives_among_well_separated_classes_are_not_taken_for_all(shapes, rare):
    """A curve that falls from its first points on has no flat line before its bend."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        count = round(2000 * rare)
        p = rng.beta(*shapes, 100)
        u = np.concatenate([rng.beta(*shapes, count), rng.beta(*shapes[::-1], 2000 - count)])
        found = alphamax(p, u, num_resamples=20)
        assert found.low == 0 and 0.01 <= found.value <= 0.03 and found.high <= 0.03


def test_a_curve_comes_to_its_limit_at_0():
    rng = np.random.default_rng(6)
    counts_p, counts_u = rng.integers(0, 30, size=(2, 12))
    counts_u[:3] = 0  # positives there are lost at any share
    p, u = counts_p / counts_p.sum(), counts_u / counts_u.sum()
    seen = np.where(counts_u > 0, p, 0)
    # At 1e-6 by hand: the part of the share in bin i is 1e-6 of the share of P that U shows.
    share, part = 1e-6, 1e-6 * seen / seen.sum()
    of_p = np.sum(seen[seen > 0] * np.log(part[seen > 0] / share))
    of_u = np.sum(u[u > 0] * np.log((u - part + share * seen)[u > 0]))
    assert likelihood_limit(counts_p, counts_u) == pytest.approx(of_p + of_u, abs=1e-5)
    # Where U has 0.1 or more in every bin of P, all shares up to 0.1 are explained alike.
    counts_p, counts_u = np.array([6, 3, 1]), np.array([5, 4, 1])
    limit, curve = likelihood_limit(counts_p, counts_u), likelihood_curve(counts_p, counts_u)
    np.testing.assert_allclose(curve[:80], limit, atol=1e-12)


@pytest.mark.parametrize("prior", [0.05, 0.2, 0.4, 0.7, 0.9])
def test_exact_scores_of_separated_classes_give_the_prior(prior):
    values = [alphamax(*oracle_scores(seed, prior)).value for seed in range(4)]
    assert np.mean(values) == pytest.approx(prior, abs=0.05)


def test_overlapping_classes_are_overestimated_but_by_less_than_the_ratio_of_means():
    p, u = oracle_scores(1, 0.5, shift=2.0, num_p=4000, num_u=6000)
    assert 0.5 < alphamax(p, u).value < u.mean() / p.mean()


def test_intervals_hold_the_estimate_repeat_and_are_optional():
    p, u = oracle_scores(2, 0.4)
    found = alphamax(p, u, num_resamples=45, key=3)
    assert 0.2 < found.low <= found.value <= found.high < 0.6 and found.low < found.high
    assert alphamax(p, u, num_resamples=45, key=3) == found
    assert np.isnan(alphamax(p, u).high)


@pytest.mark.parametrize(
    ("answer", "ends"), [(0.03, (0, 0.03)), (0.04, (0.04, 0.04)), (0.96, (0.96, 1))]
)
def test_the_least_and_the_greatest_answer_stand_for_all_beyond(monkeypatch, answer, ends):
    bend = SHARES[np.abs(SHARES - answer).argmin()]
    module = sys.modules[alphamax.__module__]
    monkeypatch.setattr(module, "elbow", lambda curves, limits: np.full(len(curves), bend))
    found = alphamax(*oracle_scores(2, 0.4), num_resamples=20, key=0)
    assert found == pytest.approx((answer, *ends))


def test_scale_and_bins():
    p, u = oracle_scores(3, 0.4)
    expected = alphamax(p, u).value
    # Powers of two leave the bins, and even the largest numbers have a finite range.
    for scale in (2.0**-1000, 8.0, 2.0**1023):
        assert alphamax(p * scale, u * scale).value == expected
    assert alphamax(p * 2 - 1, u * 2 - 1).value == pytest.approx(expected, abs=0.03)
    for num_bins in (5, 50):
        assert alphamax(p, u, num_bins=num_bins).value == pytest.approx(0.4, abs=0.08)
    # Positives of one value, an outlier a thousand times away, two examples of each.
    for first, second in ((np.ones(9), u), (p, np.append(u, 1e3)), (p[:2], u[:2])):
        assert 0 <= alphamax(first, second, num_resamples=3).low <= 1


def test_data_that_say_nothing_give_anything_and_wrong_arguments_are_named():
    p, u = oracle_scores(4, 0.5, num_p=20, num_u=20)
    assert alphamax(p, p[::-1]) == alphamax(np.ones(3), np.ones(4)) == ANYTHING
    # The same histogram, though not the same number of points.
    assert alphamax(p, np.repeat(p, 3)) == ANYTHING
    for num_bins in (1, 2.5, True):
        with pytest.raises(ValueError, match=f"num_bins is {num_bins}; accepted"):
            alphamax(p, u, num_bins=num_bins)
    with pytest.raises(ValueError, match=r"scores_positive has shape \(20, 1\)"):
        alphamax(p[:, None], u)
    with pytest.raises(ValueError, match="scores_unlabeled has 1 examples .* not finite"):
        alphamax(p, [0.5, np.inf])
    with pytest.raises(ValueError, match="level is 1.5"):
        alphamax(p, u, level=1.5)
