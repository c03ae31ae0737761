"""The baselines that are a risk on a plain classifier: risks by hand, thresholds, calibration."""

import itertools
import math

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from pujax import methods, risks
from pujax.configs import nnpu as nnpu_protocol
from pujax.methods import imbalanced_nnpu, naive, nnpu, pusb
from pujax.methods._common import calibration as calibration_lib
from pujax.training import config as config_lib
from pujax.training import sharding, train_step
from pujax.training.evaluation import tasks
from pujax.training.evaluation.evaluator import Evaluator
from tests import tiny

MLP = {"model": "mlp", "options": {"hidden": (16,)}, "augment": False}


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


def start(data, name, **changes):
    """A method, its state before the first step, the training data and a first batch."""
    method = methods.module(name).build(tiny.config(name, **(MLP | changes)), data.info)
    stage = method.stages[0]
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    key = jax.random.key(1)
    state = train_step.init_state(stage, key, None, arrays, tiny.mesh())
    plan = train_step.epoch_plan(stage, key, 0, arrays)
    return method, state, arrays, tiny.gather(arrays, plan, 0, epoch=0, step=0)


def first_loss(data, name, **changes):
    """Scores and labels of a first batch, the loss of the step on it, and what the step gives."""
    method, state, arrays, batch = start(data, name, **changes)
    metrics = jax.jit(method.stages[0].step)(state, batch, jax.random.key(1))[1]
    scores = np.asarray(jax.jit(method.predict)(state._replace(offset=0.0), batch.inputs))
    scores = scores.astype(np.float64)
    return scores, np.asarray(batch.labeled) > 0, metrics, (method, state, arrays)


def loss_at_zero(data, name, **changes):
    """The loss of a step while all scores are 0, and the labels of its batch."""
    method, state, _, batch = start(data, name, options={"hidden": ()}, **changes)
    state = state._replace(params=jax.tree.map(jnp.zeros_like, state.params))
    metrics = jax.jit(method.stages[0].step)(state, batch, jax.random.key(1))[1]
    return metrics["loss"], np.asarray(batch.labeled) > 0


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_naive_by_prior_weighs_p_and_u_by_the_prior(data):
    scores, labeled, metrics, _ = first_loss(data, "naive", weighting="prior", loss="sigmoid")
    pi = data.info.prior
    wanted = pi * np.mean(sigmoid(-scores[labeled])) + (1 - pi) * np.mean(sigmoid(scores[~labeled]))
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)


@pytest.mark.parametrize(("weighting", "terms"), [("pooled", 1), ("balanced", 2)])
def test_supervised_weighs_examples_or_classes_alike(data, weighting, terms):
    loss, labels = loss_at_zero(data, "supervised", weighting=weighting)
    assert 0 < labels.sum() < len(labels) / 2
    # Every example costs ln 2, and so does the mean of each class.
    np.testing.assert_allclose(loss, terms * np.log(2), rtol=1e-6)


def test_supervised_sees_all_labels_or_those_of_negatives(data):
    for positives, reveals in (("all", "all"), ("labeled", "negatives")):
        config = tiny.config("supervised", positives=positives, **MLP)
        assert methods.module("supervised").build(config, data.info).reveals == reveals


@pytest.mark.parametrize(("given", "weight"), [(3.0, 3.0), (0.0, 152 / 40)])
def test_the_weight_of_positives_is_the_one_given_or_evens_out_the_groups(data, given, weight):
    loss, labels = loss_at_zero(data, "weighted_bce", positive_weight=given)
    k, n = labels.sum(), len(labels)
    assert 0 < k < n
    np.testing.assert_allclose(loss, (1 + (weight - 1) * k / n) * np.log(2), rtol=1e-6)


