"""Best bin and Elkan-Noto: hand-worked numbers, naive versions, closed forms and the bootstrap."""

import logging
import math

import jax
import numpy as np
import pytest
from scipy import special, stats

from pujax.priors import _best_bin, scores


def gaussians(seed, *, m=200, n=300, prior=0.5, shift=3.0):
    rng = np.random.default_rng(seed)
    is_positive = rng.random(n) < prior
    return rng.normal(shift, 1, m), rng.normal(shift * is_positive, 1)


def naive_best_bin(positive, unlabeled, delta=0.1, gamma=0.01):
    """One threshold after another, with the counts taken by looking at every score."""
    m, n = len(positive), len(unlabeled)
    root = math.log(4 / delta) / 2
    slack = (1 + gamma) * (math.sqrt(root / m) + math.sqrt(root / n))
    found = []
    for threshold in sorted(set(unlabeled), reverse=True)[:-1]:
        in_u = sum(score >= threshold for score in unlabeled) - 1
        in_p = sum(score >= threshold for score in positive)
        if in_u > 1 and in_p > 1:
            ratio = in_u * m / (in_p * n)
            found.append((ratio + slack / (in_p / m), ratio))
    return min(min(found)[1], 1.0) if found else None


@pytest.fixture
def warnings(monkeypatch):
    said = []
    monkeypatch.setattr(
        logging.Logger, "warning", lambda logger, text, *values: said.append(text % values)
    )
    return said


def test_best_bin_by_hand():
    # Thresholds and counts (U left of the threshold, P at or above it): 9: 0, 2; 8: 1, 4; 7: 2, 5;
    # 6: 3, 6; 0 is the lowest. With both counts above 1 the ratios are 2*6/(5*5) and 3*6/(6*5), and
    # all of P has the least slack: 0.6 + s against 0.48 + 1.2 s, with s above 1 for so few scores.
    positive, unlabeled = [9.5, 9, 8.5, 8, 7, 6], [9, 8, 7, 6, 0]
    run = scores.best_bin(positive, unlabeled, num_resamples=0)
    assert run.value == pytest.approx(0.6, rel=1e-15)
    assert math.isnan(run.low) and math.isnan(run.high)


def test_of_equal_scores_one_is_left_out_and_enough_scores_choose_the_purest_bin():
    # Every score a thousand times. Slack is 0.036 over the share of P, so the ratio decides: 0.699,
    # 0.560, 0.700 and 0.800 at 9, 8, 7 and 6.
    positive = np.repeat([9.5, 9, 8.5, 8, 8, 7, 6], 1000)
    unlabeled = np.repeat([9, 8, 7, 6, 0], 1000)
    value = scores.best_bin(positive, unlabeled, num_resamples=0).value
    assert value == pytest.approx(1999 / 5000 / (5000 / 7000), rel=1e-14)


@pytest.mark.parametrize("seed", range(40))
def test_best_bin_equals_a_naive_loop(seed):
    rng = np.random.default_rng(seed)
    positive, unlabeled = gaussians(seed, m=rng.integers(5, 80), n=rng.integers(5, 80), shift=1.5)
    if seed % 2:  # Ties, within a sample and across.
        positive, unlabeled = np.round(2 * positive), np.round(2 * unlabeled)
    settings = {"delta": 0.1, "gamma": 0.01} if seed % 3 else {"delta": 0.9, "gamma": 0.5}
    expected = naive_best_bin(positive, unlabeled, **settings)
    actual = scores.best_bin(positive, unlabeled, num_resamples=0, **settings)
    assert actual.value == pytest.approx(1.0 if expected is None else expected, rel=1e-13)


def test_only_the_order_of_scores_matters():
    positive, unlabeled = gaussians(0)
    first = scores.best_bin(positive, unlabeled, key=3)
    assert first == scores.best_bin(np.exp(positive), np.exp(unlabeled), key=3)
    assert first == scores.best_bin(positive[::-1], np.roll(unlabeled, 9), key=3)


