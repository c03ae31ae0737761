"""Estimates without negatives: by hand, against closed forms, simulations and a plain bootstrap."""

import collections
import math

import numpy as np
import pytest
from scipy import stats

from pujax import metrics
from pujax.metrics import _resampling
from tests.real_scores import on_real_sets, scored

# Three of four positives and three of ten rows of U are above 0.
P = np.array([3.0, 2.0, 1.0, -1.0])
U = np.array([2.5, 1.5, 0.5, -0.5, -1.5, -2.0, -2.5, -3.0, -3.5, -4.0])
PRIOR = 0.3
NAMES = (
    *("recall", "flagged_share", "auc_pu", "auc", "precision", "precision_top_2"),
    *("lee_liu", "accuracy", "f1"),
)
NEED_PRIOR = {"auc", "precision", "precision_top_2", "accuracy", "f1"}


def estimates(p=P, u=U, **options):
    options = {"prior": PRIOR, "setting": "two_sample", "top": (2,), "num_resamples": 50} | options
    return {x.name: x for x in metrics.unlabeled_estimates(p, u, **options)}


def values(*args, **options):
    return {name: x.value for name, x in estimates(*args, **options).items()}


def ends(*args, **options):
    return {name: (x.low, x.high) for name, x in estimates(*args, **options).items()}


def test_two_samples_worked_by_hand():
    found = values()
    assert tuple(found) == NAMES
    assert found["recall"] == 0.75
    assert found["flagged_share"] == pytest.approx(0.3)
    # Rows of U below 3, 2, 1 and -1: 10 + 9 + 8 + 6 of 40 pairs.
    assert found["auc_pu"] == pytest.approx(33 / 40)
    assert found["auc"] == pytest.approx((33 / 40 - 0.15) / 0.7)
    # 0.3 * 0.75 = 0.225 of U are positives that are flagged, of 0.3 that are flagged.
    assert found["precision"] == pytest.approx(0.225 / 0.3)
    # Above or at 1.5 are half of P: 0.15 of U are positives, of 0.2.
    assert found["precision_top_2"] == pytest.approx(0.15 / 0.2)
    assert found["lee_liu"] == pytest.approx(0.75**2 / 0.3)
    # Wrong: 0.075 positives that are missed, 0.075 negatives that are flagged.
    assert found["accuracy"] == pytest.approx(0.85)
    assert found["f1"] == pytest.approx(2 * 0.225 / (0.3 + 0.3))


def test_in_one_sample_the_population_is_p_and_u_together():
    one, two = values(setting="one_sample"), values()
    # 4 + 3 of 14 rows are positive, 3 + 3 flagged; 0.75 * 7 of these are right.
    flagged, hits, positive = 6 / 14, 0.75 * 7 / 14, 7 / 14
    assert one["lee_liu"] == pytest.approx(0.75**2 / flagged)
    assert one["accuracy"] == pytest.approx(1 - (positive - hits) - (flagged - hits))
    assert one["f1"] == pytest.approx(2 * hits / (positive + flagged))
    of_u = set(NAMES) - {"lee_liu", "accuracy", "f1"}
    assert {name: one[name] for name in of_u} == {name: two[name] for name in of_u}


def test_the_share_that_is_labelled_may_differ_from_that_of_the_scores():
    # 4 of 40 rows are labelled, 0.3 of the other 36 are positive.
    found, two = values(setting="one_sample", labeled_share=0.1), values()
    positive, flagged = (4 + 10.8) / 40, (3 + 10.8) / 40
    hits = 0.75 * positive
    assert found["lee_liu"] == pytest.approx(0.75**2 / flagged)
    assert found["accuracy"] == pytest.approx(1 - (positive - hits) - (flagged - hits))
    assert values(setting="one_sample", labeled_share=4 / 14) == values(setting="one_sample")
    assert values(labeled_share=0.1) == two
    with pytest.raises(ValueError, match="labeled_share is 1"):
        values(setting="one_sample", labeled_share=1)


