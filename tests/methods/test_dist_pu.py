"""Dist-PU's own mathematics: every piece of its two losses, the memory, the two schedules."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.methods import dist_pu
from pujax.methods._common import network as network_lib
from pujax.training import method_setup, sharding, train_step
from tests import tiny, x64
from tests.pu_batches import sigmoid

OPTIONS = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}}


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


@pytest.fixture(scope="module")
def trained(data):
    """Configuration, method, arrays, key and the state at the start of the main stage, filled."""
    return setup(data)


def setup(data, **changes):
    config = tiny.config("dist_pu", **(OPTIONS | changes))
    method = method_setup.build(config, data, tiny.mesh()).method
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    state = None
    for stage in method.stages:
        state = train_step.init_state(stage, jax.random.key(0), state, arrays, tiny.mesh())
    state = method.stages[-1].refresh(state, arrays, jax.random.key(1))
    return config, method, arrays, state


def batch_of(stage, arrays, *, epoch=2, first_epoch=None, index=0):
    """A batch of a stage; `epoch` counts from the start of training, whose warm-up takes one."""
    if first_epoch is None:
        first_epoch = int(stage.name == "main")
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    batch = tiny.gather(arrays, plan, index, epoch=epoch, step=0, first_epoch=first_epoch)
    assert 0 < np.sum(batch.labeled) < len(batch.labeled)
    return batch


def entropy(scores):
    p = sigmoid(np.clip(scores, -10, 10))
    return np.mean(-p * np.log(p) - (1 - p) * np.log(1 - p))


def cross_entropy(scores, targets):
    p = sigmoid(np.clip(scores, -10, 10))
    return np.mean(-targets * np.log(p) - (1 - targets) * np.log(1 - p))


def test_entropy_weight_rises_as_published():
    ramp = jax.jit(dist_pu.entropy_ramp, static_argnames="num_epochs")
    got = ramp(np.float32([0.0, 20.0, 30.0, 60.0]), num_epochs=60)
    # cos 0, cos 30 degrees, cos 45 degrees, cos 90 degrees.
    wanted = [0, 1 - np.sqrt(3) / 2, 1 - np.sqrt(0.5), 1]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_entropy_weight_keeps_its_digits_from_the_first_epoch_on():
    """A difference of float32 numbers near 1 would be off by up to 2e-4 of so small a weight."""
    epochs = np.arange(1, 201, dtype=np.float32)
    got = jax.jit(lambda e: dist_pu.entropy_ramp(e, num_epochs=200))(epochs)
    wanted = 1 - np.cos(np.pi / 2 * epochs.astype(float) / 200)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_mixup_loss_is_the_shared_loss_of_both_partners():
    """lam BCE(p, t) + (1 - lam) BCE(p, t[perm]) written out, with scores beyond the clip."""
    rng = np.random.default_rng(0)
    # At an end of the clip the gradient is whole, as in PyTorch's `clamp`.
    scores = np.array([-30.0, -10.0, -2.0, 0.3, 4.0, 10.0, 12.0, 60.0])
    targets, partner, share = rng.uniform(size=8), rng.permutation(8), 0.3
    wanted = share * cross_entropy(scores, targets)
    wanted += (1 - share) * cross_entropy(scores, targets[partner])
    with x64.x64():
        mixed = share * targets + (1 - share) * targets[partner]
        got, gradient = jax.jit(jax.value_and_grad(dist_pu.clipped_cross_entropy))(scores, mixed)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)  # float64, other order
    inside = np.abs(scores) <= 10
    np.testing.assert_allclose(gradient, inside * (sigmoid(scores) - mixed) / 8, rtol=1e-9)


def test_memory_keeps_clipped_probabilities():
    got = jax.jit(dist_pu.probability)(np.float32([-80.0, 0.0, 80.0]))
    np.testing.assert_allclose(got, sigmoid([-10, 0, 10]), rtol=1e-6)


def test_warmup_loss_is_distribution_plus_entropy_of_the_unlabeled(data):
    config, method, arrays, state = setup(data, warmup_entropy_weight=0.7)
    stage = method.stages[0]
    assert stage.name == "warmup"
    batch = batch_of(stage, arrays)
    _, metrics = jax.jit(stage.step)(state, batch, jax.random.key(3))
    network = network_lib.build(config, data.info, embedding_dim=0)
    outputs, _ = network.train_pass(
        state.params, state.batch_stats, network.normalize(batch.inputs)
    )
    scores, is_p = np.asarray(outputs.logits), np.asarray(batch.labeled) > 0
    pi_u = data.info.prior_unlabeled
    risk = abs(sigmoid(scores[is_p]).mean() - 1)
    risk += abs(sigmoid(scores[~is_p]).mean() - pi_u) / (2 * pi_u)
    np.testing.assert_allclose(metrics["risk"], risk, rtol=1e-5)
    wanted = risk + 0.7 * entropy(scores[~is_p])
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)  # float32 network


def main_numbers(config, data, state, batch, key):
    """The main loss in NumPy from the network's two passes, as its specification writes it."""
    c = config.method
    network = network_lib.build(config, data.info, embedding_dim=0)
    share_key, pair_key = jax.random.split(jax.random.split(key)[1])
    share = float(jnp.sort(jax.random.uniform(share_key, [11]))[5])
    partner = np.asarray(jax.random.permutation(pair_key, 16))
    images = np.asarray(network.normalize(batch.inputs))
    mixed = jnp.asarray(share * images + (1 - share) * images[partner])
    first, stats = network.train_pass(state.params, state.batch_stats, mixed)
    second, stats = network.train_pass(state.params, stats, jnp.asarray(images))
    mixed_scores, scores = np.asarray(first.logits), np.asarray(second.logits)
    is_p = np.asarray(batch.labeled) > 0
    targets = np.asarray(state.labels)[np.asarray(batch.ids)]
    pi_u = data.info.prior_unlabeled
    risk = abs(sigmoid(scores[is_p]).mean() - 1)
    risk += abs(sigmoid(scores[~is_p]).mean() - pi_u) / (2 * pi_u)
    mixup = share * cross_entropy(mixed_scores, targets)
    mixup += (1 - share) * cross_entropy(mixed_scores, targets[partner])
    # Epoch 2 overall is epoch 1 of 3 of this phase.
    nu = c.entropy_weight * (1 - np.cos(np.pi / 2 * 1 / 3))
    loss = risk + nu * entropy(scores[~is_p])
    loss += c.mixed_entropy_weight * entropy(mixed_scores) + c.mixup_weight * mixup
    return loss, scores, stats


