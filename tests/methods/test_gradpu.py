"""GradPU: pairs, ramp, penalty and what it does, and the settings it refuses."""

import itertools

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from pujax import methods, risks
from pujax.methods import gradpu, naive
from pujax.methods._common import classifier
from pujax.methods._common import network as network_lib
from pujax.models import heads
from pujax.training import sharding, train_step
from tests import tiny

MLP = {"model": "mlp", "options": {"hidden": (16, 16)}}


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


def first_step(data, module=gradpu, name="gradpu", *, step=0, **changes):
    """Method, state before, batch, key, state after and metrics of one step."""
    config = tiny.config(name, **(MLP | changes))
    method = module.build(config, data.info)
    stage = method.stages[0]
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    key = jax.random.key(1)
    state = train_step.init_state(stage, key, None, arrays, tiny.mesh())
    plan = train_step.epoch_plan(stage, key, 0, arrays)
    batch = tiny.gather(arrays, plan, 0, epoch=0, step=step)
    after, metrics = jax.jit(stage.step)(state, batch, key)
    return method, state, batch, key, after, metrics


@pytest.mark.parametrize("num_positives", [3, 9])
def test_pairs_use_the_larger_set_once_each_and_draw_the_smaller_from_itself(num_positives):
    images = jnp.arange(12.0)[:, None]
    labeled = (jnp.arange(12) < num_positives).astype(jnp.float32)
    positives, unlabeled, mix, weights = gradpu.pairs(
        jax.random.key(0), images, labeled, num_positives=num_positives
    )
    assert positives.shape == unlabeled.shape == (9, 1) and mix.shape == (9,) and weights is None
    assert set(np.ravel(positives)) <= set(range(num_positives))
    assert set(np.ravel(unlabeled)) <= set(range(num_positives, 12))
    larger = positives if num_positives == 9 else unlabeled
    assert len(set(np.ravel(larger))) == 9


@pytest.mark.parametrize("num_positives", [0, 1, 4, 6, 9, 12])
def test_joint_pairs_exist_max_of_both_counts_times(num_positives):
    rng = np.random.default_rng(0)
    labeled = rng.permutation(np.arange(12) < num_positives).astype(np.float32)
    positives, unlabeled, mix, weights = jax.jit(gradpu.pairs, static_argnames="num_positives")(
        jax.random.key(0), jnp.arange(12.0)[:, None], jnp.asarray(labeled), num_positives=0
    )
    exists = np.asarray(weights) > 0
    wanted = max(num_positives, 12 - num_positives) if 0 < num_positives < 12 else 0
    assert exists.sum() == wanted
    p, u = (np.ravel(x)[exists].astype(int) for x in (positives, unlabeled))
    assert (labeled[p] == 1).all() and (labeled[u] == 0).all()
    if wanted:
        larger = p if num_positives > 6 else u
        assert len(set(larger)) == wanted


def test_shares_are_uniform_and_one_per_pair():
    mix = gradpu.pairs(jax.random.key(0), jnp.zeros([2001, 1]), jnp.zeros([2001]), num_positives=1)[
        2
    ]
    assert mix.shape == (2000,)
    assert np.mean(mix) == pytest.approx(0.5, abs=0.03)  # 4 standard errors are 0.026
    assert np.mean(mix < 0.25) == pytest.approx(0.25, abs=0.04)


@pytest.mark.parametrize("num_positives", [0, 500])
def test_which_positive_is_drawn_tells_nothing_of_the_share(num_positives):
    labeled = (jnp.arange(2500) < 500).astype(jnp.float32)
    positives, _, mix, weights = gradpu.pairs(
        jax.random.key(0), jnp.arange(2500.0)[:, None], labeled, num_positives=num_positives
    )
    exists = np.ones(len(mix), bool) if weights is None else np.asarray(weights) > 0
    assert exists.sum() == 2000
    drawn, shares = np.ravel(positives)[exists], np.asarray(mix)[exists]
    assert abs(np.corrcoef(drawn, shares)[0, 1]) < 0.1  # 4 standard errors are 0.09


