"""Classifier and projection head."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.models import heads, mlp


def net(embedding_dim=5):
    return heads.PUNet(mlp.MLP(hidden=(6,)), embedding_dim)


INPUTS = jax.random.normal(jax.random.key(1), (4, 3))


def test_outputs_are_what_the_parameters_say():
    module = net()
    variables = module.init(jax.random.key(0), INPUTS, False)
    params = variables["params"]
    assert set(params) == {"backbone", "classifier", "projection_hidden", "projection_out"}
    assert params["classifier"]["kernel"].shape == (6, 1)
    assert params["classifier"]["bias"].shape == (1,)
    assert params["projection_hidden"]["kernel"].shape == (6, 6)
    assert params["projection_out"]["kernel"].shape == (6, 5)

    outputs = jax.jit(lambda: module.apply(variables, INPUTS, False))()
    features = mlp.MLP(hidden=(6,)).apply({"params": params["backbone"]}, INPUTS, False)
    np.testing.assert_allclose(outputs.features, features, atol=1e-6)

    def dense(name, inputs):
        return inputs @ params[name]["kernel"] + params[name]["bias"]

    np.testing.assert_allclose(outputs.logits, dense("classifier", features)[:, 0], atol=1e-6)
    projected = dense("projection_out", jnp.maximum(dense("projection_hidden", features), 0))
    expected = projected / jnp.linalg.norm(projected, axis=1, keepdims=True)
    np.testing.assert_allclose(outputs.embedding, expected, atol=1e-6)
    np.testing.assert_allclose(jnp.linalg.norm(outputs.embedding, axis=1), 1, atol=1e-6)


def test_projection_can_be_skipped_but_always_has_parameters():
    module = net()
    with_projection = module.init(jax.random.key(0), INPUTS, False)
    without = module.init(jax.random.key(0), INPUTS, False, with_embedding=False)
    assert jax.tree.structure(with_projection) == jax.tree.structure(without)
    jax.tree.map(np.testing.assert_array_equal, with_projection, without)

    full = module.apply(with_projection, INPUTS, False)
    skipped = module.apply(with_projection, INPUTS, False, with_embedding=False)
    assert skipped.embedding is None
    np.testing.assert_array_equal(full.logits, skipped.logits)
    np.testing.assert_array_equal(full.features, skipped.features)


def test_embedding_dim_zero_has_no_projection():
    outputs, variables = net(0).init_with_output(jax.random.key(0), INPUTS, False)
    assert set(variables["params"]) == {"backbone", "classifier"}
    assert outputs.embedding is None
    assert outputs.logits.shape == (4,)


@pytest.mark.parametrize("length", [1e-5, 1.0, 1e4])
def test_unit_vectors_have_unit_length_and_keep_direction(length):
    vectors = length * jnp.asarray([[3.0, -4.0], [0.0, 2.0]])
    np.testing.assert_allclose(heads.unit_vectors(vectors), [[0.6, -0.8], [0.0, 1.0]], atol=1e-6)


def test_gradient_of_unit_vectors_is_finite_at_zero_and_tangent_elsewhere():
    jacobian = jax.jit(jax.jacobian(heads.unit_vectors))
    assert np.all(np.isfinite(jacobian(jnp.zeros(3))))
    np.testing.assert_array_equal(heads.unit_vectors(jnp.zeros(3)), np.zeros(3))
    vector = jnp.asarray([1.0, -2.0, 2.0])
    unit = vector / 3
    expected = (jnp.eye(3) - jnp.outer(unit, unit)) / 3
    np.testing.assert_allclose(jacobian(vector), expected, atol=1e-6)


def test_dead_features_give_finite_gradients():
    module = net()
    variables = module.init(jax.random.key(0), INPUTS, False)
    # With no bias anywhere and zero inputs, the vector before normalisation is exactly zero.
    params = jax.tree.map(lambda leaf: leaf if leaf.ndim == 2 else 0 * leaf, variables["params"])

    def loss(params):
        return jnp.sum(module.apply({"params": params}, 0 * INPUTS, False).embedding)

    value, gradient = jax.value_and_grad(loss)(params)
    assert value == 0
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_heads_stay_in_float32_behind_a_bfloat16_backbone():
    module = heads.PUNet(mlp.MLP(hidden=(6,), dtype=jnp.bfloat16), 5)
    variables = module.init(jax.random.key(0), INPUTS, False)
    outputs = module.apply(variables, INPUTS, False)
    classifier = jax.tree.map(np.asarray, variables["params"]["classifier"])
    expected = np.asarray(outputs.features, np.float64) @ classifier["kernel"][:, 0]
    # Float32 rounding only; one bfloat16 product would be off by up to 4e-3 of its value.
    np.testing.assert_allclose(outputs.logits, expected + classifier["bias"], atol=1e-6)
