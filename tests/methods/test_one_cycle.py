"""The one-cycle schedule and Adam under it, against loops written from their definitions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common import schedules
from tests.x64 import x64

PEAK = 4e-5


def cycle_config(**fields):
    settings = {"learning_rate": PEAK, "lr_schedule": "one_cycle", "weight_decay": 1e-4}
    return optimizer_lib.adam_config(**(settings | fields))


def cosine(start, end, share):
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


def by_hand(step, total, warm=0.2, low=0.85, high=0.95):
    """Rate and beta1 of one step: two pieces of a cosine, the peak at `warm * total - 1`."""
    peak, end = warm * total - 1, total - 1
    if step <= peak:
        share = step / peak
        return cosine(PEAK / 25, PEAK, share), cosine(high, low, share)
    share = (step - peak) / (end - peak)
    return cosine(PEAK, PEAK / 25 / 1e4, share), cosine(low, high, share)


def ours(config, epochs, **length):
    @jax.jit
    def both(epochs):
        rate = optimizer_lib.learning_rate(config, epochs, **length)
        return rate, schedules.beta1(config, epochs, **length)

    return tuple(map(np.asarray, both(np.asarray(epochs, np.float32))))


def progress(step, steps_per_epoch):
    """What a batch says of its place, in the loop's own float32."""
    epoch, index = divmod(step, steps_per_epoch)
    return np.float32(epoch) + np.float32(index) / np.float32(steps_per_epoch)


@pytest.mark.parametrize(
    ("epochs", "steps_per_epoch", "warm"),
    [(80, 111, 0.2), (5, 3, 0.2), (2, 3, 0.25), (1, 2, 0.2), (3, 7, 0.0), (2, 5, 1.0), (4, 9, 0.3)],
)
def test_every_step_has_the_rate_and_beta1_of_the_definition(epochs, steps_per_epoch, warm):
    total = epochs * steps_per_epoch
    config = cycle_config(lr_cycle_epochs=epochs, pct_start=warm)
    places = [progress(step, steps_per_epoch) for step in range(total)]
    rates, betas = ours(config, places, num_epochs=1, steps_per_epoch=steps_per_epoch)
    wanted = np.array([by_hand(step, total, warm) for step in range(total)])
    np.testing.assert_allclose(rates, wanted[:, 0], rtol=2e-6)
    np.testing.assert_allclose(betas, wanted[:, 1], rtol=2e-7)


def test_the_ends_and_the_peak_of_the_published_cycle():
    # 80 epochs of 111 steps: the peak is step 0.2 * 8880 - 1 = 1775.
    config = cycle_config(lr_cycle_epochs=80)
    places = [progress(step, 111) for step in (0, 1774, 1775, 1776, 8879)]
    rates, betas = ours(config, places, num_epochs=56, steps_per_epoch=111)
    np.testing.assert_allclose(rates[[0, 2, 4]], [PEAK / 25, PEAK, PEAK / 25e4], rtol=1e-6)
    np.testing.assert_allclose(betas[[0, 2, 4]], [0.95, 0.85, 0.95], rtol=1e-7)
    assert np.argmax(rates) == 2
    assert np.argmin(betas) == 2


def test_a_run_stopped_early_never_comes_near_the_end():
    config = cycle_config(lr_cycle_epochs=80)
    places = [progress(step, 111) for step in range(56 * 111)]
    rates, betas = ours(config, places, num_epochs=56, steps_per_epoch=111)
    assert rates.min() == rates[0] == pytest.approx(PEAK / 25)
    # 24 of the 64 epochs of the fall are left.
    assert rates[-1] == pytest.approx(PEAK * (1 - math.cos(math.pi * 24 / 64)) / 2, rel=1e-3)
    assert betas[-1] == pytest.approx(0.95 - 0.1 * (1 - math.cos(math.pi * 24 / 64)) / 2, rel=1e-4)


def test_without_a_count_of_steps_it_is_the_limit_of_short_steps():
    config = cycle_config()
    places = np.linspace(0, 10, 41)
    rates, betas = ours(config, places, num_epochs=10)
    total = 10**6
    wanted = np.array([by_hand(place / 10 * total, total) for place in places[:-1]])
    np.testing.assert_allclose(rates[:-1], wanted[:, 0], rtol=1e-4)
    np.testing.assert_allclose(betas[:-1], wanted[:, 1], rtol=1e-6)
    assert rates[8] == np.float32(PEAK)
    assert rates[-1] == pytest.approx(PEAK / 25e4)


def test_past_its_end_the_cycle_stays_where_it_ended():
    rates, betas = ours(cycle_config(), [3.0, 9.0], num_epochs=3, steps_per_epoch=4)
    np.testing.assert_allclose(rates, PEAK / 25e4, rtol=1e-6)
    np.testing.assert_allclose(betas, 0.95, rtol=1e-6)


def adam_by_hand(start, gradients, total, *, decay, beta2=0.999, steps=None):
    """Adam in double precision; the correction of the mean has the beta1 of its own step."""
    w, m, v = np.asarray(start, np.float64), 0.0, 0.0
    steps = range(len(gradients)) if steps is None else steps
    for count, (step, gradient) in enumerate(zip(steps, gradients, strict=True), start=1):
        rate, beta1 = by_hand(step, total)
        g = gradient + decay * w
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        mean, square = m / (1 - beta1**count), v / (1 - beta2**count)
        w = w - rate * mean / (np.sqrt(square) + 1e-8)
    return w


