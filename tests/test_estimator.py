"""`PUClassifier` as scikit-learn wants it, and its numbers against a run's."""

import math
import pickle
import re
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import pujax
from pujax import calibration, methods, metrics
from pujax import estimator as estimator_lib
from pujax.estimator import PUClassifier
from pujax.folds import PUStratifiedKFold
from pujax.training import (
    compilation_cache,
    method_setup,
    prior_estimation,
    sharding,
    train_loop,
)
from tests import tiny


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


_shared = tiny.shared_setups()


@pytest.fixture
def one_method(monkeypatch):
    """Fits of equal parameters and rows share a built method; what they learn, they learn anew."""
    monkeypatch.setattr(method_setup, "build", _shared)


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
    assert abs(shares[:, 1].mean() - truth.mean()) < 0.12  # the prior that is given is 0.04 off
    assert model.prior_ == 0.4 and {x.name for x in model.estimates_} >= {"recall", "auc"}


def test_a_score_of_0_is_not_positive(fitted, monkeypatch):
    model, rows, _, _ = fitted
    monkeypatch.setattr(PUClassifier, "_scores", lambda self, X: np.float32([-1, 0, -0.0, 1e-9]))
    np.testing.assert_array_equal(model.predict(rows[:4]), [0, 0, 0, 1])


def test_columns_are_scaled_by_the_training_rows_alone():
    rows, labels, _ = clouds()
    data = PUClassifier(holdout=0.5, prior=0.4)._problem(np.float32(rows), labels == 1, 0)
    assert len(data.inputs) == 200 and len(data.validation_inputs) == 200
    np.testing.assert_allclose(data.info.mean, data.inputs.mean(0), rtol=1e-5)
    np.testing.assert_allclose(data.info.std, data.inputs.std(0), rtol=1e-5)
    assert np.abs(rows.mean(0) - data.info.mean).min() > 1e-3


def test_a_column_that_is_the_same_in_all_training_rows_says_nothing_of_others(one_method):
    """The day of an export: another day would come in by weights that nothing has trained."""
    rows, y, _ = clouds()
    X = np.c_[rows, np.full(len(rows), 1.7e9), np.full(len(rows), 3.0)]
    model = PUClassifier(**SMALL, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.constants_, [*[np.nan] * 5, np.float32(1.7e9), 3])
    later = X + [0, 0, 0, 0, 0, 86_400, -1]
    np.testing.assert_array_equal(model.decision_function(later), model.decision_function(X))
    np.testing.assert_array_equal(model.predict_proba(later), model.predict_proba(X))
    del model.constants_  # as an older pickle
    assert not np.array_equal(model.decision_function(later), model.decision_function(X))


def test_an_option_that_takes_a_word_or_a_number_takes_both():
    for rate in (0.003, "auto"):
        model = PUClassifier("ncpu", prior=0.4, options={"learning_rate": rate})
        assert model._config(200, 0).method.learning_rate == rate
    with pytest.raises(ValueError, match=r"options\['clip_norm'\] is 'none'; accepted: a value of"):
        PUClassifier("ncpu", options={"clip_norm": "none"})._config(200, 0)


def test_a_rows_score_has_the_same_bits_wherever_the_row_stands(fitted):
    model, rows, _, _ = fitted
    scores = model.decision_function(rows)
    rng = np.random.default_rng(0)
    for n in (1, 20, 33, len(rows)):
        places = rng.permutation(len(rows))[:n]
        np.testing.assert_array_equal(model.decision_function(rows[places]), scores[places])
    many = rng.integers(len(rows), size=1100)
    np.testing.assert_array_equal(model.decision_function(rows[many]), scores[many])


def test_the_score_is_the_auc_of_labelled_against_unlabeled(fitted):
    model, rows, labels, _ = fitted
    scores = model.decision_function(rows)
    pairs = scores[labels == 1][:, None] - scores[labels == 0]
    wanted = np.mean((pairs > 0) + (pairs == 0) / 2)
    assert model.score(rows, labels) == pytest.approx(wanted, abs=1e-9)


