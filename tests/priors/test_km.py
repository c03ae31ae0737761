"""KM1 and KM2: closed forms, the published procedure written naively, known priors, bad input."""

import collections
import math
import warnings

import numpy as np
import pytest

from pujax import priors
from pujax.priors import _hull_projection, _kernel_mean
from pujax.priors import base as base_lib
from tests.priors.naive_hull import distance_by_nnls

LOWEST = 7 / 512 / (1 + 7 / 512)  # the first of the 256 possible answers


def draws(seed=0, num_positive=40, num_unlabeled=60, dim=2, shift=3.0, prior=0.4):
    """Unit Gaussians; positives are shifted along two axes."""
    rng = np.random.default_rng(seed)
    offset = np.where(np.arange(dim) < 2, shift, 0)
    num_hidden = round(prior * num_unlabeled)
    positives = rng.normal(size=(num_positive, dim)) + offset
    unlabeled = rng.normal(size=(num_unlabeled, dim))
    unlabeled[:num_hidden] += offset
    return positives, unlabeled


def naive_kernel(positives, unlabeled):
    points = np.concatenate([unlabeled, positives])
    squares = ((points[:, None] - points[None]) ** 2).sum(-1)
    base = math.sqrt(np.median(squares))
    w = np.repeat([1 / len(unlabeled), -1 / len(positives)], [len(unlabeled), len(positives)])
    kernels = [np.exp(-squares / (2 * (base * 10**e) ** 2)) for e in (-1, -0.5, 0, 0.5, 1)]
    return max(((math.sqrt(w @ k @ w), k) for k in kernels), key=lambda pair: pair[0])


def naive_km(positives, unlabeled, epsilon=0.04, lambda_max=8.0):
    """The published procedure to the letter, every distance solved anew by another algorithm."""
    n, m = len(unlabeled), len(positives)
    gap, kernel = naive_kernel(positives, unlabeled)

    def distance(value):
        return distance_by_nnls(kernel, np.repeat([value / n, (1 - value) / m], [n, m]))

    second = 0.8 * (distance(1.05) - 0) / 0.05 + 0.2 * gap
    first = 1 / math.sqrt(min(n, m))
    first = second if first / gap > 0.9 else first
    estimates = []
    for threshold in (first, second):
        left, right = 1.0, lambda_max
        while right - left > epsilon:
            middle = (left + right) / 2
            slope = (distance(middle + epsilon / 2) - distance(middle)) / (epsilon / 2)
            left, right = (left, middle) if slope > threshold else (middle, right)
        estimates.append(1 - 2 / (left + right))
    return estimates


@pytest.mark.parametrize("dim, shift, prior", [(1, 3, 0.5), (2, 3, 0.4), (5, 1.5, 0.7)])
def test_both_equal_the_published_procedure(dim, shift, prior):
    positives, unlabeled = draws(seed=dim, dim=dim, shift=shift, prior=prior)
    both = [each.value for each in priors.km(positives, unlabeled)]
    assert both == pytest.approx(naive_km(positives, unlabeled), abs=1e-12)
    assert both == [priors.km1(positives, unlabeled).value, priors.km2(positives, unlabeled).value]


def test_options_reach_the_bisection():
    positives, unlabeled = draws(seed=3)
    options = {"epsilon": 0.01, "lambda_max": 3.0}
    both = [each.value for each in priors.km(positives, unlabeled, **options)]
    assert both == pytest.approx(naive_km(positives, unlabeled, **options), abs=1e-12)


def test_few_points_give_km1_the_threshold_of_km2():
    positives, unlabeled = draws(num_positive=8, num_unlabeled=30, shift=1.0)
    gap, _ = naive_kernel(positives, unlabeled)
    assert 1 / math.sqrt(8) > 0.9 * gap
    first, second = priors.km(positives, unlabeled)
    assert first == second != priors.km1(*draws(num_positive=80, num_unlabeled=300))
    assert first.value == pytest.approx(naive_km(positives, unlabeled)[0], abs=1e-12)


@pytest.mark.parametrize("dim", [1, 3, 20])
def test_the_curve_is_that_of_non_negative_least_squares(dim):
    positives, unlabeled = draws(dim=dim)
    _, kernel = naive_kernel(positives, unlabeled)
    lambdas = [1, 1.05, 1.6, 2, 5]
    expected = [
        distance_by_nnls(kernel, np.repeat([v / 60, (1 - v) / 40], [60, 40])) for v in lambdas
    ]
    curve = priors.distance_curve(positives, unlabeled, lambdas)
    assert curve.dtype == np.float64 and curve[0] == 0
    np.testing.assert_allclose(curve[1:], expected[1:], rtol=0, atol=2e-7)