def test_every_number_is_that_of_labels_that_fit_the_scores():
    # Positives of U have the scores of P, each five times: estimates are then exact.
    rng = np.random.default_rng(0)
    p, negative = rng.integers(-3, 6, 40) / 2, rng.integers(-6, 3, 300) / 2
    u = np.concatenate([np.repeat(p, 5), negative])
    labels = np.repeat([1, 0], [200, 300])
    found = values(p, u, prior=0.4, threshold=0.0, top=(150,))
    flagged = u > 0
    assert found["auc"] == pytest.approx(metrics.auc(u, labels), abs=1e-12)
    assert found["accuracy"] == pytest.approx(metrics.accuracy(u, labels), abs=1e-12)
    assert found["f1"] == pytest.approx(metrics.f1(u, labels), abs=1e-12)
    assert found["precision"] == pytest.approx(labels[flagged].mean(), abs=1e-12)
    tops = []
    for _ in range(4000):  # ties broken at random
        order = np.lexsort([rng.random(len(u)), -u])
        tops.append(labels[order[:150]].mean())
    assert found["precision_top_150"] == pytest.approx(np.mean(tops), abs=0.005)

    pool, pool_labels = np.concatenate([p, u]), np.concatenate([np.ones(40, int), labels])
    one = values(p, u, prior=0.4, setting="one_sample")
    assert one["accuracy"] == pytest.approx(metrics.accuracy(pool, pool_labels), abs=1e-12)
    assert one["f1"] == pytest.approx(metrics.f1(pool, pool_labels), abs=1e-12)


def test_auc_from_auc_pu_inverts_the_mixture():
    auc = np.array([0.2, 0.5, 0.9, 1.0])
    np.testing.assert_allclose(metrics.auc_from_auc_pu(0.7 * auc + 0.15, 0.3), auc)
    assert metrics.auc_from_auc_pu(0.99, 0.3) == 1
    assert metrics.auc_from_auc_pu(0.05, 0.3) == 0
    with pytest.raises(ValueError, match="prior is 0"):
        metrics.auc_from_auc_pu(0.7, 0)
    for bad in ("a", ["a"], 1j, [[1.0], [0.5, 0.5]]):
        with pytest.raises(ValueError, match="auc_pu is .*; accepted: numbers"):
            metrics.auc_from_auc_pu(bad, 0.3)


def test_rates_stay_rates_where_noise_leads_out():
    # Half of U are said to be positive, but only a tenth is flagged while all of P is.
    found = values([1.0, 2.0], np.r_[0.5, -np.ones(9)], prior=0.5)
    assert found["precision"] == 1 and found["auc"] == 1
    assert found["accuracy"] == pytest.approx(1) and found["f1"] == pytest.approx(1)
    # All of U is flagged and none of P.
    found = values([-1.0, -2.0], np.ones(10), prior=0.5)
    assert found["precision"] == 0 and found["auc"] == 0 and found["f1"] == 0
    assert found["accuracy"] == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_no_rate_is_above_1_or_below_0_by_rounding(sign):
    for count in range(2, 40):  # n shares of 1 / n add up to more than 1 for many n
        high = np.arange(count) + 100.0
        known = {"prior": 0.5, "setting": "two_sample", "top": (), "num_resamples": 3}
        for x in metrics.unlabeled_estimates(sign * high, high - 50 * sign, **known):
            if x.name != "lee_liu" and not np.isnan(x.value):
                assert 0 <= x.low <= x.value <= x.high <= 1, x


def test_a_row_is_flagged_above_the_threshold_and_not_at_it():
    assert values(threshold=1.0)["recall"] == 0.5
    assert values(threshold=np.nextafter(1.0, 0))["recall"] == 0.75
    assert values(threshold=0.5)["flagged_share"] == pytest.approx(0.2)
    below_all, above_all = values(threshold=-1e9), values(threshold=1e9)
    assert below_all["recall"] == below_all["flagged_share"] == 1
    assert above_all["recall"] == above_all["flagged_share"] == 0


def test_a_monotone_transform_changes_nothing():
    def transform(scores):
        return np.sinh(scores) * 5 + 1

    rng = np.random.default_rng(1)
    p, u = rng.normal(1, 1, 30).round(1), rng.normal(-1, 1, 90).round(1)
    before = estimates(p, u, threshold=0.25)
    after = estimates(transform(p), transform(u), threshold=transform(0.25))
    for name in NAMES:
        np.testing.assert_allclose(before[name][1:4], after[name][1:4], rtol=1e-12)


def test_the_order_of_rows_changes_nothing():
    first, second = estimates(), estimates(P[::-1], U[::-1])
    assert first == second