def test_what_cannot_be_scored_is_said(fitted):
    model, rows, labels, _ = fitted
    with pytest.raises(NotFittedError, match="not fitted yet"):
        PUClassifier().score(rows, labels)
    with pytest.raises(ValueError, match=r"^y holds \['1'\]; accepted: 1 and another label$"):
        model.score(rows, ["1"] * len(rows))
    with pytest.raises(ValueError, match="inconsistent numbers of samples: .400, 50"):
        model.score(rows, labels[:50])


def test_labels_in_a_column_and_labels_that_are_objects_are_labels(fitted, one_method):
    model, rows, labels, _ = fitted
    assert model.score(rows, labels[:, None]) == model.score(rows, labels)
    for given in (labels.astype(object), (labels == 1).astype(object)):
        again = PUClassifier(**SMALL, random_state=0).fit(rows, given)
        assert again.positive_ == 1
        np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
    with pytest.raises(ValueError, match="y holds None in row .*; accepted: a label of every row"):
        PUClassifier(**SMALL).fit(rows, np.where(labels == 1, True, None))
    absent = pd.Series(np.where(labels == 1, 1, pd.NA), dtype=object)
    with pytest.raises(ValueError, match="y holds <NA> in row .*; accepted: a label of every row"):
        PUClassifier(**SMALL).fit(rows, absent)
    with pytest.raises(ValueError, match="y holds nan in row .*; accepted: a label of every row"):
        PUClassifier(**SMALL).fit(rows, np.where(labels == 1, 1, np.nan))


def test_seconds_since_1970_are_as_good_as_seconds_since_the_hour(one_method):
    rows, labels, truth = clouds()
    rows[:, 0] = np.round(20 * rows[:, 0])
    late = rows + [1_700_000_000, 0, 0, 0, 0]
    model, same = (PUClassifier(**SMALL, random_state=0).fit(x, labels) for x in (late, rows))
    assert abs(model.offset_[0] - 1_700_000_000) < 1000 and not model.offset_[1:].any()
    assert not same.offset_.any()
    auc, wanted = (
        metrics.auc(model.decision_function(late), truth),
        metrics.auc(same.decision_function(rows), truth),
    )
    assert abs(auc - wanted) < 0.02
    del model.offset_  # as in what an earlier version has pickled
    assert np.isfinite(model.decision_function(rows)).all()


def test_the_seed_decides_and_labels_may_have_any_coding(fitted, monkeypatch):
    model, rows, labels, _ = fitted
    releases = []
    monkeypatch.setattr(compilation_cache, "release", lambda: releases.append(1))
    again = PUClassifier(**SMALL, random_state=0).fit(rows, np.where(labels, 1, -1))
    assert len(releases) == 1  # hundreds of fits in one process would run out of memory maps
    np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
    assert set(again.predict(rows)) == {-1, 1}
    other = PUClassifier(**SMALL, random_state=1).fit(rows, labels == 1)
    assert (other.decision_function(rows) != model.decision_function(rows)).any()
    assert other.classes_.dtype == bool


@pytest.mark.parametrize(
    ("positive", "other"),
    [
        ("positive", "unlabeled"),
        pytest.param("fraud", "unknown", marks=pytest.mark.thorough),
        pytest.param("yes", "zzz", marks=pytest.mark.slow),
        pytest.param(" POS", "neg", marks=pytest.mark.thorough),
        pytest.param("yes", "no", marks=pytest.mark.thorough),
    ],
)
def test_words_say_which_class_is_positive(one_method, fitted, positive, other):
    model, rows, labels, _ = fitted
    words = np.where(labels == 1, positive, other)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        named = PUClassifier(**SMALL, random_state=0).fit(rows, words)
    said = [str(one.message) for one in caught if "classes_" in str(one.message)]
    assert len(said) == (positive < other)
    assert all(f"the positive one, {positive!r}, is the first in order" in x for x in said)
    assert named.positive_ == positive and list(named.classes_) == sorted([positive, other])
    np.testing.assert_array_equal(named.predict(rows) == positive, model.predict(rows) == 1)
    column = list(named.classes_).index(positive)
    np.testing.assert_array_equal(
        named.predict_proba(rows)[:, column], model.predict_proba(rows)[:, 1]
    )
    np.testing.assert_array_equal(named.predict_proba(rows).sum(1), 1)
    sign = 1 if column else -1
    np.testing.assert_array_equal(
        named.decision_function(rows), sign * model.decision_function(rows)
    )
    assert named.score(rows, words) == model.score(rows, labels)


