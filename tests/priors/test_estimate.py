"""Every name gives the method it names, on features prepared as that method needs them."""

import numpy as np
import pytest

from pujax import priors
from pujax.priors import PriorEstimate
from pujax.priors.estimate import (
    affordable_resamples,
    check_name,
    from_scores,
    is_balanced,
    needs_scores,
    reduced,
)

TABLES = priors.estimate.__globals__


def samples(prior=0.4, *, m=200, n=300, dimensions=2, shift=3.0, seed=0):
    """Unit Gaussians, `shift` apart along the first two axes."""
    rng = np.random.default_rng(seed)
    num_positive = round(prior * n)
    p, hidden, negative = (
        rng.normal(0, 1, [count, dimensions]) for count in (m, num_positive, n - num_positive)
    )
    for sample in (p, hidden):
        sample[:, :2] += shift
    return p, np.concatenate([hidden, negative])


@pytest.mark.thorough
@pytest.mark.parametrize("method", [name for name in priors.NAMES if name != "elkan_noto_e3"])
def test_every_method_finds_the_prior_of_well_separated_classes(method):
    found = priors.estimate(*samples(shift=4), method=method, num_resamples=0)
    assert found.value == pytest.approx(0.4, abs=0.1)


def test_the_largest_probability_is_pulled_down_by_noise_as_documented():
    assert priors.estimate(*samples(shift=2), method="elkan_noto_e3").value < 0.4


def test_the_default_is_best_bin_on_held_out_scores():
    p, u = samples()
    held = priors.held_out_scores(p, u, key=3)
    expected = priors.best_bin(held.scores_positive, held.scores_unlabeled, key=3)
    assert priors.estimate(p, u, key=3) == expected
    assert expected.low < expected.value < expected.high


def test_methods_on_the_probability_of_a_label_get_it_unbalanced():
    p, u = samples(shift=2)
    for method, balanced in (("elkan_noto_e1", False), ("ratio", True)):
        assert is_balanced(method) == balanced and needs_scores(method)
        held = priors.held_out_scores(p, u, balanced=balanced, key=0)
        expected = priors.elkan_noto(
            held.scores_positive,
            held.scores_unlabeled,
            estimator=method.removeprefix("elkan_noto_"),
            num_resamples=0,
        )
        assert priors.estimate(p, u, method=method, num_resamples=0) == expected


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["km2", "pen_l1", "pearson"])
def test_distances_do_not_depend_on_the_units_of_a_feature(method):
    p, u = samples()
    scale, shift = np.array([1e4, 1e-3]), np.array([7, -1])
    options = {"method": method, "num_resamples": 0}
    moved = priors.estimate(p * scale + shift, u * scale + shift, **options)
    assert moved.value == pytest.approx(priors.estimate(p, u, **options).value, abs=1e-6)


def test_features_are_reduced_to_what_holds_most_of_the_variance():
    rng = np.random.default_rng(0)
    factors = rng.normal(size=[300, 3])
    both = factors @ rng.normal(size=[3, 80]) + 0.01 * rng.normal(size=[300, 80])
    p, u = reduced(both[:100], both[100:], key=0)
    assert p.shape == (100, 50) and u.shape == (200, 50)
    standard = (both - both.mean(0)) / both.std(0)
    kept = np.sum(np.concatenate([p, u])[:, :3] ** 2) / np.sum(standard**2)
    assert kept > 0.99
    few = reduced(both[:100, :5], both[100:, :5])
    np.testing.assert_allclose(np.concatenate(few).std(0), 1)
    constant = np.concatenate([both[:, :2], np.ones([300, 1])], axis=1)
    np.testing.assert_array_equal(reduced(constant[:100], constant[100:])[0][:, 2], 0)


@pytest.fixture
def kernel_calls(monkeypatch):
    """Stands in for KM2 and notes what it is asked."""
    calls = []

    def fake(p, u, *, key, num_resamples=0, level):
        calls.append((len(p), len(u), num_resamples, key))
        assert len(np.unique(p[:, 0])) == len(p)
        value = 0.1 * len(calls)
        return PriorEstimate(value, value - 0.05, value + 0.2)

    monkeypatch.setitem(TABLES["_ON_FEATURES"], "km2", fake)
    return calls


def test_km_of_many_points_is_the_mean_over_subsamples(kernel_calls):
    p, u = samples(m=2500, n=3900)
    found = priors.estimate(p, u, method="km2")
    assert found.value == pytest.approx(0.15) and np.isnan(found.low)
    assert [call[:3] for call in kernel_calls] == [(2000, 2000, 0)] * 2
    assert kernel_calls[0][3] != kernel_calls[1][3]
    kernel_calls.clear()
    priors.estimate(p, np.tile(u, [3, 1]), method="km2")
    assert len(kernel_calls) == 3  # and no more


def test_the_interval_of_km_on_many_points_is_that_of_few(kernel_calls):
    p, u = samples(m=500, n=1500)
    found = priors.estimate(p, u, method="km2", num_resamples=7)
    assert [call[:3] for call in kernel_calls] == [(500, 1500, 0), (250, 750, 7)]
    # The interval of the second call, 0.15 to 0.4 around 0.2, moved to the value of the first.
    assert found == pytest.approx((0.1, 0.05, 0.3))
    kernel_calls.clear()
    priors.estimate(p[:400], u[:600], method="km2", num_resamples=7)
    assert [call[:3] for call in kernel_calls] == [(400, 600, 7)]


def test_resamples_are_the_methods_own_unless_given():
    p, u = samples(m=60, n=80)
    assert np.isnan(priors.estimate(p, u, method="km2").low)
    assert np.isfinite(priors.estimate(p, u, method="km2", num_resamples=3).low)
    assert np.isfinite(priors.estimate(p, u, method="best_bin").low)
    assert np.isnan(priors.estimate(p, u, method="best_bin", num_resamples=0).low)
    assert affordable_resamples("km1", 100) == 20 and affordable_resamples("ratio", 100) == 100
    assert [affordable_resamples("out_of_bag", n) for n in (0, 5, 50, 200)] == [0, 5, 20, 40]


def test_the_same_points_allow_anything_for_every_method():
    p = np.random.default_rng(0).normal(size=[20, 2])
    for method in priors.NAMES:
        assert priors.estimate(p, p[::-1], method=method) == (1, 0, 1)


@pytest.mark.parametrize("method", priors.NAMES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, u: (p[:1], u), "positives has shape"),
        (lambda p, u: (p * np.nan, u), "not finite"),
        (lambda p, u: (p * 0, u * 0), "one and the same point"),
        (lambda p, u: (p[:, :1], u), "unlabeled has 2 features"),
    ],
)
def test_bad_samples_are_named_by_every_method(method, change, message):
    with pytest.raises(ValueError, match=message):
        priors.estimate(*change(*samples(m=20, n=20)), method=method)


def test_bad_settings_are_named():
    p, u = samples(m=20, n=20)
    with pytest.raises(ValueError, match="method is 'bbe'; accepted: 'km1'"):
        priors.estimate(p, u, method="bbe")
    with pytest.raises(ValueError, match="data.prior_method is 'x'"):
        check_name("x", "data.prior_method")
    with pytest.raises(ValueError, match="num_resamples is -1"):
        priors.estimate(p, u, num_resamples=-1)
    with pytest.raises(ValueError, match="scorer is given; accepted: None with method='km1'"):
        priors.estimate(p, u, method="km1", scorer=object())
    with pytest.raises(ValueError, match="method is 'km1'; accepted: 'elkan_noto_e1'"):
        from_scores([0.1, 0.2], [0.1, 0.3], method="km1")
