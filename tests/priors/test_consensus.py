"""The rule of `priors.consensus`: what agrees, what is used where estimators do not."""

import importlib
import math

import numpy as np
import pytest

from pujax import priors
from pujax.data import sources
from pujax.priors import PriorEstimate
from pujax.priors.base import ANYTHING
from pujax.priors.consensus import is_informative, warning
from tests.conftest import real_data_folder

AGREE = {
    "best_bin": PriorEstimate(0.40, 0.30, 0.50),
    "tice": PriorEstimate(0.35, 0.25, 0.45),
    "ratio": PriorEstimate(0.48, 0.44, 0.60),
}
APART = AGREE | {"ratio": PriorEstimate(0.48, 0.46, 0.60)}
SILENT = (
    PriorEstimate(0.0, 0.0, 0.1),
    PriorEstimate(1.0, 0.9, 1.0),
    PriorEstimate(0.01),
    PriorEstimate(math.nan, 0.0, 0.1),
    PriorEstimate(0.01, 0.0, 1.0),
    ANYTHING,
)


def test_where_one_share_lies_in_all_intervals_best_bin_is_used():
    found = priors.consensus(AGREE)
    assert found == (AGREE["best_bin"], "best_bin", True, AGREE)
    assert warning(found) == ""


def test_where_none_does_the_smallest_is_used_and_the_warning_names_all():
    found = priors.consensus(APART)
    assert (found.estimate, found.method, found.agree) == (APART["tice"], "tice", False)
    text = warning(found)
    for part in ("best_bin 0.4 [0.3, 0.5]", "tice 0.35 [0.25, 0.45]", "ratio 0.48 [0.46, 0.6]"):
        assert part in text
    assert "tice, is used" in text and "\n" not in text


def test_out_of_bag_is_used_whatever_the_others_say():
    outside = PriorEstimate(0.7, 0.65, 0.75)
    for known, agree in ((AGREE, True), (APART, False)):
        inside = PriorEstimate(0.46, 0.45, 0.48)
        assert priors.consensus(known | {"out_of_bag": inside})[:3] == (inside, "out_of_bag", agree)
    found = priors.consensus(AGREE | {"out_of_bag": outside})
    assert found[:3] == (outside, "out_of_bag", False)
    assert "the nearest in tests, out_of_bag, is used" in warning(found)
    for silent in SILENT:
        assert priors.consensus(APART | {"out_of_bag": silent}).method == "tice"


def test_intervals_that_touch_agree():
    touching = {"a": PriorEstimate(0.2, 0.1, 0.3), "b": PriorEstimate(0.4, 0.3, 0.5)}
    assert priors.consensus(touching).agree
    apart = touching | {"b": PriorEstimate(0.4, np.nextafter(0.3, 1), 0.5)}
    assert not priors.consensus(apart).agree


def test_intervals_that_overlap_in_pairs_only_disagree():
    pairs = {
        "a": PriorEstimate(0.2, 0.1, 0.3),
        "b": PriorEstimate(0.4, 0.25, 0.5),
        "c": PriorEstimate(0.5, 0.4, 0.6),
    }
    assert not priors.consensus(pairs).agree


@pytest.mark.parametrize("silent", SILENT)
def test_an_estimate_without_information_is_listed_and_counts_for_nothing(silent):
    assert not is_informative(silent)
    for known in (AGREE, APART):
        more = priors.consensus(known | {"pearson": silent})
        assert more[:3] == priors.consensus(known)[:3]
        assert list(more.estimates) == [*known, "pearson"]
    instead = priors.consensus(AGREE | {"best_bin": silent})
    assert instead.method == "tice" and instead.agree


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.9), (0.1, 1.0)])
def test_an_interval_that_ends_at_0_or_at_1_says_something_by_its_other_end(low, high):
    known = PriorEstimate(0.3, low, high)
    assert is_informative(known)
    assert priors.consensus(AGREE | {"pearson": known}).method == "best_bin"
    lower = priors.consensus(APART | {"pearson": known})
    assert (lower.estimate, lower.method, lower.agree) == (known, "pearson", False)


