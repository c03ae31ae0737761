"""`PUClassifier` as scikit-learn wants it, and its numbers against a run's."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import pujax
from pujax import calibration, metrics
from pujax.estimator import PUClassifier, PUStratifiedKFold


def clouds(seed=0, n=400):
    """Two clouds, a third of the positives labelled."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.4
    rows = rng.normal(0, 1, [n, 5]) + 1.5 * truth[:, None]
    return rows, (truth & (rng.random(n) < 1 / 3)).astype(int), truth


SMALL = {"hidden": (8,), "num_epochs": 8, "learning_rate": 0.01, "batch_size": 64, "prior": 0.4}


@pytest.fixture(scope="module")
def fitted():
    rows, labels, truth = clouds()
    return PUClassifier(**SMALL, random_state=0).fit(rows, labels), rows, labels, truth


def test_it_tells_the_classes_apart_and_gives_probabilities(fitted):
    model, rows, labels, truth = fitted
    hidden = labels == 0
    scores = model.decision_function(rows)
    assert metrics.auc(scores[hidden], truth[hidden]) > 0.9
    np.testing.assert_array_equal(model.predict(rows), (scores > 0).astype(int))
    shares = model.predict_proba(rows)
    np.testing.assert_allclose(shares.sum(1), 1)
    wanted = calibration.probabilities(model.calibration_, scores, unlabeled_only=False)
    np.testing.assert_array_equal(shares[:, 1], wanted)
    assert abs(shares[:, 1].mean() - truth.mean()) < 0.1
    assert model.prior_ == 0.4 and {x.name for x in model.estimates_} >= {"recall", "auc"}


def test_the_score_is_the_auc_of_labelled_against_unlabeled(fitted):
    model, rows, labels, _ = fitted
    scores = model.decision_function(rows)
    pairs = scores[labels == 1][:, None] - scores[labels == 0]
    wanted = np.mean((pairs > 0) + (pairs == 0) / 2)
    assert model.score(rows, labels) == pytest.approx(wanted, abs=1e-9)


def test_the_seed_decides_and_labels_may_have_any_coding(fitted):
    model, rows, labels, _ = fitted
    again = PUClassifier(**SMALL, random_state=0).fit(rows, np.where(labels, 1, -1))
    np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
    assert set(again.predict(rows)) == {-1, 1}
    other = PUClassifier(**SMALL, random_state=1).fit(rows, labels == 1)
    assert (other.decision_function(rows) != model.decision_function(rows)).any()
    assert other.classes_.dtype == bool


def test_a_pickled_one_gives_the_same_numbers(fitted):
    model, rows, *_ = fitted
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))


@pytest.mark.thorough
def test_it_goes_into_pipelines_and_cross_validation():
    rows, labels, _ = clouds(1)
    model = make_pipeline(StandardScaler(), PUClassifier(**SMALL, random_state=0))
    values = cross_val_score(
        clone(model), rows, labels, cv=PUStratifiedKFold(3, random_state=0), error_score="raise"
    )
    assert values.shape == (3,) and (values > 0.6).all()


def test_folds_hold_labelled_positives_and_no_more_folds_than_these():
    labels = np.array([1] * 6 + [0] * 54)
    for _, test in PUStratifiedKFold(3, random_state=0).split(labels, labels):
        assert labels[test].sum() == 2
    with pytest.raises(ValueError, match="n_splits is 7; accepted: at most 6"):
        list(PUStratifiedKFold(7).split(labels, labels))


def test_what_cannot_be_is_named():
    rows, labels, _ = clouds(n=60)
    for change, message in (
        ({"method": "nnPU"}, "nnPU"),
        ({"prior": 1.5}, "data.prior"),
        ({"setting": "three"}, "data.setting"),
        ({"holdout": 1.0}, "data.holdout"),
        ({"options": {"gama": 1}}, "gama"),
    ):
        with pytest.raises((ValueError, KeyError), match=message):
            PUClassifier(**(SMALL | change)).fit(rows, labels)
    with pytest.raises(ValueError, match="1 class"):
        PUClassifier(**SMALL).fit(rows, np.ones(60))
    unsure = PUClassifier(**(SMALL | {"prior": None, "method": "vpu"})).fit(rows, labels)
    with pytest.raises(AttributeError) as error:
        unsure.predict_proba(rows)
    assert "prior is None" in str(error.value.__cause__) and not hasattr(unsure, "predict_proba")


def test_importing_pujax_imports_nothing_else_until_it_is_used():
    assert pujax.PUClassifier is PUClassifier and "load" in dir(pujax)
    assert pujax.risks.nnpu is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pujax.nothing


# Labels of these checks are true ones, which the naive method takes them for.
CHECKED = {"hidden": (8,), "num_epochs": 10, "learning_rate": 0.02}
EXEMPT = {
    "check_classifiers_train": "`predict` goes by the method's own threshold, a score of 0, and "
    "not by a probability of one half: that rests on the prior, which may be an estimate"
}


def checks():
    """All of scikit-learn's checks with probabilities; the exempt ones without them."""
    without = PUClassifier("naive", prior=None, holdout=0.0, **CHECKED)
    with_them = PUClassifier("naive", prior=0.9, **CHECKED)
    for model, is_exempt in ((with_them, False), (without, True)):
        for estimator, check in estimator_checks_generator(model, mark=None):
            if (getattr(check, "func", check).__name__ in EXEMPT) == is_exempt:
                yield estimator, check


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("estimator", "check"),
    list(checks()),
    ids=lambda x: getattr(getattr(x, "func", x), "__name__", "estimator"),
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)
