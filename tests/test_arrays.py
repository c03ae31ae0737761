"""Array helpers whose details matter to gradients."""

import jax
import numpy as np

from pujax import arrays


def test_what_is_clipped_keeps_its_whole_gradient_at_the_ends():
    """`jnp.clip` would give a half there; beyond the ends the gradient is 0."""
    values = np.float32([-3, -2, 0.5, 1, 4])
    clip = jax.vmap(jax.value_and_grad(lambda x: arrays.clipped(x, -2.0, 1.0)))
    clipped, gradient = clip(values)
    np.testing.assert_array_equal(clipped, np.float32([-2, -2, 0.5, 1, 1]))
    np.testing.assert_array_equal(gradient, np.float32([0, 1, 1, 1, 0]))


def test_what_is_not_a_number_is_not_clipped_to_one():
    assert np.isnan(arrays.clipped(np.float32([np.nan]), 0.0, 1.0)[0])