@pytest.mark.parametrize("weight", [1.0, 0.2])
@pytest.mark.parametrize(("share", "in_unlabeled"), [(0.1, 0.3), (0.4, 0.6), (0.05, 0.01)])
def test_naives_thresholds_are_where_positives_are_as_likely_as_negatives(
    weight, share, in_unlabeled
):
    """Positives are normal around 1, negatives around -1: the point has a closed form."""

    def minimiser(x):
        density = [np.exp(-((x - center) ** 2) / 2) for center in (1, -1)]
        mixed = in_unlabeled * density[0] + (1 - in_unlabeled) * density[1]
        return np.log(weight * density[0] / mixed)

    pooled = share + (1 - share) * in_unlabeled
    for name, prior in (("unlabeled", in_unlabeled), ("pooled", pooled)):
        point = np.log((1 - prior) / prior) / 2  # prior N(1, 1) = (1 - prior) N(-1, 1)
        found = naive.threshold(
            name, weight_ratio=weight, labeled_share=share, in_unlabeled=in_unlabeled
        )
        assert found == pytest.approx(minimiser(point), rel=1e-12)


def test_naives_threshold_by_hand():
    """P and U as large as each other, half of U positive: one third of the pooled sample's odds."""
    half = {"weight_ratio": 1.0, "labeled_share": 0.5, "in_unlabeled": 0.5}
    assert sigmoid(naive.threshold("pooled", **half)) == pytest.approx(1 / 3)
    assert sigmoid(naive.threshold("unlabeled", **half)) == pytest.approx(1 / 2)
    assert naive.threshold("zero", **half) == 0


@pytest.mark.parametrize("name", ["unlabeled", "pooled"])
@pytest.mark.parametrize("weighting", ["balanced", "pooled", "prior"])
def test_naive_moves_its_scores_by_the_threshold_of_its_weights(data, weighting, name):
    info = data.info
    given = {}
    for chosen in ("zero", name):
        *_, (method, state, arrays) = first_loss(
            data, "naive", weighting=weighting, threshold=chosen
        )
        if chosen != "zero":  # as before every evaluation
            state = method.calibrate(state, arrays)
        given[chosen] = np.asarray(method.predict(state, arrays.inputs[:20]))
    scores, moved = given.values()
    batches_with_p = 1 - math.comb(info.n_u, 16) / math.comb(info.n, 16)
    ratio = {
        "balanced": batches_with_p,
        "pooled": info.n_p / info.n_u,
        "prior": batches_with_p * info.prior / (1 - info.prior),
    }
    inside, own = info.prior_unlabeled, info.n_p / info.n
    odds = {
        "unlabeled": ratio[weighting] / (2 * inside),
        "pooled": ratio[weighting] * (1 - own) / (own + 2 * (1 - own) * inside),
    }
    np.testing.assert_allclose(scores - moved, np.log(odds[name]), rtol=1e-4)


def test_a_batch_without_p_takes_weight_from_p(data):
    """Three of P and seven of U: by counting, two drawn are both of U with chance 7 6 / (10 9)."""
    info = data.info._replace(n_p=3, n_u=7)
    for size, chance in ((1, 7 / 10), (2, 42 / 90), (7, 1 / 120), (8, 0)):
        assert naive._without_positives(info, size) == pytest.approx(chance, rel=1e-9)
    few = data.info._replace(n_p=100, n_u=59_900, prior=0.3, prior_unlabeled=0.3)
    cuts = {}
    for batching in ("joint", "separate"):
        settings = {"threshold": "unlabeled", "batching": batching, "batch_size": 256}
        config = tiny.config("naive", **MLP, **settings)
        cuts[batching] = naive._threshold(config.method, few)
    # 0.3476 of the batches hold some of P.
    has_p = 1 - (1 - 100 / 60_000) ** 256
    assert cuts["joint"] - cuts["separate"] == pytest.approx(np.log(has_p), abs=5e-3)
    assert cuts["separate"] == pytest.approx(-np.log(0.6))