def test_main_loss_is_the_sum_of_its_four_terms(data):
    # Weights of similar size, so that no term hides in another's rounding.
    weights = {"entropy_weight": 3.0, "mixed_entropy_weight": 0.5, "mixup_weight": 2.0}
    config, method, arrays, state = setup(data, **weights)
    # In the middle of an epoch, through which the weight of the entropy stays.
    batch, key = batch_of(method.stages[1], arrays, index=5), jax.random.key(5)
    after, metrics = jax.jit(method.stages[1].step)(state, batch, key)
    loss, _, stats = main_numbers(config, data, state, batch, key)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5)  # float32 network
    for a, b in zip(jax.tree.leaves(after.batch_stats), jax.tree.leaves(stats), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_a_step_overwrites_the_memory_of_its_batch_and_keeps_labelled_positives_at_one(
    data, trained
):
    config, method, arrays, state = trained
    batch, key = batch_of(method.stages[1], arrays), jax.random.key(5)
    after, _ = jax.jit(method.stages[1].step)(state, batch, key)
    _, scores, _ = main_numbers(config, data, state, batch, key)
    ids, is_p = np.asarray(batch.ids), np.asarray(batch.labeled) > 0
    wanted = np.array(state.labels)
    wanted[ids] = np.where(is_p, 1, sigmoid(scores))
    np.testing.assert_allclose(after.labels, wanted, rtol=1e-5)
    np.testing.assert_array_equal(after.labels[: data.info.n_p], 1)
    assert np.abs(wanted[ids] - np.asarray(state.labels)[ids])[~is_p].min() > 1e-4  # it moved


@pytest.mark.parametrize(
    ("calibration", "share"), [("auto", (0.6 * 192 - 40) / 152), ("none", 0.6)]
)
def test_a_learned_prior_asks_of_u_what_it_leaves_there(data, calibration, share):
    config = tiny.config("dist_pu", calibration=calibration).method
    parts = SimpleNamespace(config=config, info=data.info, share=0.1)
    numbers = dist_pu._numbers(parts, {"prior": 0.6, "mixup_weight": 9.0})
    assert numbers["share"] == pytest.approx(share)
    assert numbers["mixup_weight"] == 9.0
    assert numbers["entropy_weight"] == config.entropy_weight
    assert dist_pu._numbers(parts, {})["share"] == 0.1


def test_memory_starts_from_evaluation_mode_probabilities_with_positives_at_one(data, trained):
    _, method, arrays, state = trained
    wanted = sigmoid(method.predict(state, arrays.inputs))
    wanted[data.labeled] = 1
    np.testing.assert_allclose(state.labels, wanted, rtol=1e-5)
    np.testing.assert_array_equal(method.soft_labels(state), state.labels)


def test_memory_is_filled_once(data):
    _, method, _, _ = setup(data)
    assert [method.stages[1].is_refreshed(epoch) for epoch in range(3)] == [True, False, False]


def test_a_step_follows_the_gradient_of_the_reported_loss(data):
    """With plain SGD the move of the parameters is a finite difference of the metric, per rate."""
    rate = 1e-3
    config, method, arrays, state = setup(
        data, optimizer="sgd", momentum=0.0, learning_rate=rate, weight_decay=0.0
    )
    batch, key = batch_of(method.stages[1], arrays, epoch=1), jax.random.key(5)
    step = jax.jit(method.stages[1].step)
    after, _ = step(state, batch, key)
    gradient = jax.tree.map(lambda a, b: (a - b) / rate, state.params, after.params)
    direction = jax.tree.map(lambda g: g / 50, gradient)
    ends = [
        step(
            state._replace(
                params=jax.tree.map(lambda p, d, s=s: p + s * d, state.params, direction)
            ),
            batch,
            key,
        )[1]["loss"]
        for s in (-1, 1)
    ]
    slope = (ends[1] - ends[0]) / 2
    wanted = sum(
        jnp.sum(g * d)
        for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    )
    np.testing.assert_allclose(slope, wanted, rtol=0.05)  # float32 and curvature


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("stage_index", "rates"),
    [
        # Warm-up: 5e-4 falls along a cosine to 0 over two epochs.
        (0, {0: 5e-4, 1: 2.5e-4}),
        # Main: 5e-5 to 0.7 of it over four.
        (1, {2: 5e-5, 4: 5e-5 * 0.85}),
    ],
)
def test_each_phase_has_its_own_optimizer(data, stage_index, rates):
    """Adam's first step from rest moves a weight by the learning rate against its gradient."""
    _, method, arrays, state = setup(
        data,
        num_epochs=6,
        warmup_epochs=2,
        learning_rate=5e-5,
        warmup_learning_rate=5e-4,
        weight_decay=0.0,
        warmup_weight_decay=0.0,
    )
    stage = method.stages[stage_index]
    rested = stage.init(jax.random.key(0), state, arrays)
    step = jax.jit(stage.step)
    for epoch, rate in rates.items():
        batch = batch_of(stage, arrays, epoch=epoch, first_epoch=2 * stage_index)
        after, _ = step(rested, batch, jax.random.key(2))
        kernel = after.params["classifier"]["kernel"] - rested.params["classifier"]["kernel"]
        np.testing.assert_allclose(jnp.abs(kernel).max(), rate, rtol=1e-2)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["dist_pu", "pulda"])
