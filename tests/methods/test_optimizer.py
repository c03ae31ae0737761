"""Optimizers and schedules against arithmetic done apart."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pujax.methods._common import optimizer
from pujax.training import config as config_lib


def rates(epochs, **fields):
    config = optimizer.default_config(learning_rate=0.1, **fields)
    rate = jax.jit(lambda epoch: optimizer.learning_rate(config, epoch, num_epochs=40))
    return [float(rate(np.float32(epoch))) for epoch in epochs]


def test_step_drops_start_at_the_named_epoch_and_holds_within_an_epoch():
    got = rates((0, 19.9, 20, 39, 40), lr_schedule="step", lr_every=20, lr_factor=0.5)
    assert got == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025], rel=1e-6)


@pytest.mark.parametrize("every", [20, 41, 55, 94])
def test_step_drops_at_every_multiple(every):
    epochs = np.arange(4 * every)
    got = rates(epochs, lr_schedule="step", lr_every=every, lr_factor=0.5)
    np.testing.assert_allclose(got, 0.1 * 0.5 ** (epochs // every), rtol=1e-6)


@pytest.mark.parametrize("schedule", ["cosine", "multistep", "step", "constant"])
def test_the_rate_holds_within_an_epoch(schedule):
    drops = {"lr_drops": (10,)} if schedule == "multistep" else {}
    start, *within = rates((10, 10.5, 10.99), lr_schedule=schedule, **drops)
    assert within == [start, start]


def test_exponential_falls_to_the_floor_within_epochs_too():
    got = rates((0, 10.5, 20, 40), lr_schedule="exponential", lr_floor=0.1)
    assert got == pytest.approx([0.1, 0.1 * 0.1 ** (10.5 / 40), 0.1 * 0.1**0.5, 0.01], rel=1e-5)


def test_cosine_ends_at_the_floor():
    got = rates((0, 20, 40), lr_schedule="cosine", lr_floor=0.7)
    assert got == pytest.approx([0.1, 0.085, 0.07], rel=1e-5)


def test_constant_stays():
    assert rates((0, 39), lr_schedule="constant") == pytest.approx([0.1, 0.1])


def test_cosine_may_end_at_zero():
    got = rates((0, 10, 40), lr_schedule="cosine", lr_floor=0.0)
    assert got == pytest.approx([0.1, 0.05 * (1 + np.sqrt(0.5)), 0.0], rel=1e-5, abs=1e-9)


def test_cosine_keeps_its_digits_to_the_last_epoch():
    """A float32 sum of 1 and nearly -1 would be off by up to 2e-4 of so small a rate."""
    config = optimizer.default_config(learning_rate=0.1, lr_schedule="cosine", lr_floor=0.0)
    epochs = np.arange(1300, dtype=np.float32)
    got = jax.jit(lambda e: optimizer.learning_rate(config, e, num_epochs=1300))(epochs)
    wanted = 0.05 * (1 + np.cos(np.pi * epochs.astype(float) / 1300))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_fixmatch_falls_within_epochs_to_a_fifth_of_its_start():
    got = np.array(rates((0.0, 0.5, 10.0, 40.0), lr_schedule="fixmatch"))
    wanted = np.cos(7 * np.pi / 16 * np.array([0, 0.5, 10, 40]) / 40)
    np.testing.assert_allclose(got / got[0], wanted, rtol=1e-5)


@pytest.mark.parametrize("schedule", optimizer.SCHEDULES)
def test_warm_up_rises_within_epochs_and_leaves_the_schedule_where_it_is(schedule):
    epochs = (0.0, 0.5, 3.0, 4.0, 25.0)
    drops = {"lr_drops": (2, 20)} if schedule == "multistep" else {}
    fields = {"lr_schedule": schedule, "lr_every": 2} | drops
    plain = np.array(rates(epochs, **fields))
    got = rates(epochs, lr_warmup=4.0, **fields)
    np.testing.assert_allclose(got, plain * [0, 0.125, 0.75, 1, 1], rtol=1e-6)


def adam_by_hand(gradients, start, *, rate, decay, resets_before=()):
    """Adam with L2 in the gradient, as PyTorch's `weight_decay`."""
    w, m, v, t = np.asarray(start, float), 0.0, 0.0, 0
    for i, gradient in enumerate(gradients):
        if i in resets_before:
            m, v, t = 0.0, 0.0, 0
        g, t = gradient + decay * w, t + 1
        m, v = 0.5 * m + 0.5 * g, 0.9 * v + 0.1 * g**2
        w = w - rate(i) * (m / (1 - 0.5**t)) / (np.sqrt(v / (1 - 0.9**t)) + 1e-8)
    return w