def test_naives_threshold_leaves_its_rule_for_the_epoch_alone(data):
    """The VPU risk is that of the scores before a threshold."""
    held = tiny.problem(num_validation=40)
    rows = {}
    for name in ("zero", "unlabeled"):
        _, _, _, (method, state, arrays) = first_loss(data, "naive", threshold=name)
        judge = Evaluator(method, held, arrays, tiny.mesh(), task=tasks.of(held), batch_size=64)
        rows[name] = judge.begin(state).row()
    zero, moved = rows["zero"], rows["unlabeled"]
    assert zero["val_vpu_risk"] == moved["val_vpu_risk"]
    assert zero["val_nnpu_risk"] != moved["val_nnpu_risk"]  # which is of what is predicted


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "sigmoid"},
        {"online": "temperature"},
        {"weighting": "pooled"},
        {"align_weight": 1.0},
    ],
    ids=["sigmoid", "online", "weights", "alignment"],
)
def test_naives_threshold_asks_for_scores_that_are_log_odds(data, changes):
    if "weighting" in changes:
        changes = changes | {"example_weights": "batch"}
    config = tiny.config("naive", **(MLP | {"threshold": "pooled"} | changes))
    with pytest.raises(ValueError, match="method.threshold is 'pooled'; accepted: 'zero', unless"):
        methods.module("naive").build(config, data.info)


def test_naive_of_before_thresholds_is_built_and_goes_on(data):
    """Models and runs whose configuration has no such field."""
    section = tiny.config("naive", **MLP).to_dict()
    now = config_lib.fingerprint(ml_collections.FrozenConfigDict(section))
    del section["method"]["threshold"]
    before = ml_collections.FrozenConfigDict(section)
    assert methods.build(before, data.info).calibrate is None
    assert config_lib.fingerprint(before) == now


def test_an_unknown_threshold_of_naive_is_named(data):
    config = tiny.config("naive", **(MLP | {"threshold": "odd", "loss": "sigmoid"}))
    with pytest.raises(ValueError, match="method.threshold is 'odd'; accepted: 'zero', 'unl"):
        methods.module("naive").build(config, data.info)


def test_a_threshold_that_is_no_log_odds_has_no_formula():
    with pytest.raises(
        ValueError, match="name is 'prior'; accepted: 'zero', 'unlabeled', 'pooled'"
    ):
        naive.threshold("prior", weight_ratio=1.0, labeled_share=0.1, in_unlabeled=0.4)


def test_weighted_bce_takes_the_ratio_of_counts(data):
    scores, labeled, metrics, _ = first_loss(data, "weighted_bce")
    weight = data.info.n_u / data.info.n_p
    losses = np.where(labeled, weight * np.log1p(np.exp(-scores)), np.log1p(np.exp(scores)))
    np.testing.assert_allclose(metrics["loss"], losses.mean(), rtol=1e-5)


@pytest.mark.parametrize("calibration", ["auto", "none", "unlabeled"])
@pytest.mark.parametrize("name", ["upu", "nnpu"])
def test_calibration_puts_the_right_priors_into_the_risk(data, name, calibration):
    scores, labeled, metrics, _ = first_loss(data, name, calibration=calibration)
    info = data.info
    front = info.prior_unlabeled if calibration == "unlabeled" else info.prior
    inside = info.prior if calibration == "none" else info.prior_unlabeled
    weight = info.n_u / info.n if calibration == "auto" else 1.0
    as_negative = sigmoid(scores)
    negative = np.mean(as_negative[~labeled]) - inside * np.mean(as_negative[labeled])
    negative *= weight
    if name == "nnpu":
        negative = max(negative, 0)
    wanted = front * np.mean(sigmoid(-scores[labeled])) + negative
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)


