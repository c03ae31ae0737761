"""TIcE: a naive tree over sets, closed forms for boxes, the specification's cases, bad input."""

import importlib
import logging
import math

import jax
import numpy as np
import pytest

from pujax.priors import conversions
from pujax.priors.tice import tice, tice_label_frequency

MODULE = importlib.import_module("pujax.priors.tice")  # `priors.tice` is the function


def gaussians(seed, *, m=200, n=300, dims=2, informative=2, shift=3.0, prior=0.4):
    rng = np.random.default_rng(seed)
    center = np.where(np.arange(dims) < informative, shift, 0.0)
    is_positive = rng.random(n) < prior
    positives = rng.normal(size=(m, dims)) + center
    return positives, rng.normal(size=(n, dims)) + is_positive[:, None] * center


def naive_frequency(positives, unlabeled, folds, delta=None, cuts=(0.25, 0.5, 0.75), splits=500):
    """The method over sets of row numbers, every count taken anew, the queue a plain list."""
    data = np.concatenate([positives, unlabeled]).astype(float)
    span = data.max(0) - data.min(0)
    data = (data - data.min(0)) / np.where(span > 0, span, 1)
    labeled = set(range(len(positives)))
    edges = [-math.inf, *cuts, math.inf]
    cells = [
        [set(np.flatnonzero((low <= column) & (column < high)).tolist())
         for low, high in zip(edges[:-1], edges[1:], strict=True)]
        for column in data.T
    ]  # fmt: skip

    def one_tree(tree, estimation, c):
        chance = delta or max(0.025, 1 / (1 + 0.004 * len(estimation)))
        spread = c * (1 - c) * (1 - chance) / chance

        def bound(rows):
            return len(rows & labeled) / len(rows) - math.sqrt(spread / len(rows))

        def urgency(node):
            # Of equally promising subsets the one whose rows are later, as bit sets are ordered.
            return -bound(node[0]), -len(node[0] & labeled), [-row for row in sorted(node[0])]

        best = len(estimation & labeled) / len(estimation)
        nodes, least = [(tree, estimation, set(range(len(cells))))], 1
        for _ in range(splits):
            if not nodes:
                break
            nodes.sort(key=urgency)
            tree_rows, rows, features = nodes.pop(0)
            rated, useless = [], set()
            for feature in features:
                if max(len(cell & rows & labeled) for cell in cells[feature]) < least:
                    useless.add(feature)
                    continue
                parts = [cell & tree_rows for cell in cells[feature]]
                rated.append((max(len(p & labeled) / (len(p) + 5) for p in parts), feature))
            top = max((score for score, _ in rated), default=0)
            if top == 0:
                continue
            feature = next(feature for score, feature in rated if score == top)
            parts = [(cell & tree_rows, cell & rows) for cell in cells[feature]]
            if sum(bool(part) for _, part in parts) == 1:
                continue
            best = max([best, *(bound(part) for _, part in parts if len(part) >= 10)])
            least = spread / (1 - best) ** 2
            parent = len(tree_rows & labeled)
            nodes += [
                (tree_part, part, features - {feature} - useless)
                for tree_part, part in parts
                if len(part & labeled) > least
                and len(tree_part) > 10
                and parent not in (0, len(tree_part))
            ]
        return best

    c = 0.5
    for _ in range(2):
        sets = [set(np.flatnonzero(folds == fold).tolist()) for fold in np.unique(folds)]
        everything = set(range(len(data)))
        c = np.mean([one_tree(tree, everything - tree, c) for tree in sets])
    return c


@pytest.mark.parametrize("seed", range(24))
def test_frequency_equals_a_naive_tree_over_sets(seed):
    rng = np.random.default_rng(seed)
    m, n = int(rng.choice([20, 60, 150])), int(rng.choice([60, 200, 300]))
    p, u = gaussians(seed, m=m, n=n, dims=int(rng.choice([1, 3, 12])), shift=2.0)
    if seed % 3 == 1:  # Binary features: many ties of scores and of bounds.
        p, u = p > 1, u > 1
    if seed % 3 == 2:
        p, u = np.round(p), np.round(u)
    folds = rng.integers(5, size=m + n)
    options = [{}, {"delta": 0.2}, {"cuts": np.linspace(0, 1, 9)[1:-1].tolist()}][seed % 4 % 3]
    actual = tice_label_frequency(p, u, folds=folds, **options)
    assert actual == pytest.approx(naive_frequency(p, u, folds, **options), rel=1e-12)


def test_few_splits_are_the_first_of_many():
    p, u = gaussians(0, dims=6, shift=1.5)
    folds = np.arange(500) % 5
    values = []
    for count in (1, 2, 5, 500):
        values.append(tice_label_frequency(p, u, folds=folds, max_splits=count))
        expected = naive_frequency(p, u, folds, splits=count)
        assert values[-1] == pytest.approx(expected, rel=1e-12)
    assert values[0] < values[-1]