def test_without_its_two_terms_it_is_the_naive_classifier_with_the_absolute_loss(data):
    shared = {
        "optimizer": "adam",
        "lr_schedule": "constant",
        "batching": "separate",
        "augment": False,
        "weight_decay": 5e-4,
    }
    ours = first_step(data, alpha=0.0, beta_max=0.0, **shared)
    other = first_step(data, naive, "naive", loss="double_sigmoid", weighting="balanced", **shared)
    for a, b in zip(jax.tree.leaves(ours[4]), jax.tree.leaves(other[4]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("step", "share"), [(0, 1 / 48), (47, 1.0)])
def test_the_weight_ramps_over_all_steps(data, step, share):
    # 192 training examples in batches of 16 are 12 steps; 4 epochs are 48.
    method, state, batch, _, _, metrics = first_step(data, alpha=0.0, beta_max=7.0, step=step)
    scores = method.predict(state, batch.inputs)
    wanted = risks.gradpu(scores, batch.labeled, beta=7.0 * share)
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)


@pytest.mark.parametrize("stop", [True, False])
def test_weights_are_constants_of_the_gradient_where_it_stops_there(data, stop):
    sgd = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": 0.1}
    changes = {"alpha": 0.0, "beta_max": 7.0, "stop_weight_gradient": stop, **sgd}
    method, state, batch, _, after, _ = first_step(data, step=47, **changes)

    @jax.jit
    @jax.grad
    def slope(params):
        scores = method.predict(state._replace(params=params), batch.inputs)
        return risks.gradpu(scores, batch.labeled, beta=7.0, stop_weight_gradient=stop)

    moves = jax.tree.map(lambda old, new: (old - new) / 0.1, state.params, after.params)
    for move, wanted in zip(*map(jax.tree.leaves, (moves, slope(state.params))), strict=True):
        np.testing.assert_allclose(move, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("batching", ["separate", "joint"])
@pytest.mark.parametrize("on", ["score", "tanh"])
def test_the_loss_is_risk_plus_alpha_times_the_mean_square_of_the_input_gradient(
    data, batching, on
):
    method, state, batch, key, _, metrics = first_step(
        data, alpha=0.5, beta_max=0.0, batching=batching, penalty_on=on
    )
    images = (np.asarray(batch.inputs, np.float32) / 255 - 0.6) / 0.3
    # The stage splits the key into one for views and one for the objective.
    positives, unlabeled, mix, weights = gradpu.pairs(
        jax.random.split(key)[1],
        jnp.asarray(images),
        batch.labeled,
        num_positives=method.stages[0].batching.num_positives,
    )
    share = np.asarray(mix)[:, None, None, None]
    points = (share * positives + (1 - share) * unlabeled).reshape(len(mix), -1)
    exists = np.ones(len(points)) if weights is None else np.asarray(weights)
    scores, slopes = by_hand(state.params, points.astype(np.float64))
    if on == "tanh":
        slopes = slopes * (1 - np.tanh(scores) ** 2)[:, None]
    squares = np.sum(slopes**2, axis=1)
    penalty = np.sum(squares * exists) / exists.sum()
    np.testing.assert_allclose(metrics["penalty"], penalty, rtol=1e-4)
    np.testing.assert_allclose(metrics["loss"], metrics["risk"] + 0.5 * penalty, rtol=1e-4)


def by_hand(params, x):
    """Scores and input gradients of a ReLU net of two hidden layers, by the chain rule."""
    one, two, out = (
        {name: np.asarray(value, np.float64) for name, value in layer.items()}
        for layer in (
            params["backbone"]["dense1"],
            params["backbone"]["dense2"],
            params["classifier"],
        )
    )
    first = x @ one["kernel"] + one["bias"]
    second = np.maximum(first, 0) @ two["kernel"] + two["bias"]
    scores = np.maximum(second, 0) @ out["kernel"][:, 0] + out["bias"][0]
    back = (second > 0) * out["kernel"][:, 0]
    back = (first > 0) * (back @ two["kernel"].T)
    return scores, back @ one["kernel"].T


def regularized(images, labeled, key, **changes):
    """Images of the one pass, and the risk, where the terms are the sums of scores of P and U."""
    config = gradpu.default_config()
    config.update(changes)
    seen = []

    def forward(batch_stats, images):
        seen.append(np.asarray(images))
        return heads.Outputs(jnp.sum(images**2, axis=-1), images, None), batch_stats

    def terms(scores, labeled):
        return jnp.sum(scores * (1 + 10 * labeled))

    risk, _ = gradpu._regularized(config, forward, {}, images, labeled, key, terms)
    (seen,) = seen
    return seen, risk


def test_mixup_blends_the_batch_with_one_order_of_it_and_the_terms_with_both_labels():
    labeled = jnp.array([1, 1, 0, 0, 0, 0, 0])
    shares, orders = [], set()
    for seed in range(40):
        # Rows of a diagonal say which images they were made of, and of which size.
        sizes = np.arange(1.0, 8.0)
        seen, risk = regularized(jnp.diag(sizes), labeled, jax.random.key(seed), mixup_alpha=2.0)
        seen = seen / sizes
        partners = seen - np.diag(np.diag(seen))
        order = np.where(partners.any(1), partners.argmax(1), np.arange(7))
        assert sorted(order) == list(range(7))
        orders.add(tuple(order))
        moved = order != np.arange(7)
        lam = float(np.diag(seen)[moved][0])
        np.testing.assert_allclose(np.diag(seen)[moved], lam, atol=1e-5)
        shares.append(lam)
        np.testing.assert_allclose(seen[moved, order[moved]], 1 - lam, atol=1e-5)
        scores = np.sum((seen * sizes) ** 2, axis=1)
        own, partner = (np.sum(scores * (1 + 10 * x)) for x in (labeled, labeled[order]))
        np.testing.assert_allclose(risk, lam * own + (1 - lam) * partner, rtol=1e-5)
    assert len(orders) > 35
    # Beta(2, 2): mean .5 and standard deviation .22.
    assert abs(np.mean(shares) - 0.5) < 0.15
    assert 0.15 < np.std(shares) < 0.3


def test_noise_has_the_standard_deviation_of_the_configuration_and_new_values_every_step():
    images, labeled = jnp.ones([50, 400]), jnp.zeros([50])
    first, _ = regularized(images, labeled, jax.random.key(0), input_noise=0.3)
    second, _ = regularized(images, labeled, jax.random.key(1), input_noise=0.3)
    noise = first - 1
    assert abs(noise.mean()) < 0.01
    np.testing.assert_allclose(noise.std(), 0.3, atol=0.01)
    assert abs(np.corrcoef(noise.ravel(), second.ravel())[0, 1]) < 0.05
    same, _ = regularized(images, labeled, jax.random.key(0))
    np.testing.assert_array_equal(same, images)


def test_noise_changes_the_risk_and_leaves_the_penalty(data):
    *_, noisy = first_step(data, alpha=0.5, input_noise=0.5)
    *_, plain = first_step(data, alpha=0.5)
    assert abs(float(noisy["risk"]) / float(plain["risk"]) - 1) > 1e-3
    np.testing.assert_allclose(noisy["penalty"], plain["penalty"], rtol=1e-6)


def test_dropout_changes_the_risk_and_leaves_the_penalty_and_the_predictions(data):
    dropped = {"hidden": (16, 16), "dropout": 0.5}
    method, state, batch, _, _, with_it = first_step(data, alpha=0.5, options=dropped)
    *_, without = first_step(data, alpha=0.5)
    assert abs(float(with_it["risk"]) / float(without["risk"]) - 1) > 1e-4
    np.testing.assert_allclose(with_it["penalty"], without["penalty"], rtol=1e-6)
    plain = gradpu.build(tiny.config("gradpu", **MLP), data.info)
    np.testing.assert_array_equal(
        method.predict(state, batch.inputs), plain.predict(state, batch.inputs)
    )


def test_the_passes_of_a_step_drop_other_outputs(data):
    config = tiny.config("vpu", model="mlp", options={"hidden": (64,), "dropout": 0.5})
    network = network_lib.build(config, data.info, embedding_dim=0, may_drop=True)
    inputs = jnp.asarray(data.inputs[:4])
    params, stats = network.init(jax.random.key(0), inputs)
    images = network.normalize(inputs)
    passes = classifier._passes(network, params, None, jax.random.key(1))
    one, two, full, three = (
        passes(stats, images, drops=drops)[0].features for drops in (True, True, False, True)
    )
    np.testing.assert_array_equal(full, network.infer(params, stats, inputs).features)
    masks = [np.asarray(x)[np.asarray(full) > 0] > 0 for x in (one, two, three)]
    assert all(0.3 < mask.mean() < 0.7 for mask in masks)
    assert all(np.mean(a != b) > 0.2 for a, b in itertools.combinations(masks, 2))
    again = classifier._passes(network, params, None, jax.random.key(1))
    np.testing.assert_array_equal(again(stats, images)[0].features, one)


def test_several_labels_refuse_dropout():
    data = tiny.multilabel_problem(rows=True)
    config = tiny.config(
        "asymmetric", model="mlp", options={"hidden": (4,), "dropout": 0.5}, augment=False
    )
    with pytest.raises(ValueError, match="model.options.dropout is 0.5; accepted: 0.0 with method"):
        methods.build(config, data.info)


@pytest.mark.parametrize("name", ["lagam", "self_pu", "cvir"])
def test_a_method_whose_passes_drop_nothing_refuses_dropout(data, name):
    config = tiny.config(name, model="mlp", options={"hidden": (4,), "dropout": 0.5})
    accepted = rf"model.options.dropout is 0.5; accepted: 0.0 with method.name='{name}'"
    with pytest.raises(ValueError, match=accepted):
        methods.build(config, data.info)


@pytest.mark.parametrize(
    ("options", "changes", "field"),
    [
        (
            {"dropout": 0.5},
            {},
            r"model.options.dropout is 0.5; accepted: 0.0 with method.align_weight",
        ),
        ({}, {"mixup_alpha": 1.0}, r"method.mixup_alpha is 1.0; accepted: 0 with method.align"),
    ],
)
def test_alignment_takes_neither_dropout_nor_mixup(data, options, changes, field):
    config = tiny.config(
        "gradpu", model="mlp", options={"hidden": (4,)} | options, align_weight=0.1, **changes
    )
    with pytest.raises(ValueError, match=field):
        gradpu.build(config, data.info)


@pytest.mark.thorough
def test_a_large_penalty_flattens_the_scores(data):
    spreads = []
    for alpha in (0.0, 30.0):
        config = tiny.config("gradpu", alpha=alpha, beta_max=0.0, learning_rate=0.05, **MLP)
        method, carry = tiny.train_steps(config, data, steps=24)
        spreads.append(np.std(method.predict(carry.state, jnp.asarray(data.test_inputs))))
    assert spreads[1] < 0.1 * spreads[0]


def test_a_model_from_before_noise_and_mixup_is_built(data):
    tree = tiny.config("gradpu", **MLP).to_dict()
    for name in ("input_noise", "mixup_alpha"):
        del tree["method"][name]
    gradpu.build(ml_collections.ConfigDict(tree), data.info)


def test_batch_norm_is_refused(data):
    with pytest.raises(ValueError, match=r"model.options.batch_norm is True; accepted: False"):
        gradpu.build(tiny.config("gradpu"), data.info)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", -1.0),
        ("beta_max", -0.1),
        ("penalty_on", "logit"),
        ("input_noise", -0.1),
        ("mixup_alpha", float("nan")),
    ],
)
def test_a_wrong_setting_is_named(data, field, value):
    with pytest.raises(ValueError, match=f"method.{field} is "):
        gradpu.build(tiny.config("gradpu", **(MLP | {field: value})), data.info)