def test_calibration_on_the_whole_data_set_is_the_mean_over_p_and_u_together(data):
    """Section 13: the one-sample risk replaces the mean over U by that over P and U."""
    scores = np.random.default_rng(0).normal(size=data.info.n)
    labeled = data.labeled
    numbers = calibration_lib.risk_numbers(data.info)
    got = jax.jit(lambda scores: risks.upu(scores, labeled, **numbers))(scores)
    pi, as_negative = data.info.prior, sigmoid(scores)
    union = as_negative.mean() - pi * as_negative[labeled].mean()
    wanted = pi * np.mean(sigmoid(-scores[labeled])) + union
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_calibrated_batches_have_the_shares_of_the_data_and_not_their_own(data):
    """A public implementation takes the mean over all of the batch: exact only at as many P as U.

    Batches of 2 P and 2 U from 3 P and 5 U. Each is the risk as its authors write it, with
    c = n_P / (pi n), and the mean over all batches is the risk of the whole data set.
    """
    info = data.info._replace(n_p=3, n_u=5, prior=0.5, prior_unlabeled=0.2)
    g = 2 * np.random.default_rng(0).normal(size=8)  # P first
    rows = [
        (*p, *u)
        for p in itertools.combinations(range(3), 2)
        for u in itertools.combinations(range(3, 8), 2)
    ]
    scores, labeled = g[np.array(rows)], np.array([1, 1, 0, 0])
    config = tiny.config("nnpu", **MLP, beta=100.0).method  # the sign rule never fires
    found = jax.jit(jax.vmap(lambda scores: nnpu.risk(config, info)(scores, labeled)))(scores)
    c, pi = 3 / (0.5 * 8), 0.5
    of_p = pi * (sigmoid(-scores[:, :2]) + (c - 1) * sigmoid(scores[:, :2])).mean(1)
    of_u = (1 - c * pi) * sigmoid(scores[:, 2:]).mean(1)
    np.testing.assert_allclose(found, of_p + of_u, rtol=1e-5)
    whole = pi * (sigmoid(-g[:3]) - sigmoid(g[:3])).mean() + sigmoid(g).mean()
    np.testing.assert_allclose(found.mean(), whole, rtol=1e-5)


def test_two_sample_data_need_no_calibration(data):
    info = data.info._replace(setting="two_sample", prior_unlabeled=data.info.prior)
    numbers = [calibration_lib.risk_numbers(info, mode) for mode in calibration_lib.MODES]
    assert numbers[0] == numbers[1] == numbers[2]
    assert numbers[0]["unlabeled_weight"] == 1.0


@pytest.mark.parametrize(
    ("name", "changes", "kept"),
    [("nnpu", {}, True), ("nnpu", {"keep_positive": False}, False), ("pusb", {}, False)],
)
def test_nnpu_alone_keeps_the_positive_part_in_correction_steps(data, name, changes, kept):
    config = tiny.config(name, **(MLP | changes)).method
    risk = methods.module("nnpu").risk(config, data.info)
    scores, labeled = jnp.array([0.1, -9.0, -8.0, -9.0]), jnp.array([1, 0, 0, 0])  # it fires
    surrogate = {"nnpu": risks.sigmoid_loss, "pusb": risks.logistic_loss}[name]
    numbers = calibration_lib.risk_numbers(data.info) | {"loss": surrogate}

    def slope(keep):
        return jax.grad(lambda g: risks.nnpu(g, labeled, keep_positive=keep, **numbers))(scores)

    wanted, other = slope(kept), slope(not kept)
    found = jax.grad(lambda g: risk(g, labeled))(scores)
    np.testing.assert_array_equal(found, wanted)
    assert not np.allclose(found, other)


