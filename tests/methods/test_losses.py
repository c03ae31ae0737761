"""Losses against soft labels, by the definition and far out where its digits are lost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.methods._common import losses
from tests.pu_batches import sigmoid
from tests.x64 import x64

SCORES = np.asarray([[-3.0, -0.2, 0.0], [1.7, 8.0, -11.0]])


def test_the_entropy_is_that_of_the_probability():
    p = sigmoid(SCORES)
    wanted = -p * np.log(p) - (1 - p) * np.log(1 - p)
    with x64():
        np.testing.assert_allclose(losses.entropy(SCORES), wanted, rtol=1e-10)
    np.testing.assert_allclose(losses.entropy(SCORES.astype(np.float32)), wanted, rtol=1e-5)


@pytest.mark.parametrize("score", [17.0, -17.0, 60.0, -60.0])
def test_the_entropy_keeps_its_digits_where_a_probability_rounds_to_one(score):
    value, slope = jax.value_and_grad(losses.entropy)(jnp.float32(score))
    size = abs(score)
    # To first order in exp(-|score|).
    assert float(value) == pytest.approx((size + 1) * np.exp(-size), rel=1e-5)
    assert float(slope) == pytest.approx(-score * np.exp(-size), rel=1e-5)


def test_the_cross_entropy_is_the_expected_log_loss_of_a_label_drawn_from_the_target():
    targets = np.asarray([[0.0, 1.0, 0.3], [0.5, 0.9, 0.2]])
    p = sigmoid(SCORES)
    wanted = -targets * np.log(p) - (1 - targets) * np.log(1 - p)
    with x64():
        np.testing.assert_allclose(losses.soft_cross_entropy(SCORES, targets), wanted, rtol=1e-10)


def test_the_cross_entropy_is_finite_where_a_certain_prediction_is_wrong():
    scores, targets = jnp.float32([90.0, -90.0]), jnp.float32([0, 1])
    np.testing.assert_allclose(losses.soft_cross_entropy(scores, targets), [90, 90], rtol=1e-6)
    slopes = jax.grad(lambda s: losses.soft_cross_entropy(s, targets).sum())(scores)
    np.testing.assert_allclose(slopes, [1, -1], rtol=1e-6)
