"""Held-out scores: who is trained on, what is scored, the odds of both kinds, real data."""

import functools
import importlib

import jax
import numpy as np
import pytest
from sklearn import datasets, linear_model, naive_bayes, neighbors, pipeline, preprocessing, svm

from pujax.priors.base import PriorEstimate
from pujax.priors.held_out import held_out, held_out_scores
from pujax.priors.scores import best_bin, elkan_noto
from tests.conftest import real_data_folder


def gaussians(seed, *, m=200, n=300, dims=2, informative=2, shift=3.0, prior=0.4):
    rng = np.random.default_rng(seed)
    center = np.where(np.arange(dims) < informative, shift, 0.0)
    is_positive = rng.random(n) < prior
    positives = rng.normal(size=(m, dims)) + center
    return positives, rng.normal(size=(n, dims)) + is_positive[:, None] * center


class Recorder:
    """A classifier without weights that keeps what it saw and answers with the first feature."""

    def fit(self, features, labels):
        self.features, self.labels, self.classes_ = features, labels, np.array([0, 1])
        return self

    def predict_proba(self, features):
        return np.stack([1 - features[:, 0], features[:, 0]], 1)


class Weighted(Recorder):
    def fit(self, features, labels, sample_weight=None):
        self.weights = sample_weight
        return super().fit(features, labels)


def uniform(m, n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 0.9, (m, 3)), rng.uniform(0.1, 0.9, (n, 3))