@pytest.mark.thorough
def test_a_doubtful_number_is_taken_with_a_warning_and_a_doubtful_word_must_be_named(fitted):
    _, rows, labels, _ = fitted
    with pytest.warns(UserWarning, match="2, the larger one, is taken for positive: pos_label"):
        doubtful = PUClassifier(**SMALL | {"setting": "two_sample"}).fit(rows[:90], labels[:90] + 1)
    assert doubtful.positive_ == 2
    words = np.where(labels == 1, "fraud", "ok")
    accepted = "pos_label is None, .*accepted: pos_label='fraud' or pos_label='ok'"
    with pytest.raises(ValueError, match=accepted):
        PUClassifier(**SMALL).fit(rows, words)
    named = PUClassifier(**SMALL, pos_label="fraud", random_state=0).fit(rows, words)
    assert named.positive_ == "fraud"
    with pytest.raises(ValueError, match="pos_label is 'bad'; accepted: 'fraud', 'ok'"):
        PUClassifier(**SMALL, pos_label="bad").fit(rows, words)
    with pytest.raises(ValueError, match="y holds .*'ok'.*; accepted: .*'fraud'"):
        named.score(rows[:3], ["ok"] * 3)


def test_words_beside_numbers_are_no_labels(fitted):
    model, rows, labels, _ = fitted
    mixed = np.array([1 if label else "unlabeled" for label in labels], object)
    for act in (PUClassifier().fit, model.score):
        with pytest.raises(ValueError, match="y holds 1 and 'unlabeled'; accepted: numbers only"):
            act(rows, mixed)


def test_a_minus_one_among_words_is_no_positive():
    model = PUClassifier()
    for words, positive in ((["-1", "2"], "2"), (["-1", "1"], "1"), (["-1", "fraud"], "fraud")):
        model.classes_ = np.array(words)
        assert model._positive_class() == positive
    model.classes_ = np.array(["-1", "0"])
    with pytest.raises(ValueError, match="neither says that it is positive; accepted: pos_label="):
        model._positive_class()


def test_numbers_of_numpy_are_taken_as_well(fitted):
    model, rows, labels, _ = fitted
    as_numpy = {"hidden": np.array([8]), "num_epochs": np.int64(8), "batch_size": np.int32(64)}
    as_numpy |= {"learning_rate": np.float64(0.01), "prior": np.float64(0.4)}
    again = PUClassifier(**(SMALL | as_numpy), holdout=np.float64(0.2), random_state=0)
    scores = again.fit(rows, labels).decision_function(rows)
    np.testing.assert_array_equal(scores, model.decision_function(rows))


def test_a_pickled_one_gives_the_same_numbers(fitted):
    model, rows, *_ = fitted
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))


def test_one_program_scores_all_rows_until_it_is_fitted_again(fitted, monkeypatch):
    model, rows, *_ = fitted
    loaded, built = pickle.loads(pickle.dumps(model)), []
    original = methods.build
    monkeypatch.setattr(methods, "build", lambda *args: built.append(1) or original(*args))
    scores = [loaded.decision_function(rows[:count]) for count in (20, 3, 20)]
    assert len(built) == 1
    np.testing.assert_array_equal(scores[0], scores[2])
    other = pickle.loads(pickle.dumps(loaded.model_))
    other["numbers"] = {name: 2 * x for name, x in other["numbers"].items()}
    loaded.model_ = other
    assert not np.array_equal(loaded.decision_function(rows[:20]), scores[0]) and len(built) == 2


