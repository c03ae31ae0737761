"""HolisticPU: trend scores, the natural break and its second cut, the two phases, consistency."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import augment
from pujax.methods import holistic_pu
from pujax.methods._common import network as network_lib
from pujax.training import method_setup, sharding, train_step
from tests import tiny
from tests.pu_batches import LN3

OPTIONS = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}, "augment": False}


@functools.cache
def setup(**changes):
    data = tiny.problem()
    config = tiny.config("holistic_pu", **(OPTIONS | changes))
    method = method_setup.build(config, data, tiny.mesh()).method
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    states = []
    for index, stage in enumerate(method.stages):
        previous = states[-1] if states else None
        key = jax.random.key(index)
        states.append(train_step.init_state(stage, key, previous, arrays, tiny.mesh()))
    return config, data, method, arrays, states


def batch_of(stage, arrays, *, index=0, epoch=0, first_epoch=0):
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    return tiny.gather(arrays, plan, index, epoch=epoch, step=0, first_epoch=first_epoch)


def logistic(x):
    return np.log1p(np.exp(-np.asarray(x, np.float64)))


def test_trend_scores_of_constants_jumps_and_ramps():
    history = np.zeros((4, 5))
    history[0] = 0.3
    history[1, 2:] = 1  # one jump up
    history[2] = [1, 1, 1, 0, 0]
    history[3] = [0.1, 0.3, 0.5, 0.7, 0.9]
    ramp = np.log(1 + 0.2 + 0.02)
    wanted = [0, np.log(2.5) / 4, np.log(0.5) / 4, ramp]
    np.testing.assert_allclose(holistic_pu.trend_scores(history), wanted, rtol=1e-12, atol=1e-15)


def test_a_trend_score_is_the_total_rise_but_for_cubes():
    rng = np.random.default_rng(0)
    history = 0.5 + np.cumsum(rng.uniform(-0.05, 0.05, [200, 8]), axis=1)
    rise = (history[:, -1] - history[:, 0]) / 7
    error = np.abs(holistic_pu.trend_scores(history) - rise)
    assert (error <= 1.5 * np.abs(np.diff(history)).max(1) ** 3 / 6).all() and error.max() > 0
    d = 0.05
    one = holistic_pu.trend_scores(np.array([[0.2, 0.2 + d]]))[0]
    assert one == pytest.approx(d - d**3 / 6, abs=1e-6)


def split_costs(values):
    """Squared deviations below and above every value but the largest, each split by that value."""
    costs = {}
    for cut in np.unique(values)[:-1]:
        parts = values[values <= cut], values[values > cut]
        costs[cut] = sum(((part - part.mean()) ** 2).sum() for part in parts)
    return costs


def brute_force(values):
    costs = split_costs(values)
    return min(costs, key=costs.get) if costs else np.max(values)


def test_the_break_is_that_of_all_splits():
    rng = np.random.default_rng(0)
    for seed in range(40):
        values = rng.normal(size=2 + seed % 11) + 3 * (rng.random(2 + seed % 11) < 0.4)
        assert holistic_pu.natural_break(values + 1e3) == brute_force(values + 1e3)
        ties = np.round(values)  # where two splits cost the same, either will do
        costs, found = split_costs(ties), holistic_pu.natural_break(ties)
        assert costs[found] == pytest.approx(min(costs.values())) if costs else found == ties[0]
    clusters = np.array([0.1, 5.2, 0.3, 5.1, 0.2])
    assert holistic_pu.natural_break(clusters) == 0.3
    assert holistic_pu.natural_break(np.full(4, 0.7)) == 0.7  # nothing is above it
    assert holistic_pu.natural_break(np.array([1.0])) == 1.0


def test_a_second_cut_follows_only_a_break_above_zero():
    falling = np.array([-0.3, -0.28, -0.05, -0.04, 0.0])
    assert holistic_pu.cut(falling, limit=0.02) == -0.28
    apart = np.array([-0.5, -0.48, -0.46, 0.3, 0.31])  # the upper class alone is above 0
    assert holistic_pu.cut(apart, limit=0.02) == -0.46
    # A few that rise most would be all there is above the first break.
    rising = np.array([-0.05, -0.04, 0.0, 0.01, 0.9, 1.0])
    assert holistic_pu.natural_break(rising) == 0.01
    assert holistic_pu.cut(rising, limit=0.02) == -0.04
    assert holistic_pu.cut(rising, limit=2.0) == 0.01
    assert holistic_pu.cut(np.array([0.5, 0.9]), limit=0.02) == 0.5  # nothing is left to cut


def test_records_in_which_negatives_fall_and_positives_wander_are_taken_apart():
    rng = np.random.default_rng(0)
    n, steps = 1000, 15
    positive = np.arange(n) < 300
    falling = 0.5 * 0.8 ** np.arange(steps) + rng.normal(0, 0.02, [n, steps])
    wandering = np.clip(0.5 + np.cumsum(rng.normal(0, 0.03, [n, steps]), axis=1), 0, 1)
    trend = holistic_pu.trend_scores(np.where(positive[:, None], wandering, falling))
    found = holistic_pu.cut(trend, limit=0.2 / (steps - 1))
    assert np.mean((trend > found) == positive) > 0.95


def test_labels_of_u_move_from_negative_to_the_cut():
    got = [
        float(holistic_pu.label_weight(np.float32(e), num_epochs=25, power=0.8))
        for e in (0, 12, 24)
    ]
    np.testing.assert_allclose(got, [0, 0.48**0.8, 0.96**0.8], rtol=1e-6)


def test_consistency_counts_confident_rows_alone_over_all_of_u():
    weak = jnp.array([5.0, -5.0, 1.0, 5.0])
    strong = jnp.array([LN3, LN3, LN3, LN3])
    counts = jnp.array([True, True, True, False])
    ask = functools.partial(holistic_pu.consistency, confidence=0.9)
    got, slopes = jax.value_and_grad(ask)(weak, strong, counts)
    np.testing.assert_allclose(got, (np.log(4 / 3) + np.log(4)) / 3, rtol=1e-6)
    np.testing.assert_array_equal(slopes, np.zeros(4))  # those of the weak view
    of_strong = jax.grad(ask, argnums=1)(weak, strong, counts)
    np.testing.assert_allclose(of_strong, [-1 / 12, 3 / 12, 0, 0], rtol=1e-6)
    assert ask(jnp.array([2.0, -2.0]), strong[:2], counts[:2]) == 0  # 0.88 is not enough


@pytest.mark.thorough
def test_first_phase_smooths_labels_of_p_and_averages_the_weights():
    config, data, method, arrays, (state, _) = setup(label_smoothing=0.3)
    stage = method.stages[0]
    assert (stage.name, stage.batching.num_positives, stage.batching.steps) == ("trend", 8, 8)
    batch = batch_of(stage, arrays)
    network = network_lib.build(config, data.info, embedding_dim=0)
    outputs, _ = network.train_pass(
        state.params, state.batch_stats, network.normalize(batch.inputs)
    )
    after, metrics = jax.jit(stage.step)(state, batch, jax.random.key(0))
    scores = np.asarray(outputs.logits, np.float64)
    p, u = scores[:8], scores[8:]
    wanted = np.mean(0.85 * logistic(p) + 0.15 * logistic(-p)) + np.mean(logistic(-u))
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)
    for old, new, mean in zip(
        *map(jax.tree.leaves, (state.params, after.params, after.teacher[0])), strict=True
    ):
        np.testing.assert_allclose(mean, 0.5 * old + 0.5 * new, rtol=1e-5, atol=1e-7)
    for new, copied in zip(
        *map(jax.tree.leaves, (after.batch_stats, after.teacher[1])), strict=True
    ):
        np.testing.assert_array_equal(new, copied)


def test_every_epoch_records_the_teacher_in_evaluation_mode_and_the_last_one_cuts():
    _, data, method, arrays, (first, second) = setup()
    trend, classify = method.stages
    assert [trend.is_refreshed(e) for e in range(2)] == [True, True]
    assert [classify.is_refreshed(e) for e in range(2)] == [True, False]
    np.testing.assert_array_equal(
        trend.refresh(first, arrays, jax.random.key(0), 0).history, first.history
    )
    moved = first._replace(teacher=jax.tree.map(lambda x: 1.5 * x, first.teacher))
    recorded = trend.refresh(moved, arrays, jax.random.key(0), 1)
    as_network = first._replace(params=moved.teacher[0], batch_stats=moved.teacher[1])
    p = 1 / (1 + np.exp(-np.asarray(method.predict(as_network, arrays.inputs), np.float64)))
    np.testing.assert_allclose(recorded.history[:, 0], p, rtol=1e-5)
    assert not np.any(recorded.history[:, 1])
    # The second phase keeps the teacher of the first, whatever its own network is.
    kept = classify.init(jax.random.key(9), recorded, arrays)
    divided = classify.refresh(kept, arrays, jax.random.key(0), 0)
    np.testing.assert_allclose(divided.history[:, 1], p, rtol=1e-5)
    # Every difference is 0 then: nothing is called positive.
    is_u = ~data.labeled
    assert method.estimates(divided)["estimated_prior"] == 0
    rose = kept._replace(history=kept.history.at[:, 0].set(jnp.where(data.truth == 1, 0, p)))
    divided = classify.refresh(rose, arrays, jax.random.key(0), 0)
    np.testing.assert_array_equal(divided.labels, (data.truth == 1) | data.labeled)
    share = data.truth[is_u].mean()
    np.testing.assert_allclose(method.estimates(divided)["estimated_prior"], share, rtol=1e-6)
    np.testing.assert_array_equal(method.soft_labels(divided), divided.labels)


def test_records_are_of_images_as_they_are_where_training_augments_them():
    """A public implementation records training batches, of random views in training mode."""
    *_, method, arrays, (first, second) = setup(augment=True)
    trend, classify = method.stages
    moved = first._replace(teacher=jax.tree.map(lambda x: 1.5 * x, first.teacher))
    as_network = first._replace(params=moved.teacher[0], batch_stats=moved.teacher[1])
    # Few rows at a time: in training mode, and with random views, scores are of their company.
    rows = np.asarray(arrays.inputs)
    predict = jax.jit(method.predict)
    parts = [predict(as_network, rows[i : i + 20]) for i in range(0, len(rows), 20)]
    p = 1 / (1 + np.exp(-np.concatenate(parts).astype(np.float64)))
    assert np.ptp(p) > 0.1
    recorded = trend.refresh(moved, arrays, jax.random.key(0), 1)
    np.testing.assert_allclose(recorded.history[:, 0], p, rtol=1e-5)
    kept = second._replace(teacher=moved.teacher)
    divided = classify.refresh(kept, arrays, jax.random.key(0), 0)
    np.testing.assert_allclose(divided.history[:, 1], p, rtol=1e-5)


def test_the_rate_falls_in_both_phases_and_starts_again_in_the_second():
    """That of a public implementation rises through the whole first phase."""
    lengths = {"num_epochs": 5, "pretrain_epochs": 3, "learning_rate": 0.2}
    *_, method, arrays, states = setup(**lengths)
    first_epoch = 0
    for stage, state in zip(method.stages, states, strict=True):
        step, found, wanted = jax.jit(stage.step), [], []
        for epoch in range(stage.num_epochs):
            for index in (0, 6):
                at = {"index": index, "epoch": first_epoch + epoch, "first_epoch": first_epoch}
                after, _ = step(state, batch_of(stage, arrays, **at), jax.random.key(0))
                # From a momentum of 0, weights move by the rate times the momentum.
                moves, momenta = (
                    np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])
                    for tree in (
                        jax.tree.map(jnp.subtract, state.params, after.params),
                        after.opt_state,
                    )
                )
                found.append(np.vdot(moves, momenta) / np.vdot(momenta, momenta))
                # The longer phase, of 3 epochs of 8 steps, sets the pace of both.
                wanted.append(0.2 * np.cos(7 * np.pi / 16 * (epoch + index / 8) / 3))
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
        assert found[0] == pytest.approx(0.2, rel=1e-4) and (np.diff(found) < 0).all()
        first_epoch += stage.num_epochs


def test_nothing_that_rises_is_said(caplog):
    _, _, method, arrays, (_, second) = setup()
    same = jax.tree.map(jnp.zeros_like, second.teacher)
    still = second._replace(teacher=same, history=jnp.full_like(second.history, 0.5))
    with caplog.at_level("WARNING"):
        divided = method.stages[1].refresh(still, arrays, jax.random.key(0), 0)
    assert "are equal: none is called positive" in caplog.text
    np.testing.assert_array_equal(divided.labels, arrays.labeled)


@pytest.mark.parametrize(("total_rise", "lowest"), [(0.4, 0.45), (0.6, 0.0)])
def test_what_rises_by_the_limit_in_all_is_left_out_of_a_second_cut(total_rise, lowest):
    lengths = {"num_epochs": 4, "pretrain_epochs": 3}
    _, data, method, arrays, (_, second) = setup(max_total_rise=total_rise, **lengths)
    # Trend scores of U, 1/2 ln(1 + d + d^2 / 2) with d = 1/2 - r: -0.099, 0.025 and 0.243. The
    # largest 32 are one class, all others the other, so that the break lies above 0.
    r = np.full(data.info.n, 0.5, np.float32)
    r[~data.labeled] = np.repeat(np.float32([0.7, 0.45, 0.0]), [60, 60, 32])
    teacher = jax.tree.map(jnp.zeros_like, second.teacher)  # whose last record is 1/2
    history = jnp.asarray(np.tile(r[:, None], 3))
    state = second._replace(teacher=teacher, history=history)
    divided = method.stages[1].refresh(state, arrays, jax.random.key(0), 0)
    # Two records follow the first. A limit of 0.2 for each leaves out 0.243, and the rest is cut
    # above -0.099; one of 0.3 leaves out nothing.
    np.testing.assert_array_equal(divided.labels, data.labeled | (r <= lowest))
    found = {0.45: np.log(0.82) / 2, 0.0: np.log(1.05125) / 2}[lowest]
    np.testing.assert_allclose(divided.trend_break, found, rtol=1e-5)


def test_second_phase_has_a_new_network_and_three_losses():
    config, data, method, arrays, (first, state) = setup(confidence=0.5, label_power=0.6)
    differ = jax.tree.map(lambda a, b: np.any(a != b), first.params, state.params)
    assert any(jax.tree.leaves(differ))
    stage = method.stages[1]
    # Epoch 1 of 2 of this phase.
    batch = batch_of(stage, arrays, epoch=3, first_epoch=2)
    labels = jnp.asarray((data.truth == 1) | data.labeled, jnp.float32)
    state = state._replace(labels=labels)
    network = network_lib.build(config, data.info, embedding_dim=0)
    outputs, _ = network.train_pass(
        state.params, state.batch_stats, network.normalize(batch.inputs)
    )
    after, metrics = jax.jit(stage.step)(state, batch, jax.random.key(0))
    scores = np.asarray(outputs.logits, np.float64)
    p, u = scores[:8], scores[8:]
    y = 0.5**0.6 * np.asarray(labels)[np.asarray(batch.ids)[8:]]
    agree = np.mean(logistic(np.abs(u)))  # both views are the image as it is
    wanted = np.mean(logistic(p)) + np.mean(y * logistic(u) + (1 - y) * logistic(-u)) + agree
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss_consistency"], agree, rtol=1e-5)
    for a, b in zip(*map(jax.tree.leaves, (after.teacher, state.teacher)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_labels_of_u_move_between_epochs_and_never_within_one():
    """A public implementation moves them with every step."""
    _, data, method, arrays, (_, state) = setup(confidence=0.5)
    stage = method.stages[1]
    labels = jnp.asarray((data.truth == 1) | data.labeled, jnp.float32)
    state = state._replace(labels=labels)
    rows = batch_of(stage, arrays, epoch=2, first_epoch=2)
    step = jax.jit(stage.step)
    of_epochs = []
    for epoch in (2, 3):
        within = [batch_of(stage, arrays, index=i, epoch=epoch, first_epoch=2) for i in (0, 3, 7)]
        progress = [float(batch.stage_progress) for batch in within]
        assert progress == [epoch - 2, epoch - 2 + 3 / 8, epoch - 2 + 7 / 8]
        # The same rows at three places of an epoch.
        at = [batch._replace(ids=rows.ids, inputs=rows.inputs) for batch in within]
        values = [float(step(state, batch, jax.random.key(0))[1]["loss"]) for batch in at]
        assert len(set(values)) == 1
        of_epochs.append(values[0])
    assert abs(of_epochs[0] - of_epochs[1]) > 1e-3


@pytest.mark.parametrize("few_kernels", ["off", "on"])
@pytest.mark.parametrize("frozen", [False, True])
def test_views_that_pass_together_share_the_statistics_of_batch_norm(few_kernels, frozen):
    """As one batch of all of them, in any order; two passes give other scores."""
    data = tiny.problem()
    config = tiny.config("holistic_pu", **OPTIONS, run={"few_kernels": few_kernels})
    network = network_lib.build(config, data.info, embedding_dim=0)._replace(freeze_norm=frozen)
    rng = np.random.default_rng(0)
    shape = (16, *data.info.input_shape)
    first, second = (jnp.asarray(rng.normal(m, 1, shape), jnp.float32) for m in (0, 2))
    params, stats = network.init(jax.random.key(0), data.inputs[:2])
    outputs, moved = network.train_together(params, stats, [first, second])
    joined, wanted = network.train_pass(params, stats, jnp.concatenate([first, second]))
    for got, half in zip(outputs, np.split(np.asarray(joined.logits), 2), strict=True):
        np.testing.assert_allclose(got.logits, half, rtol=1e-4, atol=1e-5)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4), moved, wanted)
    apart, _ = network.train_passes(params, stats, [first, second])
    assert np.allclose(apart[0].logits, outputs[0].logits, atol=1e-3) == frozen


@pytest.mark.thorough
@pytest.mark.parametrize("index", [0, 1])
def test_what_a_weak_view_says_is_asked_of_a_strong_one(index):
    """All else asks the weak view alone, but for P in the first phase, which both views train."""
    numbers = {"strong_ops": 1, "strong_cutout": 0.3, "label_smoothing": 0.2}
    config, data, method, arrays, states = setup(augment=True, confidence=0.5, **numbers)
    stage, key = method.stages[index], jax.random.key(0)
    # In the second phase epoch 1 of 2, where labels of U have moved.
    batch = batch_of(stage, arrays, epoch=3 * index, first_epoch=2 * index)
    labels = jnp.asarray((data.truth == 1) | data.labeled, jnp.float32)
    state = states[index]._replace(labels=labels)
    after, metrics = jax.jit(stage.step)(state, batch, key)
    weak_key, strong_key = jax.random.split(key)
    how = {"flip": config.method.flip, "padding": config.method.padding}
    strong_view = functools.partial(augment.strong_view, **how, num_ops=1, max_cutout=0.3)
    views = (
        augment.weak_view(weak_key, batch.inputs, **how),
        jax.jit(strong_view)(strong_key, batch.inputs),
    )
    network = network_lib.build(config, data.info, embedding_dim=0)
    # Batch norm sees both views of P and of U at once, as in the authors' code.
    images = jnp.concatenate([network.normalize(view) for view in views])
    outputs, moved = network.train_pass(state.params, state.batch_stats, images)
    weak, strong = np.split(np.asarray(outputs.logits), 2)
    if index == 0:
        of_p = [0.9 * logistic(x[:8]) + 0.1 * logistic(-x[:8]) for x in (weak, strong)]
        wanted = np.mean(of_p) + np.mean(logistic(-weak[8:]))
    else:
        y = 0.5**0.8 * np.asarray(labels)[np.asarray(batch.ids)[8:]]
        of_u = y * logistic(weak[8:]) + (1 - y) * logistic(-weak[8:])
        agree = np.mean(logistic(np.where(weak > 0, strong, -strong)[8:]))
        np.testing.assert_allclose(metrics["loss_consistency"], agree, rtol=1e-4)
        wanted = np.mean(logistic(weak[:8])) + np.mean(of_u) + agree
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-4)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4), after.batch_stats, moved)


@pytest.mark.parametrize(("steps", "wanted"), [(0, 152 // 8), (8, 8)])
def test_an_epoch_without_a_number_of_steps_is_one_pass_over_u(steps, wanted):
    info = tiny.problem().info
    assert (info.n_p, info.n_u) == (40, 152)
    config = tiny.config("holistic_pu", **OPTIONS, steps_per_epoch=steps)
    for stage in holistic_pu.build(config, info).stages:
        assert (stage.batching.num_positives, stage.batching.batch_size) == (8, 16)
        assert stage.batching.steps_per_epoch(info.n) == wanted


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pretrain_epochs", 1),
        ("pretrain_epochs", 4),
        ("batching", "joint"),
        ("label_smoothing", 1.0),
        ("teacher_decay", 1.0),
        ("max_total_rise", 0.0),
        ("confidence", 0.4),
        ("strong_ops", -1),
        ("strong_cutout", 2.0),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(field, value):
    changes = {"positive_share": 0.0} if field == "batching" else {}
    config = tiny.config("holistic_pu", **(OPTIONS | changes | {field: value}))
    with pytest.raises(ValueError, match=f"method.{field} is {value!r}; accepted"):
        holistic_pu.build(config, tiny.problem().info)