@pytest.mark.parametrize("absent", AGREE)
def test_one_may_be_missing(absent):
    rest = {name: found for name, found in AGREE.items() if name != absent}
    found = priors.consensus(rest)
    assert found.agree and found.method == ("tice" if absent == "best_bin" else "best_bin")
    alone = priors.consensus({absent: AGREE[absent]})
    assert alone[:3] == (AGREE[absent], absent, True)


@pytest.mark.parametrize("known", [{}, {"best_bin": ANYTHING, "tice": PriorEstimate(0.3)}])
def test_nothing_known_is_refused(known):
    with pytest.raises(ValueError, match="none of which carries information; accepted"):
        priors.consensus(known)


def random_estimates(rng, names):
    values = np.sort(rng.uniform(0.01, 0.99, [len(names), 3]), axis=1)
    return {
        name: PriorEstimate(*map(float, (x[1], x[0], x[2])))
        for name, x in zip(names, values, strict=True)
    }


def test_the_rule_is_that_of_a_naive_search_over_shares():
    rng, seen = np.random.default_rng(0), set()
    for _ in range(200):
        known = random_estimates(rng, ("best_bin", "ratio", "tice"))
        found = priors.consensus(known)
        ends = [end for x in known.values() for end in (x.low, x.high)]
        agree = any(all(x.low <= end <= x.high for x in known.values()) for end in ends)
        smallest = sorted((x.value, name) for name, x in known.items())[0][1]
        assert found.agree == agree and found.method == ("best_bin" if agree else smallest)
        assert found.estimate == known[found.method]
        seen.add(agree)
    assert seen == {True, False}


def test_a_far_larger_estimate_never_makes_the_result_larger():
    rng, changed = np.random.default_rng(1), 0
    for _ in range(200):
        known = random_estimates(rng, ("best_bin", "ratio", "tice"))
        before = priors.consensus(known).estimate.value
        more = known | {"pearson": PriorEstimate(0.997, 0.996, 0.998)}
        found = priors.consensus(more)
        assert found.estimate.value <= before and not found.agree
        changed += found.estimate.value < before
    assert changed


def clouds(distance, *, share, seed=0, labeled=200, unlabeled=2000):
    """P and U of unit Gaussians in two dimensions."""
    rng, hidden = np.random.default_rng(seed), round(share * unlabeled)
    positive = rng.normal(0, 1, [labeled + hidden, 2]) + [distance, 0]
    negative = rng.normal(0, 1, [unlabeled - hidden, 2])
    return positive[:labeled], np.concatenate([positive[labeled:], negative])


def test_a_share_of_a_twentieth_is_found_where_the_classes_are_apart():
    found = priors.consensus(priors.estimates_of(*clouds(9, share=0.05), num_resamples=50))
    assert set(found.estimates) == set(priors.BOUNDS)
    assert found.estimate.low <= 0.05 <= found.estimate.high
    assert found.estimate.value == pytest.approx(0.05, abs=0.02)


@pytest.mark.thorough
def test_where_the_classes_overlap_estimators_disagree_and_the_result_is_nearer_to_the_share():
    known = priors.estimates_of(*clouds(1.5, share=0.05), num_resamples=20)
    found = priors.consensus(known)
    assert not found.agree and all(f"{name} 0." in warning(found) for name in priors.BOUNDS)
    assert found.method == "out_of_bag"
    assert 0.05 < found.estimate.value <= known["best_bin"].value


@pytest.mark.thorough
def test_scores_of_ones_own_are_what_the_methods_on_scores_see(monkeypatch):
    few = {"out_of_bag": 2, "tice": 3}  # resamples of what is expensive, at most
    # `priors.consensus` is the function of that name.
    monkeypatch.setattr(importlib.import_module("pujax.priors.consensus"), "_RESAMPLES", few)
    p, u = clouds(3, share=0.3, labeled=60, unlabeled=400)
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.5, 1, 100), rng.uniform(0, 1, 900)
    own = priors.estimates_of(p, u, scores=scores, num_resamples=6, key=3)
    assert own["best_bin"] == priors.best_bin(*scores, num_resamples=6, key=3)
    expected = priors.elkan_noto(*scores, estimator="ratio", num_resamples=6, key=3)
    assert own["ratio"] == expected
    assert own["tice"] == priors.estimate(p, u, method="tice", num_resamples=3, key=3)
    plain = priors.estimates_of(p, u, num_resamples=6, key=3)
    assert plain["best_bin"] == priors.estimate(p, u, num_resamples=6, key=3)