GRADIENTS = [np.array(g) for g in ([0.5, -1.0], [0.2, 0.3], [-0.1, 0.4], [0.3, 0.3])]


def applied(update):
    """`(gradient, state, params, epoch) -> (params, state)`."""

    def new(gradient, state, params, epoch):
        updates, state = update(gradient, state, params, progress=jnp.asarray(epoch))
        return optax.apply_updates(params, updates), state

    return new


def run(config):
    rule = optimizer.build(config, num_epochs=4)
    params = jnp.asarray([1.0, -2.0])
    state, update = rule.init(params), jax.jit(applied(rule.update))
    for epoch, gradient in enumerate(GRADIENTS):
        params, state = update(gradient, state, params, epoch)
    return params


def test_adam_adds_l2_to_the_gradient():
    config = optimizer.adam_config(learning_rate=0.1, weight_decay=0.05, beta1=0.5, beta2=0.9)
    wanted = adam_by_hand(GRADIENTS, [1.0, -2.0], rate=lambda i: 0.1, decay=0.05)
    np.testing.assert_allclose(run(config), wanted, rtol=1e-5)


def test_adagrad_divides_by_the_root_of_all_squares_so_far():
    config = optimizer.default_config(
        optimizer="adagrad", learning_rate=0.1, weight_decay=0.05, lr_schedule="constant"
    )
    wanted, squares = np.array([1.0, -2.0]), np.zeros(2)
    for gradient in GRADIENTS:
        gradient = gradient + 0.05 * wanted
        squares += gradient**2
        wanted = wanted - 0.1 * gradient / np.sqrt(squares)
    np.testing.assert_allclose(run(config), wanted, rtol=1e-5)


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9, 0.0])
def test_adagrads_first_step_has_the_size_of_the_rate_for_small_gradients_too(size):
    config = optimizer.default_config(
        optimizer="adagrad", learning_rate=1.0, weight_decay=0.0, lr_schedule="constant"
    )
    rule, params = optimizer.build(config, num_epochs=1), jnp.zeros(1)
    gradient = jnp.full(1, size)
    moved, _ = rule.update(gradient, rule.init(params), params, progress=jnp.float32(0))
    np.testing.assert_allclose(moved, -size / (size + 1e-10), rtol=1e-5)


@pytest.mark.parametrize("resets", [False, True])
def test_a_drop_resets_the_moments_where_asked(resets):
    config = optimizer.adam_config(
        learning_rate=0.1,
        weight_decay=0.0,
        beta1=0.5,
        beta2=0.9,
        lr_schedule="step",
        lr_factor=0.5,
        lr_every=2,
        lr_resets=resets,
    )
    wanted = adam_by_hand(
        GRADIENTS,
        [1.0, -2.0],
        rate=lambda i: 0.1 if i < 2 else 0.05,
        decay=0.0,
        resets_before=(2,) if resets else (),
    )
    np.testing.assert_allclose(run(config), wanted, rtol=1e-5)


LARS_SHAPES = {"conv": (3, 3, 2, 4), "bias": (4,), "scale": (4,), "dense": (5, 2), "zero": (2, 2)}


def lars_config(**fields):
    settings = {"optimizer": "lars", "learning_rate": 0.8, "lr_schedule": "constant"}
    return optimizer.default_config(**(settings | fields))


def draws(seed, num_seeds=None):
    rng = np.random.default_rng(seed)
    lead = () if num_seeds is None else (num_seeds,)
    tree = {name: rng.normal(size=(*lead, *shape)) for name, shape in LARS_SHAPES.items()}
    return jax.tree.map(np.float32, tree)


def starting_point():
    return draws(0) | {"zero": np.zeros((2, 2), np.float32)}


