"""PAN: the value of the game, its two gradients, who is held fixed, and the order of moves."""

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from pujax.configs import pan as pan_file
from pujax.methods import pan
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer
from pujax.training import method_setup, sharding, train_step
from tests import tiny
from tests.x64 import x64

WEIGHT = 0.3
MLP = {"hidden": (16, 16), "batch_norm": True}


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


def logits(seed=0, positives=5, unlabeled=7):
    """Logits of D on P, D on U and C on U, float64."""
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(0, 2, n) for n in (positives, unlabeled, unlabeled))


def naive_value(positive, unlabeled, guesses, weight=WEIGHT):
    """V of section 9 written with probabilities, sums over P and U."""
    d_p, d_u, c_u = (1 / (1 + np.exp(-x)) for x in (positive, unlabeled, guesses))
    third = (np.log(1 - c_u) - np.log(c_u)) * (2 * d_u - 1)
    return np.log(d_p).sum() + np.log(1 - d_u).sum() + weight * third.sum()


def test_value_on_one_pair_by_hand():
    # D = 3/4 on P and 1/4 on U, C = 1/2 on U: log 3/4 + log 3/4 + 0.
    positive, unlabeled = jnp.log(jnp.asarray([3.0])), -jnp.log(jnp.asarray([3.0]))
    got = pan.value(positive, unlabeled, jnp.zeros([1]), weight=WEIGHT)
    np.testing.assert_allclose(got, 2 * np.log(0.75), rtol=1e-6)
    # C = 3/4 adds weight * (log 1/4 - log 3/4) * (2/4 - 1).
    got = pan.value(positive, unlabeled, jnp.log(jnp.asarray([3.0])), weight=WEIGHT)
    np.testing.assert_allclose(got, 2 * np.log(0.75) + WEIGHT * np.log(3) / 2, rtol=1e-6)


def test_value_equals_the_formula_in_probabilities():
    with x64():
        for seed in range(3):
            arrays = logits(seed)
            got = pan.value(*map(jnp.asarray, arrays), weight=WEIGHT)
            assert got.dtype == jnp.float64
            np.testing.assert_allclose(got, naive_value(*arrays), rtol=1e-12)


@pytest.mark.parametrize(
    ("loss", "sign", "moved", "fixed"),
    [
        (pan.discriminator_loss, -1, (0, 1), (2,)),  # D maximises V
        (pan.classifier_loss, 1, (2,), (0, 1)),  # C minimises it
    ],
    ids=["discriminator", "classifier"],
)
def test_each_player_follows_its_own_gradient_and_sees_the_other_as_fixed(loss, sign, moved, fixed):
    with x64():
        arrays = logits(1)
        gradients = jax.grad(loss, argnums=(0, 1, 2))(*map(jnp.asarray, arrays), weight=WEIGHT)
        step = 1e-6  # central differences: error of order 1e-12 / 1e-6 from rounding
        for which in moved:
            for place in range(len(arrays[which])):
                ends = []
                for change in (step, -step):
                    shifted = [x.copy() for x in arrays]
                    shifted[which][place] += change
                    ends.append(naive_value(*shifted))
                wanted = sign * (ends[0] - ends[1]) / (2 * step)
                np.testing.assert_allclose(gradients[which][place], wanted, rtol=1e-6, atol=1e-8)
        for which in fixed:
            np.testing.assert_array_equal(gradients[which], 0)


def test_value_and_gradients_are_finite_far_out():
    far = jnp.asarray([-60.0, 60.0])
    for loss in (pan.discriminator_loss, pan.classifier_loss):
        numbers = jax.value_and_grad(loss, argnums=(0, 1, 2))(far, far[::-1], far, weight=WEIGHT)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(numbers))


def setup(data, **changes):
    """Configuration, stage, a state at the start, and a batch of 6 from P and 10 from U."""
    # Without the optimizer's momentum and decay a step is minus the gradient.
    sgd = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": 1e-3}
    sgd["discriminator_rate"] = 1.0
    settings = sgd | {"positives_per_batch": 6, "adversarial_weight": WEIGHT} | changes
    config = tiny.config("pan", model="mlp", options=MLP, **settings)
    made = method_setup.build(config, data, tiny.mesh())
    arrays = sharding.replicate(made.data.training_data(), tiny.mesh())
    stage = made.method.stages[0]
    state = train_step.init_state(stage, jax.random.key(0), None, arrays, tiny.mesh())
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    batch = tiny.gather(arrays, plan, 0, epoch=0, step=0)
    return config, made.method, state, batch