def test_a_box_of_positives_is_bounded_in_closed_form():
    # One binary feature; in each of 5 folds 40 labelled and 60 unlabeled with 1, 100 with 0.
    positives, unlabeled = np.ones(200), np.repeat([1.0, 0.0], [300, 500])
    folds = np.arange(1000) % 5
    frequency = 0.5
    for _ in range(2):
        delta = max(0.025, 1 / (1 + 0.004 * 800))
        variance = frequency * (1 - frequency) * (1 - delta) / delta
        # The four other folds bound: 160 labelled among 400 positives.
        frequency = 160 / 400 - math.sqrt(variance / 400)
    run = {"folds": folds, "num_resamples": 0}
    assert tice_label_frequency(positives, unlabeled, folds=folds) == pytest.approx(frequency)
    expected = 200 * (1 - frequency) / (frequency * 800)
    assert tice(positives, unlabeled, **run).value == pytest.approx(expected, rel=1e-12)
    # A bound with more confidence is lower, and the prior above it higher.
    timid = tice(positives, unlabeled, delta=0.05, **run).value
    assert timid > tice(positives, unlabeled, delta=0.5, **run).value > 300 / 800


def test_the_bound_tightens_towards_the_truth_with_data():
    errors = []
    for size in (1, 10, 100):
        positives = np.ones(200 * size)
        unlabeled = np.repeat([1.0, 0.0], [300 * size, 500 * size])
        errors.append(tice(positives, unlabeled).value - 300 / 800)
    # Delta stops at 0.025 and the bound's root term falls by root 10 from there.
    assert errors[0] > errors[1] > errors[2] > 0
    assert errors[1] / errors[2] == pytest.approx(10**0.5, rel=0.1)


@pytest.mark.parametrize(
    "settings, published, spread",
    [
        ({}, 0.423, 0.041),
        ({"shift": 2.0, "prior": 0.5}, 0.567, 0.056),
        ({"shift": 2.5, "prior": 0.15}, 0.169, 0.037),
        ({"shift": 2.5, "prior": 0.8}, 0.775, 0.126),
        ({"shift": 2.5, "prior": 0.3, "dims": 10}, 0.313, 0.028),
        ({"dims": 1, "prior": 0.5}, 0.624, 0.037),
    ],
)
def test_gaussian_cases_come_out_as_specified(settings, published, spread):
    values = [tice(*gaussians(seed, **settings), key=seed).value for seed in range(8)]
    # Two means of 8 draws differ by half a spread or less, two times out of three.
    assert np.mean(values) == pytest.approx(published, abs=1.5 * spread)


def test_an_oblique_boundary_overestimates():
    rng = np.random.default_rng(0)
    points = rng.random((6000, 2))
    is_positive = points.sum(1) > 1.2
    positives, rest = points[is_positive][:600], points[~is_positive]
    unlabeled = np.concatenate([rest, points[is_positive][600:]])
    truth = 1 - len(rest) / len(unlabeled)
    # Along an axis through the same share of the points, the same method is close.
    straight = points[:, 0] > np.quantile(points[:, 0], 1 - is_positive.mean())
    aligned = tice(
        points[straight][:600], np.concatenate([points[straight][600:], points[~straight]])
    )
    oblique = tice(positives, unlabeled)
    assert oblique.value > aligned.value > truth - 0.05


def test_units_do_not_matter_and_images_are_flattened():
    p, u = gaussians(1, dims=4)
    first = tice(p, u).value
    # A power of two scales without rounding.
    assert tice(64 * p, 64 * u).value == first
    assert tice(p.reshape(-1, 2, 2), u.reshape(-1, 2, 2)).value == first


def test_one_outlier_puts_all_others_into_one_cell_as_documented():
    p, u = gaussians(0)
    first = tice(p, u).value
    far = np.insert(u, 0, 1e3, axis=0)
    assert first < 0.5 < tice(p, far).value
    # Clipped to the range of the others it is one point more.
    assert tice(p, np.clip(far, u.min(0), u.max(0))).value == pytest.approx(first, abs=0.1)


def test_folds_may_have_any_numbers_and_random_ones_follow_the_key():
    p, u = gaussians(2)
    folds = np.random.default_rng(0).integers(5, size=500)
    assert tice(p, u, folds=folds) == tice(p, u, folds=7 * folds - 3)
    assert tice(p, u).value == tice(p, u, key=0).value == tice(p, u, key=None).value
    values = {tice(p, u, key=jax.random.key(seed)).value for seed in (1, 1, 2, 3)}
    assert len(values) == 3
    again = tice_label_frequency(p, u, key=0)
    to_prior = conversions.unlabeled_prior_from_label_frequency
    assert tice(p, u, key=0).value == to_prior(again, n_p=200, n_u=300)


def test_bootstrap_interval_surrounds_the_estimate_and_repeats():
    p, u = gaussians(3, dims=3)
    estimate = tice(p, u, num_resamples=20, key=4)
    assert estimate.low < estimate.value < estimate.high
    assert estimate.value == tice(p, u, key=4).value
    assert estimate == tice(p, u, num_resamples=20, key=4)
    assert math.isnan(tice(p, u).low) and math.isnan(tice(p, u).high)