@pytest.mark.thorough
def test_it_goes_into_pipelines_and_cross_validation():
    rows, labels, _ = clouds(1)
    model = make_pipeline(StandardScaler(), PUClassifier(**SMALL, random_state=0))
    values = cross_val_score(
        clone(model), rows, labels, cv=PUStratifiedKFold(3, random_state=0), error_score="raise"
    )
    assert values.shape == (3,) and (values > 0.6).all()


def test_a_number_of_epochs_comes_before_that_of_a_method_for_own_rows():
    options = {"support_source": "pseudo_negatives"}
    config = PUClassifier("lagam", options=options, prior=0.4)._config(400, 0)
    assert (config.method.num_epochs, config.method.warmup_epochs) == (60, 12)
    model = PUClassifier("lagam", options=options, prior=0.4, num_epochs=30)
    assert model._config(400, 0).method.num_epochs == 30
    assert model._config(400, 0).method.warmup_epochs == 6


@pytest.mark.parametrize(
    ("name", "num_epochs"), [("nnpu", 50), ("gradpu", 50), ("puupl", 200), ("ncpu", 1300)]
)
def test_only_a_method_without_warm_up_rounds_or_stages_is_shortened(name, num_epochs):
    assert PUClassifier(name, prior=0.4)._config(400, 0).method.num_epochs == num_epochs
    assert (num_epochs > 50) == bool(methods.stage_lengths(name))


@pytest.mark.parametrize("name", ["dist_pu", "impulses", "purl", "puupl", "self_pu"])
def test_stages_share_the_epochs_as_their_defaults_do(name):
    for num_epochs in (2, 3, 20, 33):
        config = PUClassifier(name, num_epochs=num_epochs, prior=0.4)._config(400, 0)
        info = tiny.table_problem().info._replace(prior=0.4, prior_unlabeled=0.3, n_p=50, n_u=350)
        stages = methods.build(config, info).stages
        assert config.method.num_epochs == num_epochs
        assert sum(stage.num_epochs for stage in stages) >= num_epochs


def test_epochs_are_evaluated_where_something_chooses_among_them():
    """With an evaluation of the last epoch alone, every rule would report the last one."""

    def every(name, **options):
        return PUClassifier(name, prior=0.4, **options)._config(400, 0).run.eval_every

    assert every("vpu") == every("lbe") == 0  # the rule of the report, and that of a first stage
    assert every("nnpu") > 10**6 and every("vpu", holdout=0) > 10**6


def test_the_epoch_that_a_methods_rule_prefers_is_reported(monkeypatch):
    rows, labels, _ = clouds()
    seen = []
    train = train_loop.train

    def watched(run, *args):
        seen.append((run, train(run, *args)))
        return seen[-1][1]

    monkeypatch.setattr(train_loop, "train", watched)
    model = PUClassifier("vpu", **(SMALL | {"num_epochs": 12}), random_state=0)
    model.set_params(learning_rate=0.1).fit(rows, labels)
    ((trained, state),) = seen
    risks = [row["val_vpu_risk"] for row in trained.writers[0].rows]
    assert len(risks) == 12 and int(np.argmin(risks)) < 11
    assert state.position.best_values[0] == min(risks)
    reported = {np.asarray(x).tobytes() for x in jax.tree.leaves(state.reported(0).params)}
    last = {np.asarray(x).tobytes() for x in jax.tree.leaves(state.carry.state.params)}
    saved = {x.tobytes() for name, x in model.model_["numbers"].items() if "params" in name}
    assert saved == reported and saved != last


def test_a_fit_says_nothing_of_epochs_in_the_words_of_a_configuration(caplog):
    """One class for several epochs is told from the rows held out, in the fit's own words."""
    rows, labels, _ = clouds()
    model = PUClassifier("vpu", **(SMALL | {"learning_rate": 1e-9}), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows, labels)
    assert not [text for text in caplog.messages if "every evaluated example" in text]


@pytest.mark.parametrize(
    ("name", "num_epochs"),
    [("nnpu", 50), ("vpu", 50), ("dist_pu", 120), ("puupl", 200), ("purl", 500)],
)
def test_without_a_number_of_epochs_only_methods_of_one_stage_are_cut_short(name, num_epochs):
    config = PUClassifier(name, prior=0.4)._config(400, 0)
    assert config.method.num_epochs == num_epochs