@pytest.mark.parametrize("prior", [None, math.nan])
def test_without_a_prior_only_what_needs_none_is_known(prior):
    found, known = estimates(prior=prior), estimates()
    for name in NAMES:
        if name in NEED_PRIOR:
            assert np.isnan(found[name][1:4]).all(), name
        else:
            assert found[name][1:4] == known[name][1:4]
        assert "nan" not in found[name].assumption
    assert "unknown" in found["precision"].assumption


def test_a_prior_interval_without_a_prior_is_left_aside():
    assert np.isnan(values(prior=None, prior_interval=(0.2, 0.4))["auc"])
    whole = ends(prior_interval=(math.nan, math.nan))
    assert whole == ends()


def test_without_a_flagged_row_precision_is_unknown():
    found = estimates(threshold=9.0)
    for name in ("precision", "lee_liu"):
        assert np.isnan(found[name][1:4]).all(), name
    assert found["recall"].value == 0 and found["f1"].value == 0
    assert found["recall"].high > 0
    # A flagged positive of P does not help where none of U is.
    assert np.isnan(values(threshold=2.7)["precision"])
    assert values(threshold=2.7, setting="one_sample")["lee_liu"] == pytest.approx(0.0625 * 14)


@pytest.mark.parametrize("bad", [[], [1.0, math.nan]])
def test_without_a_sample_its_numbers_are_unknown(bad):
    found = estimates(p=bad)
    assert {name for name in NAMES if not np.isnan(found[name].value)} == {"flagged_share"}
    assert {name for name in NAMES if not np.isnan(found[name].high)} == {"flagged_share"}
    found = estimates(u=bad)
    assert {name for name in NAMES if not np.isnan(found[name].value)} == {"recall"}


def test_the_top_of_more_rows_than_there_are_is_unknown():
    found = estimates(top=(10, 11))
    assert found["precision_top_10"].value == pytest.approx(PRIOR)
    assert np.isnan(found["precision_top_11"][1:4]).all()


def test_infinite_scores_are_the_ends_of_the_order():
    p, u = np.where(P == 3, np.inf, P), np.where(U == -4, -np.inf, U)
    first, second = estimates(), estimates(p, u)
    for name in NAMES:
        np.testing.assert_allclose(first[name][1:4], second[name][1:4])


def test_every_assumption_is_one_sentence_with_its_numbers():
    found = estimates(prior_interval=(0.25, 0.5), setting="one_sample")
    for x in found.values():
        assert x.assumption.endswith(".") and x.assumption.count(". ") == 0
        assert "{" not in x.assumption
    assert "30 % (25 to 50 %)" in found["auc"].assumption
    assert "2 rows" in found["precision_top_2"].assumption
    assert "P and U together" in found["f1"].assumption
    assert "U is a sample" in estimates()["f1"].assumption


def test_no_resamples_give_no_intervals():
    for x in estimates(num_resamples=0).values():
        assert math.isfinite(x.value) and math.isnan(x.low) and math.isnan(x.high)


def test_intervals_hold_the_value_and_grow_with_the_level():
    narrow, wide = estimates(level=0.5), estimates(level=0.95)
    for name in NAMES:
        assert wide[name].low <= narrow[name].low <= narrow[name].value
        assert narrow[name].value <= narrow[name].high <= wide[name].high


def test_one_seed_gives_one_result_and_another_seed_another():
    assert estimates(seed=3) == estimates(seed=3)
    assert ends(seed=3)["auc"] != ends(seed=4)["auc"]


def test_an_interval_of_the_prior_gives_the_union_of_intervals():
    single = [ends(prior=prior) for prior in np.linspace(0.2, 0.6, 9)]
    whole = ends(prior_interval=(0.2, 0.6))
    for name in NAMES:
        low, high = np.array([x[name] for x in single]).T
        assert whole[name][0] == pytest.approx(min(*low, ends()[name][0]))
        assert whole[name][1] == pytest.approx(max(*high, ends()[name][1]))
    assert whole["recall"] == ends()["recall"]
    assert values(prior_interval=(0.2, 0.6)) == values()