@pytest.mark.parametrize("m, n", [(20, 30), (5, 7), (4, 4)])
def test_one_half_is_trained_on_and_the_other_is_scored(m, n):
    p, u = uniform(m, n)
    held = held_out_scores(p, u, scorer=Recorder(), balanced=False)
    assert len(held.positive_rows) == -(-m // 2) and len(held.unlabeled_rows) == -(-n // 2)
    # The odds that the fit saw become those of what is scored: of odd sizes the larger halves.
    factor = (-(-m // 2) / -(-n // 2)) / ((m // 2) / (n // 2))
    for scores, x in (
        (held.scores_positive, p[held.positive_rows, 0]),
        (held.scores_unlabeled, u[held.unlabeled_rows, 0]),
    ):
        np.testing.assert_allclose(scores / (1 - scores), factor * x / (1 - x), rtol=1e-13)
    rest = np.setdiff1d(np.arange(m), held.positive_rows)
    others = np.setdiff1d(np.arange(n), held.unlabeled_rows)
    trained, labels = held.scorer.features, held.scorer.labels
    assert {tuple(row) for row in trained[labels == 1]} == {tuple(row) for row in p[rest]}
    assert {tuple(row) for row in trained[labels == 0]} == {tuple(row) for row in u[others]}
    assert len(trained) == len(rest) + len(others)


def test_a_scorer_without_weights_has_its_odds_turned_into_balanced_ones():
    p, u = uniform(20, 60)
    f = held_out_scores(p, u, scorer=Recorder()).scores_positive
    g = held_out_scores(p, u, scorer=Recorder(), balanced=False).scores_positive
    # g = m f / (m f + n (1 - f)) with m = 10 and n = 30.
    np.testing.assert_allclose(g, 10 * f / (10 * f + 30 * (1 - f)), rtol=1e-13)
    assert np.all(f > g)


def test_a_scorer_with_weights_is_given_those_under_which_p_and_u_weigh_the_same():
    p, u = uniform(20, 60)
    held = held_out_scores(p, u, scorer=Weighted())
    weights, labels = held.scorer.weights, held.scorer.labels
    assert weights[labels == 1].sum() == pytest.approx(weights[labels == 0].sum())
    assert weights.mean() == pytest.approx(1) and np.unique(weights).size == 2
    np.testing.assert_array_equal(held.scores_positive, p[held.positive_rows, 0])
    assert held_out_scores(p, u, scorer=Weighted(), balanced=False).scorer.weights is None


def test_exact_scores_of_odd_halves_give_the_exact_prior():
    class Exact(Recorder):
        """P(labelled | x) where the fit saw 2 of P and 3 of U, and positives are of one value."""

        def predict_proba(self, features):
            is_positive = features[:, 0] > 0
            odds = np.where(is_positive, 2 / (0.5 * 3), 0.0)
            return np.stack([1 / (1 + odds), odds / (1 + odds)], 1)

    # Scored are 3 of P and 4 of U, of which 2 are positive whatever the halves.
    p, u = np.full((5, 1), 1.0), np.array([[1.0]] * 4 + [[-1.0]] * 3)
    for seed in range(40):
        held = held_out_scores(p, u, scorer=Exact(), balanced=False, key=seed)
        if (u[held.unlabeled_rows, 0] > 0).sum() == 2:
            found = elkan_noto(*held[:2], num_resamples=0).value
            assert found == pytest.approx(0.5, rel=1e-12)
            return
    raise AssertionError("no seed scores two positives of four")


def test_the_scale_of_the_features_does_not_matter():
    p, u = gaussians(9)
    value = held_out(p, u, num_resamples=0).value
    assert 0.2 < value < 0.6
    for scale in (2.0**1000, 2.0**-1000):
        assert held_out(p * scale, u * scale, num_resamples=0).value == value


def test_weights_reach_the_last_step_of_nested_pipelines_or_are_made_up_for():
    p, u = gaussians(0, m=100, n=400)
    linear = linear_model.LogisticRegression()
    inner = pipeline.make_pipeline(preprocessing.StandardScaler(), linear)
    nested = pipeline.make_pipeline(preprocessing.StandardScaler(), inner)
    weighted = held_out_scores(p, u, scorer=nested)
    assert weighted.scores_positive.mean() + weighted.scores_unlabeled.mean() == pytest.approx(
        1, abs=0.1
    )
    k_nearest = neighbors.KNeighborsClassifier(25)
    corrected = held_out_scores(p, u, scorer=k_nearest)
    assert corrected.scores_positive.mean() + corrected.scores_unlabeled.mean() == pytest.approx(
        1, abs=0.1
    )
    assert not hasattr(linear, "coef_") and not hasattr(k_nearest, "classes_")


@pytest.mark.parametrize("scorer", [None, naive_bayes.GaussianNB()])
def test_scores_are_the_balanced_and_the_label_probability(scorer):
    # The default scorer is approximate; U is a mixture, which naive Bayes takes for one Gaussian.
    shift, prior, m, n = 2.0, 0.5, 2000, 8000
    p, u = gaussians(1, m=m, n=n, dims=1, shift=shift, prior=prior)
    for balanced, odds in ((True, 1.0), (False, m / n)):
        held = held_out_scores(p, u, scorer=scorer, balanced=balanced)
        x = u[held.unlabeled_rows, 0]
        ratio = 1 / (prior + (1 - prior) * np.exp(-shift * (x - shift / 2)))
        truth = odds * ratio / (1 + odds * ratio)
        tolerance = 0.03 if scorer is None else 0.08
        assert np.abs(held.scores_unlabeled - truth).mean() < tolerance, balanced


def test_a_capped_training_set_and_chunks_keep_the_odds(monkeypatch):
    p, u = gaussians(2, m=1000, n=4000)
    full = held_out_scores(p, u, balanced=False)
    # The package's attribute of this name is the function.
    module = importlib.import_module("pujax.priors.held_out")
    monkeypatch.setattr(module, "_CHUNK", 700)
    again = held_out_scores(p, u, balanced=False)
    np.testing.assert_allclose(again.scores_unlabeled, full.scores_unlabeled, rtol=1e-6)
    monkeypatch.setattr(module, "_MAX_TRAINED", 600)
    for balanced in (False, True):
        capped = held_out_scores(p, u, balanced=balanced)
        whole = held_out_scores(p, u, balanced=balanced, scorer=capped.scorer)
        # 500 of P, and 600 of 2000 of U: the odds of g are those of all, 500 to 2000.
        difference = capped.scores_unlabeled - whole.scores_unlabeled
        assert np.abs(difference).mean() < 0.03, balanced


@pytest.mark.parametrize(
    "settings, published, spread",
    [
        ({}, 0.372, 0.027),
        ({"shift": 2.0, "prior": 0.5}, 0.500, 0.056),
        ({"shift": 2.5, "prior": 0.15}, 0.166, 0.038),
        ({"shift": 2.5, "prior": 0.8}, 0.749, 0.084),
        ({"shift": 2.5, "prior": 0.3, "dims": 10}, 0.316, 0.049),
        ({"dims": 1, "prior": 0.5}, 0.504, 0.055),
    ],
)
def test_gaussian_cases_come_out_as_specified(settings, published, spread):
    values = [held_out(*gaussians(s, **settings), key=s, num_resamples=0).value for s in range(8)]
    # The classifier is another one than the specification's: half a spread more than chance.
    assert np.mean(values) == pytest.approx(published, abs=1.2 * spread)


def test_elkan_noto_on_a_fitted_scorer_errs_as_specified():
    data = [gaussians(seed) for seed in range(6)]
    means = {
        name: np.mean(
            [
                held_out(
                    p, u, estimator=functools.partial(elkan_noto, estimator=name), num_resamples=0
                ).value
                for p, u in data
            ]
        )
        for name in ("e1", "e3", "ratio")
    }
    # True 0.4; the specification has 0.443 (e1) and 0.248 (e3) from its own classifier.
    assert means["e1"] == pytest.approx(0.443, abs=0.06)
    assert means["e3"] == pytest.approx(0.248, abs=0.06)
    assert means["e3"] < 0.35 < 0.4 < means["ratio"] < 0.52


def test_prior_of_mushrooms_is_found_with_an_interval():
    path = real_data_folder("libsvm") / "mushrooms.gz"
    x, y = datasets.load_svmlight_file(str(path))
    x, y = x.toarray(), y == 1
    rng = np.random.default_rng(0)
    positives, negatives = (rng.permutation(np.flatnonzero(part)) for part in (y, ~y))
    for prior in (0.3, 0.7):
        count = int(2000 * prior)
        unlabeled = np.concatenate([positives[1000 : 1000 + count], negatives[: 2000 - count]])
        estimate = held_out(x[positives[:1000]], x[unlabeled])
        assert estimate.value == pytest.approx(prior, abs=0.05)
        assert estimate.low - 0.03 < prior < estimate.high + 0.03
        assert 0.005 < estimate.high - estimate.low < 0.2


def test_an_estimate_is_that_of_its_held_out_scores():
    p, u = gaussians(3)
    f, g = held_out_scores(p, u, key=5), held_out_scores(p, u, key=5, balanced=False)
    run = functools.partial(held_out, p, u, num_resamples=0, key=5)
    assert run().value == best_bin(*f[:2], num_resamples=0).value
    assert run(delta=0.5).value == best_bin(*f[:2], delta=0.5, num_resamples=0).value
    assert run(estimator=elkan_noto).value == elkan_noto(*g[:2], num_resamples=0).value
    for name, scores in (("e2", g), ("e3", g), ("ratio", f)):
        partial = functools.partial(elkan_noto, estimator=name)
        expected = elkan_noto(*scores[:2], estimator=name, num_resamples=0).value
        assert run(estimator=partial).value == expected
    assert run(balanced=False).value == best_bin(*g[:2], num_resamples=0).value
    assert run(estimator=lambda *scores, **options: PriorEstimate(0.25)).value == 0.25


def test_the_key_decides_halves_scorer_and_interval():
    p, u = gaussians(4)
    assert held_out(p, u) == held_out(p, u, key=0) == held_out(p, u, key=None)
    key = jax.random.key(1)
    assert held_out(p, u, key=key) == held_out(p, u, key=key) != held_out(p, u)
    images = held_out(p.reshape(-1, 2, 1), u.reshape(-1, 2, 1))
    assert images == held_out(p, u)


def test_samples_of_the_same_points_allow_every_prior():
    p, _ = gaussians(5)
    assert held_out(p, p[::-1]) == (1.0, 0.0, 1.0)


def test_wrong_arguments_are_named():
    p, u = gaussians(6, m=20, n=20)
    for function in (held_out, held_out_scores):
        with pytest.raises(ValueError, match="positives has 3 examples; accepted: at least 4"):
            function(p[:3], u)
        with pytest.raises(ValueError, match="unlabeled has 3 examples; accepted: at least 4"):
            function(p, u[:3])
        with pytest.raises(ValueError, match="one and the same point"):
            function(np.ones((5, 2)), np.ones((6, 2)))
        with pytest.raises(ValueError, match="positives has 1 examples with values .* not finite"):
            function(np.where(p == p[3, 1], np.nan, p), u)
        with pytest.raises(ValueError, match="scorer is LinearSVC.*has no predict_proba"):
            function(p, u, scorer=svm.LinearSVC())
    with pytest.raises(ValueError, match="num_resamples is 2.5"):
        held_out(p, u, num_resamples=2.5)