def test_correction_steps_of_nnpu_are_as_long_as_gamma_says_and_need_ascent(data):
    scores, labeled = jnp.array([0.1, -9.0, -8.0, -9.0]), jnp.array([1, 0, 0, 0])  # it fires

    def slope(**changes):
        config = tiny.config("nnpu", **MLP, keep_positive=False, **changes).method
        risk = methods.module("nnpu").risk(config, data.info)
        return np.asarray(jax.grad(lambda g: risk(g, labeled))(scores), np.float64)

    whole = slope()
    assert (np.abs(whole) > 1e-6).all()
    np.testing.assert_allclose(slope(gamma=0.5), whole / 2, rtol=1e-6)
    # Without ascent the positive part alone is left, of which U is no part.
    descent = slope(ascent=False)
    np.testing.assert_array_equal(descent[1:], 0)
    of_p = -data.info.prior * sigmoid(0.1) * sigmoid(-0.1)
    np.testing.assert_allclose(descent[0], of_p, rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "logistic"},
        {"beta": 0.02},
        {"gamma": 0.5},
        {"ascent": False},
        {"calibration": "none"},
    ],
    ids=str,
)
def test_imbalanced_nnpu_follows_its_settings_where_the_sign_rule_fires(data, changes):
    scores, labeled = jnp.array([0.1, -9.0, -8.0, -9.0]), jnp.array([1, 0, 0, 0])  # it fires

    def found(**changes):
        config = tiny.config("imbalanced_nnpu", **MLP, positives_per_batch=4, **changes).method
        risk = imbalanced_nnpu.risk(config, data.info)
        return jax.value_and_grad(lambda g: risk(g, labeled))(scores)

    def wanted(loss="sigmoid", calibration="auto", **changes):
        prior = data.info.prior_unlabeled if calibration == "auto" else data.info.prior
        function = {"sigmoid": risks.sigmoid_loss, "logistic": risks.logistic_loss}[loss]
        rule = {"prior": prior, "loss": function} | changes
        return jax.value_and_grad(lambda g: risks.imbalanced_nnpu(g, labeled, **rule))(scores)

    got, by_default = found(**changes), found()
    for x, y in zip(got, wanted(**changes), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-9)
    assert not all(np.allclose(x, y, rtol=1e-2) for x, y in zip(got, by_default, strict=True))


@pytest.mark.parametrize("loss", ["logistic", "double_sigmoid"])
def test_upu_descends_on_the_loss_it_is_given(data, loss):
    changes = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "lr_schedule": "constant"}
    method, state, _, batch = start(data, "upu", loss=loss, learning_rate=1.0, **changes)
    after, metrics = jax.jit(method.stages[0].step)(state, batch, jax.random.key(1))
    function = {
        "logistic": lambda margin: jnp.log1p(jnp.exp(-margin)),
        "double_sigmoid": lambda margin: 2 / (1 + jnp.exp(2 * margin)),
    }[loss]
    numbers = calibration_lib.risk_numbers(data.info)

    def of_params(params):
        scores = method.predict(state._replace(params=params), batch.inputs)
        return risks.upu(scores, batch.labeled, loss=function, **numbers)

    wanted, slope = jax.jit(jax.value_and_grad(of_params))(state.params)
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)
    for old, new, x in zip(*map(jax.tree.leaves, (state.params, after.params, slope)), strict=True):
        np.testing.assert_allclose(old - new, x, rtol=1e-3, atol=1e-5)


def test_the_first_scores_of_nnpu_may_be_about_the_log_odds_of_the_prior(data):
    data = data._replace(info=data.info._replace(prior=0.1))
    (own, *_, before), (shifted, *_, after) = (
        first_loss(data, "nnpu", first_bias=word) for word in ("random", "prior")
    )
    first = before[1].params["classifier"]["bias"][0]
    np.testing.assert_allclose(after[1].params["classifier"]["bias"], [np.log(0.1 / 0.9)])
    np.testing.assert_allclose(shifted - own, np.log(0.1 / 0.9) - first, rtol=1e-5)
    older = config_lib.ml_collections.ConfigDict(tiny.config("nnpu", **MLP).to_dict())
    del older.method.first_bias  # of a model that an earlier version saved
    assert methods.module("nnpu").build(older, data.info).stages
    with pytest.raises(
        ValueError, match="method.first_bias is 'half'.*accepted: 'random', 'prior'"
    ):
        first_loss(data, "nnpu", first_bias="half")