def test_the_share_above_a_threshold_has_the_interval_of_jeffreys():
    p, u = np.r_[np.ones(19), -1], np.r_[np.ones(30), -np.ones(970)]
    found = ends(p, u, num_resamples=20000)
    np.testing.assert_allclose(found["recall"], stats.beta(19.5, 1.5).ppf([0.05, 0.95]), atol=0.004)
    expected = stats.beta(30.5, 970.5).ppf([0.05, 0.95])
    np.testing.assert_allclose(found["flagged_share"], expected, atol=0.0005)
    everything = ends(np.ones(10), u, num_resamples=20000)["recall"]
    assert everything[0] == pytest.approx(stats.beta(10.5, 0.5).ppf(0.05), abs=0.005)
    assert everything[1] == 1


def test_intervals_are_those_of_a_plain_bootstrap_row_by_row():
    rng = np.random.default_rng(0)
    p, u = (
        rng.normal(0.7, 1, 60),
        np.concatenate([rng.normal(0.7, 1, 60), rng.normal(-0.7, 1, 140)]),
    )
    all_p, all_u = np.r_[p, -99, 99], np.r_[u, -99, 99]
    cut = np.sort(u)[-40]
    drawn = collections.defaultdict(list)
    for _ in range(4000):
        a = rng.gamma(np.r_[np.ones(60), 0.5, 0.5])
        b = rng.gamma(np.r_[np.ones(200), 0.5, 0.5])
        a, b = a / a.sum(), b / b.sum()
        recall, flagged = a[all_p > 0].sum(), b[all_u > 0].sum()
        auc_pu = a @ ((all_p[:, None] > all_u) + 0.5 * (all_p[:, None] == all_u)) @ b
        top = min(1, PRIOR * a[all_p >= cut].sum() / b[all_u >= cut].sum())
        population = (60 + 200 * PRIOR) / 260
        share = (60 * recall + 200 * flagged) / 260
        drawn["recall"].append(recall)
        drawn["auc_pu"].append(auc_pu)
        drawn["auc"].append((auc_pu - PRIOR / 2) / (1 - PRIOR))
        drawn["precision"].append(min(1, PRIOR * recall / flagged))
        drawn["precision_top_40"].append(rng.binomial(40, top) / 40)
        drawn["lee_liu"].append(recall**2 / share)
        drawn["accuracy"].append(1 - population - share + 2 * population * recall)
        drawn["f1"].append(2 * population * recall / (population + share))
    found = ends(p, u, setting="one_sample", top=(40,), num_resamples=4000)
    for name, resampled in drawn.items():
        expected = np.quantile(resampled, [0.05, 0.95])
        width = expected[1] - expected[0]
        np.testing.assert_allclose(found[name], expected, atol=0.06 * width, err_msg=name)


