"""Optimizers and schedules against arithmetic done apart."""

import jax.numpy as jnp
import numpy as np
import pytest

from pujax.methods import _optimizer


def rates(epochs, **fields):
    config = _optimizer.default_config(learning_rate=0.1, **fields)
    return [float(_optimizer.learning_rate(config, jnp.asarray(e), num_epochs=40)) for e in epochs]


def test_halving_starts_at_the_named_epoch_and_holds_within_an_epoch():
    got = rates((0, 19.9, 20, 39, 40), lr_schedule="halve", lr_every=20, lr_factor=0.5)
    assert got == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025], rel=1e-6)


def test_exponential_falls_to_the_floor_within_epochs_too():
    got = rates((0, 10.5, 20, 40), lr_schedule="exponential", lr_floor=0.1)
    assert got == pytest.approx([0.1, 0.1 * 0.1 ** (10.5 / 40), 0.1 * 0.1**0.5, 0.01], rel=1e-5)


def test_cosine_ends_at_the_floor():
    got = rates((0, 20, 40), lr_schedule="cosine", lr_floor=0.7)
    assert got == pytest.approx([0.1, 0.085, 0.07], rel=1e-5)


def test_constant_stays():
    assert rates((0, 39), lr_schedule="constant") == pytest.approx([0.1, 0.1])


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


def run(config):
    rule = _optimizer.build(config, num_epochs=4)
    params = jnp.asarray([1.0, -2.0])
    state = rule.init(params)
    for epoch, gradient in enumerate(GRADIENTS):
        params, state = rule.update(jnp.asarray(gradient), state, params, jnp.asarray(epoch))
    return params


def test_adam_adds_l2_to_the_gradient():
    config = _optimizer.adam_config(learning_rate=0.1, weight_decay=0.05, beta1=0.5, beta2=0.9)
    wanted = adam_by_hand(GRADIENTS, [1.0, -2.0], rate=lambda i: 0.1, decay=0.05)
    np.testing.assert_allclose(run(config), wanted, rtol=1e-5)


def test_adagrad_divides_by_the_root_of_all_squares_so_far():
    config = _optimizer.default_config(
        optimizer="adagrad", learning_rate=0.1, weight_decay=0.05, lr_schedule="constant"
    )
    wanted, squares = np.array([1.0, -2.0]), np.zeros(2)
    for gradient in GRADIENTS:
        gradient = gradient + 0.05 * wanted
        squares += gradient**2
        wanted = wanted - 0.1 * gradient / np.sqrt(squares)
    np.testing.assert_allclose(run(config), wanted, rtol=1e-5)


@pytest.mark.parametrize("resets", [False, True])
def test_a_drop_resets_the_moments_where_asked(resets):
    config = _optimizer.adam_config(
        learning_rate=0.1,
        weight_decay=0.0,
        beta1=0.5,
        beta2=0.9,
        lr_schedule="halve",
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


@pytest.mark.parametrize(
    ("field", "value"),
    [("optimizer", "lion"), ("lr_schedule", "linear"), ("beta2", 1.0), ("learning_rate", 0.0)],
)
def test_a_wrong_setting_is_named(field, value):
    config = _optimizer.default_config(**{field: value})
    with pytest.raises(ValueError, match=f"method.{field} is "):
        _optimizer.build(config, num_epochs=1)