def test_constant_features_and_few_points_do_no_harm(monkeypatch):
    said = []
    monkeypatch.setattr(
        logging.Logger, "warning", lambda logger, text, *values: said.append(text % values)
    )
    p, u = gaussians(4)
    with_constant = tice(np.insert(p, 2, 7.0, axis=1), np.insert(u, 2, 7.0, axis=1)).value
    assert with_constant == pytest.approx(tice(p, u).value, abs=0.05)
    assert not said
    # No subset of ten points: nothing is bounded, which is no prior of 0 and none of 1 either.
    few = tice(np.arange(3.0), np.arange(4.0) + 0.5, num_resamples=3)
    assert few == (1.0, 0.0, 1.0) and "every prior is possible" in said[-1]
    assert tice_label_frequency(np.arange(3.0), np.arange(4.0) + 0.5) == 0
    assert tice(p, p[::-1]) == (1.0, 0.0, 1.0) and "same points" in said[-1]
    # Everything outside of one fold is labelled: a bound of exactly 1 must not divide by 0.
    folds = np.repeat([0, 1, 0], [20, 20, 2])
    lone = tice(np.arange(40.0), np.array([50.0, 60.0]), folds=folds)
    assert 0 <= lone.value <= 1


def test_wrong_arguments_are_named():
    p, u = gaussians(0, m=20, n=30)
    bad = [
        ({"folds": np.zeros(50, int)}, "folds has shape .50,., dtype int64 and 1 different"),
        ({"folds": np.arange(49)}, r"folds has shape \(49,\).*accepted: integers \[50\]"),
        ({"folds": np.linspace(0, 1, 50)}, "dtype float64"),
        ({"num_folds": 1}, "num_folds is 1; accepted: a whole number from 2"),
        ({"delta": 0}, "delta is 0; accepted"),
        ({"delta": math.nan}, "delta is nan"),
        ({"max_splits": 0}, "max_splits is 0"),
        ({"cuts": (0.5, 0.25)}, r"cuts is \(0.5, 0.25\); accepted"),
        ({"cuts": ()}, r"cuts is \(\)"),
        ({"cuts": (0.0, 0.5)}, "rising numbers between 0 and 1"),
    ]
    for options, message in bad:
        for function in (tice, tice_label_frequency):
            with pytest.raises(ValueError, match=message):
                function(p, u, **options)
    with pytest.raises(ValueError, match="level is 0"):
        tice(p, u, level=0)
    with pytest.raises(ValueError, match="positives has shape .*at least 2 examples"):
        tice(p[:1], u)
    with pytest.raises(ValueError, match="unlabeled has 3 features"):
        tice(p, np.zeros((5, 3)))


@pytest.mark.parametrize("delta", [None, 0.2])
def test_a_tree_grows_on_its_fold_and_is_judged_by_all_others(monkeypatch, delta):
    """The variance of a bound is that of a frequency of one half, and then of the first result."""
    folds = np.arange(30) % 3 == 0
    bounds, given = iter([0.2, 0.4, 0.6, 0.7]), []

    def best_bound(table, tree, estimation, *, variance, max_splits):
        np.testing.assert_array_equal(tree, np.flatnonzero(folds == len(given) % 2))
        np.testing.assert_array_equal(estimation, np.flatnonzero(folds != len(given) % 2))
        given.append((len(estimation), variance))
        return next(bounds)

    monkeypatch.setattr(MODULE._tree, "best_bound", best_bound)
    rows = np.arange(30.0)[:, None]
    found = tice_label_frequency(rows[:10], rows[10:], folds=folds.astype(int), delta=delta)
    assert found == pytest.approx((0.6 + 0.7) / 2)
    for (size, variance), frequency in zip(given, (0.5, 0.5, 0.3, 0.3), strict=True):
        d = delta or 1 / (1 + 0.004 * size)
        assert variance == pytest.approx(frequency * (1 - frequency) * (1 - d) / d)
    assert [size for size, _ in given] == [10, 20, 10, 20]


def test_copies_of_a_point_stay_in_its_fold_and_no_frequency_is_the_largest_prior(monkeypatch):
    folds, given = np.random.default_rng(0).integers(0, 3, 30), []

    def frequency(table, folds, delta, max_splits):
        given.append((table, folds))
        return 0.5 if len(given) == 1 else 0.0

    def bootstrap(on_resample, p_rows, u_rows, *, num_resamples, rng):
        assert on_resample(p_rows[[7, 0, 7]], u_rows[[19, 3, 3, 3]]) == 1.0
        return [0.4, 0.5]

    monkeypatch.setattr(MODULE, "_frequency", frequency)
    monkeypatch.setattr(MODULE.base, "bootstrap", bootstrap)
    rows = np.arange(30.0)[:, None]
    tice(rows[:10], rows[10:], folds=folds, num_resamples=2)
    (whole, _), (table, of_drawn) = given
    drawn = [0, 7, 7, 13, 13, 13, 29]
    np.testing.assert_array_equal(of_drawn, folds[drawn])
    np.testing.assert_array_equal(table.cells, whole.cells[:, drawn])
    np.testing.assert_array_equal(table.labeled, whole.labeled[drawn])