@pytest.mark.thorough
@pytest.mark.parametrize(("share", "rate"), [(1.0, 1e-3), (0.2, 2e-4)])
def test_a_step_moves_the_discriminator_first_and_the_classifier_against_it(data, share, rate):
    config, method, state, batch = setup(data, discriminator_rate=share)
    assert np.asarray(batch.labeled).tolist() == [1.0] * 6 + [0.0] * 10
    network = network_lib.build(config, data.info, embedding_dim=0)
    images = network.normalize(batch.inputs)
    c, d = state

    def game(d_params, c_params):
        opinions = network.train_pass(d_params, d.batch_stats, images)[0].logits
        guesses = network.train_pass(c_params, c.batch_stats, images[6:])[0].logits
        return pan.value(opinions[:6], opinions[6:], guesses, weight=WEIGHT)

    def moved(params, gradient, rate):
        return jax.tree.map(lambda p, g: p + rate * g, params, gradient)

    new_d = moved(d.params, jax.grad(game)(d.params, c.params), rate)
    new_c = moved(c.params, jax.grad(game, argnums=1)(new_d, c.params), -1e-3)
    stale = moved(c.params, jax.grad(game, argnums=1)(d.params, c.params), -1e-3)
    after, metrics = jax.jit(method.stages[0].step)(state, batch, jax.random.key(0))
    for got, wanted in ((after.discriminator.params, new_d), (after.classifier.params, new_c)):
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)  # float32, other fusion
    first, second = (p["classifier"]["kernel"] for p in (new_c, stale))
    assert not np.allclose(first, second, rtol=1e-4, atol=1e-6)  # the order of moves is visible
    np.testing.assert_allclose(metrics["loss"], game(new_d, c.params), rtol=1e-4)
    np.testing.assert_allclose(metrics["loss_discriminator"], -game(d.params, c.params), rtol=1e-4)


@pytest.mark.thorough
def test_means_are_sums_divided_by_the_batch_size(data):
    """The ratio of the terms is kept: 16 times the learning rate undoes the mean."""
    _, method, state, batch = setup(data)
    by_sum, summed = jax.jit(method.stages[0].step)(state, batch, jax.random.key(0))
    _, method, _, _ = setup(data, reduction="mean", learning_rate=16e-3)
    by_mean, averaged = jax.jit(method.stages[0].step)(state, batch, jax.random.key(0))
    for name, total in summed.items():
        np.testing.assert_allclose(total, 16 * averaged[name], rtol=1e-4)
    for a, b in zip(
        jax.tree.leaves([player.params for player in by_sum]),
        jax.tree.leaves([player.params for player in by_mean]),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)  # float32


def test_the_players_start_apart_and_only_the_classifier_predicts_and_meets_u_alone(data):
    config, method, state, batch = setup(data)
    first, second = (player.params["classifier"]["kernel"] for player in state)
    assert not np.allclose(first, second)
    network = network_lib.build(config, data.info, embedding_dim=0)
    wanted = network.infer(*state.classifier[:2], batch.inputs).logits
    np.testing.assert_allclose(method.predict(state, batch.inputs), wanted, rtol=1e-6)
    after, _ = jax.jit(method.stages[0].step)(state, batch, jax.random.key(0))
    stats = network.train_pass(*state.classifier[:2], network.normalize(batch.inputs)[6:])[1]
    for a, b in zip(
        jax.tree.leaves(after.classifier.batch_stats), jax.tree.leaves(stats), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_half_of_a_batch_is_positive_by_default_and_bad_settings_are_named(data):
    assert setup(data, positives_per_batch=0)[1].stages[0].batching.num_positives == 8
    for field, value in (
        ("adversarial_weight", -1.0),
        ("reduction", "max"),
        ("batching", "joint"),
        ("positives_per_batch", 16),
        ("discriminator_rate", 0.0),
        ("optimizer", "lion"),
    ):
        with pytest.raises(ValueError, match=f"method.{field} is {value!r}"):
            setup(data, **{field: value})


def test_a_model_of_an_earlier_version_has_one_rate(data, monkeypatch):
    """Its configuration lacks the field, and is taken as it was saved."""
    rates, build = [], optimizer.build

    def noted(section, **length):
        rates.append(section.learning_rate)
        return build(section, **length)

    monkeypatch.setattr(pan.optimizer_lib, "build", noted)
    tree = tiny.config("pan", model="mlp", options=MLP, learning_rate=0.25).to_dict()
    tree["method"]["discriminator_rate"] = 0.5
    assert pan.build(ml_collections.FrozenConfigDict(tree), data.info).calibrate is not None
    del tree["method"]["discriminator_rate"], tree["method"]["threshold"]
    assert pan.build(ml_collections.FrozenConfigDict(tree), data.info).calibrate is None
    assert rates == [0.25, 0.125, 0.25, 0.25]


def test_defaults_are_the_published_weight_on_sums():
    config = pan.default_config()
    assert (config.adversarial_weight, config.reduction) == (1e-4, "sum")
    assert config.weight_decay == 0
    optimizer.check(config)


def test_the_configuration_file_sets_the_task():
    config = pan_file.get_config("task=fashion_mnist")
    assert (config.method.name, config.data.source) == ("pan", "fashion_mnist")
    assert pan_file.get_config().model.name == "cnn7"
    assert (config.data.num_validation, pan_file.get_config().data.num_validation) == (500, 0)
    assert config.method.threshold == "zero"