@pytest.mark.parametrize("name", ["impulses", "imbalanced_nnpu"])
def test_batches_of_every_kind_fit_few_rows(name):
    """ImPULSeS' head has batches of 256, imbalanced nnPU ten positives in each."""
    model = PUClassifier(name, num_epochs=3, prior=0.4)
    for rows in (16, 20, 21, 22):
        info = tiny.table_problem().info
        info = info._replace(prior=0.4, prior_unlabeled=0.3, n_p=4, n_u=rows - 4)
        config = model._config(rows, 0)
        assert methods.build(config, info).stages
        sizes = [size for name, size in config.method.items() if name.endswith("batch_size")]
        assert 0 < max(sizes) <= rows
    given = PUClassifier(name, num_epochs=3, prior=0.4, options={"batch_size": 12})
    assert given._config(16, 0).method.batch_size == 12
    assert (
        model._config(4000, 0).method.to_dict()
        == given.set_params(options=None)._config(4000, 0).method.to_dict()
    )


def test_training_that_is_not_finite_is_said_in_the_parameters_of_the_estimator():
    rng = np.random.default_rng(0)
    labels = (rng.random(120) < 0.3).astype(int)
    rows = rng.normal(size=(120, 3)) + labels[:, None]
    with pytest.raises(ValueError, match="not finite .*; accepted: a lower learning_rate") as found:
        PUClassifier(**(SMALL | {"learning_rate": 1e38}), random_state=0).fit(rows, labels)
    assert "saved" not in str(found.value) and "--config" not in str(found.value)


def test_folds_hold_labelled_positives_and_no_more_folds_than_these():
    labels = np.array([1] * 6 + [0] * 54)
    for _, test in PUStratifiedKFold(3, random_state=0).split(labels, labels):
        assert labels[test].sum() == 2
    with pytest.raises(ValueError, match="n_splits is 7; accepted: at most 6"):
        list(PUStratifiedKFold(7).split(labels, labels))
    # Words may sort the other way, and a fold without an unlabeled row is no use either.
    for words in (["P", "U"], ["unlabeled", "labeled"]):
        named = np.where(labels == 1, *words)
        with pytest.raises(ValueError, match=f"at most 6, .* with the label {words[0]}"):
            list(PUStratifiedKFold(7).split(named, named))


def test_there_may_be_as_many_folds_as_labelled_positives():
    labels = np.array([1] * 6 + [0] * 54)
    folds = list(PUStratifiedKFold(6, random_state=0).split(labels, labels))
    assert [labels[test].sum() for _, test in folds] == [1] * 6


def test_folds_are_shuffled_unless_that_is_switched_off():
    labels = np.array([1] * 6 + [0] * 54)

    def tested(**options):
        return [test.tolist() for _, test in PUStratifiedKFold(3, **options).split(labels, labels)]

    in_order = [[*range(2 * i, 2 * i + 2), *range(6 + 18 * i, 24 + 18 * i)] for i in range(3)]
    assert tested(shuffle=False) == in_order
    assert tested(random_state=0) == tested(random_state=0) != tested(random_state=1) != in_order


def test_nnpu_ranks_few_rows_of_which_few_are_positive():
    """With its published loss the scores of P and of U fall together until their order turns."""
    rng = np.random.default_rng(0)
    truth = rng.random(600) < 0.05
    rows = rng.normal(0, 1, [600, 5]) + 1.34 * truth[:, None]
    labels = (truth & (rng.random(600) < 0.3)).astype(int)
    unlabeled = labels == 0

    def auc(**options):
        model = PUClassifier(prior=0.05, random_state=0, options=options).fit(rows, labels)
        return metrics.auc(model.decision_function(rows[unlabeled]), truth[unlabeled])

    assert auc() > 0.9 and auc(loss="sigmoid") < 0.6