def test_large_pure_bins_give_the_prior():
    positive, unlabeled = gaussians(1, m=200_000, n=200_000, prior=0.3, shift=4.0)
    estimate = scores.best_bin(positive, unlabeled)
    # The slack, 0.009, keeps the bin large; it holds a few negatives at most.
    assert estimate.value == pytest.approx(0.3, abs=0.006)
    assert estimate.low < 0.3 < estimate.high + 0.004 and estimate.high - estimate.low < 0.012


def test_resampled_counts_give_what_the_resampled_scores_give():
    positive, unlabeled = gaussians(2, m=60, n=90, shift=1.0)
    positive, unlabeled = np.round(4 * positive), np.round(4 * unlabeled)
    m, n = len(positive), len(unlabeled)
    slack = 1.01 * math.sqrt(math.log(40) / 2) * (m**-0.5 + n**-0.5)
    levels = np.unique(unlabeled)[:0:-1]
    rng = np.random.default_rng(0)
    cells, expected = [], []
    for _ in range(50):
        drawn = positive[rng.integers(m, size=m)], unlabeled[rng.integers(n, size=n)]
        expected.append(naive_best_bin(*drawn))
        above = [[(values >= level).sum() for level in levels] for values in drawn]
        cells.append([np.diff(a, prepend=0, append=s) for a, s in zip(above, (m, n), strict=True)])
    p_cells, u_cells = np.array([c[0] for c in cells]), np.array([c[1] for c in cells])
    actual = _best_bin.best_of_cells(u_cells, p_cells, slack=slack)
    np.testing.assert_allclose(actual, expected, rtol=1e-13)
    # And the cells that are drawn from are those of the data.
    counts = _best_bin.thresholds(positive, unlabeled)
    np.testing.assert_array_equal(counts.unlabeled, [(unlabeled >= x).sum() for x in levels])
    np.testing.assert_array_equal(counts.positive, [(positive >= x).sum() for x in levels])


def test_binned_bootstrap_agrees_with_one_of_all_scores(monkeypatch):
    positive, unlabeled = gaussians(3, m=3000, n=4000, prior=0.4)
    monkeypatch.setattr(_best_bin, "MAX_BINS", 500)
    binned = scores.best_bin(positive, unlabeled, num_resamples=500)
    monkeypatch.setattr(_best_bin, "MAX_BINS", 10**6)
    exact = scores.best_bin(positive, unlabeled, num_resamples=500)
    assert binned.value == exact.value
    # Quantiles of 500 resamples have an error of about a tenth of the spread, near 0.01.
    assert binned.low == pytest.approx(exact.low, abs=0.004)
    assert binned.high == pytest.approx(exact.high, abs=0.004)


def test_thinned_thresholds_share_out_a_small_prior_that_sits_on_top():
    rng = np.random.default_rng(4)
    positive = rng.normal(9, 1, 20_000)
    unlabeled = np.concatenate([rng.normal(9, 1, 100), rng.normal(0, 1, 99_900)])
    counts = _best_bin.thin(_best_bin.thresholds(positive, unlabeled))
    assert len(counts.unlabeled) <= _best_bin.MAX_BINS
    # Most of the 100 positives of U remain thresholds, 1 in 100 of the others does.
    assert 60 < (counts.unlabeled <= 100).sum() <= 100
    estimate = scores.best_bin(positive, unlabeled)
    assert 0.0008 < estimate.low <= estimate.value <= estimate.high < 0.0013