@pytest.mark.parametrize(
    ("num_labeled", "changes", "wanted"),
    [
        (4, {}, 8),  # an eighth of 64; 4 of the 192 examples would be one
        (4, {"positive_share": 0.0}, 1),
        (4, {"positive_share": 0.5}, 32),
        (4, {"positive_share": 0.999}, 63),  # one of U is left
        (4, {"positives_per_batch": 4}, 4),  # a number as it is
        (40, {}, 13),  # 40 of 192, more than an eighth
        (4, {"batching": "joint"}, 0),
    ],
)
def test_a_share_of_every_batch_of_nnpu_is_labelled_at_least(num_labeled, changes, wanted):
    data = tiny.problem(num_labeled=num_labeled)
    config = tiny.config("nnpu", **(MLP | {"batch_size": 64} | changes))
    (stage,) = methods.module("nnpu").build(config, data.info).stages
    assert data.info.n == 192 and stage.batching.num_positives == wanted


def test_imbalanced_nnpu_takes_the_prior_of_u(data):
    scores, labeled, metrics, _ = first_loss(
        data, "imbalanced_nnpu", target_prior=0.5, positives_per_batch=4
    )
    assert labeled.sum() == 4
    pi_u, as_negative = data.info.prior_unlabeled, sigmoid(scores)
    negative = np.mean(as_negative[~labeled]) - pi_u * np.mean(as_negative[labeled])
    wanted = 0.5 * np.mean(sigmoid(-scores[labeled])) + max(0.5 / (1 - pi_u) * negative, 0)
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)


def test_a_learned_prior_of_imbalanced_nnpu_is_that_of_the_population(data):
    of_batch = imbalanced_nnpu.risk(tiny.config("imbalanced_nnpu").method, data.info)
    scores, labeled = np.linspace(-1, 1, 6), np.array([1, 0, 0, 1, 0, 0])
    n_p, n_u = data.info.n_p, data.info.n_u
    assert data.info.setting == "one_sample"
    of_u = (0.6 * (n_p + n_u) - n_p) / n_u
    config = tiny.config("imbalanced_nnpu").method
    wanted = risks.imbalanced_nnpu(
        scores,
        labeled,
        prior=of_u,
        target_prior=config.target_prior,
        loss=risks.sigmoid_loss,
        beta=config.beta,
        gamma=config.gamma,
        ascent=config.ascent,
    )
    np.testing.assert_allclose(of_batch(scores, labeled, prior=0.6), wanted, rtol=1e-6)


def test_threshold_is_the_authors_order_statistic():
    scores = np.float32([0.3, -1.0, 2.0, 0.1, 0.7])
    # floor(5 x 0.6) = 3: the fourth smallest; two of five lie at or above it, one above.
    everyone = np.ones(5, bool)
    assert float(pusb.threshold(scores, 0.4, keep=everyone, count=5)) == pytest.approx(0.7)
    assert float(pusb.threshold(scores, 0.99, keep=everyone, count=5)) == pytest.approx(-1.0)
    keep = np.asarray([True, True, False, True, False])
    assert float(pusb.threshold(scores, 0.5, keep=keep, count=3)) == pytest.approx(0.1)


def test_pusb_calls_the_share_of_positives_in_u_positive(data):
    method, state, arrays = first_loss(data, "pusb")[3]
    calibrated = method.calibrate(state, arrays)
    scores = np.asarray(method.predict(calibrated, arrays.inputs))[~data.labeled]
    assert np.mean(scores > 0) == pytest.approx(data.info.prior_unlabeled, abs=1.5 / len(scores))
    plain = np.asarray(method.predict(state, arrays.inputs))[~data.labeled]
    np.testing.assert_allclose(plain - scores, calibrated.offset, rtol=1e-4, atol=1e-5)