def lars_by_hand(params, gradients, rates, *, momentum, decay, coefficient):
    """LARS of one tensor at a time in double precision."""
    params = {name: np.asarray(value, np.float64) for name, value in params.items()}
    for name, w in params.items():
        velocity = np.zeros_like(w)
        for gradient, rate in zip(gradients, rates, strict=True):
            direction, trust = gradient[name].astype(np.float64), 1.0
            if w.ndim > 1:
                direction = direction + decay * w
                length, step = np.sqrt((w**2).sum()), np.sqrt((direction**2).sum())
                trust = coefficient * length / step if length > 0 and step > 0 else 1.0
            velocity = momentum * velocity + rate * trust * direction
            w = w - velocity
        params[name] = w
    return params


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_lars_equals_its_definition_while_the_rate_changes(momentum):
    config = lars_config(
        momentum=momentum,
        weight_decay=0.3,
        trust_coefficient=0.02,
        lr_schedule="step",
        lr_factor=0.1,
        lr_every=2,
        lr_warmup=1.5,
    )
    rule = optimizer.build(config, num_epochs=4)
    gradients = [draws(seed) for seed in range(1, 6)]
    gradients[3]["zero"] *= 0
    epochs = [0.5, 1.0, 1.5, 2.0, 3.0]
    params = starting_point()
    state, update = rule.init(params), jax.jit(applied(rule.update))
    for gradient, epoch in zip(gradients, epochs, strict=True):
        params, state = update(gradient, state, params, epoch)
    wanted = lars_by_hand(
        starting_point(),
        gradients,
        [0.8 / 3, 0.8 * 2 / 3, 0.8, 0.08, 0.08],
        momentum=momentum,
        decay=0.3,
        coefficient=0.02,
    )
    for name in LARS_SHAPES:
        np.testing.assert_allclose(params[name], wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_step_of_lars_is_a_share_of_the_weights_whatever_the_size_of_the_gradient():
    rule = optimizer.build(lars_config(weight_decay=0.0), num_epochs=1)
    params, update = starting_point(), jax.jit(applied(rule.update))
    for size in (1e-3, 1e3):
        gradient = jax.tree.map(lambda leaf, size=size: size * leaf, draws(1))
        moved, _ = update(gradient, rule.init(params), params, 0.0)
        for name in ("conv", "dense"):
            step = np.linalg.norm(moved[name] - params[name])
            # The step is a small difference of float32 numbers.
            assert step == pytest.approx(0.8 * 1e-3 * np.linalg.norm(params[name]), rel=1e-3)
        for name in ("bias", "scale"):
            np.testing.assert_allclose(moved[name], params[name] - 0.8 * gradient[name], rtol=1e-6)


def test_seeds_stacked_on_an_axis_do_not_turn_biases_into_matrices():
    rule = optimizer.build(lars_config(weight_decay=0.1), num_epochs=1)
    params, gradient = draws(0, num_seeds=2), draws(1, num_seeds=2)
    state = jax.vmap(rule.init)(params)
    update_all = jax.jit(jax.vmap(applied(rule.update), in_axes=(0, 0, 0, None)))
    together, _ = update_all(gradient, state, params, 0.0)
    update = jax.jit(applied(rule.update))
    for seed in range(2):
        alone, slope = (
            jax.tree.map(lambda leaf, seed=seed: leaf[seed], tree) for tree in (params, gradient)
        )
        wanted, _ = update(slope, rule.init(alone), alone, 0.0)
        jax.tree.map(
            lambda many, one, seed=seed: np.testing.assert_allclose(many[seed], one, rtol=1e-6),
            together,
            wanted,
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("optimizer", "lion"),
        ("lr_schedule", "linear"),
        ("beta2", 1.0),
        ("learning_rate", 0.0),
        ("trust_coefficient", 0.0),
        ("lr_warmup", -1.0),
        ("lr_warmup", float("nan")),
    ],
)
def test_a_wrong_setting_is_named(field, value):
    config = optimizer.default_config(**{field: value})
    with pytest.raises(ValueError, match=f"method.{field} is "):
        optimizer.build(config, num_epochs=1)


def test_schedules_are_refused_by_their_old_names_with_the_new_one():
    with pytest.raises(ValueError, match="is 'halve'; accepted: 'step', which is the new name"):
        optimizer.build(optimizer.default_config(lr_schedule="halve"), num_epochs=4)
    with pytest.raises(ValueError, match="is 'step'; accepted: 'multistep'"):
        optimizer.build(optimizer.default_config(lr_schedule="step", lr_drops=(1, 2)), num_epochs=4)


@pytest.mark.parametrize(("old", "new"), optimizer.RENAMED.items())
def test_fields_are_refused_by_their_old_names_with_the_new_one(old, new):
    config = config_lib.default_config("nnpu")
    with config.method.unlocked():
        config.method[old] = 0.5
    with pytest.raises(ValueError, match=f"method.{old} was renamed to method.{new}"):
        config_lib.resolve(config)