def test_the_curve_of_two_places_is_a_line():
    # The hull is a segment and the mixture lies beyond its end, (lambda - 1) of its length away.
    # Half of all squared distances are 0 and half 1, and the narrowest width makes the two places
    # orthogonal: exp(-1 / (2 * .01 * .5)) = exp(-100).
    lambdas = np.array([1, 1.05, 2, 7.5])
    curve = priors.distance_curve(np.ones((3, 1)), np.zeros((3, 1)), lambdas)
    np.testing.assert_allclose(curve, (lambdas - 1) * math.sqrt(2), atol=1e-12)


def test_the_curve_is_convex_and_rises():
    lambdas = np.linspace(1, 8, 29)
    curve = priors.distance_curve(*draws(), lambdas)
    assert (np.diff(curve) > 0).all() and (np.diff(curve, 2) > -1e-8).all()


@pytest.fixture
def programmes(monkeypatch):
    """Calls so far of what solves the quadratic programmes, a list for each curve."""
    solved, original = collections.defaultdict(list), _hull_projection.Projector.project

    def project(self, target, **options):
        solved[id(self)].append(target)
        kept.append(self)  # no two have the same id
        return original(self, target, **options)

    kept = []
    monkeypatch.setattr(_hull_projection.Projector, "project", project)
    return solved