START = np.array([1.0, -2.0, 1e-3])
GRADIENTS = np.random.default_rng(0).normal(size=(20, 3)) * [1.0, 1e-3, 1e-6]


def trained(dtype, steps=range(20)):
    """Parameters after some steps of a cycle of 4 epochs of 5 steps."""
    # A large decay lets a confusion of L2 with decoupled decay show.
    rule = optimizer_lib.build(cycle_config(weight_decay=0.1), num_epochs=4, steps_per_epoch=5)
    params = jnp.asarray(START, dtype)
    state, update = rule.init(params), jax.jit(rule.update)
    for step in steps:
        gradient = np.asarray(GRADIENTS[step], dtype)
        updates, state = update(gradient, state, params, progress=progress(step, 5))
        params = optax.apply_updates(params, updates)
    return params


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_twenty_steps_of_adam_equal_a_plain_loop(dtype):
    wanted = adam_by_hand(START, GRADIENTS, 20, decay=0.1)
    if dtype == "float64":
        with x64():
            params = np.asarray(trained(jnp.float64))
        # What moved, since the parameters themselves hide it: rates and beta1 are float32.
        np.testing.assert_allclose(params - START, wanted - START, rtol=3e-6)
    else:
        np.testing.assert_allclose(trained(jnp.float32), wanted, rtol=1e-6, atol=1e-8)


def test_the_correction_of_the_mean_takes_the_present_beta1():
    # With beta2 = 0 each move is rate * mean / |gradient|, so that the mean can be read off.
    config = cycle_config(weight_decay=0.0, beta2=0.0)
    rule = optimizer_lib.build(config, num_epochs=1, steps_per_epoch=10)
    params, (first, second) = np.zeros(1, np.float32), np.float32([[1.0], [-3.0]])
    update = jax.jit(rule.update)
    _, state = update(first, rule.init(params), params, progress=progress(0, 10))
    moved, _ = update(second, state, params, progress=progress(1, 10))
    beta1 = 0.85  # the peak of 10 steps is step 1
    mean = (beta1 * 0.05 * first[0] + (1 - beta1) * second[0]) / (1 - beta1**2)
    assert float(moved[0]) == pytest.approx(-PEAK * mean / 3.0, rel=1e-5)


def test_a_step_left_out_moves_the_schedule_and_not_the_count_of_updates():
    steps = [0, 1, 2, 5, 6, 11]
    wanted = adam_by_hand(START, GRADIENTS[steps], 20, decay=0.1, steps=steps)
    with x64():
        params = np.asarray(trained(jnp.float64, steps))
    np.testing.assert_allclose(params - START, wanted - START, rtol=3e-6)


def test_state_keeps_its_structure_and_types_and_stays_finite_from_zero_gradients():
    rule = optimizer_lib.build(cycle_config(), num_epochs=1, steps_per_epoch=3)
    params = {"a": np.ones((2, 2), np.float32), "b": np.zeros(3, np.float32)}
    state = rule.init(params)
    zeros = jax.tree.map(np.zeros_like, params)
    moved, after = jax.jit(rule.update)(zeros, state, params, progress=0.0)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    pairs = zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True)
    assert all(new.dtype == old.dtype and new.shape == old.shape for new, old in pairs)
    np.testing.assert_array_equal(moved["b"], 0)
    assert np.all(np.isfinite(moved["a"]))


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "lars"])
def test_the_other_optimizers_take_the_rate_and_keep_their_momentum(optimizer):
    config = cycle_config(optimizer=optimizer, weight_decay=0.0, trust_coefficient=1.0)
    rule = optimizer_lib.build(config, num_epochs=4, steps_per_epoch=5)
    params = np.zeros((1, 2), np.float32)  # of no length, which LARS does not rescale
    ones = np.ones((1, 2), np.float32)
    moved, _ = jax.jit(rule.update)(ones, rule.init(params), params, progress=progress(8, 5))
    np.testing.assert_allclose(moved, -by_hand(8, 20)[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"pct_start": 1.2}, "method.pct_start is 1.2"),
        ({"pct_start": float("nan")}, "method.pct_start is nan"),
        ({"lr_cycle_epochs": -1}, "method.lr_cycle_epochs is -1"),
        ({"lr_cycle_epochs": 3}, "method.lr_cycle_epochs is 3; accepted: at least the 4 epochs"),
        ({"base_momentum": 1.0}, "method.base_momentum is 1.0"),
        ({"max_momentum": 0.8}, r"method.max_momentum is 0.8; accepted: a number in \[0.85, 1\)"),
    ],
)
def test_a_wrong_setting_is_named(fields, named):
    with pytest.raises(ValueError, match=named):
        optimizer_lib.build(cycle_config(**fields), num_epochs=4, steps_per_epoch=5)


def test_an_epoch_without_steps_is_refused_and_other_schedules_may_have_any_cycle():
    with pytest.raises(ValueError, match="steps_per_epoch is 0"):
        optimizer_lib.build(cycle_config(), num_epochs=4, steps_per_epoch=0)
    optimizer_lib.build(cycle_config(lr_schedule="constant", lr_cycle_epochs=3), num_epochs=4)