@pytest.mark.parametrize(
    ("asked", "expensive"),
    [(6, {}), (30, {"tice": 20}), (200, {"out_of_bag": 40, "tice": 20})],
)
def test_every_method_gets_level_and_key_and_an_expensive_one_fewer_resamples(
    monkeypatch, asked, expensive
):
    given = {}

    def estimated(method, samples, scores, num_resamples, options):
        given[method] = num_resamples, options
        return PriorEstimate(0.3, 0.2, 0.4)

    module = importlib.import_module("pujax.priors.consensus")
    monkeypatch.setattr(module, "_estimated", estimated)
    scores = np.linspace(0, 1, 5), np.linspace(0, 1, 9)
    samples = np.arange(5.0)[:, None], np.arange(9.0)[:, None]
    priors.estimates_of(*samples, scores=scores, num_resamples=asked, level=0.8, key=3)
    options = {"level": 0.8, "key": 3}
    assert given == {name: (expensive.get(name, asked), options) for name in priors.BOUNDS}


def test_a_method_that_fails_is_left_out(monkeypatch):
    p, u = clouds(3, share=0.3, labeled=20, unlabeled=60)
    scores = np.full(5, 2.0), np.linspace(0, 1, 9)  # no probabilities
    known = priors.estimates_of(p, u, scores=scores, num_resamples=5)
    assert "ratio" not in known and "best_bin" in known
    with pytest.raises(ValueError, match="num_resamples is 0; accepted"):
        priors.estimates_of(p, u, num_resamples=0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"positives": np.ones([5, 2])}, "unlabeled has 1 features; accepted: 2, as positives has"),
        ({"positives": ["a", "b"]}, "positives has dtype .*; accepted: real numbers"),
        ({"unlabeled": np.full([9, 1], np.nan)}, "unlabeled has 9 examples with values that are"),
        ({"scores": (np.ones(5),)}, "scores is .*; accepted: a pair, of positives and of unlabele"),
        ({"scores": (np.ones(5), np.full(9, np.nan))}, "scores_unlabeled has 9 examples with val"),
        ({"level": "high"}, "level is 'high'; accepted: a number between 0 and 1"),
        ({"key": "a"}, "key is 'a'; accepted: a whole number from 0"),
    ],
)
def test_what_no_method_could_work_on_is_refused_by_name(change, said):
    known = {"positives": np.arange(5.0)[:, None], "unlabeled": np.arange(9.0)[:, None]}
    known |= {"scores": (np.linspace(0, 1, 5), np.linspace(0, 1, 9)), "num_resamples": 5}
    with pytest.raises(ValueError, match=said):
        priors.estimates_of(**(known | change))


@pytest.mark.parametrize("known", [None, [1], {"a": 0.3}, {"a": (0.3, 0.2, 0.4)}])
def test_what_is_no_estimate_is_refused(known):
    with pytest.raises(ValueError, match="^estimates is .*; accepted: PriorEstimates by the names"):
        priors.consensus(known)


@pytest.mark.slow
def test_a_small_share_of_mushrooms_is_not_overestimated_more_than_by_best_bin():
    data = sources.load("mushrooms", directory=real_data_folder("libsvm"))
    rows = data.train_inputs.reshape(len(data.train_inputs), -1).astype(np.float64)
    errors = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        positive = rng.permutation(rows[data.train_labels == 1])[:400]
        negative = rng.permutation(rows[data.train_labels != 1])[:3760]
        u = np.concatenate([positive[160:], negative])
        found = priors.consensus(priors.estimates_of(positive[:160], u, key=seed))
        errors.append([found.estimate.value - 0.06, found.estimates["best_bin"].value - 0.06])
    rule, alone = np.abs(errors).mean(0)
    assert rule <= alone + 0.01 and rule < 0.1