def test_pusb_on_the_test_set_shifts_all_scores_of_a_set(data):
    method, state, arrays = first_loss(data, "pusb", threshold_on="test")[3]
    assert method.calibrate is None
    scores = method.predict(state, jnp.asarray(data.test_inputs))
    population = np.arange(len(scores)) % 3 > 0  # the rest, repeated P say, does not count
    adjusted = np.asarray(method.adjust(scores, population))
    share = np.mean(adjusted[population] > 0)
    assert share == pytest.approx(data.info.prior, abs=1.5 / population.sum())


@pytest.mark.thorough
def test_vpu_halves_its_batches_and_counts_pool_rows_as_unlabeled(data):
    _, labeled, _, (method, _, _) = first_loss(data, "vpu")
    assert labeled.sum() == 8 and not labeled[8:].any()
    assert method.stages[0].batching.pool == "all"
    two = data._replace(info=data.info._replace(setting="two_sample"))
    assert first_loss(two, "vpu")[3][0].stages[0].batching.pool == "unlabeled"


def test_vpu_trains_on_the_variational_loss(data):
    scores, labeled, metrics, _ = first_loss(data, "vpu")
    phi = sigmoid(scores)
    wanted = np.log(np.mean(phi[~labeled])) - np.mean(np.log(phi[labeled]))
    np.testing.assert_allclose(metrics["loss_variational"], wanted, rtol=1e-4, atol=1e-6)
    total = metrics["loss_variational"] + 0.3 * metrics["loss_mixup"]
    np.testing.assert_allclose(metrics["loss"], total, rtol=1e-6)
    assert metrics["loss_mixup"] > 0


def test_vpu_mixes_examples_of_u_with_labelled_ones(data, monkeypatch):
    drawn = []

    def beta(key, *parameters):
        drawn.append(parameters)
        return jnp.float32(0.25)

    monkeypatch.setattr(jax.random, "beta", beta)
    method, state, _, batch = start(data, "vpu", options={"hidden": ()}, mixup_alpha=0.7)
    # All of P are one image, so that every pair holds it.
    images = jnp.where(jnp.arange(16)[:, None, None, None] < 8, batch.inputs[0], batch.inputs)
    batch, step = batch._replace(inputs=images), jax.jit(method.stages[0].step)

    def found(params):
        return step(state._replace(params=params), batch, jax.random.key(1))[1]["loss_mixup"]

    # Phi is 1/2, and a quarter of that beside three quarters of 1 the target: 7/8.
    nothing = jax.tree.map(jnp.zeros_like, state.params)
    np.testing.assert_allclose(found(nothing), np.log(7 / 4) ** 2, rtol=1e-5)
    assert set(drawn) == {(0.7, 0.7)}

    # A linear score of a mixed image is the mixed score.
    scores = np.asarray(method.predict(state, images), np.float64)
    gap = np.log(0.25 * sigmoid(scores[8:]) + 0.75)
    gap -= np.log(sigmoid(0.25 * scores[8:] + 0.75 * scores[0]))
    np.testing.assert_allclose(found(state.params), np.mean(gap**2), rtol=1e-4)


@pytest.mark.thorough
def test_vpu_lets_gradients_flow_through_the_target_unless_told_otherwise(data):
    flow, stop = (
        first_loss(data, "vpu", mixup_target_stop_gradient=stop)[2]["loss_mixup"]
        for stop in (False, True)
    )
    np.testing.assert_allclose(flow, stop, rtol=1e-6)  # same value, other gradient
    # Plain descent: Adam's first step would only show the signs.
    first, second = (
        tiny.train_steps(
            tiny.config("vpu", optimizer="sgd", mixup_target_stop_gradient=stop, **MLP),
            data,
            steps=1,
        )[1]
        for stop in (False, True)
    )
    different = [
        not np.allclose(a, b, atol=1e-7)
        for a, b in zip(
            jax.tree.leaves(first.state.params), jax.tree.leaves(second.state.params), strict=True
        )
    ]
    assert any(different)


