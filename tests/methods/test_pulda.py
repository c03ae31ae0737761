"""PULDA's own: its two losses, the averages in the state, batches, and what evaluation may do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import methods, risks
from pujax.methods import pulda
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer
from pujax.training import method_setup, sharding, train_step
from tests import tiny

OPTIONS = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}}


@functools.cache
def setup(**changes):
    data = tiny.problem()
    config = tiny.config("pulda", **(OPTIONS | changes))
    method = method_setup.build(config, data, tiny.mesh()).method
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    states = []
    for stage in method.stages:
        previous = states[-1] if states else None
        state = train_step.init_state(stage, jax.random.key(0), previous, arrays, tiny.mesh())
        states.append(stage.refresh(state, arrays, jax.random.key(1)) if stage.refresh else state)
    return config, method, arrays, states


def batch_of(stage, arrays, index=0):
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    return tiny.gather(arrays, plan, index, epoch=1, step=0)


# None of them the default: what a phase does not hand on would show.
NUMBERS = {"sharpness": 2.0, "decay": 0.5, "margin": 1.2, "margin_decay": 0.25}


def risks_of(c, prior, scores, labeled, averages):
    alignment, share = risks.label_alignment(
        scores,
        labeled,
        prior=prior,
        average=averages[0],
        decay=c.decay,
        sharpness=c.sharpness,
    )
    margin, others = risks.two_way_margin(
        scores,
        labeled,
        prior=prior,
        averages=(averages[1], averages[2]),
        decay=c.margin_decay,
        margin=c.margin,
    )
    return alignment + margin, (share, *others)


@pytest.mark.thorough
def test_warmup_loss_is_alignment_and_margin_with_averages_from_the_second_batch_on():
    config, method, arrays, (state, _) = setup(**NUMBERS)
    stage, prior = method.stages[0], tiny.problem().info.prior_unlabeled
    assert stage.name == "warmup"
    network = network_lib.build(config, tiny.problem().info, embedding_dim=0)
    step, averages = jax.jit(stage.step), (None, None, None)
    for index in range(2):
        batch = batch_of(stage, arrays, index)
        outputs, _ = network.train_pass(
            state.params, state.batch_stats, network.normalize(batch.inputs)
        )
        wanted, averages = risks_of(config.method, prior, outputs.logits, batch.labeled, averages)
        state, metrics = step(state, batch, jax.random.key(index))
        np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-5)  # float32 network
        for got, average in zip(state.averages, averages, strict=True):
            assert got.started
            np.testing.assert_allclose(got.value, average.value, rtol=1e-5)
    # Without the floor of the distance and the factor of its gradient.
    floor = 2 * np.log(2) / 2
    far = risks.softplus_distance(averages[0].value, prior, sharpness=2) - floor
    np.testing.assert_allclose(metrics["distance"], far, rtol=1e-3)


def test_main_loss_clips_scores_and_adds_mixup():
    config, method, arrays, (_, state) = setup(**NUMBERS)
    stage, key = method.stages[1], jax.random.key(5)
    network = network_lib.build(config, tiny.problem().info, embedding_dim=0)
    # Scores of up to 80, so that the clip matters.
    head = jax.tree.map(lambda x: 30 * x, state.params["classifier"])
    state = state._replace(params=state.params | {"classifier": head})
    batch = batch_of(stage, arrays)
    after, metrics = jax.jit(stage.step)(state, batch, key)
    lam_key, pair_key = jax.random.split(jax.random.split(key)[1])
    lam = float(jnp.sort(jax.random.uniform(lam_key, [21]))[10])
    partner = np.asarray(jax.random.permutation(pair_key, 16))
    images = np.asarray(network.normalize(batch.inputs))
    mixed = jnp.asarray(lam * images + (1 - lam) * images[partner])
    first, stats = network.train_pass(state.params, state.batch_stats, mixed)
    second, _ = network.train_pass(state.params, stats, jnp.asarray(images))
    scores = np.asarray(second.logits)
    assert np.abs(scores).max() > 12
    targets = np.asarray(state.labels)[np.asarray(batch.ids)]
    targets = lam * targets + (1 - lam) * targets[partner]
    p = 1 / (1 + np.exp(-np.clip(np.float64(first.logits), -10, 10)))
    mixup = np.mean(-targets * np.log(p) - (1 - targets) * np.log(1 - p))
    prior = tiny.problem().info.prior_unlabeled
    loss, averages = risks_of(
        config.method, prior, np.clip(scores, -10, 10), batch.labeled, (None, None, None)
    )
    for got, average in zip(after.averages, averages, strict=True):
        assert got.started
        np.testing.assert_allclose(got.value, average.value, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], loss + 4.2 * mixup, rtol=1e-5)
    is_p = np.asarray(batch.labeled) > 0
    wanted = np.where(is_p, 1, 1 / (1 + np.exp(-np.clip(scores, -10, 10))))
    np.testing.assert_allclose(after.labels[batch.ids], wanted, rtol=1e-4)


@pytest.mark.thorough
def test_scores_beyond_the_clip_train_nothing_but_by_mixup():
    plain = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "mixup_weight": 0.0}
    _, method, arrays, (_, state) = setup(learning_rate=1e3, **plain)
    stage = method.stages[1]
    # Every score is 11, where the losses still have a slope.
    head = state.params["classifier"]
    head = {"kernel": jnp.zeros_like(head["kernel"]), "bias": jnp.full_like(head["bias"], 11)}
    state = state._replace(params=state.params | {"classifier": head})
    after, metrics = jax.jit(stage.step)(state, batch_of(stage, arrays), jax.random.key(5))
    assert metrics["loss_mixup"] > 1
    for a, b in zip(*map(jax.tree.leaves, (state.params, after.params)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_averages_start_afresh_with_the_second_phase():
    _, method, arrays, (state, _) = setup()
    warmed, _ = jax.jit(method.stages[0].step)(
        state, batch_of(method.stages[0], arrays), jax.random.key(0)
    )
    assert all(average.started for average in warmed.averages)
    started = method.stages[1].init(jax.random.key(7), warmed, arrays)
    assert not any(average.started for average in started.averages)


def test_the_second_phase_starts_from_probabilities_in_evaluation_mode_with_positives_at_one():
    _, method, arrays, (_, state) = setup()
    scores = np.asarray(method.predict(state, arrays.inputs), np.float64)
    wanted = np.where(arrays.labeled, 1, 1 / (1 + np.exp(-scores)))
    np.testing.assert_allclose(state.labels, wanted, rtol=1e-5)
    np.testing.assert_array_equal(method.soft_labels(state), state.labels)
    assert [method.stages[1].is_refreshed(epoch) for epoch in range(3)] == [True, False, False]


@pytest.mark.thorough
@pytest.mark.parametrize(("mode", "field"), [("auto", "prior_unlabeled"), ("none", "prior")])
def test_the_share_asked_of_unlabeled_data_follows_the_calibration(mode, field):
    """All scores are 0, so that the loss says nothing of the network and all of the share."""
    config, method, arrays, (state, _) = setup(calibration=mode)
    stage, info = method.stages[0], tiny.problem().info
    batch = batch_of(stage, arrays)
    silent = state._replace(params=jax.tree.map(jnp.zeros_like, state.params))
    _, metrics = jax.jit(stage.step)(silent, batch, jax.random.key(0))
    zeros, nothing = jnp.zeros(len(batch.labeled)), (None, None, None)
    found = {
        name: risks_of(config.method, getattr(info, name), zeros, batch.labeled, nothing)[0]
        for name in ("prior", "prior_unlabeled")
    }
    np.testing.assert_allclose(metrics["loss"], found[field], rtol=1e-5)
    assert abs(found["prior"] - found["prior_unlabeled"]) > 1e-3


def test_evaluation_leaves_the_state_and_sees_no_labels():
    """The published code moves its averages by the test set's labels after every epoch."""
    _, method, arrays, (_, state) = setup()
    assert method.calibrate is None and method.adjust is None
    scores = method.predict(state, arrays.inputs)  # a function of the state and of inputs alone
    moved = state._replace(averages=jax.tree.map(lambda x: x + 1, state.averages))
    np.testing.assert_array_equal(method.predict(moved, arrays.inputs), scores)


