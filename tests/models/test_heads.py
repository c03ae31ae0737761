"""Classifier and projection head."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.models import heads, mlp
from tests import equations
from tests.models import filled


def net(embedding_dim=5, projection="lagam"):
    return heads.PUNet(mlp.MLP(hidden=(6,)), embedding_dim, projection)


INPUTS = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)


@pytest.mark.thorough
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


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_projection_of_impulses_has_two_layers_without_bias_or_batch_norm():
    module = net(projection="impulses")
    variables = filled.variables(module, INPUTS, False)
    params = variables["params"]
    assert set(variables) == {"params"}
    shapes = jax.tree.map(np.shape, params)
    assert shapes["projection_hidden"] == {"kernel": (6, 6)}
    assert shapes["projection_out"] == {"kernel": (6, 5)}
    outputs = module.apply(variables, INPUTS, True)
    hidden = np.maximum(outputs.features @ params["projection_hidden"]["kernel"], 0)
    expected = unit(hidden @ params["projection_out"]["kernel"])
    np.testing.assert_allclose(outputs.embedding, expected, atol=1e-6)


@pytest.mark.parametrize("train", [True, False])
def test_projection_of_dcl_has_batch_norm_before_relu(train):
    module = net(projection="dcl")
    variables = filled.variables(module, INPUTS, False)
    params, stats = variables["params"], variables["batch_stats"]["projection_norm"]
    shapes = jax.tree.map(np.shape, params)
    assert shapes["projection_hidden"] == {"kernel": (6, 512)}
    assert shapes["projection_norm"] == {"scale": (512,), "bias": (512,)}
    assert shapes["projection_out"] == {"kernel": (512, 5), "bias": (5,)}

    outputs, moved = module.apply(variables, INPUTS, train, mutable=["batch_stats"])
    hidden = np.asarray(outputs.features, np.float64) @ params["projection_hidden"]["kernel"]
    mean = hidden.mean(0) if train else stats["mean"]
    var = hidden.var(0) if train else stats["var"]
    scale, bias = params["projection_norm"]["scale"], params["projection_norm"]["bias"]
    hidden = np.maximum(scale * (hidden - mean) / np.sqrt(var + 1e-5) + bias, 0)
    out = params["projection_out"]
    np.testing.assert_allclose(
        outputs.embedding, unit(hidden @ out["kernel"] + out["bias"]), atol=1e-5
    )
    expected = 0.9 * stats["mean"] + 0.1 * mean if train else stats["mean"]
    np.testing.assert_allclose(moved["batch_stats"]["projection_norm"]["mean"], expected, atol=1e-5)


@pytest.mark.parametrize("train", [True, False])
def test_aligned_vectors_are_predicted_from_what_comes_before_their_normalisation(train):
    module = heads.PUNet(mlp.MLP(hidden=(6,)), 4, aligned_dim=5)
    variables = filled.variables(module, INPUTS, False)
    params = variables["params"]
    shapes = jax.tree.map(np.shape, params)
    assert shapes["aligned_hidden"] == {"kernel": (6, 2048), "bias": (2048,)}
    assert shapes["aligned_out"] == {"kernel": (2048, 5), "bias": (5,)}
    assert shapes["predictor_hidden"] == {"kernel": (5, 512), "bias": (512,)}
    assert shapes["predictor_out"] == {"kernel": (512, 5), "bias": (5,)}

    def head(inputs, name):
        hidden = inputs @ params[f"{name}_hidden"]["kernel"] + params[f"{name}_hidden"]["bias"]
        normal = (hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + 1e-5)
        norm = params[f"{name}_norm"]
        hidden = np.maximum(norm["scale"] * normal + norm["bias"], 0)
        return hidden @ params[f"{name}_out"]["kernel"] + params[f"{name}_out"]["bias"]

    outputs, moved = module.apply(
        variables, INPUTS, train, with_prediction=True, mutable=["batch_stats"]
    )
    before = head(np.asarray(outputs.features, np.float64), "aligned")
    np.testing.assert_allclose(outputs.aligned, unit(before), atol=1e-4)
    np.testing.assert_allclose(outputs.prediction, unit(head(before, "predictor")), atol=1e-4)
    for name in ("aligned_norm", "predictor_norm"):
        assert not np.array_equal(
            moved["batch_stats"][name]["mean"], variables["batch_stats"][name]["mean"]
        )
    skipped, still = module.apply(variables, INPUTS, train, mutable=["batch_stats"])
    assert skipped.aligned is skipped.prediction is None and skipped.embedding is not None
    stay = {"batch_stats": variables["batch_stats"]}
    jax.tree.map(np.testing.assert_array_equal, still, stay)


def test_statistics_of_a_skipped_projection_stay():
    module = net(projection="dcl")
    variables = filled.variables(module, INPUTS, False)
    _, moved = module.apply(variables, INPUTS, True, with_embedding=False, mutable=["batch_stats"])
    before = {"batch_stats": variables["batch_stats"]}
    assert jax.tree.structure(moved) == jax.tree.structure(before)
    jax.tree.map(np.testing.assert_array_equal, moved, before)


def test_an_unknown_projection_is_named():
    with pytest.raises(ValueError, match="projection is 'simclr'; accepted: lagam, impulses, dcl"):
        net(projection="simclr").init(jax.random.key(0), INPUTS, False)


@pytest.mark.parametrize("projection", heads.PROJECTIONS)
def test_projection_can_be_skipped_but_always_has_parameters(projection):
    module = net(projection=projection)
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


def test_unit_vectors_of_half_precision_have_the_length_of_their_values():
    vectors = np.outer([0, 1e-7, 1e-3, 1e4, -6e4], [1, 1, 1]).astype(np.float16)

    @jax.jit
    def values_and_slopes(vectors):
        found, back = jax.vjp(heads.unit_vectors, vectors)
        return found, *back(jnp.ones_like(found).at[:, 1:].set(0))

    found, slopes = values_and_slopes(vectors)
    assert found.dtype == slopes.dtype == jnp.float16
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    expected = vectors / np.maximum(lengths, 2.0**-14)
    np.testing.assert_allclose(found, expected, rtol=2**-10, atol=1e-7)
    assert np.isfinite(slopes).all()
    np.testing.assert_array_equal(slopes[0], [2**14, 0, 0])


def test_gradient_of_unit_vectors_is_finite_at_zero_and_tangent_elsewhere():
    jacobian = jax.jit(jax.jacobian(heads.unit_vectors))
    assert np.all(np.isfinite(jacobian(jnp.zeros(3))))
    np.testing.assert_array_equal(heads.unit_vectors(jnp.zeros(3)), np.zeros(3))
    vector = jnp.asarray([1.0, -2.0, 2.0])
    unit = vector / 3
    expected = (jnp.eye(3) - jnp.outer(unit, unit)) / 3
    np.testing.assert_allclose(jacobian(vector), expected, atol=1e-6)


@pytest.mark.thorough
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


def test_heads_multiply_in_full_precision():
    module = heads.PUNet(mlp.MLP(hidden=(4,)), 3, aligned_dim=2)
    variables = jax.eval_shape(lambda key: module.init(key, INPUTS, False), jax.random.key(0))
    apply = functools.partial(module.apply, with_prediction=True, mutable=["batch_stats"])
    found = equations.precisions(lambda v: apply(v, INPUTS, False), variables)
    assert found.count(equations.HIGHEST) == 7  # one of the classifier, two of each other head