@pytest.mark.parametrize("quantile", [1.0, 0.9])
def test_vpu_calls_positive_what_exceeds_half_of_the_largest_phi(data, quantile):
    method, state, arrays = first_loss(data, "vpu", normalization_quantile=quantile)[3]
    calibrated = method.calibrate(state, arrays)
    scores = np.asarray(method.predict(state, arrays.inputs), np.float64)
    phi, largest = sigmoid(scores), sigmoid(np.quantile(scores, quantile))
    moved = np.asarray(method.predict(calibrated, arrays.inputs))
    np.testing.assert_allclose(scores - moved, -np.log(2 / largest - 1), rtol=1e-4)
    positive, ratio = moved > 0, phi / largest
    clear = abs(ratio - 0.5) > 1e-5
    np.testing.assert_array_equal(positive[clear], (ratio > 0.5)[clear])


def test_of_two_samples_vpu_takes_the_largest_phi_of_u(data):
    method, state, arrays = first_loss(data, "vpu")[3]
    two = data._replace(info=data.info._replace(setting="two_sample"))
    of_u, of_all = (
        methods.build(config_lib.resolve(tiny.config("vpu", **MLP)), one.info)
        for one in (two, data)
    )
    scores = np.asarray(method.predict(state, arrays.inputs))
    # An example of P has the largest score of all.
    arrays = arrays._replace(labeled=jnp.arange(len(scores)) == scores.argmax())
    moved = {}
    for name, built in (("u", of_u), ("all", of_all)):
        calibrated = built.calibrate(state, arrays)
        moved[name] = scores - np.asarray(built.predict(calibrated, arrays.inputs))
    second, largest = np.sort(scores)[-2:].astype(np.float64)
    half = {"u": sigmoid(second) / 2, "all": sigmoid(largest) / 2}
    for name, value in half.items():
        np.testing.assert_allclose(moved[name], np.log(value / (1 - value)), atol=1e-5)
    assert half["u"] < half["all"]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("lbe", "keep", 0.0001),
        ("nnpu", "loss", "hinge"),
        ("nnpu", "calibration", "all"),
        ("nnpu", "positive_share", 1.0),
        ("nnpu", "positive_share", -0.1),
        ("upu", "batching", "mixed"),
        ("imbalanced_nnpu", "target_prior", 1.0),
        ("imbalanced_nnpu", "positives_per_batch", 16),
        ("vpu", "batch_size", 15),
        ("vpu", "batching", "joint"),
        ("weighted_bce", "batching", "separate"),
        ("pusb", "threshold_on", "train"),
        ("weighted_bce", "positive_weight", -1.0),
    ],
)
def test_a_wrong_setting_is_named(data, name, field, value):
    config = tiny.config(name, **(MLP | {field: value}))
    with pytest.raises(ValueError, match=f"method.{field} is "):
        methods.module(name).build(config, data.info)


@pytest.mark.parametrize("method", ["nnpu", "upu", "pusb"])
@pytest.mark.parametrize("task", ["mnist", "cifar10"])
def test_the_authors_of_nnpu_and_nnpusb_do_not_standardise_pixels(method, task):
    config = nnpu_protocol.get_config(f"method={method},task={task}")
    assert config_lib.resolve(config).data.scaling == "unit"


def test_a_quantile_of_a_test_set_with_another_share_of_positives_is_refused():
    info = tiny.problem().info
    for drawn in ({"class_prior": 0.3}, {"num_unlabeled": 50}):
        config = tiny.config("pusb", threshold_on="test", data=drawn)
        message = "threshold_on is 'test'; accepted: 'unlabeled' where U is drawn"
        with pytest.raises(ValueError, match=message):
            methods.build(config, info)
        methods.build(config, info._replace(setting="two_sample"))
    methods.build(tiny.config("pusb", threshold_on="test"), info)