def test_a_batch_holds_sixteen_of_p_and_an_epoch_passes_once_over_u():
    info = tiny.problem().info._replace(n_p=1000, n_u=50_000)
    config = tiny.config("pulda", batch_size=144, **OPTIONS)
    for stage in pulda.build(config, info).stages:
        assert (stage.batching.num_positives, stage.batching.batch_size) == (16, 144)
        assert stage.batching.steps_per_epoch(info.n) == 390  # as the authors' batches of 128
    _, method, arrays, _ = setup()
    plan = train_step.epoch_plan(method.stages[0], jax.random.key(1), 0, arrays)
    from_u = np.asarray(plan.ids[:, method.stages[0].batching.num_positives :])
    assert len(np.unique(from_u)) == from_u.size


@pytest.mark.parametrize("name", ["pulda", "cvir", "holistic_pu"])
def test_a_batch_that_u_does_not_fill_is_refused(name):
    """It would hold rows of U twice."""
    info = tiny.problem().info
    most = info.n_u + 1
    assert tiny.config(name).method.batching == "separate"
    one = {"positives_per_batch": 1}
    if name == "holistic_pu":
        one["steps_per_epoch"] = 0  # else an epoch is as long as that says
    method = methods.build(tiny.config(name, batch_size=most, **one), info)
    assert method.stages[0].batching.steps == 1
    accepted = rf"at most {most}, the labelled positives of a batch \(1, .* of U \({info.n_u}\)$"
    with pytest.raises(ValueError, match=f"^method.batch_size is {most + 1}; accepted: {accepted}"):
        methods.build(tiny.config(name, batch_size=most + 1, **one), info)


def test_each_phase_has_its_own_rate_and_a_schedule_of_its_own_length(monkeypatch):
    """In the published code the warm-up's schedule has the length of the second phase."""
    built, original = [], optimizer.build

    def recorded(settings, *, num_epochs):
        built.append((settings.learning_rate, settings.lr_floor, num_epochs))
        return original(settings, num_epochs=num_epochs)

    monkeypatch.setattr(optimizer, "build", recorded)
    rates = {"warmup_learning_rate": 1e-4, "learning_rate": 1e-3}
    config = tiny.config("pulda", num_epochs=6, warmup_epochs=2, **rates, **OPTIONS)
    pulda.build(config, tiny.problem().info)
    assert built == [(1e-4, 0.0, 2), (1e-3, 0.7, 4)]


@pytest.mark.parametrize(
    ("field", "value"),
    [("sharpness", 0.0), ("decay", 1.0), ("margin", -1.0), ("margin_decay", -0.1)],
)
def test_settings_that_cannot_be_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=f"method.{field} is {value!r}; accepted"):
        pulda.build(tiny.config("pulda", **(OPTIONS | {field: value})), tiny.problem().info)