def test_the_warmup_has_a_weight_decay_of_its_own(data, name):
    def moved_by_a_step(**changes):
        config = tiny.config(name, **OPTIONS, **changes)
        stage = method_setup.build(config, data, tiny.mesh()).method.stages[0]
        assert stage.name == "warmup"
        arrays = sharding.replicate(data.training_data(), tiny.mesh())
        state = train_step.init_state(stage, jax.random.key(0), None, arrays, tiny.mesh())
        after, _ = jax.jit(stage.step)(state, batch_of(stage, arrays), jax.random.key(2))
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves(after.params)])

    as_it_is = moved_by_a_step()
    np.testing.assert_array_equal(moved_by_a_step(weight_decay=1.0), as_it_is)
    assert (moved_by_a_step(warmup_weight_decay=1.0) != as_it_is).any()


def test_main_phase_starts_from_the_warmed_up_network_with_a_fresh_optimizer(data):
    _, method, arrays, state = setup(data)
    warmup, main = method.stages
    warmed, _ = jax.jit(warmup.step)(state, batch_of(warmup, arrays), jax.random.key(0))
    started = main.init(jax.random.key(7), warmed, arrays)
    for a, b in zip(
        jax.tree.leaves((started.params, started.batch_stats)),
        jax.tree.leaves((warmed.params, warmed.batch_stats)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    assert all((np.asarray(x) == 0).all() for x in jax.tree.leaves(started.opt_state))


@pytest.mark.parametrize(
    ("setting", "mode", "field"),
    [
        ("one_sample", "auto", "prior_unlabeled"),
        ("one_sample", "none", "prior"),
        ("two_sample", "auto", "prior"),
    ],
)
def test_the_share_asked_of_unlabeled_data_follows_the_setting(setting, mode, field):
    data = tiny.problem(setting=setting)
    _, method, arrays, state = setup(data, calibration=mode)
    batch = batch_of(method.stages[0], arrays)
    unlabeled = batch._replace(labeled=jnp.zeros_like(batch.labeled))
    # All scores 0: every probability is one half, and without positives one term is left.
    silent = state._replace(params=jax.tree.map(jnp.zeros_like, state.params))
    _, metrics = jax.jit(method.stages[0].step)(silent, unlabeled, jax.random.key(0))
    share = getattr(data.info, field)
    np.testing.assert_allclose(metrics["risk"], abs(0.5 - share) / (2 * share), rtol=1e-5)
    assert data.info.prior != data.info.prior_unlabeled or setting == "two_sample"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("warmup_epochs", 9),
        ("mixup_alpha", 0.0),
        ("warmup_learning_rate", -1.0),
        ("warmup_lr_floor", 2.0),
        ("mixup_weight", -1.0),
        ("calibration", "both"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(data, field, value):
    with pytest.raises(ValueError, match=f"method.{field} is {value!r}; accepted"):
        dist_pu.build(tiny.config("dist_pu", **(OPTIONS | {field: value})), data.info)


def test_one_phase_can_be_left_out(data):
    for epochs, names in ((0, ["main"]), (4, ["warmup"])):
        config = tiny.config("dist_pu", warmup_epochs=epochs, **OPTIONS)
        method = dist_pu.build(config, data.info)
        assert [stage.name for stage in method.stages] == names