def test_resamples_in_parts_are_as_good_as_all_at_once(monkeypatch):
    whole = ends(num_resamples=3000)
    monkeypatch.setattr(_resampling, "_WEIGHTS_AT_ONCE", 1000)
    parts = ends(num_resamples=3000)
    for name in NAMES:
        np.testing.assert_allclose(parts[name], whole[name], atol=0.03 * max(1, whole[name][1]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": 0.0}, r"prior is 0\.0; accepted: a number in \(0"),
        ({"prior": 1.0}, "prior is 1"),
        ({"prior_interval": (0.4, 0.5)}, "prior_interval is"),
        ({"prior_interval": (0.0, 0.5)}, "prior_interval is"),
        ({"prior_interval": (0.1,)}, "prior_interval is"),
        ({"prior_interval": 0.4}, "prior_interval is 0.4; accepted: two numbers, or None"),
        ({"prior_interval": ("a", "b")}, "prior_interval is .*; accepted: two numbers, or None"),
        ({"prior": "x"}, r"prior is 'x'; accepted: a number in \(0, 1\)"),
        ({"threshold": None}, "threshold is None; accepted: a number"),
        ({"top": 5}, "top is 5; accepted: numbers of rows"),
        ({"setting": "both"}, "setting is 'both'; accepted: 'one_sample', 'two_sample'"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"top": (0,)}, "top is 0"),
        ({"top": (2.5,)}, r"top is 2\.5"),
        ({"num_resamples": -1}, "num_resamples is -1"),
        ({"level": 1.0}, "level is 1"),
        ({"p": np.ones([2, 2])}, "positive_scores has shape"),
        ({"u": 1.0}, "unlabeled_scores has shape"),
        ({"p": ["a"]}, r"positive_scores is \['a'\]; accepted: \[n\], one number each"),
        ({"u": [1j]}, r"unlabeled_scores is \[1j\]; accepted: \[n\], one number each"),
        ({"prior": np.array([0.3, 0.4])}, r"prior is array\(\[0.3, 0.4\]\); accepted: a number in"),
        ({"prior": ["a"]}, r"prior is \['a'\]; accepted: a number in \(0, 1\)"),
        ({"seed": -1}, "seed is -1; accepted: an integer from 0"),
        ({"seed": "a"}, "seed is 'a'; accepted: an integer from 0"),
        ({"seed": 1.5}, "seed is 1.5; accepted: an integer from 0"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        estimates(**options)


def rates(recall, false, prior, population):
    share = population * recall + (1 - population) * false
    return {
        "recall": recall,
        "precision": prior * recall / (prior * recall + (1 - prior) * false),
        "lee_liu": recall**2 / share,
        "accuracy": population * recall + (1 - population) * (1 - false),
        "f1": 2 * population * recall / (population + share),
    }


@pytest.mark.thorough
@pytest.mark.parametrize(("offset", "m"), [(2.0, 20), (1.0, 20), (0.5, 150)])
@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_intervals_hold_the_truth_of_two_gaussians(offset, m, setting):
    n, prior, trials = 500, 0.3, 300
    pooled = m / (m + n) if setting == "one_sample" else 0
    truth = rates(
        stats.norm.cdf(offset), stats.norm.cdf(-offset), prior, pooled + (1 - pooled) * prior
    )
    truth["auc"] = stats.norm.cdf(offset * 2**0.5)
    inside = collections.defaultdict(int)
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        p, labels = rng.normal(offset, 1, m), rng.random(n) < prior
        u = rng.normal(np.where(labels, offset, -offset))
        truth["precision_top_50"] = labels[np.argsort(-u)[:50]].mean()
        found = ends(p, u, prior=prior, setting=setting, top=(50,), num_resamples=300, seed=seed)
        for name, value in truth.items():
            inside[name] += found[name][0] <= value <= found[name][1]
    # Three standard errors of 300 trials at 90 %, and three points for small samples.
    for name, count in inside.items():
        assert count / trials > 0.9 - 3 * (0.09 / trials) ** 0.5 - 0.03, name
    assert inside["recall"] < trials * 0.97


@pytest.mark.slow
@on_real_sets
def test_intervals_hold_the_truth_of_real_sets(name, folder):
    inside = collections.defaultdict(list)
    for seed in range(8):
        data = scored(name, folder, seed)
        tested, truth = data.scores[data.rest], data.is_positive[data.rest]
        prior, flagged = data.is_positive[data.unlabeled].mean(), tested > 0
        expected = rates(flagged[truth].mean(), flagged[~truth].mean(), prior, truth.mean())
        expected["auc"] = metrics.auc(tested, truth)
        held_u = data.scores[data.held_unlabeled]
        highest = data.held_unlabeled[np.argsort(-held_u, kind="stable")[:100]]
        expected["precision_top_100"] = data.is_positive[highest].mean()
        found = ends(
            data.scores[data.held_positive],
            held_u,
            prior=prior,
            setting="one_sample",
            top=(100,),
            num_resamples=300,
        )
        for key, value in expected.items():
            inside[key].append(found[key][0] <= value <= found[key][1])
    # At 90 %, four or fewer of eight are one case in 200 for each number.
    for key, hits in inside.items():
        assert sum(hits) >= 5, key
    # Were the numbers of one split all one number, this would be 1.5 standard errors below 90 %.
    assert np.mean(list(inside.values())) > 0.9 - 1.5 * (0.09 / 8) ** 0.5


def test_the_largest_prior_leaves_no_estimate_outside_of_zero_and_one():
    # 0.3 of U above 0 and three of four positives; 2 (1 - 33 / 40).
    assert metrics.largest_prior(P, U) == pytest.approx(min(0.3 / 0.75, 0.35))
    assert metrics.largest_prior(P, U, threshold=2.7) == 0  # P above it, and nothing of U
    for share, is_clipped in ((0.34, False), (0.36, True)):
        found = values(prior=share)
        unclipped = (33 / 40 - share / 2) / (1 - share)
        assert (unclipped > 1) == is_clipped == (found["auc"] == 1)
    assert math.isnan(metrics.largest_prior([], U)) and metrics.largest_prior(P, P) == 1
    with pytest.raises(ValueError, match="threshold is nan"):
        metrics.largest_prior(P, U, threshold=math.nan)
    rng = np.random.default_rng(0)
    labels = rng.random(20_000) < 0.15
    u = rng.normal(1.5 * labels, 1)
    bound = metrics.largest_prior(rng.normal(1.5, 1, 5000), u)
    assert 0.15 < bound < 0.45


@pytest.mark.parametrize(("num_positives", "power"), [(5, 0.7), (10, 0.95), (50, 0.95)])
def test_the_largest_prior_at_a_level_is_exceeded_by_the_true_one_as_rarely_as_it_says(
    num_positives, power
):
    # A classifier nearly without error, so that the bound is near the true share.
    rng = np.random.default_rng(num_positives)
    exceeded, of_the_sample, twice = [], [], []
    for _ in range(300):
        p = rng.normal(2.5, 1, num_positives)
        u = rng.normal(np.where(rng.random(200) < 0.2, 2.5, -2.5), 1)
        bound = metrics.largest_prior(p, u, level=0.95, num_resamples=200)
        exceeded.append(bound < 0.2)
        twice.append(bound < 0.4)
        of_the_sample.append(metrics.largest_prior(p, u) < 0.2)
    # Five percent and two standard errors of 300 draws.
    assert np.mean(exceeded) <= 0.05 + 2 * (0.05 * 0.95 / 300) ** 0.5
    assert np.mean(of_the_sample) > 0.15
    assert np.mean(twice) > power  # a share that is twice the true one is found out


def test_the_largest_prior_at_a_level_is_the_smaller_quantile_of_its_two_bounds():
    rng = np.random.default_rng(3)
    p, u = rng.normal(1, 1, 12), rng.normal(-0.5, 1, 60)
    recall = rng.beta((p > 0).sum() + 0.5, (p <= 0).sum() + 0.5, 40_000)
    flagged = rng.beta((u > 0).sum() + 0.5, (u <= 0).sum() + 0.5, 40_000)
    by_threshold = np.quantile(np.minimum(flagged / recall, 1), 0.95)
    # The lower end of the area at 90 % is its 5 % quantile.
    expected = min(by_threshold, 2 * (1 - ends(p, u, num_resamples=20_000)["auc_pu"][0]))
    found = metrics.largest_prior(p, u, level=0.9, num_resamples=20_000)
    assert found == pytest.approx(expected, abs=0.01)
    assert found > metrics.largest_prior(p, u)
    assert metrics.largest_prior(p, u, level=0.9, seed=1) != found
    assert math.isnan(metrics.largest_prior([], u, level=0.9))
    named = ({"level": 1}, "level"), ({"level": 0.9, "num_resamples": 0}, "num_res")
    for bad, name in (*named, ({"seed": -1}, "seed is -1"), ({"seed": 1.5}, "seed is 1.5")):
        with pytest.raises(ValueError, match=name):
            metrics.largest_prior(p, u, **bad)


def test_an_estimate_that_is_clipped_says_what_its_formula_gives():
    def sentences(prior):
        found = estimates(prior=prior, num_resamples=0)
        return {name: x.assumption.partition(" Clipped: ")[2] for name, x in found.items()}

    # 0.3 of U above 0, three of four positives, an area of 33 / 40.
    clipped = sentences(0.5)
    assert clipped["auc"] == f"with that prior this would be {(33 / 40 - 0.25) / 0.5:.3g}."
    assert clipped["precision"] == f"with that prior this would be {0.5 * 0.75 / 0.3:.3g}."
    rate = (0.3 - 0.5 * 0.75) / 0.5
    for name in ("accuracy", "f1"):
        assert clipped[name] == f"with that prior the false positive rate would be {rate:.3g}."
    assert not any(clipped[name] for name in ("recall", "flagged_share", "auc_pu", "lee_liu"))
    assert not any(sentences(0.3).values()) and not any(sentences(None).values())
    # At its bound to rounding, nothing is clipped: no negative is above 0.
    assert not sentences(0.3 / 0.75 - 1e-12)["precision"]
