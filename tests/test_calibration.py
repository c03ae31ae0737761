"""Calibration without negatives: by hand, against known posteriors, invariances and bad input."""

import json

import numpy as np
import pytest
import threadpoolctl
from scipy import optimize, special
from sklearn import isotonic, linear_model

from pujax import calibration
from tests.real_scores import on_real_sets, scored

KINDS = calibration.KINDS


def fit(p, u, *, prior=0.4, setting="two_sample", kind="platt", **options):
    return calibration.fit(p, u, prior=prior, setting=setting, kind=kind, **options)


def gaussians(m, n, *, prior=0.4, seed=0, offset=1.0):
    """Scores at +offset and -offset whose log-odds are `2 offset s + log(prior / (1 - prior))`."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < prior
    return rng.normal(offset, 1, m), rng.normal(np.where(labels, offset, -offset)), labels


def posterior(scores, *, prior=0.4, offset=1.0):
    return special.expit(2 * offset * scores + special.logit(prior))


def test_isotonic_worked_by_hand():
    # Blocks from below: 4 of U; 1 P and 3 U at 1; 1 P and 1 U at 2; 2 P at 3.
    p, u = [1.0, 2, 3, 3], [0.0, 0, 0, 0, 1, 1, 1, 2]
    found = fit(p, u, prior=0.25, kind="isotonic")
    # prior * (share of P) / (share of U): 0.25 * (1 / 4) / (3 / 8) and so on; no U at 3, so 1.
    expected = [0, 1 / 6, 1 / 2, 1]
    np.testing.assert_allclose(calibration.probabilities(found, [0.0, 1, 2, 3]), expected)
    assert np.mean(calibration.probabilities(found, u)) == pytest.approx(0.25 * 2 / 4)
    # Linear between scores, constant beyond them.
    between = calibration.probabilities(found, [-9.0, 0.5, 1.75, 99])
    np.testing.assert_allclose(between, [0, 1 / 12, 1 / 6 + 0.75 / 3, 1])
    # A larger prior is clipped at 1.
    clipped = calibration.probabilities(fit(p, u, prior=0.6, kind="isotonic"), [1.0, 2, 3])
    np.testing.assert_allclose(clipped, [0.4, 1, 1])


def test_isotonic_pools_scores_that_are_out_of_order():
    # P below U at 1 and 2: one block with 2 of 4 P and 2 of 5 U.
    found = fit([1.0, 1, 4, 4], [0.0, 0, 2, 2, 4], prior=0.2, kind="isotonic")
    expected = [0, 0.25, 0.25, 0.5]
    np.testing.assert_allclose(calibration.probabilities(found, [0.0, 1, 2, 4]), expected)


def test_new_rows_of_one_sample_hold_more_positives_than_u():
    p, u, _ = gaussians(300, 600)
    one, two = fit(p, u, setting="one_sample"), fit(p, u)
    scores = np.linspace(-4, 4, 50)
    in_u = calibration.probabilities(one, scores)
    np.testing.assert_array_equal(in_u, calibration.probabilities(two, scores))
    new = calibration.probabilities(one, scores, unlabeled_only=False)
    # Odds grow by the labelled positives that come to the 240 hidden ones: 540 for 240.
    np.testing.assert_allclose(new / (1 - new), in_u / (1 - in_u) * 540 / 240)
    same = calibration.probabilities(two, scores, unlabeled_only=False)
    np.testing.assert_array_equal(same, in_u)


def test_the_share_that_is_labelled_may_differ_from_that_of_the_scores():
    p, u, _ = gaussians(300, 600)
    same = fit(p, u, setting="one_sample", labeled_share=300 / 900)
    assert same.labeled_odds == pytest.approx(fit(p, u, setting="one_sample").labeled_odds)
    # One of ten rows is labelled, 0.4 of the other nine are positive: 1 + 3.6 for 3.6.
    few = fit(p, u, setting="one_sample", labeled_share=0.1)
    scores = np.linspace(-4, 4, 50)
    in_u = calibration.probabilities(few, scores)
    np.testing.assert_array_equal(in_u, calibration.probabilities(same, scores))
    new = calibration.probabilities(few, scores, unlabeled_only=False)
    np.testing.assert_allclose(new / (1 - new), in_u / (1 - in_u) * 4.6 / 3.6)
    assert fit(p, u, labeled_share=0.1).labeled_odds == 0
    with pytest.raises(ValueError, match="labeled_share is 1.0"):
        fit(p, u, setting="one_sample", labeled_share=1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_u_and_of_the_population(kind):
    in_u, in_all = [], []
    for seed in range(8):
        p, u, labels = gaussians(2000, 4000, seed=seed)
        found = fit(p, u, prior=labels.mean(), setting="one_sample", kind=kind)
        in_u.append(calibration.probabilities(found, u).mean() - labels.mean())
        pool = calibration.probabilities(found, np.r_[p, u], unlabeled_only=False)
        in_all.append(pool.mean() - (2000 + labels.sum()) / 6000)
    assert abs(np.mean(in_u)) < 0.01 and abs(np.mean(in_all)) < 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prior", [0.05, 0.4, 0.8])
def test_probabilities_converge_to_the_posterior_of_two_gaussians(kind, prior):
    errors = []
    for m in (300, 30_000):
        p, u, _ = gaussians(m, 2 * m, prior=prior)
        new = gaussians(1, 5000, prior=prior, seed=1)[1]
        found = calibration.probabilities(fit(p, u, prior=prior, kind=kind), new)
        errors.append(np.mean(np.abs(found - posterior(new, prior=prior))))
    assert errors[1] < (0.012 if kind == "platt" else 0.02)
    assert errors[1] < 0.6 * errors[0]


def test_platt_finds_slope_and_intercept():
    p, u, _ = gaussians(40_000, 80_000)
    found = fit(p, u)
    slope, intercept = found.values
    assert slope == pytest.approx(2, abs=0.08)
    at_zero = intercept - slope * found.scores[0]
    assert at_zero == pytest.approx(special.logit(0.4), abs=0.08)


def test_platt_maximises_the_likelihood_of_p_against_u():
    p, u, _ = gaussians(40, 100, seed=3)
    odds = 40 / (100 * 0.4)

    def loss(parameters):
        def labeled(scores):
            ratio = odds * special.expit(parameters[0] * scores + parameters[1])
            return ratio / (1 + ratio)

        # Platt's target of P, which is the smaller sample; what it loses is spread over U.
        first, second = 41 / 42, (40 / 42) / 100
        a, b = labeled(p), labeled(u)
        return -(
            np.sum(first * np.log(a) + (1 - first) * np.log(1 - a))
            + np.sum(second * np.log(b) + (1 - second) * np.log(1 - b))
        )

    best = optimize.minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9}).x
    expected = special.expit(best[0] * u + best[1])
    np.testing.assert_allclose(calibration.probabilities(fit(p, u), u), expected, atol=1e-4)


@pytest.mark.parametrize("num_positives", [1, 2, 4, 16])
def test_few_held_out_positives_do_not_move_the_mean_probability(num_positives):
    """Of scores that say nothing: 60 of U, a quarter positive."""
    rng = np.random.default_rng(0)
    means = []
    for _ in range(100):
        p, u = rng.normal(size=num_positives), rng.normal(size=60)
        found = calibration.fit(p, u, prior=0.25, setting="two_sample")
        means.append(calibration.probabilities(found, u).mean())
    assert np.mean(means) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_one_held_out_positive_leaves_an_interval(kind):
    u = np.random.default_rng(1).normal(size=60)
    given = {"setting": "two_sample", "kind": kind}
    found = calibration.fit([1.5], u, prior=0.3, **given)
    ends = calibration.fit_ends([1.5], u, priors=(0.3, 0.3), **given)
    low, high = calibration.probability_interval(found, ends, np.sort(u))
    # A resample of one row of P is that one or another; of eight, never another.
    assert high.max() - low.min() > 0.2 and (high - low).max() > 0.1
    eight = np.full(8, 1.5)
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "_refit", lambda base, p, u, prior: drawn.append(set(p)) or base)
        calibration.fit_ends(eight, u, priors=(0.3, 0.3), **given)
        assert all(found == {1.5} for found in drawn)
        drawn.clear()
        calibration.fit_ends(eight[:7], u, priors=(0.3, 0.3), **given)
        others = set.union(*drawn) - {1.5}
    assert len(others) > 5 and others <= set(u)


@pytest.mark.parametrize("kind", KINDS)
def test_only_sizes_of_p_and_u_relative_to_themselves_count(kind):
    p, u, _ = gaussians(2000, 3000)
    few = fit(p, u, kind=kind)
    many = fit(np.tile(p, 5), u, kind=kind)
    scores = np.linspace(-2, 2, 40)
    difference = calibration.probabilities(few, scores) - calibration.probabilities(many, scores)
    assert np.abs(difference).max() < (1e-12 if kind == "isotonic" else 0.05)


def test_isotonic_knows_only_the_order_of_the_scores():
    p, u, _ = gaussians(60, 200)
    expected = calibration.probabilities(fit(p, u, kind="isotonic"), np.r_[p, u])
    moved = [np.sinh(p), np.sinh(u)]
    found = calibration.probabilities(fit(*moved, kind="isotonic"), np.concatenate(moved))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-14, 1e-16, 1e-200])
def test_isotonic_knows_scores_that_are_nearer_than_rounding_at_one(scale):
    """Likelihoods of many features are such scores."""
    p, u, _ = gaussians(30, 200, prior=0.3, seed=4)
    expected = calibration.probabilities(fit(p, u, prior=0.3, kind="isotonic"), np.r_[p, u])
    found = fit(p * scale, u * scale, prior=0.3, kind="isotonic")
    shares = calibration.probabilities(found, np.r_[p, u] * scale)
    # Between knots the line depends on distances, whose rounding is the scale's own.
    np.testing.assert_allclose(shares, expected, atol=1e-6)
    assert len(set(np.round(shares, 6))) > 3


def test_platt_knows_scores_up_to_shift_and_scale():
    p, u, _ = gaussians(60, 200)
    expected = calibration.probabilities(fit(p, u), u)
    for scale, shift in ((1e-6, 0), (1e6, 3e6), (1.0, 1e6), (1e-200, 0), (1e200, 0)):
        found = calibration.probabilities(
            fit(scale * p + shift, scale * u + shift), scale * u + shift
        )
        np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sizes", [(1, 1), (1, 300), (5, 40), (200, 300)])
def test_ranking_is_kept_and_probabilities_are_probabilities(kind, seed, sizes):
    p, u, _ = gaussians(*sizes, seed=seed)
    p, u = (p, u) if seed % 2 else (p.round(1), u.round(1))
    found = fit(p, u, kind=kind, setting="one_sample", prior=(0.02, 0.3, 0.95)[seed % 3])
    scores = np.sort(np.r_[p, u, np.random.default_rng(seed).normal(0, 3, 3000), -1e9, 1e9])
    for unlabeled_only in (True, False):
        chances = calibration.probabilities(found, scores, unlabeled_only=unlabeled_only)
        assert (np.diff(chances) >= 0).all()
        assert chances.min() >= 0 and chances.max() <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_scores_without_information_get_the_prior(kind):
    found = fit([2.0, 2.0], [2.0] * 5, kind=kind, prior=0.3)
    np.testing.assert_allclose(calibration.probabilities(found, [2.0, -5, 5]), 0.3)
    # P has the lower scores: no increasing map says anything.
    p, u, _ = gaussians(400, 500)
    chances = calibration.probabilities(fit(-p, -u, kind=kind, prior=0.3), -u)
    assert np.ptp(chances) < 0.01 if kind == "platt" else np.median(chances) < 0.5
    assert chances.mean() == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_classes_apart_get_probabilities_near_zero_and_one(kind):
    p, u, labels = gaussians(100, 1000, offset=20.0)
    chances = calibration.probabilities(fit(p, u, kind=kind, prior=labels.mean()), u)
    assert chances[labels].mean() > 0.9 and chances[~labels].max() < 0.05


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unlabeled_only", [True, False])
@pytest.mark.parametrize("probability", [1e-4, 0.1, 0.5, 0.9])
def test_the_threshold_is_the_smallest_score_that_reaches_a_probability(
    kind, unlabeled_only, probability
):
    p, u, _ = gaussians(200, 500)
    found = fit(p, u, kind=kind, setting="one_sample")
    score = calibration.threshold_at(found, probability, unlabeled_only=unlabeled_only)
    pair = np.array([score, np.nextafter(score, -np.inf)])
    at, below = calibration.probabilities(found, pair, unlabeled_only=unlabeled_only)
    assert at >= probability > below
    chances = calibration.probabilities(found, u, unlabeled_only=unlabeled_only)
    np.testing.assert_array_equal(u >= score, chances >= probability)


def test_thresholds_that_all_or_no_scores_reach():
    found = fit([1.0, 2.0], [1.0, 1.5, 2.0, 0.5], kind="isotonic", prior=0.2)
    assert calibration.threshold_at(found, 0) == -np.inf
    assert calibration.threshold_at(found, 0.99) == np.inf
    flat = fit([2.0], [2.0, 2.0], prior=0.3)
    assert calibration.threshold_at(flat, 0.29) == -np.inf
    assert calibration.threshold_at(flat, 0.31) == np.inf


@pytest.mark.parametrize("kind", KINDS)
def test_a_calibration_survives_json(kind):
    p, u, _ = gaussians(50, 100)
    found = fit(p, u, kind=kind, setting="one_sample")
    fields = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found._asdict().items()}
    again = calibration.Calibration(**json.loads(json.dumps(fields)))
    for unlabeled_only in (True, False):
        np.testing.assert_array_equal(
            calibration.probabilities(found, u, unlabeled_only=unlabeled_only),
            calibration.probabilities(again, u, unlabeled_only=unlabeled_only),
        )
    assert calibration.threshold_at(found, 0.5) == calibration.threshold_at(again, 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior": 0.0}, r"prior is 0\.0; accepted: a number in \(0"),
        ({"prior": 1.0}, "prior is 1"),
        ({"prior": np.nan}, "prior is nan"),
        ({"setting": "both"}, "setting is 'both'"),
        ({"kind": "beta"}, "kind is 'beta'; accepted: 'platt', 'isotonic'"),
        ({"p": []}, "positive_scores is"),
        ({"u": []}, "unlabeled_scores is"),
        ({"p": [1.0, np.nan]}, "positive_scores has 1 values that are not finite, the first at 1"),
        ({"u": [np.inf, 1.0]}, "unlabeled_scores has 1 values that are not finite"),
        ({"u": np.ones([2, 2])}, "unlabeled_scores has shape"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        fit(**({"p": [1.0, 2.0], "u": [0.0, 1.0]} | change))


def test_bad_scores_and_probabilities_are_named():
    found = fit([1.0, 2.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="scores has 1 values"):
        calibration.probabilities(found, [0.0, np.nan])
    with pytest.raises(ValueError, match="scores has shape"):
        calibration.probabilities(found, 0.0)
    with pytest.raises(ValueError, match="probability is 1.5"):
        calibration.threshold_at(found, 1.5)


def calibration_error(chances, labels):
    bins = np.array_split(np.argsort(chances, kind="stable"), 15)
    return sum(abs(chances[i].sum() - labels[i].sum()) for i in bins) / len(labels)


@pytest.mark.thorough
@on_real_sets
def test_real_sets_are_calibrated_nearly_as_well_as_with_true_labels(name, folder):
    briers, yardsticks, errors = ({kind: [] for kind in KINDS} for _ in range(3))
    constant = []
    for seed in range(3):
        data = scored(name, folder, seed)
        held_p, held_u = data.scores[data.held_positive], data.scores[data.held_unlabeled]
        tested, truth = data.scores[data.rest], data.is_positive[data.rest]
        prior = data.is_positive[data.unlabeled].mean()
        for kind in KINDS:
            found = fit(held_p, held_u, prior=prior, setting="one_sample", kind=kind)
            chances = calibration.probabilities(found, tested, unlabeled_only=False)
            briers[kind].append(np.mean((chances - truth) ** 2))
            errors[kind].append(calibration_error(chances, truth))
        # The yardsticks: the same rows with their labels.
        held = np.r_[held_p, held_u]
        known = data.is_positive[np.r_[data.held_positive, data.held_unlabeled]].astype(float)
        steps = isotonic.IsotonicRegression(out_of_bounds="clip").fit(held, known)
        yardsticks["isotonic"].append(np.mean((steps.predict(tested) - truth) ** 2))
        sigmoid = linear_model.LogisticRegression(C=1e6).fit(held[:, None], known)
        chances = sigmoid.predict_proba(tested[:, None])[:, 1]
        yardsticks["platt"].append(np.mean((chances - truth) ** 2))
        constant.append(truth.mean() * (1 - truth.mean()))
    for kind in KINDS:
        # A share of what labels gain over the prior alone; ijcnn1 is far from a sigmoid.
        reached = np.mean(constant) - np.mean(briers[kind])
        assert reached > {"platt": 0.6, "isotonic": 0.8}[kind] * (
            np.mean(constant) - np.mean(yardsticks[kind])
        ), kind
        assert np.mean(errors[kind]) < 0.08, kind


def test_ends_cover_chance_and_the_range_of_priors():
    scores = np.linspace(-1, 2, 7)
    truth = posterior(scores, prior=0.3)
    holds, widths = {}, {}
    for seed in range(4):
        p, u, _ = gaussians(40, 400, prior=0.3, seed=seed)
        found = fit(p, u, prior=0.3)
        for priors in ((0.3, 0.3), (0.15, 0.5)):
            ends = calibration.fit_ends(p, u, priors=priors, setting="two_sample")
            low, high = calibration.probability_interval(found, ends, scores)
            value = calibration.probabilities(found, scores)
            assert (low <= value).all() and (value <= high).all() and ends.priors == priors
            assert (np.diff(low) >= 0).all() and (np.diff(high) >= 0).all()
            holds.setdefault(priors, []).append((low <= truth) & (truth <= high))
            widths.setdefault(priors, []).append((high - low).mean())
            if priors[0] < 0.3:
                low, mean, high = (
                    calibration.probabilities(x, u).mean() for x in (ends.low, found, ends.high)
                )
                assert low < mean - 0.05 and high > mean + 0.05
    (chance, both), (narrow, wide) = map(np.mean, holds.values()), map(np.mean, widths.values())
    assert chance > 0.6 and both > 0.9
    assert 0.05 < narrow < wide - 0.1


@pytest.mark.parametrize(
    ("kind", "most", "num_positives"),
    [
        ("platt", 10_000, 20),
        ("isotonic", 10_000, 20),
        ("platt", 50, 20),
        ("isotonic", 10_000, 8),
        ("isotonic", 10_000, 7),
    ],
)
def test_an_end_is_the_quantile_of_calibrations_of_resamples(
    monkeypatch, kind, most, num_positives
):
    monkeypatch.setattr(calibration, "_MAX_DRAWN", most)  # of U, half of it
    p, u, _ = gaussians(num_positives, 100)
    ends = calibration.fit_ends(
        p, u, priors=(0.2, 0.4), setting="one_sample", kind=kind, num_resamples=7, seed=3
    )
    for end, prior, level in ((ends.low, 0.2, 0.05), (ends.high, 0.4, 0.95)):
        rng, curves = np.random.default_rng(3), []
        for _ in range(7):
            # Of fewer than eight of P, one row of U takes part in the draw, not in its size.
            pool = np.append(p, rng.choice(u)) if num_positives < 8 else p
            drawn = [
                x[rng.integers(len(x), size=min(size, most))]
                for x, size in ((pool, num_positives), (u, 100))
            ]
            again = fit(*drawn, prior=prior, setting="one_sample", kind=kind)
            curves.append(calibration.probabilities(again, end.scores))
        np.testing.assert_allclose(end.values, np.quantile(curves, level, axis=0), atol=1e-5)
        assert end.labeled_odds == pytest.approx(num_positives / 100 / prior)


def test_chance_counts_for_half_as_much_with_four_times_as_many_held_out_rows():
    widths = []
    for size in (300, 1200):
        p, u, _ = gaussians(size, size)
        ends = calibration.fit_ends(p, u, priors=(0.4, 0.4), setting="two_sample")
        low, high = calibration.probability_interval(fit(p, u), ends, [-0.5, 0.0, 0.5])
        widths.append((high - low).mean())
    assert 1.5 < widths[0] / widths[1] < 2.7


def test_the_ends_go_on_beyond_the_held_out_scores():
    p, u, _ = gaussians(30, 300)
    ends = calibration.fit_ends(p, u, priors=(0.3, 0.3), setting="two_sample")
    highest, spread = max(p.max(), u.max()), np.ptp(np.concatenate([p, u]))
    for beyond in (0.2, 0.5):
        near, far = calibration.probability_interval(
            fit(p, u, prior=0.3), ends, [highest, highest + beyond * spread]
        )[0]
        assert 1 - far < 0.7 * (1 - near)


def test_ends_of_new_rows_and_of_scores_beyond_the_held_out():
    p, u, _ = gaussians(30, 300)
    found = fit(p, u, setting="one_sample")
    ends = calibration.fit_ends(p, u, priors=(0.2, 0.6), setting="one_sample")
    scores = np.array([-1e9, -8.0, 0.0, 8.0, 1e9])
    for low, high in (
        calibration.probability_interval(found, ends, scores),
        calibration.probability_interval(found, ends, scores, unlabeled_only=False),
    ):
        value = calibration.probabilities(found, scores)
        assert (low <= high).all() and (high >= value).all() and low[0] >= 0 and high[-1] <= 1
    in_u = calibration.probability_interval(found, ends, [0.0])
    new = calibration.probability_interval(found, ends, [0.0], unlabeled_only=False)
    assert new[0] > in_u[0] and new[1] > in_u[1]
    other = calibration.fit_ends(p, u, priors=(0.1, 0.2), setting="one_sample")
    low, high = calibration.probability_interval(found, other, scores)
    value = calibration.probabilities(found, scores)
    assert (low <= value).all() and (high >= value).all()
    huge = np.array([-1e307, 0, 1e307])  # beyond it the knots would not be finite
    wide = calibration.fit_ends(huge, huge, priors=(0.2, 0.6), setting="one_sample")
    assert np.isfinite(wide.low.scores).all() and np.isfinite(wide.low.values).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"priors": (0.5, 0.2)}, r"^priors is \(0.5, 0.2\); accepted: two shares between 0 and 1"),
        ({"priors": (0.0, 0.2)}, "^priors is "),
        ({"priors": (0.2, 1.0)}, "^priors is "),
        ({"priors": (0.1, 0.2, 0.3)}, "^priors is "),
        ({"priors": 0.2}, "^priors is 0.2; accepted: two shares"),
        ({"priors": ("low", "high")}, "^priors is "),
        ({"num_resamples": 0}, "^num_resamples is 0"),
        ({"seed": -1}, "^seed is -1"),
        (
            {"unlabeled_scores": ["low"]},
            r"^unlabeled_scores is \['low'\]; accepted: \[n\], one",
        ),
        ({"setting": "one"}, "^setting is 'one'"),
        ({"positive_scores": []}, "^positive_scores is "),
    ],
)
def test_ends_that_cannot_be_are_refused(change, message):
    options = {"positive_scores": [1.0], "unlabeled_scores": [0.0], "priors": (0.1, 0.2)}
    with pytest.raises(ValueError, match=message):
        calibration.fit_ends(**{**options, "setting": "two_sample", **change})


@pytest.mark.parametrize("ends", [(0.1, 0.2), (0.2, 0.1), None])
def test_an_interval_is_of_ends_that_were_fitted(ends):
    found = fit([1.0, 2.0], [0.0, 1.0], setting="two_sample")
    with pytest.raises(ValueError, match="^ends is .*; accepted: what fit_ends returns"):
        calibration.probability_interval(found, ends, [0.0])


def test_the_threads_are_limited_once_for_all_resamples(monkeypatch):
    limits, real = [], threadpoolctl.threadpool_limits
    monkeypatch.setattr(
        threadpoolctl, "threadpool_limits", lambda number: limits.append(number) or real(number)
    )
    rng = np.random.default_rng(0)
    p, u = rng.normal(1, 1, 20), rng.normal(0, 1, 60)
    calibration.fit(p, u, prior=0.3, setting="one_sample")
    assert limits == [1]
    calibration.fit_ends(p, u, priors=(0.2, 0.4), setting="one_sample", num_resamples=7)
    assert limits[1:] == [1] * 4  # two calibrations, and the resamples of each end


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-280, 1e280])
def test_scores_near_the_ends_of_their_type_give_finite_probabilities(scale):
    """By their order, or where they are too near to one another for a slope, the prior."""
    scores = np.array([-2.0, -1, 0, 1, 2, 3])
    settings = {"prior": 0.3, "setting": "two_sample"}
    fitted = calibration.fit(scores[3:] * scale, scores * scale, **settings)
    found = calibration.probabilities(fitted, scores * scale)
    if scale < 1e-290:
        np.testing.assert_allclose(found, 0.3)
    else:
        plain = calibration.fit(scores[3:], scores, **settings)
        np.testing.assert_allclose(found, calibration.probabilities(plain, scores), rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_a_threshold_between_scores_whose_difference_is_no_number():
    found = calibration.Calibration("isotonic", [-1e308, 0.0, 1e308], [0.0, 0.5, 1.0], 0.0)
    assert calibration.threshold_at(found, 0.25) == pytest.approx(-5e307)
    assert calibration.threshold_at(found, 0.75) == pytest.approx(5e307)