def test_what_cannot_be_is_named():
    rows, labels, _ = clouds(n=60)
    for change, message in (
        ({"method": "nnPU"}, "^method is 'nnPU'; .*'nnpu'"),
        ({"method": "lagam"}, "^method is 'lagam'; .*'vpu'"),
        ({"prior": 1.5}, "^prior is 1.5"),
        ({"prior": "half"}, "^prior is 'half'"),
        ({"setting": "three"}, "^setting is 'three'"),
        ({"hidden": 8}, "^hidden is 8"),
        ({"hidden": (8, 0)}, "^hidden is 0"),
        ({"num_epochs": 0}, "^num_epochs is 0"),
        ({"batch_size": 0}, "^batch_size is 0"),
        ({"learning_rate": -1.0}, "^learning_rate is -1.0"),
        ({"holdout": 1.0}, "^holdout is 1.0"),
        ({"options": [1]}, "^options is "),
        ({"learning_rate": "fast"}, "^learning_rate is 'fast'; accepted: a number"),
        ({"holdout": None}, "^holdout is None; accepted: a number"),
        ({"prior": np.array([0.3, 0.4])}, r"^prior is array\(.*; accepted: a number between"),
        ({"pos_label": np.array([0, 1])}, r"^pos_label is array\(\[0, 1\]\); accepted: 0, 1"),
        ({"options": {"gama": 1}}, r"^options\['gama'\] is not a field .*'gamma'"),
        ({"options": {"gamma": -1.0}}, r"^options\['gamma'\] is -1.0; accepted: a number"),
        ({"options": {"gamma": "x"}}, r"^options\['gamma'\] is 'x'; accepted: .*float"),
        (
            {"options": {"learning_rate": None}},
            r"^options\['learning_rate'\] is None; accepted: a finite number",
        ),
        ({"options": {"batch_size": 1}}, r"^options\['batch_size'\] is 1; accepted: a number"),
        ({"options": {"name": "vpu"}}, "^options is {'name': 'vpu'}; accepted: fields"),
        ({"options": {1: 2}}, "^options is {1: 2}; accepted: fields"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            PUClassifier(**(SMALL | change)).fit(rows, labels)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"X holds 1e\+39; accepted: numbers from -3.4e\+38"):
        PUClassifier(**SMALL).fit(np.where(labels[:, None] == 1, 1e39, rows), labels)
    with pytest.raises(ValueError, match="1 class"):
        PUClassifier(**SMALL).fit(rows, np.ones(60))
    unsure = PUClassifier(**(SMALL | {"prior": None, "method": "vpu"})).fit(rows, labels)
    with pytest.raises(AttributeError) as error:
        unsure.predict_proba(rows)
    assert "prior is None" in str(error.value.__cause__) and not hasattr(unsure, "predict_proba")


def test_what_a_fit_left_decides_on_probabilities_and_no_parameter_that_is_set_after_it(fitted):
    rows, labels, _ = clouds(n=60)
    for without in ({"prior": None, "method": "vpu"}, {"holdout": 0.0}):
        model = PUClassifier(**SMALL)
        early = model.predict_proba
        model.set_params(**without).fit(rows, labels).set_params(prior=0.4, holdout=0.2)
        assert not hasattr(model, "predict_proba")
        with pytest.raises(AttributeError) as error:
            model.predict_proba(rows)
        shown = f"prior is {without.get('prior', 0.4)} and holdout {without.get('holdout', 0.2)}"
        assert str(error.value.__cause__).startswith(f"{shown} in the fit; accepted for prob")
        with pytest.raises(AttributeError, match="in the fit; accepted for probabilities: a prior"):
            early(rows)
    model = pickle.loads(pickle.dumps(fitted[0]))
    given = model.predict_proba(rows)
    np.testing.assert_array_equal(model.set_params(prior=None).predict_proba(rows), given)
    assert not hasattr(clone(model), "predict_proba")  # which is not fitted


def test_what_the_data_say_against_a_parameter_is_named_by_the_parameter(monkeypatch):
    monkeypatch.setattr(prior_estimation, "is_informative", lambda found: False)
    rows, labels, _ = clouds(n=60)
    few = [*np.flatnonzero(labels)[:3], *np.flatnonzero(labels == 0)]
    for change, taken, message in (
        (
            {"prior": None},
            (rows, labels),
            "^prior is None; accepted: a number between 0 and 1, or 'auto' to estimate it, since",
        ),
        ({}, (rows * 0, labels), "^X has no column that differs between training rows; accepted"),
        ({"prior": 0.05}, (rows, labels), "^prior is 0.05, which is .*accepted: a number above"),
        ({"prior": "auto"}, (rows, labels), "^prior is 'auto', .*; accepted: a number for prior$"),
        (
            {"prior": "auto"},
            (rows[few], labels[few]),
            "^prior is 'auto' with .* a number for prior",
        ),
        ({"holdout": 0.99}, (rows, labels), "positive examples, of which holdout=0.99 holds out"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            PUClassifier(**(SMALL | change), random_state=0).fit(*taken)
        assert not any(part in str(error.value) for part in ("data.", "method.", "model."))


@pytest.mark.thorough
def test_data_that_nothing_good_can_come_of_are_warned_of(fitted):
    _, rows, labels, _ = fitted
    rows = rows.copy()
    rows[7, 2] = 1e30
    few = np.where(np.cumsum(labels == 1) <= 4, labels, 0)
    with pytest.warns(UserWarning) as said:
        PUClassifier(**SMALL, random_state=0).fit(rows, few)
    texts = [str(one.message) for one in said]
    assert any(text.startswith("y has 4 labelled positives; with fewer than 5") for text in texts)
    assert any("column 2 holds 1e+30 in row 7, beside which" in text for text in texts)


@pytest.mark.parametrize(("count", "said"), [(1, "positive; with"), (2, "positives; with")])
def test_few_positives_are_counted_in_english(count, said):
    model, rows = PUClassifier(), np.arange(8.0)[:, None]
    model.classes_, model.positive_ = np.array([0, 1]), 1
    with pytest.warns(UserWarning, match=f"^y has {count} labelled {said} fewer than 5"):
        model._warn(rows, rows, np.arange(8) < count)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model._warn(rows, rows, np.arange(8) < 5)


def test_a_column_that_is_called_like_an_id_is_warned_of(one_method):
    rows, labels, _ = clouds(n=60)
    table = pd.DataFrame(rows, columns=["patient_id", "room_no", "a", "b", "c"])
    table["patient_id"], table["room_no"] = 10**8 + np.arange(60) // 2, np.arange(60) % 4
    with pytest.warns(UserWarning, match="^X: column .* is called like an id") as said:
        PUClassifier(**SMALL).fit(table, labels)
    texts = [str(one.message) for one in said if "like an id" in str(one.message)]
    assert len(texts) == 1 and "'patient_id'" in texts[0] and "more than once" in texts[0]


@pytest.mark.thorough
def test_a_threshold_that_is_far_off_is_warned_of(fitted):
    _, rows, labels, _ = fitted
    # Its scores say who is labelled, and of those there are few.
    model = PUClassifier(**SMALL | {"method": "naive", "num_epochs": 40}, random_state=0)
    few = np.where(np.cumsum(labels) <= 12, labels, 0)
    with pytest.warns(UserWarning, match="^predict calls .* unlabeled rows positive, where 38.1% "):
        model.fit(rows, few)


@pytest.mark.parametrize(
    ("interval", "flagged", "said"),
    [
        ((0.2, 0.4), 0.3, "the wrong way round.* 0.30 .0.20, 0.40.; train for longer"),
        ((0.2, 0.4), 0.9, "the wrong way round"),
        ((0.4, 0.6), 0.9, "positive, where 30.0% are .* may be no better than chance"),
        ((0.4, 0.6), 0.3, "^$"),
        ((0.7, 0.9), 0.9, "rank by decision_function"),
        ((0.7, 0.9), 0.3, "^$"),
        ((math.nan, math.nan), 0.9, "may be no better than chance"),
    ],
)
def test_what_is_said_of_a_ranking_and_a_threshold(interval, flagged, said):
    estimates = [
        metrics.Estimate("auc_pu", float(np.mean(interval)), *interval, ""),
        metrics.Estimate("flagged_share", flagged, flagged, flagged, ""),
    ]
    assert re.search(said, estimator_lib._doubt(estimates, 0.3))
    assert estimator_lib._doubt([], 0.3) == ""


def test_one_probability_for_all_rows_is_spoken_of():
    rng = np.random.default_rng(0)
    unlabeled = rng.normal(size=60)
    for shift, said in ((-0.5, "the probability 0.400: held-out labelled rows"), (2, "^$")):
        fitted = calibration.fit(
            rng.normal(shift, 1, 20), unlabeled, prior=0.4, setting="two_sample"
        )
        assert re.search(said, estimator_lib._flat(fitted, unlabeled))
        assert estimator_lib._flat(fitted, np.zeros(3)) == ""


@pytest.mark.thorough
def test_a_fit_whose_probabilities_are_all_the_same_is_warned_of(fitted, monkeypatch):
    _, rows, labels, _ = fitted
    monkeypatch.setattr(estimator_lib, "_doubt", lambda *rest: "")
    model = PUClassifier(**SMALL | {"num_epochs": 1}, random_state=0)
    flat = calibration.fit([0.0, 1, 2], [3.0, 4, 5], prior=0.4, setting="two_sample")
    monkeypatch.setattr(calibration, "fit", lambda *a, **k: flat)
    with pytest.warns(UserWarning, match="^predict_proba gives every row the probability 0.400"):
        model.fit(rows, labels)


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


class OfAnyWords(PUClassifier):
    """For the check whose classes are 'one' and 'two', of which `pos_label` would have to say more.

    The same check has other classes, so that no one `pos_label` can be given to it.
    """

    def _positive_class(self):
        return self.classes_[1]


def checks():
    """All of scikit-learn's checks with probabilities; the exempt ones without them."""
    without = PUClassifier("naive", prior=None, holdout=0.0, **CHECKED)
    with_them = PUClassifier("naive", prior=0.9, **CHECKED)
    for model, is_exempt in ((with_them, False), (without, True)):
        for estimator, check in estimator_checks_generator(model, mark=None):
            name = getattr(check, "func", check).__name__
            if name == "check_classifiers_classes":
                estimator = OfAnyWords(**estimator.get_params())
            if (name in EXEMPT) == is_exempt:
                yield estimator, check


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("estimator", "check"),
    list(checks()),
    ids=lambda x: getattr(getattr(x, "func", x), "__name__", "estimator"),
)
def test_scikit_learns_own_checks(one_method, estimator, check, monkeypatch):
    monkeypatch.setattr(sharding, "make_mesh", lambda: tiny.mesh(1))
    check(estimator)


def test_words_and_missing_cells_of_a_table_are_named_by_their_column():
    rows, labels, _ = clouds()
    table = pd.DataFrame(rows, columns=[*"abcde"])
    words = table.astype({"c": object})
    words.loc[3, "c"] = "red"
    truth = table.astype({"b": object})
    truth.loc[1, "b"] = "true"
    gap = table.copy()
    gap.loc[7, "d"] = np.nan
    model = PUClassifier(**SMALL)
    with pytest.raises(ValueError, match=r"^X has 'red' in column 'c'; accepted: .*own_table"):
        model.fit(words, labels)
    with pytest.raises(ValueError, match=r"^X has 'true' in column 'b'; accepted"):
        model.fit(truth, labels)
    with pytest.raises(ValueError, match=r"^X has NaN, no number, in column 'd', row 7; accepted"):
        model.fit(gap, labels)


def test_two_columns_of_one_name_are_named_before_training_and_before_predictions():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    y = (np.arange(60) < 20).astype(int)
    twice = pd.DataFrame(rows, columns=["a", "b", "a"])
    model = PUClassifier(num_epochs=1, prior=0.5)
    message = "X has 2 columns named 'a'; accepted: columns whose names differ"
    with pytest.raises(ValueError, match=f"^{message}$"):
        model.fit(twice, y)
    model.fit(twice.set_axis(["a", "b", "c"], axis=1), y)
    with pytest.raises(ValueError, match=f"^{message}$"):
        model.predict_proba(twice)