def test_intervals_narrow_with_data_and_with_the_level():
    widths = []
    for m in (200, 2000, 20_000):
        estimate = scores.best_bin(*gaussians(5, m=m, n=m, shift=4))
        assert estimate.low <= estimate.value <= estimate.high
        widths.append(estimate.high - estimate.low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2] > 0
    wide = scores.best_bin(*gaussians(5, shift=4), level=0.99)
    narrow = scores.best_bin(*gaussians(5, shift=4), level=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_no_threshold_is_an_interval_of_everything_and_not_zero(warnings):
    # No positive scores above any unlabeled one but the lowest.
    estimate = scores.best_bin([0.0, 0.1, 0.2], [5.0, 4.0, 3.0])
    assert estimate == (1.0, 0.0, 1.0)
    assert "no threshold" in warnings[0] and "3 positive, 3 unlabeled" in warnings[0]
    for values in ([0.3, 0.3, 0.3], [0.1, 0.2, 0.3, 0.4]):
        assert scores.best_bin(values, values[::-1]) == (1.0, 0.0, 1.0)
        assert scores.elkan_noto(values, values[::-1]) == (1.0, 0.0, 1.0)
    assert len(warnings) == 5


def test_elkan_noto_by_hand():
    positive, unlabeled = [0.9, 0.7], [0.8, 0.2, 0.2, 0.0]
    run = {
        name: scores.elkan_noto(positive, unlabeled, estimator=name, num_resamples=0).value
        for name in scores.ELKAN_NOTO_ESTIMATORS
    }
    assert run["e1"] == pytest.approx(2 * 0.2 / (0.8 * 4))  # c = 0.8.
    assert run["e2"] == pytest.approx(min(1, 2 * (1.2 / 2.8) / (1.6 / 2.8 * 4)))  # c = 1.6 / 2.8.
    assert run["e3"] == pytest.approx(2 * 0.1 / (0.9 * 4))  # c = 0.9.
    assert run["ratio"] == pytest.approx(0.3 / 0.8)


def test_the_exact_probability_of_separable_classes_gives_the_prior_by_every_form():
    # g is c on positives, 0 on negatives; 300 positives in U of 1000 beside 200 labelled.
    positive = np.full(200, 0.4)
    unlabeled = np.repeat([0.4, 0.0], [300, 700])
    for name in scores.ELKAN_NOTO_ESTIMATORS:
        # The balanced f is 1 / (1 + prior), here any constant: the ratio is free of it.
        estimate = scores.elkan_noto(positive, unlabeled, estimator=name)
        assert estimate.value == pytest.approx(0.3, rel=1e-13), name
        assert estimate.low <= 0.3 <= estimate.high


@pytest.mark.parametrize("shift, prior", [(2.0, 0.5), (3.0, 0.2)])
def test_overlap_raises_the_ratio_by_what_the_integral_says(shift, prior):
    def balanced(x):
        odds = prior + (1 - prior) * np.exp(-shift * (x - shift / 2))
        return 1 / (1 + odds)

    grid = np.linspace(-9, 9 + shift, 40_001)
    in_p, in_n = stats.norm.pdf(grid, shift), stats.norm.pdf(grid)
    mean_p = np.trapezoid(in_p * balanced(grid), grid)
    mean_u = np.trapezoid((prior * in_p + (1 - prior) * in_n) * balanced(grid), grid)
    positive, unlabeled = gaussians(6, m=100_000, n=100_000, prior=prior, shift=shift)
    estimate = scores.elkan_noto(balanced(positive), balanced(unlabeled), estimator="ratio")
    assert estimate.value == pytest.approx(mean_u / mean_p, rel=0.015)
    assert estimate.value > prior
    # e2 is the ratio again: its label frequency cancels the sizes.
    e2 = scores.elkan_noto(balanced(positive), balanced(unlabeled), estimator="e2", key=1)
    assert e2.value == pytest.approx(estimate.value, rel=1e-12)


def test_interval_of_the_ratio_is_that_of_the_delta_method():
    rng = np.random.default_rng(7)
    positive, unlabeled = rng.uniform(0.5, 1, 5000), rng.uniform(0, 0.6, 4000)
    estimate = scores.elkan_noto(positive, unlabeled, estimator="ratio", num_resamples=1000)
    relative = np.hypot(
        positive.std() / positive.mean() / 5000**0.5,
        unlabeled.std() / unlabeled.mean() / 4000**0.5,
    )
    half = stats.norm.ppf(0.95) * relative * estimate.value
    # The share of a quantile's error over 1000 resamples is near 4 percent.
    assert estimate.high - estimate.value == pytest.approx(half, rel=0.15)
    assert estimate.value - estimate.low == pytest.approx(half, rel=0.15)


@pytest.mark.parametrize("estimator", ["e1", "e3"])
def test_a_saturated_classifier_is_an_interval_of_everything(estimator, warnings):
    positive, unlabeled = [1.0, 1.0, 1.0], [0.2, 0.0, 0.1]
    estimate = scores.elkan_noto(positive, unlabeled, estimator=estimator)
    assert estimate == (0.0, 0.0, 1.0)
    none = scores.elkan_noto([0.0, 0.0], [0.2, 0.1], estimator="ratio")
    assert none == (1.0, 0.0, 1.0)
    assert len(warnings) == 2 and all("saturated" in text for text in warnings)


@pytest.mark.parametrize(
    "positive, unlabeled, estimator",
    [
        ([0, 0, 0, 1.0], [0, 0, 0, 0.5], "e1"),
        ([0, 0, 0, 1.0], [0, 0, 0, 0.5], "e2"),
        ([0, 0, 0, 1.0], [0, 0, 0, 0.5], "ratio"),
        ([0, 0.0], [0, 0.5], "e3"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_resamples_of_zeros_alone_leave_the_upper_end_open(positive, unlabeled, estimator):
    # A third of the resamples of P have no score above 0, many of U as well: 0 / 0 says nothing.
    for seed in range(5):
        found = scores.elkan_noto(positive, unlabeled, estimator=estimator, key=seed)
        assert 0 <= found.low <= found.value <= found.high == 1


def test_the_same_key_repeats_and_another_one_does_not():
    data = gaussians(8)
    for run in (scores.best_bin, lambda p, u, **k: scores.elkan_noto(*map(sigmoid, (p, u)), **k)):
        assert run(*data) == run(*data, key=0) == run(*data, key=None)
        with_key = run(*data, key=jax.random.key(5))
        assert with_key == run(*data, key=jax.random.key(5))
        assert with_key.value == run(*data).value and with_key[1:] != run(*data)[1:]


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def test_wrong_arguments_are_named():
    good = [0.2, 0.4, 0.9]
    for function in (scores.best_bin, scores.elkan_noto):
        with pytest.raises(ValueError, match=r"scores_positive has shape \(1,\)"):
            function([0.5], good)
        with pytest.raises(ValueError, match="scores_unlabeled has 1 examples .* not finite"):
            function(good, [0.1, math.nan])
        with pytest.raises(ValueError, match="num_resamples is -1"):
            function(good, good, num_resamples=-1)
        with pytest.raises(ValueError, match="level is 1"):
            function(good, good, level=1)
    with pytest.raises(ValueError, match="delta is 0; accepted"):
        scores.best_bin(good, good, delta=0)
    with pytest.raises(ValueError, match="gamma is nan; accepted"):
        scores.best_bin(good, good, gamma=math.nan)
    with pytest.raises(ValueError, match="estimator is 'e4'; accepted: 'e1', 'e2', 'e3', 'ratio'"):
        scores.elkan_noto(good, good, estimator="e4")
    with pytest.raises(ValueError, match="scores_unlabeled has values from -0.5 to 1.5; accepted"):
        scores.elkan_noto(good, [-0.5, 1.5])


def test_shares_above_one_on_every_resample_say_nothing(caplog):
    """Probabilities that are far too small give more positives than U has examples."""
    rng = np.random.default_rng(0)
    positive = special.expit(rng.normal(2, 1, 60) - 3)
    unlabeled = special.expit(np.r_[rng.normal(2, 1, 30), rng.normal(-1, 1, 70)] - 3)
    found = scores.elkan_noto(positive, unlabeled, num_resamples=200)
    assert (found.value, found.low, found.high) == (1, 0, 1)
    assert "more than 1 on every resample" in caplog.text


def test_the_lowest_drawn_score_of_u_is_no_threshold():
    """Above the first threshold are 4 of 6 of U and 2 of 5 of P, above the other all of both."""
    u_cells, p_cells = np.array([[4, 2, 0]]), np.array([[2, 3, 0]])
    assert _best_bin.best_of_cells(u_cells, p_cells, slack=0.0) == [1.0]
    # With one more score of U below, the second one is a threshold, and the better one.
    u_cells = np.array([[4, 2, 1]])
    expected = 5 * 5 / 5 / 7
    assert _best_bin.best_of_cells(u_cells, p_cells, slack=0.0) == [pytest.approx(expected)]