def test_points_that_coincide_are_no_division_by_zero():
    p, u = np.zeros([10, 1]), np.repeat([[0.0], [1.0]], 5, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for estimator in (priors.km1, priors.km2):
            assert estimator(p, u, num_resamples=5).value == pytest.approx(0.5, abs=0.02)


def test_what_is_decided_without_solving_is_decided_right(programmes):
    kernel = _kernel_mean.gaussian_kernel(*draws()[::-1])
    for threshold in (0.02, 0.1, 0.3):
        lazy, full = (_kernel_mean.Curve.of(kernel, 60) for _ in range(2))
        for value in np.random.default_rng(0).uniform(1, 7.9, 40):
            slope = (full.solve(value + 0.02) - full.solve(value)) / 0.02
            assert lazy.is_steeper(value, width=0.02, than=threshold) == (slope > threshold)
        num_solved = [len(programmes[id(curve._projector)]) for curve in (full, lazy)]
        assert num_solved[0] == 80 and num_solved[1] < 25


def test_half_of_the_published_programmes_suffice(programmes):
    for seed in range(3):
        priors.km(*draws(seed=seed, num_positive=80, num_unlabeled=120))
    # One for KM2's threshold, and 16 for each bisection.
    assert len(programmes) == 3 and max(map(len, programmes.values())) <= 33 / 2


@pytest.mark.parametrize(
    "dim, shift, prior, expected", [(2, 3, 0.4, (0.368, 0.386)), (10, 2.5, 0.3, (0.311, 0.319))]
)
def test_known_priors_come_out_as_measured_before(dim, shift, prior, expected):
    # Means over 8 draws with standard deviations up to .025; ours is over 4.
    found = [
        [each.value for each in priors.km(*draws(seed, 200, 300, dim, shift, prior))]
        for seed in range(4)
    ]
    np.testing.assert_allclose(np.mean(found, 0), expected, atol=0.03)


def test_answers_are_on_the_grid_and_end_where_it_ends():
    for prior in (0.2, 0.6):
        for each in priors.km(*draws(prior=prior)):
            place = (1 / (1 - each.value) - 1) * 256 / 7 - 0.5
            assert place == pytest.approx(round(place), abs=1e-9)
    assert priors.km1(*draws(shift=8, prior=0)).value == pytest.approx(LOWEST)
    many = draws(shift=8, prior=0.9, num_positive=200, num_unlabeled=200)
    assert priors.km1(*many).value == pytest.approx(1 - 1 / (8 - 7 / 512))
    assert 0.9 < priors.km1(*many, lambda_max=50).value < 0.95


def test_neither_place_nor_scale_of_the_features_matters():
    positives, unlabeled = draws(seed=1)
    expected = priors.distance_curve(positives, unlabeled, [1.5, 3])
    for scale, offset in ((1e-200, 0), (1e200, 0), (-3, 1e3)):
        moved = [scale * (points + offset) for points in (positives, unlabeled)]
        np.testing.assert_allclose(priors.distance_curve(*moved, [1.5, 3]), expected, rtol=1e-6)


def test_a_resample_is_that_of_the_points_drawn():
    positives, unlabeled = draws()
    kernel = _kernel_mean.gaussian_kernel(unlabeled, positives)
    curve = _kernel_mean.Curve.of_resample(kernel, 60, np.random.default_rng(7))
    rng = np.random.default_rng(7)
    rows = np.concatenate([rng.integers(60, size=60), 60 + rng.integers(40, size=40)])
    explicit = _kernel_mean.Curve.of(kernel[np.ix_(rows, rows)], 60)
    assert curve.gap == pytest.approx(explicit.gap, rel=1e-12)
    for value in (1.05, 1.5, 3.0):
        assert curve.solve(value) == pytest.approx(explicit.solve(value), abs=1e-7)


@pytest.mark.thorough
def test_intervals_hold_the_estimate_and_follow_the_key():
    options = {"num_resamples": 8, "level": 0.8}
    first = priors.km(*draws(), **options, key=3)
    assert first == priors.km(*draws(), **options, key=3)
    assert first != priors.km(*draws(), **options, key=4)
    plain = priors.km(*draws())
    for estimate, without in zip(first, plain, strict=True):
        assert estimate.value == without.value and math.isnan(without.low)
        assert 0.1 < estimate.low < estimate.high < 0.8
        assert estimate.low <= estimate.value <= estimate.high
    assert priors.km2(*draws(), **options, key=3) == first[1]


@pytest.mark.parametrize(("epsilon", "lambda_max"), [(0.04, 8.0), (0.5, 4.0), (0.04, 1.7)])
def test_the_interval_of_the_least_answer_is_the_bracket_that_it_stands_for(epsilon, lambda_max):
    rng = np.random.default_rng(0)
    options = {"epsilon": epsilon, "lambda_max": lambda_max, "num_resamples": 4}
    apart = rng.normal(size=(50, 1)), rng.normal(size=(200, 1)) + 50
    for found in priors.km(*apart, **options):
        width = (lambda_max - 1) / 2 ** math.ceil(math.log2((lambda_max - 1) / epsilon))
        assert found.value == pytest.approx(1 - 1 / (1 + width / 2), rel=1e-12)
        assert found.low == 0
        assert found.high == pytest.approx(1 - 1 / (1 + width), rel=1e-12)
    assert all(found.low > 0.1 for found in priors.km(*draws(), num_resamples=4))


def test_samples_that_say_nothing_give_every_prior():
    positives, _ = draws()
    for unlabeled in (positives[::-1], np.concatenate([positives, positives])):
        assert priors.km(positives, unlabeled) == (base_lib.ANYTHING,) * 2


def test_points_that_mostly_coincide_are_fine():
    # More than half of all pairs are at distance 0, where the published width is 0.
    positives = np.eye(3)[[0] * 39 + [1]]
    unlabeled = np.eye(3)[[0] * 45 + [2] * 15]
    first, second = priors.km(positives, unlabeled)
    assert 0.6 < second.value < 0.8 and 0 < first.value < 1


def test_wrong_arguments_are_named():
    positives, unlabeled = draws()
    with pytest.raises(ValueError, match="unlabeled has shape"):
        priors.km1(positives, unlabeled[:1])
    with pytest.raises(ValueError, match="positives has 1 examples with values that are not fin"):
        priors.km2(np.where(np.arange(40)[:, None] == 3, np.nan, positives), unlabeled)
    with pytest.raises(ValueError, match="one and the same point"):
        priors.km(np.ones((4, 2)), np.ones((5, 2)))
    with pytest.raises(ValueError, match="epsilon is 0"):
        priors.km1(positives, unlabeled, epsilon=0)
    with pytest.raises(ValueError, match="epsilon is 7"):
        priors.km2(positives, unlabeled, epsilon=7)
    with pytest.raises(ValueError, match="lambda_max is 1"):
        priors.km(positives, unlabeled, lambda_max=1)
    with pytest.raises(ValueError, match="num_resamples is -1"):
        priors.km(positives, unlabeled, num_resamples=-1)
    for lambdas in ([0.5], [1, math.nan], 2.0):
        with pytest.raises(ValueError, match="lambdas is"):
            priors.distance_curve(positives, unlabeled, lambdas)


@pytest.mark.parametrize("seed", [200, 201, 202])
def test_the_interval_is_no_narrower_than_the_steps_of_the_answers(seed):
    """Classes apart: all resamples give the same answer, and the truth is beside it."""
    rng = np.random.default_rng(seed)
    p = rng.normal(4, 1, (150, 2))
    u = np.concatenate([rng.normal(4, 1, (45, 2)), rng.normal(-4, 1, (455, 2))])
    found = priors.km2(p, u, key=seed, num_resamples=10)
    assert found.low < 0.09 < found.high < 0.15
