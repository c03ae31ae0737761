"""The classical method is what scikit-learn computes, with corrections worked out by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import threadpoolctl
from scipy import special
from sklearn import metrics as sklearn_metrics
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from pujax import methods
from pujax.data import sources
from pujax.methods import classic
from pujax.training import config as config_lib
from pujax.training import method_setup
from tests import tiny
from tests.conftest import real_data_folder

BASES = ("logistic", "boosting")


def section(**changes):
    config = classic.default_config()
    config.update(changes)
    return config


def rows_and_labels(n=400, seed=0):
    """Rows of float32 with many equal values, and a third labelled."""
    rng = np.random.default_rng(seed)
    rows = np.round(rng.normal(size=[n, 5]), 1).astype(np.float32)
    rows[:, 4] = rng.integers(0, 2, n)
    return rows, (rows[:, 0] + rng.normal(size=n) > 0.5)


def as_rows(rows):
    """What the method sees: float64, as scikit-learn computes."""
    return rows.astype(np.float64)


def info_of(labeled, num_features, setting="one_sample"):
    shape = {"input_shape": (num_features,), "mean": (0.0,) * num_features}
    counts = {"n_p": int(labeled.sum()), "n_u": int((~labeled).sum())}
    base = tiny.table_problem().info
    return base._replace(**shape, **counts, std=(1.0,) * num_features, setting=setting)


def built(info, **changes):
    config = config_lib.default_config("classic")
    config.model.name = "mlp"
    config.method.update(changes)
    return methods.build(config_lib.resolve(config), info)


def scores_of(config, rows, labeled, inputs, *, setting="one_sample", seed=0):
    """Predictions of the JAX side, and the state."""
    state = classic.fit(config, as_rows(rows), labeled, seed=seed)
    method = built(info_of(labeled, rows.shape[1], setting), **config.to_dict())
    state = jax.tree.map(jnp.asarray, state)
    return np.asarray(jax.jit(method.predict)(state, jnp.asarray(inputs))), state


@threadpoolctl.threadpool_limits.wrap(limits=1)
def scikit(base, labels, rows, weight="balanced", **options):
    if base == "logistic":
        return LogisticRegression(class_weight=weight, **options).fit(rows, labels)
    options = {"random_state": 0} | options
    return HistGradientBoostingClassifier(class_weight=weight, **options).fit(rows, labels)


def close(found, wanted):
    """To 1e-6 of the largest score."""
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("weighting", ["balanced", "none"])
@pytest.mark.parametrize("base", BASES)
def test_naive_scores_are_those_of_scikit_learn(base, weighting):
    rows, labeled = rows_and_labels()
    weight = "balanced" if weighting == "balanced" else None
    model = scikit(base, labeled, as_rows(rows), weight)
    new = rows_and_labels(seed=1)[0]
    found, _ = scores_of(section(base=base, weighting=weighting), rows, labeled, new)
    close(found, model.decision_function(as_rows(new)))


def test_settings_reach_scikit_learn():
    rows, labeled = rows_and_labels()
    options = {"learning_rate": 0.3, "max_iter": 7, "max_leaf_nodes": 5, "max_depth": 2}
    options |= {"min_samples_leaf": 9, "l2_regularization": 2.0, "max_bins": 16}
    model = scikit("boosting", labeled, as_rows(rows), **options)
    found, state = scores_of(section(base="boosting", **options), rows, labeled, rows)
    close(found, model.decision_function(as_rows(rows)))
    assert state.models.feature.shape == (1, 7, 9) and state.models.depth[0] == 2
    model = scikit("logistic", labeled, as_rows(rows), C=0.01, tol=1e-8, max_iter=50)
    found, _ = scores_of(section(C=0.01, tol=1e-8, max_iter=50), rows, labeled, rows)
    close(found, model.decision_function(as_rows(rows)))


def test_early_stopping_leaves_trees_that_add_nothing():
    rows, labeled = rows_and_labels(1000)
    found, state = scores_of(section(base="boosting", early_stopping="on"), rows, labeled, rows)
    count = int(state.iterations)
    assert 1 < count < 100
    assert not np.any(state.models.value[0, count:]) and np.any(state.models.value[0, count - 1])
    assert np.std(found) > 0


def few_of(n_p, n_u):
    """Rows of which the first few are labelled, and lie beside the others."""
    rows = np.random.default_rng(0).normal(size=[n_p + n_u, 3])
    rows[:n_p, 0] += 2
    return rows, np.arange(n_p + n_u) < n_p


@pytest.mark.parametrize(
    ("n_p", "n_u", "fitted", "changes"),
    [
        (1, 10_000, (1, 10_000), {}),
        (10_000, 1, (10_000, 1), {}),
        (2, 12_501, (1, 10_001), {"correction": "elkan_noto"}),
        (1, 30, (1, 10_000), {"correction": "bagging", "bag_size": 10_000, "num_bags": 2}),
    ],
)
def test_boosting_that_cannot_hold_one_of_each_out_takes_all_iterations_and_says_so(
    n_p, n_u, fitted, changes, caplog
):
    rows, labeled = few_of(n_p, n_u)
    config = section(base="boosting", max_iter=3, **changes)
    state = classic.fit(config, rows, labeled, seed=0)
    found = f"takes all of method.max_iter=3 iterations: it is fitted to {fitted[0]} of P and "
    assert caplog.text.count(f"{found}{fitted[1]} of U") == 1
    assert state.iterations == 3
    without = classic.fit(
        section(**config.to_dict() | {"early_stopping": "off"}), rows, labeled, seed=0
    )
    jax.tree.map(np.testing.assert_array_equal, state, without)


@pytest.mark.parametrize(("n_p", "n_u"), [(2, 9_999), (1, 9_999)])
def test_other_boosting_stops_as_scikit_learn_does(n_p, n_u, caplog):
    rows, labeled = few_of(n_p, n_u)
    state = classic.fit(section(base="boosting", max_iter=60), rows, labeled, seed=0)
    wanted = scikit(
        "boosting",
        labeled,
        rows,
        max_iter=60,
        random_state=int(np.random.default_rng(0).integers(2**31)),
    )
    assert wanted.do_early_stopping_ == (n_p == 2) and state.iterations == wanted.n_iter_
    assert not caplog.text


def test_an_input_on_a_threshold_or_one_rounding_off_goes_to_the_side_it_goes_to_in_scikit_learn():
    rng = np.random.default_rng(0)
    # More values than bins, so that thresholds are means of neighbours, a rounding apart.
    values = np.float32(1) + np.arange(300, dtype=np.float32) * np.float32(2**-23)
    rows = rng.permutation(np.repeat(values, 3))[:, None]
    labeled = rng.random(900) < np.where(rows[:, 0] > values[150], 0.8, 0.2)
    model = scikit("boosting", labeled, as_rows(rows), min_samples_leaf=1)
    found, state = scores_of(section(base="boosting", min_samples_leaf=1), rows, labeled, rows)
    close(found, model.decision_function(as_rows(rows)))
    thresholds = np.unique(np.asarray(state.models.threshold)).astype(np.float32)
    near = [np.nextafter(thresholds, np.float32(side)) for side in (-np.inf, np.inf)]
    probes = np.concatenate([thresholds, *near, values])[:, None]
    found, _ = scores_of(section(base="boosting", min_samples_leaf=1), rows, labeled, probes)
    close(found, model.decision_function(as_rows(probes)))


def test_a_threshold_is_rounded_down():
    numbers = np.array([0.1, -0.1, 1.0, 1e300, 1 + 2**-30, -1 - 2**-30, 3.0])
    found = classic.rounded_down(numbers[np.abs(numbers) < 1e30])
    assert found.dtype == np.float32
    for number, rounded in zip(numbers[np.abs(numbers) < 1e30], found, strict=True):
        assert float(rounded) <= number < float(np.nextafter(rounded, np.float32(np.inf)))


def test_balanced_weights_are_n_over_twice_the_count():
    rows, labeled = rows_and_labels(300)
    count = labeled.sum()
    weights = np.where(labeled, 300 / (2 * count), 300 / (2 * (300 - count)))
    by_hand = LogisticRegression(tol=1e-10, max_iter=1000)
    by_hand.fit(as_rows(rows), labeled, sample_weight=weights)
    found, _ = scores_of(section(tol=1e-10, max_iter=1000), rows, labeled, rows)
    np.testing.assert_allclose(found, by_hand.decision_function(as_rows(rows)), atol=1e-5)
    # P and U have the same mean probability then, whatever their numbers.
    with_prior, _ = scores_of(section(tol=1e-10, C=1e6, max_iter=1000), rows, labeled, rows)
    shares = special.expit(with_prior)
    assert (1 - shares[labeled]).mean() == pytest.approx(shares[~labeled].mean(), abs=1e-4)


@pytest.mark.parametrize("weighting", ["balanced", "none"])
@pytest.mark.parametrize("base", BASES)
def test_elkan_and_noto_by_hand(base, weighting):
    rows, labeled = rows_and_labels(600)
    options = {"base": base, "weighting": weighting, "correction": "elkan_noto"}
    config = section(hold_out_ratio=0.25, max_iter=20, **options)
    found, state = scores_of(config, rows, labeled, rows, seed=5)
    held = classic.held_out(np.random.default_rng(5), labeled, 0.25)
    # Unweighted odds: those of a balanced fit times n_p / n_u of what it was fitted on.
    weight = "balanced" if weighting == "balanced" else None
    model = scikit(base, labeled[~held], as_rows(rows[~held]), weight, max_iter=20)
    margin = model.decision_function(as_rows(rows))
    if weight:
        margin += math.log(labeled[~held].sum() / (~labeled[~held]).sum())
    shares = special.expit(margin)
    c = shares[held & labeled].mean()
    assert float(state.label_frequency) == pytest.approx(c, rel=1e-6)
    wanted = np.log(shares / (c - shares), where=shares < 0.99 * c, out=np.full(600, np.nan))
    inside = np.isfinite(wanted)
    assert 100 < inside.sum() < 600
    np.testing.assert_allclose(found[inside], wanted[inside], rtol=2e-4, atol=1e-4)
    assert (found[~inside] > 4).all()
    clear = np.abs(shares - c / 2) > 1e-6
    np.testing.assert_array_equal((found > 0)[clear], (shares > c / 2)[clear])
    # The order is that of scikit-learn, also where the ratio exceeds 1.
    order = np.argsort(margin, kind="stable")
    assert (np.diff(found[order]) >= -1e-4).all()
    assert found[order][-1] > found[order][-20]


def test_held_out_are_a_share_of_both_and_never_all():
    labeled = np.arange(100) < 20
    held = classic.held_out(np.random.default_rng(0), labeled, 0.25)
    assert held[labeled].sum() == 5 and held[~labeled].sum() == 20
    few = np.array([True, True, False, False, False])
    for ratio, counts in ((0.01, (1, 1)), (0.99, (1, 2))):
        held = classic.held_out(np.random.default_rng(0), few, ratio)
        assert (held[few].sum(), held[~few].sum()) == counts


@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_elkan_and_noto_find_the_posterior_where_positives_are_certain(setting):
    """One binary feature: 1 is always positive, 0 never; a quarter of all are positive."""
    rng = np.random.default_rng(0)
    positive = rng.random(20_000) < 0.25
    if setting == "one_sample":
        labeled = positive & (rng.random(20_000) < 0.4)
    else:  # 2,000 positives beside a sample of the population
        positive, labeled = (
            np.concatenate([np.ones(2000, bool), positive]),
            np.arange(22_000) < 2000,
        )
    rows = positive[:, None].astype(np.float32)
    config = section(correction="elkan_noto", weighting="none", C=1e4)
    # A feature of the class with noise: the posterior at 1 is that of the population.
    noisy = np.where(rng.random(len(rows))[:, None] < 0.02, 1 - rows, rows).astype(np.float32)
    found, state = scores_of(config, rows, labeled, rows, setting=setting)
    frequency = 0.4 if setting == "one_sample" else 2000 / (2000 + 5000)
    assert float(state.label_frequency) == pytest.approx(frequency, abs=0.02)
    shares = special.expit(found)
    assert shares[positive].min() > 0.97 and shares[~positive].max() < 0.01
    method = built(info_of(labeled, 1, setting), **config.to_dict())
    estimates = method.estimates(state)
    hidden = positive[~labeled].mean()
    assert float(estimates["estimated_prior"]) == pytest.approx(hidden, abs=0.02)
    found, state = scores_of(config, noisy, labeled, noisy, setting=setting)
    population = np.ones(len(rows), bool) if setting == "one_sample" else ~labeled
    is_one = (noisy[:, 0] == 1) & population
    # Labelled rows of 0 make c too small by a few per cent, and so probabilities too large.
    wanted = positive[is_one].mean()
    assert abs(special.expit(found[is_one]).mean() - wanted) < 0.08


@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_class_log_odds_by_hand_and_rising_without_end(setting):
    c, margin = 0.3, np.linspace(-30, 30, 241).astype(np.float32)
    found = np.asarray(classic.class_log_odds(jnp.asarray(margin), c, setting=setting))
    assert np.isfinite(found).all() and (np.diff(found) > 0).all()
    exact = margin.astype(np.float64)
    if setting == "one_sample":
        share = special.expit(exact) / c
    else:
        share = np.exp(exact) * (1 - c) / c
    inside = share < 0.99
    np.testing.assert_allclose(found[inside], special.logit(share[inside]), rtol=1e-4, atol=1e-5)
    assert (found[share > 1] > 6.9).all()
    assert found[-1] - found[-2] == pytest.approx(0.25, abs=1e-5)


@pytest.mark.parametrize("aggregation", ["score", "probability"])
@pytest.mark.parametrize("base", BASES)
def test_bagging_is_the_mean_of_separate_classifiers(base, aggregation):
    rows, labeled = rows_and_labels(300)
    config = section(base=base, correction="bagging", num_bags=3, bag_size=60, max_iter=15)
    config.aggregation = aggregation
    found, _ = scores_of(config, rows, labeled, rows, seed=7)
    rng, scores, shares = np.random.default_rng(7), np.zeros(300), np.zeros(300)
    for part in classic.bags(rng, labeled, num_bags=3, size=60):
        model = scikit(base, labeled[part], as_rows(rows[part]), max_iter=15)
        scores += model.decision_function(as_rows(rows)) / 3
        shares += model.predict_proba(as_rows(rows))[:, 1] / 3
    close(found, scores if aggregation == "score" else special.logit(shares))


def test_the_mean_of_probabilities_stays_finite_and_is_less_moved_by_one_that_is_sure():
    scores = jnp.asarray([[0.0, 40.0, -700.0, 700.0], [0.0, -1.0, -700.0, 700.0]])
    found = np.asarray(classic.mean_log_odds(scores))
    # (1 + sigmoid(-1)) / 2 and its rest; e^-700 itself is 0 in single precision.
    share = (1 + special.expit(-1.0)) / 2
    np.testing.assert_allclose(found, [0, special.logit(share), -700, 700], rtol=1e-6, atol=1e-7)
    one = jnp.asarray([[-3.0, 0.2, 5.0]])
    np.testing.assert_allclose(classic.mean_log_odds(one), one[0], rtol=1e-6)


@pytest.mark.parametrize("correction", ["naive", "bagging"])
def test_without_elkan_and_noto_the_label_frequency_is_one(correction):
    rows, labeled = rows_and_labels(60)
    config = section(correction=correction, num_bags=2)
    assert classic.fit(config, as_rows(rows), labeled, seed=0).label_frequency == 1


def test_aggregation_is_of_bags_alone_and_older_models_have_the_mean_of_scores():
    rows, labeled = rows_and_labels(200)
    settings = {"correction": "bagging", "num_bags": 4, "max_iter": 15}
    found = {}
    for aggregation in ("score", "probability"):
        config = section(aggregation=aggregation, **settings)
        found[aggregation], state = scores_of(config, rows, labeled, rows)
        single, _ = scores_of(section(aggregation=aggregation), rows, labeled, rows)
        close(single, scores_of(section(), rows, labeled, rows)[0])
    assert np.abs(found["score"] - found["probability"]).max() > 1e-3
    older = config_lib.default_config("classic")
    older.model.name = "mlp"
    older.method.update(settings)
    del older.method.aggregation
    method = classic.build(older, info_of(labeled, rows.shape[1]))
    close(np.asarray(method.predict(state, jnp.asarray(rows))), found["score"])


def test_every_bag_holds_all_of_p_and_a_bootstrap_of_u():
    labeled = np.arange(1000) % 10 == 0
    parts = classic.bags(np.random.default_rng(0), labeled, num_bags=5, size=200)
    assert len(parts) == 5
    for part in parts:
        positives, drawn = part[labeled[part]], part[~labeled[part]]
        np.testing.assert_array_equal(np.sort(positives), np.flatnonzero(labeled))
        assert len(drawn) == 200
    assert any(len(set(part)) < len(part) for part in parts)  # with replacement
    assert len({tuple(part) for part in parts}) == 5


def test_a_bag_is_as_large_as_p_unless_it_is_given():
    rows, labeled = rows_and_labels(200)
    count, seen = int(labeled.sum()), []

    class Spy:
        coef_, intercept_, n_iter_ = np.zeros([1, 5]), np.zeros(1), np.ones(1)

        def fit(self, rows, labels):
            seen.append((int(labels.sum()), int((~labels).sum())))
            return self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classic, "LogisticRegression", lambda **_: Spy())
        for size in (0, 17):
            config = section(correction="bagging", num_bags=2, bag_size=size)
            classic.fit(config, as_rows(rows), labeled, seed=0)
    assert seen == [(count, count)] * 2 + [(count, 17)] * 2


@pytest.mark.thorough
def test_networks_inputs_are_normalised_and_images_are_flattened():
    data = tiny.problem()
    trainer = tiny.Trainer(tiny.config("classic"), data)
    state = trainer.run(steps=1).state
    pixels = data.inputs.reshape(len(data.inputs), -1)
    rows = (pixels / 255 - 0.6) / 0.3
    model = scikit("logistic", data.labeled, rows)
    found = trainer.method.predict(state, jnp.asarray(data.test_inputs))
    wanted = model.decision_function((data.test_inputs.reshape(200, -1) / 255 - 0.6) / 0.3)
    np.testing.assert_allclose(found, wanted, atol=2e-4)
    config = tiny.config("classic", base="boosting", learning_rate=0.1)
    trainer = tiny.Trainer(config, data)
    found = trainer.method.predict(trainer.run(steps=1).state, jnp.asarray(data.test_inputs))
    model = scikit("boosting", data.labeled, pixels.astype(np.float64))
    close(found, model.decision_function(data.test_inputs.reshape(200, -1).astype(np.float64)))


def test_a_fit_that_did_not_converge_is_said():
    rows, labeled = rows_and_labels()
    for max_iter, count in ((2, 1), (100, 0)):
        config = section(max_iter=max_iter)
        _, state = scores_of(config, rows, labeled, rows)
        method = built(info_of(labeled, 5), **config.to_dict())
        found = {name: float(value) for name, value in method.estimates(state).items()}
        assert len(method.diagnose(found)) == count
    config = section(base="boosting", max_iter=2)
    _, state = scores_of(config, rows, labeled, rows)
    method = built(info_of(labeled, 5), **config.to_dict())
    assert not method.diagnose({"iterations": 2.0}) and int(state.iterations) == 2


WRONG = {
    "base": ("tree", "'logistic', 'boosting'"),
    "correction": ("none", "'naive', 'elkan_noto', 'bagging'"),
    "weighting": ("prior", "'balanced', 'none'"),
    "hold_out_ratio": (1.0, "a number in"),
    "num_bags": (0, "a number in"),
    "bag_size": (-1, "a number in"),
    "aggregation": ("median", "'score', 'probability'"),
    "C": (0.0, "a number in"),
    "tol": (0.0, "a number in"),
    "learning_rate": (-0.1, "a number in"),
    "max_iter": (0, "a number in"),
    "min_samples_leaf": (0, "a number in"),
    "max_leaf_nodes": (1, "a number in"),
    "max_depth": (-1, "a number in"),
    "l2_regularization": (-1.0, "a number in"),
    "max_features": (0.0, "a number in"),
    "max_bins": (256, "a number in"),
    "early_stopping": ("yes", "'auto', 'on', 'off'"),
}


@pytest.mark.parametrize("field", WRONG)
def test_settings_that_cannot_be_are_refused(field):
    value, accepted = WRONG[field]
    with pytest.raises(ValueError, match=rf"method.{field} is .*; accepted: {accepted}"):
        built(tiny.table_problem().info, **{field: value})


# Of the numbers above, those with a smallest or largest one that is accepted.
ENDS = (
    *(("num_bags", 1), ("bag_size", 0), ("max_iter", 1), ("min_samples_leaf", 1)),
    *(("max_leaf_nodes", 2), ("max_depth", 0), ("l2_regularization", 0.0), ("max_features", 1.0)),
    *(("max_bins", 2), ("max_bins", 255)),
)


@pytest.mark.parametrize(("field", "value"), ENDS)
def test_the_ends_of_what_is_accepted_are_accepted(field, value):
    built(tiny.table_problem().info, **{field: value})


def test_the_loss_is_of_as_many_of_p_as_of_u():
    for size in (10, 4000):
        (stage,) = built(info_of(np.arange(size) < size // 5, 5)).stages
        batches = stage.batching
        assert batches.num_positives * 2 == batches.batch_size <= min(size, 256)


def test_every_setting_has_a_wrong_value_here():
    assert set(WRONG) == set(classic.default_config()) - {"name"}


@pytest.mark.parametrize(
    "field", ["average_decay", "frozen_stages", "num_epochs", "batch_size", "augment"]
)
def test_settings_of_networks_are_refused(field):
    config = config_lib.default_config("classic")
    config.method[field] = 1
    with pytest.raises(ValueError, match=f"method.{field} is not a field of the config"):
        config_lib.resolve(config)


def test_other_weights_to_start_from_and_too_few_to_hold_out_are_refused():
    config = config_lib.default_config("classic")
    config.model.name, config.init_from = "mlp", "runs/other"
    info = tiny.table_problem().info
    with pytest.raises(ValueError, match="init_from is 'runs/other'; accepted: ''"):
        methods.build(config_lib.resolve(config), info)
    with pytest.raises(ValueError, match="method.correction is 'elkan_noto'; accepted: 'naive' or"):
        built(info._replace(n_p=1), correction="elkan_noto")


# Settings, the fewest of P and U with which boosting can stop early, and fewer.
STOPS = (
    ({"correction": "naive"}, (2, 9), [(1, 30), (30, 1), (2, 8)]),
    ({"correction": "bagging"}, (6, 1), [(5, 30)]),
    ({"correction": "bagging", "bag_size": 2}, (9, 1), [(8, 30)]),
    ({"correction": "bagging", "bag_size": 10}, (2, 1), [(1, 30)]),
    ({"correction": "elkan_noto"}, (3, 11), [(2, 30), (3, 10)]),
)


@pytest.mark.parametrize(("changes", "fewest", "too_few"), STOPS)
def test_early_stopping_that_is_asked_for_and_cannot_be_is_refused(changes, fewest, too_few):
    info = tiny.table_problem().info
    changes = changes | {"early_stopping": "on"}
    wanted = "method.early_stopping is 'on'; accepted: 'auto' or 'off' where a classifier is fitted"
    for n_p, n_u in too_few:
        with pytest.raises(ValueError, match=wanted):
            built(info._replace(n_p=n_p, n_u=n_u), base="boosting", **changes)
        built(info._replace(n_p=n_p, n_u=n_u), **changes)
    n_p, n_u = fewest
    built(info._replace(n_p=n_p, n_u=n_u), base="boosting", **changes)
    classic.fit(section(base="boosting", **changes), *few_of(n_p, n_u), seed=0)


def test_copies_of_what_is_held_out_may_leave_too_few_to_stop_early(caplog):
    rows, labeled = few_of(3, 11)
    copies = np.array([3, 4, 5, 0, 1, 2, *range(6, 14)])
    config = section(base="boosting", correction="elkan_noto", early_stopping="on", max_iter=3)
    state = classic.fit(config, rows, labeled, seed=0, copies=copies)
    assert state.iterations == 3 and "it is fitted to 2 of P and 8 of U" in caplog.text


def test_streamed_images_are_refused(tmp_path):
    data = tiny.problem()

    class Streamed(type(data)):
        streamed = True

    with pytest.raises(ValueError, match="'classic', whose stage 'fit' looks at all examples"):
        method_setup.build(tiny.config("classic"), Streamed(*data), tiny.mesh())


@pytest.mark.thorough
@pytest.mark.parametrize("correction", ["naive", "elkan_noto", "bagging"])
def test_a9a_with_two_per_cent_known_ranks_new_rows(correction):
    data = sources.load("a9a", directory=real_data_folder("libsvm"))
    rng = np.random.default_rng(0)
    part = rng.permutation(len(data.train_inputs))[:8000]
    rows, positive = data.train_inputs[part], data.train_labels[part] == 1
    labeled = np.zeros(8000, bool)
    labeled[rng.choice(np.flatnonzero(positive), 160, replace=False)] = True
    config = section(correction=correction, num_bags=10)
    found, _ = scores_of(config, rows, labeled, data.test_inputs)
    # A random order has .24; the same rows with all labels reach about .75.
    assert sklearn_metrics.average_precision_score(data.test_labels == 1, found) > 0.6
